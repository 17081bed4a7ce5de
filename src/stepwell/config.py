"""The contract of a config: what is written about a node or a trigger, field by field."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from stepwell.errors import InvalidInput
from stepwell.graph.problems import Problems, below
from stepwell.kernel.durations import seconds
from stepwell.kernel.names import with_article

T = TypeVar("T")

# How pydantic calls what is wrong, and how the checks of definitions do.
_CODES = {"missing": "missing_field", "extra_forbidden": "unknown_field"}


def plainly(check: Callable[..., T], *values: Any) -> T:
    """What a check says of a field; pydantic knows no errors but its own and those of Python."""
    try:
        return check(*values)
    except InvalidInput as error:
        raise ValueError(error.message) from None


def _duration(value: str | int | float) -> str | int | float:
    try:
        plainly(seconds, value)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("duration: ")) from None
    return value


# A field with a duration, kept as it was written: "90s", "1h30m", ISO 8601, or seconds.
# Checked before pydantic has a look, which would take a truth value for a number.
WrittenDuration = Annotated[str | int | float, BeforeValidator(_duration)]


class Config(BaseModel):
    """Fields with descriptions, which forms and references are made of; no others are allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def said(found: Any) -> str:
    """What is wrong, in the words of the check that has found it."""
    return str(found["msg"]).removeprefix("Value error, ").removesuffix(".")


def note(
    found: Any, what: str, config: type[Config], path: str, problems: Problems,
    beside: Collection[str] = (),
) -> None:  # fmt: skip
    """Note what a model has found wrong with the config, which stands there, of such a thing.

    `beside` are fields that stand beside the config, not in it.
    """
    place = path
    for key in found["loc"]:
        place = below(place, key)
    message, hint = f"{said(found)}.", ""
    fields = list(config.model_fields)
    if found["type"] == "missing":
        message = f"{with_article(what)} needs {found['loc'][-1]!r}."
    elif found["type"] == "extra_forbidden":
        name = str(found["loc"][-1])
        message = f"{with_article(what)} has no {name!r}."
        if len(found["loc"]) == 1:
            hint = problems.did_you_mean(name, fields) or f"It has {', '.join(fields)}."
            if name in beside:
                hint = f"{name} stands beside config, not in it."
    problems.error(place, _CODES.get(found["type"], "bad_field"), message, hint)
