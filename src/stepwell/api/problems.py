"""Errors over HTTP: RFC 9457 problems, and the one table from codes to statuses."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import msgspec

from stepwell import errors
from stepwell.api.exchange import Answer, Request
from stepwell.errors import InvalidInput, StepwellError

log = logging.getLogger("stepwell.api")

MEDIA_TYPE = "application/problem+json"
# What is wrong with a value, and has no row of its own.
INVALID = 422

STATUSES = {
    "body_invalid": 400,
    "request_unfit": 400,
    "event_invalid": 400,
    "host_unknown": 400,
    "request_invalid": 400,
    "unauthenticated": 401,
    "signature_invalid": 401,
    "permission_denied": 403,
    "origin_refused": 403,
    "not_an_approver": 403,
    "token_invalid": 403,
    "proposals_forbidden": 403,
    "unknown_definition": 404,
    "revision_not_found": 404,
    "draft_not_found": 404,
    "proposal_not_found": 404,
    "run_not_found": 404,
    "step_not_found": 404,
    "secret_not_found": 404,
    "gate_not_found": 404,
    "trigger_not_found": 404,
    "user_not_found": 404,
    "token_not_found": 404,
    "workspace_not_found": 404,
    "session_not_found": 404,
    "route_not_found": 404,
    "method_not_allowed": 405,
    "definition_exists": 409,
    "already_current": 409,
    "conflict": 409,
    "proposal_not_open": 409,
    "definition_disabled": 409,
    "run_not_failed": 409,
    "signal_not_delivered": 409,
    "gate_closed": 409,
    "gate_drifted": 409,
    "trigger_exists": 409,
    "trigger_disabled": 409,
    "user_exists": 409,
    "workspace_exists": 409,
    "last_owner": 409,
    "overtaken": 409,
    "body_too_large": 413,
    "input_too_large": 413,
    "body_unsupported": 415,
    "rate_limited": 429,
    "quota_exceeded": 429,
    "queue_full": 429,
    "headers_too_large": 431,
    "not_open": 503,
    "provider_unavailable": 503,
    "secret_key_invalid": 503,
    "store_unavailable": 503,
    "webhook_unready": 503,
}


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was wrong, where, and what to do."""

    type: str
    title: str
    status: int
    # What exactly was wrong with this request.
    detail: str
    # Stable; listed in the reference of errors.
    code: str
    instance: str = ""
    request_id: str = ""
    # What the code is about: names, ids, problems of a document.
    details: dict[str, Any] = {}


def status_of(error: type[StepwellError] | StepwellError) -> int:
    """The status that an error is answered with."""
    kind = error if isinstance(error, type) else type(error)
    known = STATUSES.get(error.code)
    if known is not None:
        return known
    return INVALID if issubclass(kind, InvalidInput) or kind in _INVALID else 500


# Errors that are about what the caller has written, though not about one value.
_INVALID = (errors.InvalidDefinition, errors.MissingPath, errors.DuplicateDefinition)


def problem(error: StepwellError, status: int, instance: str, request_id: str) -> ProblemDetails:
    """What is said of an error."""
    details = {name: value for name, value in error.shown_details.items() if value is not None}
    return ProblemDetails(
        type=f"urn:stepwell:error:{error.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        code=error.code,
        instance=instance,
        request_id=request_id,
        details=details,
    )


def problem_answer(request: Request, error: StepwellError) -> Answer:
    """The answer that an error makes."""
    status = status_of(error)
    if error.code == "conflict" and "if-match" in request.headers:
        status = 412
    if status >= 500:
        log.error("Request %s: %s", request.id, error)
    headers = []
    if status == 401:
        headers.append(("www-authenticate", 'Bearer realm="stepwell"'))
    if (seconds := error.details.get("retry_after")) is not None:
        headers.append(("retry-after", str(max(1, round(seconds)))))
    if methods := error.details.get("methods"):
        headers.append(("allow", ", ".join(methods)))
    said = problem(error, status, request.path, request.id)
    return Answer(status, Answer.json(said).body, MEDIA_TYPE, headers)
