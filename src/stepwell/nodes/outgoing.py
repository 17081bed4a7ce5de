"""Sending one request, over its redirects, to addresses that the guard has checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepwell.errors import AddressRefused, RequestFailed, RequestRefused
from stepwell.nodes.addresses import Guard
from stepwell.nodes.headers import basic

if TYPE_CHECKING:
    import httpx2

MAX_REDIRECTS = 5
# For one address; how long everything may take is the step's timeout.
_CONNECT_SECONDS = 10
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = (301, 302, 303, 307, 308)
# What every host may be told. Any other header, given or made, may be a credential.
_HARMLESS = ("accept", "accept-encoding", "accept-language", "content-type", "user-agent")
_DEFAULTS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "stepwell"}


@dataclass(frozen=True)
class Outgoing:
    """A request to be sent."""

    method: str
    url: str
    # With names in lower case.
    headers: Mapping[str, str]
    content: bytes | None
    # What errors call it: a URL may hold what nobody should read.
    name: str


@dataclass(frozen=True)
class Answer:
    """What came back; `whole` is False if it was cut at the limit."""

    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes
    whole: bool
    url: str


@dataclass(frozen=True)
class _Hop:
    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    content: bytes | None


@cache
def _library() -> tuple[Any, Any]:
    """The HTTP library and the certificates to trust; both take a while to load."""
    library = import_module("httpx2")
    return library, library.create_ssl_context()


async def exchange(
    request: Outgoing, guard: Guard, *, max_bytes: int, redirects: int = MAX_REDIRECTS
) -> Answer:
    """Send a request and read its answer, following so many redirects."""
    library, _ = await asyncio.to_thread(_library)
    try:
        hop = _first(library.URL(request.url), request)
        for _ in range(redirects + 1):
            async with _answered(hop, guard) as response:
                after = _redirected(hop, response) if redirects else None
                if after is None:
                    return await _read(hop, response, max_bytes)
            hop = after
    except (library.InvalidURL, library.LocalProtocolError):
        # Without what the library says of it: that quotes parts, which may be secrets.
        raise RequestRefused(
            f"{request.name} cannot be sent: its URL, or one that it was redirected to, is not "
            "valid. Special characters must be percent-encoded, and ports be numbers."
        ) from None
    except library.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise RequestFailed(f"{request.name} got no answer: {reason}.") from error
    raise RequestRefused(f"{request.name} was redirected more than {redirects} times.")


def _first(url: httpx2.URL, request: Outgoing) -> _Hop:
    headers = {**_DEFAULTS, **request.headers}
    if url.userinfo:
        headers.setdefault("authorization", basic(url.username, url.password))
    bare = url.copy_with(username=None, password=None, fragment=None)
    return _Hop(request.method, bare, headers, request.content)


@asynccontextmanager
async def _answered(hop: _Hop, guard: Guard) -> AsyncIterator[httpx2.Response]:
    """The answer to one request, not read yet."""
    port = _check(hop.url, guard)
    library, tls = _library()
    # Never one that another hop has used: connections are found again by address, and what a
    # host has proven with its certificate says nothing of another host of the same address.
    async with library.AsyncHTTPTransport(verify=tls, trust_env=False) as transport:
        name = hop.url.raw_host.decode("ascii")
        *others, last = await guard.addresses(name, port)
        for address in others:
            try:
                response = await transport.handle_async_request(_pinned(hop, address))
                break
            except (library.ConnectError, library.ConnectTimeout):
                continue
        else:
            response = await transport.handle_async_request(_pinned(hop, last))
        try:
            yield response
        finally:
            await response.aclose()


def _check(url: httpx2.URL, guard: Guard) -> int:
    """The port to connect to, if the URL is one that requests may go to at all."""
    if url.scheme not in _PORTS or not url.host:
        raise AddressRefused(
            f"A request can only go to http:// and https:// URLs with a host, not to {url.scheme}:."
        )
    port = url.port if url.port is not None else _PORTS[url.scheme]
    if not 0 < port < 65536:
        raise AddressRefused(f"The request would go to port {port}, and there is no such port.")
    guard.check_domain(url.host, url.raw_host.decode("ascii"))
    return port


def _pinned(hop: _Hop, address: str) -> httpx2.Request:
    """The request as it is sent to this address, still in the name of its host."""
    library, _ = _library()
    host = hop.url.netloc.decode("ascii")
    headers = {"host": host, "connection": "close", **hop.headers}
    request: httpx2.Request = library.Request(
        hop.method,
        hop.url.copy_with(host=address),
        headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        content=hop.content,
        extensions={
            "sni_hostname": hop.url.raw_host.decode("ascii").rstrip("."),
            "timeout": {"connect": _CONNECT_SECONDS},
        },
    )
    return request


def _redirected(hop: _Hop, response: httpx2.Response) -> _Hop | None:
    """The request that follows from this answer, if one does."""
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    url = hop.url.join(location).copy_with(username=None, password=None, fragment=None)
    after = replace(hop, url=url)
    if response.status_code == 303 or (response.status_code < 303 and hop.method == "POST"):
        dropped = ("content-type", "idempotency-key")
        kept = {name: each for name, each in hop.headers.items() if name not in dropped}
        method = "HEAD" if hop.method == "HEAD" else "GET"
        after = replace(after, method=method, headers=kept, content=None)
    if not _trusts(hop.url, url):
        kept = {name: each for name, each in after.headers.items() if name in _HARMLESS}
        after = replace(after, headers=kept)
    return after


def _trusts(old: httpx2.URL, new: httpx2.URL) -> bool:
    """Whether what was sent to the old URL may also be sent to the new one."""

    def port(url: httpx2.URL) -> int | None:
        return url.port if url.port is not None else _PORTS.get(url.scheme)

    if old.raw_host != new.raw_host:
        return False
    upgraded = (old.scheme, port(old), new.scheme, port(new)) == ("http", 80, "https", 443)
    return upgraded or (old.scheme, port(old)) == (new.scheme, port(new))


async def _read(hop: _Hop, response: httpx2.Response, max_bytes: int) -> Answer:
    content = bytearray()
    # Unpacked piece by piece, so that what is small only while it is packed stays out as well.
    pieces = response.aiter_bytes()
    try:
        async for piece in pieces:
            content += piece
            if len(content) > max_bytes:
                break
    finally:
        await pieces.aclose()
    return Answer(
        response.status_code, response.reason_phrase, dict(response.headers.items()),
        bytes(content[:max_bytes]), len(content) <= max_bytes, str(hop.url),
    )  # fmt: skip
