"""What the OpenAPI document says of headers, of answers and of all requests."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

from stepwell.api.endpoints import found_by_id
from stepwell.operation import Operation

_TEXT = {"type": "string"}

# Of answers, by their names.
COMPONENTS: dict[str, dict[str, Any]] = {
    "X-Request-Id": {
        "description": "What the log calls the request: yours, if you sent one.", "schema": _TEXT,
    },
    "ETag": {
        "description": "Changes with what is shown; for `If-Match`, in quotes as it is.",
        "schema": _TEXT,
    },
    "Location": {"description": "Where what was made, or comes next, is found.", "schema": _TEXT},
    "Preference-Applied": {
        "description": "`wait`, if the answer was to come when the run has ended.", "schema": _TEXT,
    },
    "Retry-After": {
        "description": "After how many seconds to ask again, if that is known.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {"description": "How to say who you are.", "schema": _TEXT},
}  # fmt: skip

# Of requests that somebody makes in a workspace.
WORKSPACE: dict[str, Any] = {
    "name": "Stepwell-Workspace", "in": "header", "required": False, "schema": _TEXT,
    "description": "The workspace; with a token, none but its own.", "example": "default",
}  # fmt: skip

# What problems of a status come with.
_OF_PROBLEMS = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}


def named(*names: str) -> dict[str, Any]:
    """Headers of an answer, beside the one that all answers have."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *names)}


def of_problem(status: int) -> dict[str, Any]:
    """Those of an answer that is a problem."""
    return named(*_OF_PROBLEMS.get(status, ()))


def of_answer(operation: Operation) -> dict[str, Any]:
    """Those of an answer with what an operation gives."""
    found = []
    if _has(operation.returns, "etag") or _has(operation.returns, "hash"):
        found.append("ETag")
    if operation.status == 201 and _is_found(operation):
        found.append("Location")
    if "wait" in operation.parameters:
        found.append("Preference-Applied")
    return named(*found)


def _is_found(operation: Operation) -> bool:
    """Whether what it makes can be asked for by what it is called."""
    if _has(operation.returns, "run_id"):
        return True
    is_named = _has(operation.returns, "id") or _has(operation.returns, "name")
    return is_named and operation.name.partition(".")[0] in found_by_id()


def _has(kind: Any, name: str) -> bool:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return any(hasattr(each, name) for each in kinds)
