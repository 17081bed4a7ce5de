"""From the arguments of an operation to an HTTP request, and from a problem to an error.

The rule of where an argument goes is that of `Operation`: names in the path stand there, some have
headers of their own, and the others are in the query if there is no body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from stepwell import errors
from stepwell.errors import InvalidInput, ServerUnavailable, StepwellError, Unauthenticated
from stepwell.kernel.codec import encode
from stepwell.kernel.durations import seconds
from stepwell.operation import HEADERS

# More is refused by the server, which knows what each part may have.
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent, apart from where to and by whom."""

    method: str
    # Below /api, with the query.
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    # How long the server has been asked to wait before it answers.
    wait_seconds: float = 0.0

    @property
    def repeatable(self) -> bool:
        """Whether it has the same effect if it is applied twice."""
        return self.method in ("GET", "PUT", "DELETE") or HEADERS["idempotency_key"] in self.headers


def request_for(route: str, arguments: Mapping[str, Any]) -> HttpRequest:
    """The request to a route such as `POST /runs/{run_id}/cancel`; `...` is left out."""
    method, _, template = route.partition(" ")
    given = {name: value for name, value in arguments.items() if value is not ...}
    path = template
    for name in [name for name in given if "{" + name + "}" in template]:
        path = path.replace("{" + name + "}", _part(name, given.pop(name)))
    if "{" in path:
        raise InvalidInput(f"{route}: what stands in the path has to be given.")
    headers = {
        HEADERS[name]: _header(name, value)
        for name in [name for name in given if name in HEADERS]
        if (value := given.pop(name)) is not None
    }
    wait = seconds(arguments["wait"]) if arguments.get("wait") not in (None, ...) else 0.0
    if method in ("GET", "DELETE"):
        query = urlencode([pair for name, value in given.items() for pair in _query(name, value)])
        return HttpRequest(method, f"{path}?{query}" if query else path, headers)
    for name, value in given.items():
        if isinstance(value, timedelta):
            given[name] = value.total_seconds()
    body = encode(given, "The request", MAX_BODY_BYTES).encode()
    return HttpRequest(method, path, headers, body, wait)


def _part(name: str, value: Any) -> str:
    text = str(value)
    if not text or text in (".", ".."):
        raise InvalidInput(f"{name}: {text!r} cannot stand in the path of a request.")
    return quote(text, safe="")


def _header(name: str, value: Any) -> str:
    if name == "wait":
        return f"wait={seconds(value, 'wait'):.3f}"
    text = str(value)
    if not (text.isascii() and text.isprintable()):
        raise InvalidInput(f"{name}: {text!r} has more than ASCII, which no header can carry.")
    return f'"{text}"' if name == "if_match" else text


def _query(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for inner, each in value.items():
            if "." in inner:
                raise InvalidInput(f"{name}: a field with a dot, {inner!r}, cannot be looked for.")
            yield f"{name}.{inner}", encode(each, name)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _query(name, each)
    elif isinstance(value, bool):
        yield name, str(value).lower()
    elif isinstance(value, datetime):
        yield name, value.astimezone().isoformat()
    elif value is not None:
        yield name, str(value)


# Errors by their codes, those that are made of a message and details alone; the others are never
# what a server answers with.
BY_CODE: dict[str, type[StepwellError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, StepwellError)
    and kind.__init__ is StepwellError.__init__
}


def error_of(status: int, body: bytes, where: str) -> StepwellError:
    """The error that an answer tells of, of the same class that the server has raised."""
    try:
        problem = msgspec.json.decode(body)
        code, message = problem["code"], problem["detail"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return ServerUnavailable(
            f"{where} answered with the status {status} and no problem of Stepwell's. "
            "Is that the URL of a Stepwell server?",
            status=status,
        )
    if code == Unauthenticated.code:
        message += " Here the token is STEPWELL_TOKEN, or what the client was given."
    error = BY_CODE.get(code, StepwellError)(message, **problem.get("details", {}))
    error.code = code
    return error
