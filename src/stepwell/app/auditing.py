"""The rows of the audit log: who did what to what, with no secret in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stepwell.kernel.presenting import is_hidden
from stepwell.operation import Operation, Parameter

# The longest text of an argument that the audit log has, and of what something was done to.
MAX_DETAIL = 200
MAX_SUBJECT = 1000


class Told(NamedTuple):
    """What a row says of an operation that was done."""

    subject: str
    details: dict[str, Any]


def told(operation: Operation, arguments: Mapping[str, Any], result: Any) -> Told:
    """What it was done to, and with what short arguments that are no secret."""
    parameters = operation.parameters
    inside = [name for name, each in parameters.items() if each.where == "path"]
    named = [*inside, *([] if operation.subject is None else [operation.subject])]
    subject = "/".join(str(arguments[name]) for name in named if name in arguments)
    details = {
        name: value
        for name, value in arguments.items()
        if name not in named and _is_logged(parameters[name], value)
    }
    return Told((subject or _subject(result))[:MAX_SUBJECT], details)


def _subject(result: Any) -> str:
    """What a result is, or is about: a record says so by one of these."""
    found = (getattr(result, name, None) for name in ("subject", "id", "name"))
    return next((each for each in found if isinstance(each, str)), "")


def _is_logged(parameter: Parameter, value: Any) -> bool:
    """Whether the audit log has an argument: a short one, but no secret and no payload."""
    if is_hidden(parameter.type) or parameter.type is Any:
        return False
    return isinstance(value, bool | int | float) or (
        isinstance(value, str) and len(value) <= MAX_DETAIL
    )
