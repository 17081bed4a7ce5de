"""The node `http`: sends a request and yields the answer."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    StringConstraints,
    model_validator,
)

from stepwell.kernel.masking import beginning
from stepwell.node import Call, NodeConfig, node
from stepwell.nodes.addresses import Guard
from stepwell.nodes.answers import check_status, check_whole, output_of
from stepwell.nodes.headers import Auth, HeaderName, HeaderValue
from stepwell.nodes.outgoing import MAX_REDIRECTS, Outgoing, exchange

MAX_BYTES = 10 * 1024 * 1024
# Methods that change nothing, so that repeating them does no harm.
_SAFE = ("GET", "HEAD", "OPTIONS")
_MAX_SHOWN = 200


def _check_url(url: str) -> str:
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError("A URL must begin with http:// or https://.")
    if not url.isprintable():
        raise ValueError("A URL cannot have line breaks or control characters.")
    return url


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


Url = Annotated[str, AfterValidator(_check_url)]
Method = Annotated[
    Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], BeforeValidator(_upper)
]
Domain = Annotated[str, StringConstraints(pattern=r"^(\*\.)?[^\s*/:@]+$")]
Scalar = str | int | float | bool | None
Fields = dict[str, Scalar | list[Scalar]]


class Config(NodeConfig):
    url: Url = Field(description="Where to, with http:// or https://.")
    method: Method = Field("GET", description="What to do there.")
    headers: dict[HeaderName, HeaderValue] = Field({}, description="Headers, by name.")
    query: Fields = Field(
        {},
        description="Added to the URL's query; a list repeats the name, null leaves it out.",
    )
    body: Any = Field(
        None,
        validation_alias=AliasChoices("body", "body_template"),
        description="What to send: text as it is, anything else as JSON.",
    )
    form: Fields | None = Field(None, description="Fields to send as a form does, not as a body.")
    auth: Auth | None = Field(None, description="How to say who asks; use secrets in it.")
    allowed_domains: Annotated[list[Domain], Field(min_length=1)] | None = Field(
        None,
        description="Domains that the request, and its redirects, may go to, with all below them; "
        "*.x.test means only those below it. Left out: all.",
    )
    follow_redirects: bool = Field(
        True,
        description=f"Whether to follow up to {MAX_REDIRECTS} redirects. Another host than the "
        "first gets no credentials.",
    )
    max_bytes: int = Field(
        1024 * 1024, gt=0, le=MAX_BYTES, description="How long the answer may be, unpacked."
    )
    raise_for_status: bool = Field(
        True, description="Whether an answer of 400 and above fails the step."
    )

    @model_validator(mode="after")
    def _one_body(self) -> Config:
        if self.body is not None and self.form is not None:
            raise ValueError("Give either a body or a form, not both.")
        return self


@node(
    "http", title="HTTP request", group="action", config=Config, aliases=("action_http",),
    timeout="30s", max_timeout="10m",
)  # fmt: skip
async def http(config: Config, call: Call) -> dict[str, Any]:
    """Send a request; the output has `status`, `headers`, `body` and `url`.

    The body is parsed if it is JSON, else text, and base64 with `encoding` beside it if it is
    neither. An answer of 500 and above, or 429, is tried again if the node has a retry policy,
    not before the time that the answer names; other answers of 400 and above fail at once.
    """
    request = _request(config, call)
    answer = await exchange(
        request,
        Guard(call.host.allow_private, config.allowed_domains),
        max_bytes=config.max_bytes,
        redirects=MAX_REDIRECTS if config.follow_redirects else 0,
    )
    if config.raise_for_status:
        check_status(answer, request.name)
    check_whole(answer, request.name)
    return output_of(answer)


def _request(config: Config, call: Call) -> Outgoing:
    content, content_type = _content(config)
    made = {"content-type": content_type} if content_type else {}
    if config.method not in _SAFE:
        made["idempotency-key"] = call.idempotency_key
    if (traceparent := call.traceparent) is not None:
        made["traceparent"] = traceparent
    given = dict(config.headers)
    if config.auth is not None:
        given |= [config.auth.header()]
    name = f"{config.method} {shown(config.url)}"
    return Outgoing(config.method, _full_url(config), made | given, content, name)


def shown(url: str) -> str:
    """A URL as errors show it: without user, password and query, and not too long."""
    scheme, _, rest = re.split("[?#]", url, maxsplit=1)[0].partition("://")
    authority, slash, path = rest.partition("/")
    return beginning(f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}", _MAX_SHOWN)


def _full_url(config: Config) -> str:
    url = config.url.partition("#")[0]
    more = urlencoded(config.query)
    return f"{url}{'&' if '?' in url else '?'}{more}" if more else url


def _content(config: Config) -> tuple[bytes | None, str]:
    """What to send, and of what type it is."""
    if config.form is not None:
        return urlencoded(config.form).encode(), "application/x-www-form-urlencoded"
    if config.body is None:
        return None, ""
    if isinstance(config.body, str):
        return config.body.encode(), "text/plain; charset=utf-8"
    return msgspec.json.encode(config.body), "application/json"


def urlencoded(fields: Fields) -> str:
    """Fields as a query has them."""
    pairs = []
    for name, value in fields.items():
        each = value if isinstance(value, list) else [value]
        pairs += [(name, _as_text(item)) for item in each if item is not None]
    return urlencode(pairs)


def _as_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
