"""What the OpenAPI document says of paths that lead to no operation."""

from __future__ import annotations

from typing import Any

SECURITY: dict[str, Any] = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token: `sw_…`."},
    "session": {"type": "apiKey", "in": "cookie", "name": "stepwell_session"},
}

_PROBLEM = {"$ref": "#/components/responses/Problem"}


def _item(summary: str, status: str, schema: Any, tag: str, **more: Any) -> dict[str, Any]:
    content = {"content": {"application/json": {"schema": schema}}} if schema else {}
    others = more.pop("others", ())
    return {
        "summary": summary,
        "tags": [tag],
        "responses": {
            status: {"description": summary, **content},
            **dict.fromkeys(others, _PROBLEM),
        },
        **more,
    }


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
_REFUSED = ("400", "401", "403", "404", "405", "413", "415", "422", "429", "500", "503")

OTHER_PATHS: dict[str, Any] = {
    "/healthz": {
        "get": _item("Whether the process answers.", "200", _STATUS, "health", security=[])
    },
    "/readyz": {
        "get": _item(
            "Whether requests can be served.",
            "200",
            _STATUS,
            "health",
            security=[],
            others=("503",),
        )
    },
    "/metrics": {
        "get": {
            "summary": "Metrics in the text format of Prometheus.",
            "tags": ["health"],
            "responses": {
                "200": {
                    "description": "Metrics.",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                },
                **dict.fromkeys(("401", "403", "503"), _PROBLEM),
            },
        }
    },
    "/api/openapi.json": {
        "get": _item("This document.", "200", {"type": "object"}, "health", security=[])
    },
    "/api/login": {
        "post": _item(
            "Log in: the answer sets a cookie.",
            "204",
            None,
            "sessions",
            security=[],
            others=_REFUSED,
            requestBody={"required": True, "content": {"application/json": {"schema": _LOGIN}}},
        )
    },
    "/login/oidc": {
        "get": _item(
            "Go to the provider to log in there, if this server has one.",
            "303",
            None,
            "sessions",
            security=[],
            others=("404", "503"),
        )
    },
    "/login/oidc/callback": {
        "get": _item(
            "Come back from the provider: the answer sets a cookie.",
            "303",
            None,
            "sessions",
            security=[],
            others=("401", "403", "404", "429", "503"),
            parameters=[
                {"name": name, "in": "query", "schema": {"type": "string"}}
                for name in ("state", "code", "error")
            ],
        )
    },
    "/api/logout": {"post": _item("End the session.", "204", None, "sessions", others=_REFUSED)},
    "/api/runs/{run_id}/events": {
        "get": {
            "operationId": "runs.events",
            "summary": "What happens to a run, as Server-Sent Events, until it has ended.",
            "description": "Goes on after the event whose id `Last-Event-ID` names.",
            "tags": ["runs"],
            "parameters": [
                {"name": "run_id", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
            ],
            "responses": {
                "200": {
                    "description": "Events: `id`, `event` and `data`, which is JSON.",
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                },
                **dict.fromkeys(_REFUSED, _PROBLEM),
            },
        }
    },
}
