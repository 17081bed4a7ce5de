"""Records as surfaces show them: times as such, nothing that is hidden, lists and values named.

Records in Python have times in microseconds, in fields that end in `_at`. Programs on the other
side of a wire are given ISO 8601; what users have put into a payload stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from stepwell.kernel.clock import to_datetime, to_micros

# Marks a field that is stored and never shown; its schema is marked with that too.
HIDDEN_MARK = "x-hidden"
HIDDEN = msgspec.Meta(extra={"hidden": True}, extra_json_schema={HIDDEN_MARK: True})

_PLAIN = (str, int, float, bool, NoneType, datetime)


def present(value: Any) -> Any:
    """A value as plain data that JSON can be made of."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if is_record(kind):
        return {
            name: shown
            for name, show in _shown_fields(kind)
            if (shown := show(getattr(value, name))) is not msgspec.UNSET
        }
    if isinstance(value, Mapping):
        return {key: present(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [present(each) for each in value]
    return value


def restore(data: Any, kind: Any) -> Any:
    """What `present` was given, from what it made of it, if that is of this type."""
    return msgspec.convert(_timed(data, kind), kind, strict=False)


def is_record(kind: Any) -> bool:
    """Whether values of this type are records: they have named fields."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def fields_of(kind: type) -> dict[str, Any]:
    """The fields of records of this type that are shown, with their types."""
    return {
        name: hint
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if name in _names(kind) and not is_hidden(hint)
    }


def is_time(name: str, hint: Any) -> bool:
    """Whether a field holds a time in microseconds."""
    return name.endswith("_at") and int in (hint, *get_args(hint))


def _names(kind: Any) -> Sequence[str]:
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    fields: tuple[str, ...] = kind._fields
    return fields


def is_hidden(hint: Any) -> bool:
    """Whether what has this type is never shown."""
    return HIDDEN in getattr(hint, "__metadata__", ())


@cache
def _shown_fields(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, _how(name, hint)) for name, hint in fields_of(kind).items()]


def _how(name: str, hint: Any) -> Callable[[Any], Any]:
    """How a field is shown; what users have put there may be large, and is not gone through."""
    if is_time(name, hint):
        return to_datetime
    return _as_it_is if hint in (Any, *_PLAIN) else present


def _as_it_is(value: Any) -> Any:
    return value


def _timed(data: Any, hint: Any) -> Any:
    """Plain data with its times in microseconds again, wherever the type has them so."""
    if get_origin(hint) in (Union, UnionType):
        found = [each for each in get_args(hint) if each is not NoneType]
        return data if data is None or len(found) != 1 else _timed(data, found[0])
    if is_record(hint) and isinstance(data, dict):
        hints = get_type_hints(hint, include_extras=True)
        # What is hidden is not known on this side of the wire.
        unknown = {name: "" for name, each in hints.items() if is_hidden(each) and _is_text(each)}
        return unknown | {
            name: _micros(each) if is_time(name, hints.get(name)) else _timed(each, hints.get(name))
            for name, each in data.items()
        }
    if isinstance(data, list) and get_args(hint):
        return [_timed(each, get_args(hint)[0]) for each in data]
    return data


def _is_text(hint: Any) -> bool:
    return str in get_args(hint)


def _micros(text: Any) -> Any:
    return to_micros(datetime.fromisoformat(text)) if isinstance(text, str) else text
