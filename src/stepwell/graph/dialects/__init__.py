"""Definitions written in other languages, and what becomes of them in this one.

A dialect is one file with a function that recognises a document and one that converts it. What
cannot be carried over is a *loss*, with the place it was in; nothing is dropped in silence.
"""

from __future__ import annotations
