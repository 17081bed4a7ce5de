"""The surfaces: what people and programs outside of Python see."""

from __future__ import annotations
