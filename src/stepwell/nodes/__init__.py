"""The built-in node types, one file each; what a file must hold is said in `stepwell.node`."""

from __future__ import annotations
