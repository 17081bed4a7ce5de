"""The input of a run, checked against what its definition says of it."""

from __future__ import annotations

import copy
import difflib
from functools import cached_property
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from stepwell.errors import InputInvalid, InputTooLarge
from stepwell.graph.schemas import MOST_WORK, TooMuchWork, Work, values_in, work_of
from stepwell.kernel.codec import MAX_RESULT_BYTES, depth_of, encode
from stepwell.kernel.names import cut

# What errors call it.
WHAT = "The run's input"
MOST_LISTED = 20
# Bytes of JSON: of a larger input one mistake is told, as each costs time and it may have many.
MOST_LISTED_OF = 16 * 1024
# Visits of parts of the schema to parts of the input: to note why each does not fit takes longer.
MOST_NOTED = 50_000
# The same for telling whether it fits: a second or two.
MOST_VISITS = 50_000_000
# Bytes of a text that take as long to match as a visit does.
BYTES_OF_A_VISIT = 8
# Characters of what is said of each.
MAX_PATH = 200
MAX_VALUE = 200
MAX_MESSAGE = 400
# Words of schemas by which the whole of a value is read.
_READERS = (b'"pattern', b'"format"', b'"uniqueItems"')
_BRANCHES = (b'"anyOf"', b'"oneOf"', b'"allOf"', b'"not"', b'"if"')
# A pattern that looks at a text in ever new ways is given up, and the input does not fit.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
# Stands in messages where a value is to be put, cut or masked; no message has it otherwise.
_VALUE = "\0"


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {uri[:200]!r}; schemas are complete by themselves")


def validator(schema: dict[str, Any], mask: str | None = None) -> Any:
    """What checks values against a schema; raises if it is none, or refers to other places.

    Messages have `mask` in the place of values.
    """
    # Left to itself the library would read files, and fetch what has an address.
    return jsonschema_rs.validator_for(
        schema, retriever=_refuse, mask=mask, pattern_options=_PATTERNS
    )


class Inputs:
    """Checks inputs against one JSON Schema."""

    def __init__(self, schema: dict[str, Any] | None) -> None:
        self._schema = schema
        self._validator = None if schema is None else validator(schema, _VALUE)

    def known(self, value: Any) -> Any:
        """The value without fields that the schema does not know."""
        fields = None if self._schema is None else closed_fields(self._schema)
        if fields is None or not isinstance(value, dict):
            return value
        wanted = set(fields)
        return {name: value[name] for name in value if name in wanted}

    def prepared(self, value: Any, max_bytes: int = MAX_RESULT_BYTES) -> Any:
        """The input with its defaults; raises InputInvalid with what is wrong.

        What is larger than `max_bytes` as JSON is refused before anybody looks at it.
        """
        if self._schema is None or self._validator is None:
            return value
        text = encode(value, WHAT, max_bytes).encode()
        visits = self._visits(text)
        found = _with_defaults({} if value is None else value, self._schema)
        unknown = _unknown(found, self._schema)
        if unknown or not self._validator.is_valid(found):
            raise self._refusal(found, unknown, text, visits)
        return found

    @cached_property
    def _work(self) -> Work:
        """How much work the schema makes; raises InputTooLarge if that is too much for any input.

        Nothing like that can be published, but some may have been before that was so.
        """
        assert self._schema is not None
        try:
            return work_of(self._schema)
        except TooMuchWork as error:
            raise InputTooLarge(
                f"By this schema no input can be checked. {error.path}: {error.message}"
            ) from None
        except ValueError:
            return MOST_WORK

    @cached_property
    def _reads(self) -> bool:
        return _has(self._schema, _READERS)

    def _visits(self, text: bytes) -> int:
        """How often a part of the schema looks at a part of the input, at most."""
        values = values_in(text) + self._work.defaults
        if self._reads:
            values += len(text) // BYTES_OF_A_VISIT
        visits = values * self._work.visits
        if visits > MOST_VISITS:
            raise InputTooLarge(
                f"{WHAT} comes to {values:,} values or long texts, and at each up to "
                f"{self._work.visits:,} parts of its schema have to look: that would take too "
                "long. Give less at a time, or keep large data elsewhere and pass where it is."
            )
        return visits

    def _refusal(self, found: Any, unknown: list[str], text: bytes, visits: int) -> InputInvalid:
        assert self._schema is not None
        # Where branches lead back into the schema, each level of the input multiplies them.
        noted = visits * max(self._work.returns, 1) ** depth_of(text)
        is_much = len(text) > MOST_LISTED_OF or noted > MOST_NOTED
        errors = self._first_error(found) if is_much else self._errors(found)
        wrong = [_told(each) for each in errors[:MOST_LISTED]]
        fields = closed_fields(self._schema) or []
        for name in unknown[: MOST_LISTED - len(wrong)]:
            said = f"there is no such field{_hint(name, fields)}"
            wrong.append(_Wrong(cut(name, MAX_PATH), said, said))
        more = len(errors) + len(unknown) - len(wrong)
        details: dict[str, Any] = {"more": more} if more else {}
        problems = [{"path": each.path, "message": each.message} for each in wrong]
        # Whoever keeps the message must not keep what was in the input: it may be secret.
        rest = f"; and {more:,} more" if more else ""
        if is_much:
            rest += "; of an input this large, or by a schema this branched, no more is told"
        masked = _sentence([(each.path, each.masked) for each in wrong], rest)
        shown = _sentence([(each.path, each.message) for each in wrong], rest)
        return InputInvalid(shown, problems=problems, masked=masked, **details)

    def _errors(self, found: Any) -> list[Any]:
        assert self._validator is not None
        return list(self._validator.iter_errors(found))

    def _first_error(self, found: Any) -> list[Any]:
        """One mistake of an input in which to find all could take seconds."""
        assert self._validator is not None
        # Of branches it would note why each one does not fit.
        if self._work.returns > 1 or _has(self._schema, _BRANCHES):
            return [] if self._validator.is_valid(found) else [None]
        try:
            self._validator.validate(found)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


class _Wrong(NamedTuple):
    """One thing that is wrong; `masked` without what was in the input."""

    path: str
    message: str
    masked: str


def _told(error: Any) -> _Wrong:
    if error is None:
        said = "it does not fit the schema, and to say where would take too long"
        return _Wrong("", said, said)
    value = msgspec.json.encode(error.instance).decode()
    path = ".".join(str(part) for part in error.instance_path)
    return _Wrong(
        cut(path, MAX_PATH),
        cut(error.message.replace(_VALUE, cut(value, MAX_VALUE)), MAX_MESSAGE),
        cut(error.message.replace(_VALUE, "the value"), MAX_MESSAGE),
    )


def _has(schema: Any, words: tuple[bytes, ...]) -> bool:
    text = msgspec.json.encode(schema)
    return any(word in text for word in words)


def _sentence(wrong: list[tuple[str, str]], rest: str) -> str:
    shown = "; ".join(f"{path}: {message}" if path else message for path, message in wrong)
    said = f"The input does not fit: {shown}{rest}"
    return said if said.endswith("?") else f"{said}."


def _with_defaults(value: Any, schema: Any) -> Any:
    if not isinstance(schema, dict) or not isinstance(value, dict):
        return value
    found = dict(value)
    properties = schema.get("properties")
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        if name in found:
            found[name] = _with_defaults(found[name], inner)
        elif isinstance(inner, dict) and "default" in inner:
            found[name] = copy.deepcopy(inner["default"])
    return found


def closed_fields(schema: dict[str, Any]) -> list[str] | None:
    """All fields that an input may have; None if it may have others that nobody has named."""
    properties = schema.get("properties")
    says = {"additionalProperties", "patternProperties", "unevaluatedProperties"} & schema.keys()
    return None if not isinstance(properties, dict) or says else list(map(str, properties))


def _unknown(value: Any, schema: dict[str, Any]) -> list[str]:
    """Fields that the schema does not know, unless it says something about those itself."""
    fields = closed_fields(schema)
    if not isinstance(value, dict) or fields is None:
        return []
    known = set(fields)
    return [name for name in value if name not in known]


def _hint(name: str, known: list[str]) -> str:
    closest = difflib.get_close_matches(name[:100], known, 1)
    if closest:
        return f"; did you mean {closest[0]!r}?"
    return f"; there are {', '.join(known[:10])}" if known else ""
