"""The input of a run, checked against what its definition says of it."""

from __future__ import annotations

import copy
import difflib
from typing import Any

import jsonschema_rs

from stepwell.errors import InputInvalid

MOST_LISTED = 20


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {uri[:200]!r}; schemas are complete by themselves")


def validator(schema: dict[str, Any], mask: str | None = None) -> Any:
    """What checks values against a schema; raises if it is none, or refers to other places.

    Messages have `mask` in the place of values.
    """
    # Left to itself the library would read files, and fetch what has an address.
    return jsonschema_rs.validator_for(schema, retriever=_refuse, mask=mask)


class Inputs:
    """Checks inputs against one JSON Schema."""

    def __init__(self, schema: dict[str, Any] | None) -> None:
        self._schema = schema
        self._validator = None if schema is None else validator(schema)

    def known(self, value: Any) -> Any:
        """The value without fields that the schema does not know."""
        fields = None if self._schema is None else closed_fields(self._schema)
        if fields is None or not isinstance(value, dict):
            return value
        return {name: value[name] for name in value if name in fields}

    def prepared(self, value: Any) -> Any:
        """The input with its defaults; raises InputInvalid with all that is wrong."""
        if self._schema is None or self._validator is None:
            return value
        found = _with_defaults({} if value is None else value, self._schema)
        unknown = _unknown(found, self._schema)
        wrong = _errors(self._validator, found) + unknown
        if wrong:
            # Whoever keeps the message must not keep what was in the input: it may be secret.
            masked = _errors(validator(self._schema, "the value"), found) + unknown
            raise InputInvalid(_sentence(wrong), problems=wrong, masked=_sentence(masked))
        return found


def _errors(checks: Any, value: Any) -> list[dict[str, Any]]:
    return [
        {"path": _path(error.instance_path), "message": error.message}
        for error in checks.iter_errors(value)
    ]


def _sentence(wrong: list[dict[str, Any]]) -> str:
    shown = "; ".join(
        f"{each['path']}: {each['message']}" if each["path"] else each["message"]
        for each in wrong[:MOST_LISTED]
    )
    more = f"; and {len(wrong) - MOST_LISTED} more" if len(wrong) > MOST_LISTED else ""
    said = f"The input does not fit: {shown}{more}"
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


def _unknown(value: Any, schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Fields that the schema does not know, unless it says something about those itself."""
    fields = closed_fields(schema)
    if not isinstance(value, dict) or fields is None:
        return []
    unknown = [name for name in value if name not in fields]
    hints = [_hint(name, fields) for name in unknown[:MOST_LISTED]]
    hints += [""] * (len(unknown) - len(hints))  # comparing takes its time
    return [
        {"path": name, "message": f"there is no such field{hint}"}
        for name, hint in zip(unknown, hints, strict=True)
    ]


def _hint(name: str, known: list[str]) -> str:
    closest = difflib.get_close_matches(name[:100], known, 1)
    if closest:
        return f"; did you mean {closest[0]!r}?"
    return f"; there are {', '.join(known[:10])}" if known else ""


def _path(parts: Any) -> str:
    return ".".join(str(part) for part in parts)
