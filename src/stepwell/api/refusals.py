"""Which problems a path may answer with, and what the OpenAPI document says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from stepwell.api.headers import of_problem
from stepwell.api.problems import MEDIA_TYPE, status_of
from stepwell.errors import (
    BodyInvalid,
    BodyTooLarge,
    BodyUnsupported,
    HeadersTooLarge,
    HostUnknown,
    InvalidInput,
    OriginRefused,
    PermissionDenied,
    RateLimited,
    RequestInvalid,
    StepwellError,
    StoreUnavailable,
    Unauthenticated,
    WorkspaceNotFound,
)
from stepwell.operation import Operation

Errors = tuple[type[StepwellError], ...]

SCHEMA = {"$ref": "#/components/schemas/ProblemDetails"}


class ServerFault(StepwellError):
    """The server failed; its log says more of the request."""

    code = "internal_error"


# What any request may be answered with, whatever it is for.
ANY: Errors = (RequestInvalid, HeadersTooLarge, ServerFault)
# What any request may be answered with by a name that the server has to go by.
NAMED: Errors = (*ANY, HostUnknown)
# What whoever has to say who they are may be answered with.
ADMITTED: Errors = (*NAMED, Unauthenticated, RateLimited, StoreUnavailable)
# What whoever has to be in a workspace may be answered with.
INSIDE: Errors = (*ADMITTED, WorkspaceNotFound)
# What whoever sends something may be answered with.
SENT: Errors = (BodyInvalid, BodyTooLarge, BodyUnsupported)

BODIES = ("POST", "PUT", "PATCH")


class Refusals:
    """Problems as responses, each described once for all that answer with it."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def of(self, operation: Operation) -> dict[str, Any]:
        """Those of an operation: what it raises, and what its request can be wrong in."""
        # A query that nobody knows is refused everywhere, so a value can be wrong everywhere.
        errors = (*operation.raises, *INSIDE, PermissionDenied, InvalidInput)
        if operation.method != "GET":
            errors += (OriginRefused,)
        if operation.method in BODIES:
            errors += SENT
        stale = [each for each in operation.raises if each.code == "conflict"]
        return self.by_status(errors, stale if "if_match" in operation.parameters else ())

    def by_status(
        self, errors: Errors, stale: Iterable[type[StepwellError]] = ()
    ) -> dict[str, Any]:
        """Errors by the status that they are answered with; `stale` ones also with 412."""
        found: dict[int, list[type[StepwellError]]] = {}
        for each in dict.fromkeys(errors):
            found.setdefault(status_of(each), []).append(each)
        for each in stale:
            found.setdefault(412, []).append(each)
        return {str(status): self._described(status, found[status]) for status in sorted(found)}

    def _described(self, status: int, errors: Sequence[type[StepwellError]]) -> dict[str, str]:
        name = "-".join([str(status), *(each.code for each in errors)])
        self.components.setdefault(name, _response(status, errors))
        return {"$ref": f"#/components/responses/{name}"}


def _response(status: int, errors: Sequence[type[StepwellError]]) -> dict[str, Any]:
    codes = ", ".join(f"`{each.code}`" for each in errors)
    examples = {each.code: {"value": _example(status, each)} for each in errors}
    content = {MEDIA_TYPE: {"schema": SCHEMA, "examples": examples}}
    headers = of_problem(status)
    return {"description": f"A problem: {codes}.", "headers": headers, "content": content}


def _example(status: int, error: type[StepwellError]) -> dict[str, Any]:
    said = " ".join((error.__doc__ or "").partition("\n\n")[0].split())
    return {
        "type": f"urn:stepwell:error:{error.code}", "title": HTTPStatus(status).phrase,
        "status": status, "detail": said, "code": error.code,
    }  # fmt: skip
