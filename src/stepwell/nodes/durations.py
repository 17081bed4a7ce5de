"""Durations as fields of a config: checked as it is saved, kept as they were written."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from stepwell.errors import InvalidDuration
from stepwell.kernel.durations import seconds


def _check(value: str | int | float) -> str | int | float:
    try:
        seconds(value)
    except InvalidDuration as error:
        raise ValueError(error.message.removeprefix("duration: ")) from None
    return value


# Before pydantic has a look: it would take a truth value for a number.
DurationField = Annotated[str | int | float, BeforeValidator(_check)]
