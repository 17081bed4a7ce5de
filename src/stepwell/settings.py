"""The only reader of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from stepwell.errors import InvalidInput
from stepwell.kernel.codec import MAX_RESULT_BYTES
from stepwell.kernel.durations import seconds

DEFAULT_STORE = "sqlite:///.stepwell/stepwell.db"


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can set."""

    # STEPWELL_STORE: the store's URL.
    store: str = DEFAULT_STORE
    # STEPWELL_MAX_RETENTION: no run that this process starts is kept longer after its end.
    max_retention_seconds: float = 365 * 86_400
    # STEPWELL_MAX_RESULT_BYTES: the largest input, payload or output, as JSON.
    max_result_bytes: int = MAX_RESULT_BYTES

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environ is None else environ
        found: dict[str, object] = {}
        if store := source.get("STEPWELL_STORE"):
            found["store"] = store
        if retention := source.get("STEPWELL_MAX_RETENTION"):
            found["max_retention_seconds"] = seconds(retention, "STEPWELL_MAX_RETENTION")
        if size := source.get("STEPWELL_MAX_RESULT_BYTES"):
            if not size.isdecimal() or int(size) < 1:
                raise InvalidInput(
                    f"STEPWELL_MAX_RESULT_BYTES must be a number of bytes, not {size!r}."
                )
            found["max_result_bytes"] = int(size)
        return cls(**found)  # type: ignore[arg-type]
