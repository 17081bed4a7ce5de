"""The composition root: one Stepwell is a store, a writer, a starter and perhaps workers."""

from __future__ import annotations

from stepwell.app.run_handle import RunHandle
from stepwell.app.stepwell import Stepwell

__all__ = ["RunHandle", "Stepwell"]
