"""The contract of a config: what is written about a node or a trigger, field by field."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

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


def _texts(value: Any) -> Any:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("this must be a text or a list of texts")
    return value


# A field with one text, or several.
OneOrMoreTexts = Annotated[str | list[str], BeforeValidator(_texts)]


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
    parts, ways = _written(config, found["loc"])
    place = path
    for key in parts:
        place = below(place, key)
    message, hint = f"{said(found)}.", ""
    if ways:
        # Pydantic complains once for each way in which it could have been written.
        if any(each.path.startswith(place) for each in problems.found):
            return
        message = f"This must be {' or '.join(ways)}."
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


# How people call what a field may be.
_WORDS = {
    str: "a text", list: "a list", dict: "a mapping", int: "a whole number", float: "a number",
    bool: "true or false", type(None): "null",
}  # fmt: skip


def _written(
    config: type[BaseModel], loc: Sequence[str | int]
) -> tuple[list[str | int], list[str]]:
    """Where something stands as it was written, and what could stand there if it is none of that.

    Pydantic's places also name the member of a union that it has tried.
    """
    kind: Any = config
    parts: list[str | int] = []
    ways: list[str] = []
    for part in loc:
        members = _members(kind)
        if members:
            ways = [_WORDS.get(get_origin(each) or each, str(each)) for each in members]
            named = str(part).partition("[")[0]
            kind = next((m for m in members if _name(m) == named), None)
            continue
        ways = []
        if part == "[key]":
            parts[-1] = str(parts[-1])
            continue
        parts.append(part)
        kind = _inside(kind, part)
    return parts, ways


def _members(kind: Any) -> list[Any]:
    """The members of a union; a value that may be null as well is none."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) not in (Union, types.UnionType):
        return []
    found = list(get_args(kind))
    return found if len(found) - (type(None) in found) > 1 else []


def _name(kind: Any) -> str:
    return str(getattr(get_origin(kind) or kind, "__name__", ""))


def _inside(kind: Any, part: str | int) -> Any:
    """What may stand in a part of such a value; None if anything may."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _inside(args[0], part)
    if origin in (Union, types.UnionType):
        return next((_inside(each, part) for each in args if each is not type(None)), None)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(part))
        return None if field is None else field.annotation
    return args[-1] if origin in (list, dict) else None
