"""Formulas in parts: their form, their variables, and how they are put together."""

from __future__ import annotations
