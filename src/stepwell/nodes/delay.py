"""The node `delay`: lets time pass."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from stepwell.node import Call, NodeConfig, WrittenDuration, node

_WAYS = ("duration", "until", "duration_ms")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text.strip())
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _check_time(text: str) -> str:
    try:
        _time(text)
    except ValueError:
        raise ValueError("This is not a time; write it like 2026-01-31T12:00:00Z.") from None
    return text


class Config(NodeConfig):
    duration: WrittenDuration | None = Field(
        None, description='How long, such as "90s" or "1h30m", or in seconds.'
    )
    until: Annotated[str, AfterValidator(_check_time)] | None = Field(
        None, description="The time to wait for, such as 2026-01-31T12:00:00Z; UTC if it says none."
    )
    duration_ms: int | None = Field(
        None, ge=0, le=1000 * 365 * 86_400_000, description="How long, in milliseconds."
    )

    @model_validator(mode="before")
    @classmethod
    def _not_two(cls, given: Any) -> Any:
        # Looked at before the fields are, which stop at the first reference.
        if isinstance(given, dict) and sum(given.get(way) is not None for way in _WAYS) > 1:
            raise ValueError(f"Give only one of {', '.join(_WAYS)}.")
        return given

    @model_validator(mode="after")
    def _one(self) -> Config:
        if all(getattr(self, way) is None for way in _WAYS):
            raise ValueError(f"Give one of {', '.join(_WAYS)}.")
        return self


@node(
    "delay", title="Delay", group="control", config=Config, durable=True,
    aliases=("control_delay", "sleep"),
)  # fmt: skip
async def delay(config: Config, call: Call) -> None:
    """Wait for a while, or until a time; no worker is held meanwhile."""
    if config.until is not None:
        await call.durably.sleep_until(call.key, _time(config.until))
    elif config.duration is not None:
        await call.durably.sleep(call.key, config.duration)
    else:
        assert config.duration_ms is not None
        await call.durably.sleep(call.key, config.duration_ms / 1000)
