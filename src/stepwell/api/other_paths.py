"""What the OpenAPI document says of paths that lead to no operation."""

from __future__ import annotations

from typing import Any

from stepwell.api.headers import WORKSPACE, named
from stepwell.api.refusals import ADMITTED, ANY, INSIDE, NAMED, SENT, Errors, Refusals
from stepwell.errors import (
    BodyInvalid,
    BodyTooLarge,
    BodyUnsupported,
    DefinitionDisabled,
    EventInvalid,
    InputInvalid,
    InputTooLarge,
    InvalidInput,
    OriginRefused,
    PermissionDenied,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    RequestUnfit,
    RouteNotFound,
    RunNotFound,
    SecretKeyInvalid,
    SecretNotFound,
    SignatureInvalid,
    StoreUnavailable,
    TriggerDisabled,
    TriggerInvalid,
    TriggerNotFound,
    UnknownDefinition,
)

SECURITY: dict[str, Any] = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token: `sw_…`."},
    "session": {"type": "apiKey", "in": "cookie", "name": "stepwell_session"},
}
TAGS = ("health", "sessions", "webhooks", "agents")

# What a delivery to a webhook may be refused for; docs/webhooks.md says when.
DELIVERED: Errors = (
    *NAMED, StoreUnavailable, RequestUnfit, EventInvalid, BodyInvalid, SignatureInvalid,
    TriggerNotFound, SecretNotFound, UnknownDefinition, TriggerDisabled, DefinitionDisabled,
    BodyTooLarge, InputTooLarge, BodyUnsupported, InvalidInput, InputInvalid, TriggerInvalid,
    RateLimited, QuotaExceeded, QueueFull, SecretKeyInvalid,
)  # fmt: skip
HOOK_METHODS = ("get", "post", "put", "patch", "delete")

_STATUS = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "workers": {"type": "integer"}},
    "required": ["status"],
}
_LOGIN = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "password": {"type": "string"}},
    "required": ["name", "password"],
    "additionalProperties": False,
}
_DELIVERY = {
    "type": "object",
    "properties": {
        "run_id": {"type": ["string", "null"]},
        "created": {"type": "boolean"},
        "events": {"type": "integer"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["run_id", "created", "events", "note"],
}
_CHALLENGE = {
    "type": "object",
    "properties": {"challenge": {"type": "string"}},
    "required": ["challenge"],
}
_RPC = {
    "type": "object",
    "properties": {"jsonrpc": {"const": "2.0"}, "method": {"type": "string"}},
    "required": ["jsonrpc"],
}
# One event of a stream, by the names of its fields.
_MESSAGE = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
_EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string"},
    },
    "required": ["id", "event", "data"],
}
_RUN = "06gu2b1q7k5vd3m9s0f8t4c6bg"
# Ids of events of that run: of the first, and of the last of four.
_STARTED, _LAST = "1-mMQDxtDeAf_AAcCAkA", "4-mMQDxtDeBM9AAAAAAAAAAcABwICQ"
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def other_paths(refusals: Refusals) -> dict[str, Any]:
    """Items by path."""
    return {
        "/": {"get": _home(refusals)},
        "/healthz": {"get": _health("alive", "Whether the process answers.", ANY, refusals)},
        "/readyz": {
            "get": _health(
                "ready", "Whether requests can be served.", (*ANY, StoreUnavailable), refusals
            )
        },
        "/metrics": {"get": _metrics(refusals)},
        "/api/openapi.json": {"get": _itself(refusals)},
        "/api/login": {"post": _login(refusals)},
        "/api/logout": {"post": _logout(refusals)},
        "/login/{link}": {"get": _link(refusals)},
        "/login/oidc": {"get": _to_provider(refusals)},
        "/login/oidc/callback": {"get": _from_provider(refusals)},
        "/api/runs/{run_id}/events": {"get": _events(refusals)},
        "/hooks/{path}": {method: _hook(method, refusals) for method in HOOK_METHODS},
        "/mcp": {"post": _mcp(refusals)},
    }


def _item(
    operation_id: str, summary: str, answers: dict[str, Any], refused: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "responses": {**{status: _headed(answers[status]) for status in answers}, **refused},
        **more,
    }


def _headed(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "headers": {**named(), **answer.get("headers", {})}}


def _elsewhere(said: str) -> dict[str, Any]:
    """The answer that leads to another place."""
    return {"description": said, "headers": named("Location")}


def _answer(said: str, media_type: str, schema: Any, example: Any) -> dict[str, Any]:
    content = {media_type: {"schema": schema, "examples": {"example": {"value": example}}}}
    return {"description": said, "content": content}


def _page(said: str) -> dict[str, Any]:
    return _answer(said, "text/html", {"type": "string"}, "<!doctype html>…")


def _home(refusals: Refusals) -> dict[str, Any]:
    said = "A page with definitions and recent runs, for a browser that has logged in."
    refused = refusals.by_status((*NAMED, RateLimited, StoreUnavailable))
    answers = {"200": _page("The page."), "401": _page("Whoever comes has not logged in.")}
    return _item("home", said, answers, refused, tags=["sessions"])


def _health(name: str, said: str, errors: Errors, refusals: Refusals) -> dict[str, Any]:
    answers = {"200": _answer(said, "application/json", _STATUS, {"status": "ok"})}
    refused = refusals.by_status(errors)
    return _item(f"health.{name}", said, answers, refused, tags=["health"], security=[])


def _metrics(refusals: Refusals) -> dict[str, Any]:
    name = "workflow_runs_started_total"
    text = f'# TYPE {name} counter\n{name}{{workflow="hello"}} 7.0\n'
    answers = {"200": _answer("Metrics.", "text/plain", {"type": "string"}, text)}
    refused = refusals.by_status((*INSIDE, PermissionDenied))
    said = "Metrics in the text format of Prometheus."
    return _item("health.metrics", said, answers, refused, tags=["health"], parameters=[WORKSPACE])


def _itself(refusals: Refusals) -> dict[str, Any]:
    schema, example = {"type": "object"}, {"openapi": "3.1.0", "info": {}, "paths": {}}
    answers = {"200": _answer("This document.", "application/json", schema, example)}
    refused = refusals.by_status(NAMED)
    return _item("openapi", "This document.", answers, refused, tags=["health"], security=[])


def _login(refusals: Refusals) -> dict[str, Any]:
    example = {"name": "ada@example.org", "password": "correct horse battery"}
    content = {"schema": _LOGIN, "examples": {"example": {"value": example}}}
    return _item(
        "sessions.login", "Log in: the answer sets a cookie.",
        {"204": {"description": "Logged in."}},
        refusals.by_status((*ADMITTED, *SENT, InvalidInput, OriginRefused)),
        tags=["sessions"], security=[],
        requestBody={"required": True, "content": {"application/json": content}},
    )  # fmt: skip


def _logout(refusals: Refusals) -> dict[str, Any]:
    refused = refusals.by_status((*NAMED, OriginRefused, StoreUnavailable))
    answers = {"204": {"description": "There is no session any more."}}
    return _item("sessions.logout", "End the session.", answers, refused, tags=["sessions"])


def _link(refusals: Refusals) -> dict[str, Any]:
    said = "Log in with a link, which works once: the answer sets a cookie."
    answers = {"303": _elsewhere("Logged in; the page to go on with is `/`.")}
    return _item(
        "sessions.link", said, answers, refusals.by_status(ADMITTED), tags=["sessions"],
        security=[], parameters=[_in_path("link", "What the link ends with.", "J8r0…")],
    )  # fmt: skip


def _to_provider(refusals: Refusals) -> dict[str, Any]:
    return _item(
        "sessions.provider", "Go to the provider to log in there, if this server has one.",
        {"303": _elsewhere("Where the provider is.")},
        refusals.by_status((*NAMED, RouteNotFound, ProviderUnavailable)),
        tags=["sessions"], security=[],
    )  # fmt: skip


def _from_provider(refusals: Refusals) -> dict[str, Any]:
    given = {"state": "kX2f…", "code": "SplxlOBe…", "error": "access_denied"}
    return _item(
        "sessions.returned", "Come back from the provider: the answer sets a cookie.",
        {"303": _elsewhere("Logged in; the page to go on with is `/`.")},
        refusals.by_status((*ADMITTED, PermissionDenied, RouteNotFound, ProviderUnavailable)),
        tags=["sessions"], security=[],
        parameters=[
            {"name": name, "in": "query", "schema": {"type": "string"}, "example": example}
            for name, example in given.items()
        ],
    )  # fmt: skip


def _events(refusals: Refusals) -> dict[str, Any]:
    data = (
        f'{{"id":"{_LAST}","type":"run.finished","run_id":"{_RUN}",'
        '"at":"2026-03-02T09:00:00Z","data":{"status":"completed","output":"Hello, Ada!"}}'
    )
    event = {"id": _LAST, "event": "run.finished", "data": data}
    said = "Events: `id`, `event` and `data`, which is JSON."
    last = {
        "name": "Last-Event-ID", "in": "header", "schema": {"type": "string"},
        "description": "The id of the last event that was seen.", "example": _STARTED,
    }  # fmt: skip
    return _item(
        "runs.events", "What happens to a run, as Server-Sent Events, until it has ended.",
        {
            "200": _answer(said, "text/event-stream", _EVENT, event),
            "204": {"description": "`Last-Event-ID` names the last event; nothing follows."},
        },
        refusals.by_status((*INSIDE, PermissionDenied, RunNotFound, InvalidInput)),
        description="Goes on after the event whose id `Last-Event-ID` names.",
        tags=["runs"], parameters=[_in_path("run_id", "The run's id.", _RUN), last, WORKSPACE],
    )  # fmt: skip


def _hook(method: str, refusals: Refusals) -> dict[str, Any]:
    example = {"run_id": _RUN, "created": True, "events": 0, "note": None}
    body = {"application/json": {"schema": {}, "examples": {"example": {"value": {"ref": "main"}}}}}
    said = "The path of the webhook; its parts stand side by side, `/hooks/in/here`."
    asked = "Nothing was delivered: the sender has asked whether the address is right."
    answers = {
        "200": _answer(asked, "application/json", _CHALLENGE, {"challenge": "3eZbrw1aB"}),
        "202": _answer("Taken.", "application/json", _DELIVERY, example),
    }
    found = _item(
        f"webhooks.{method}", "Deliver to a webhook.", answers,
        refusals.by_status(DELIVERED),
        description="What is delivered may have any type that the webhook takes; its signature "
        "says who sent it. Of workspaces other than the first: `/hooks/@workspace/path`.",
        tags=["webhooks"], security=[], parameters=[_in_path("path", said, "pushed")],
    )  # fmt: skip
    return found if method in ("get", "delete") else found | {"requestBody": {"content": body}}


def _mcp(refusals: Refusals) -> dict[str, Any]:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    content = {"schema": _RPC, "examples": {"example": {"value": _PING}}}
    taken = _answer("The answer.", "application/json", _RPC, answer)
    event = {"event": "message", "data": "{}"}
    taken["content"] |= _answer("", "text/event-stream", _MESSAGE, event)["content"]
    refused = refusals.by_status((*INSIDE, OriginRefused, RouteNotFound))
    for status in ("400", "406", "415"):  # a problem, an error of JSON-RPC, or a line of text
        refused[status] = _headed({"description": "The request is none that MCP has."})
    return _item(
        "agents.call", "The tools of agents: the Model Context Protocol, streamable HTTP.",
        {"200": taken, "202": {"description": "Taken, and there is nothing to answer."}}, refused,
        description="docs/mcp.md says what is offered. A request stands for itself: no sessions.",
        tags=["agents"], parameters=[WORKSPACE],
        requestBody={"required": True, "content": {"application/json": content}},
    )  # fmt: skip


def _in_path(name: str, said: str, example: str) -> dict[str, Any]:
    return {
        "name": name, "in": "path", "required": True, "schema": {"type": "string"},
        "description": said, "example": example,
    }  # fmt: skip
