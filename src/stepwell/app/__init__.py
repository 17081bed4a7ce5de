"""The composition root: one Stepwell is a store, a writer, a starter and perhaps workers."""

from __future__ import annotations

from stepwell.app.run_handle import RunHandle
from stepwell.app.stepwell import Stepwell
from stepwell.kernel.sealing import new_key

__all__ = ["RunHandle", "Stepwell", "new_key"]
