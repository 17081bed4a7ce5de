"""A connection to a server: requests are sent, and sent again where that cannot do harm.

What can be repeated is tried again after any trouble that may pass. What cannot is tried again only
if it is certain that nothing was done: nobody listened, or the server said that it is too busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from stepwell.errors import InvalidInput, ServerUnavailable, StepwellError
from stepwell.kernel.clock import SystemClock
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.ids import Ids
from stepwell.kernel.names import show
from stepwell.kernel.retry import Retry
from stepwell.kernel.urls import is_loopback
from stepwell.sdk.requests import HttpRequest, error_of, request_for

CONNECT_SECONDS = 5.0
CONNECTIONS = 100
# Live events come with signs of life; a server without any for so long is gone.
SILENT_SECONDS = 45.0
_PAUSES = Retry(base=0.05, max=2.0, jitter=0.5)
# Nobody has taken the request.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class LiveEvent(NamedTuple):
    """One of the events of a stream, as it was sent."""

    id: str
    data: str


class Connection:
    """Requests to one server in the name of one token."""

    def __init__(
        self, url: str, token: str | None, *, timeout: Duration = 30, patience: Duration = 30
    ) -> None:
        """Each attempt may take `timeout`; none is begun once `patience` has passed."""
        self.url = check_server_url(url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidInput("The token for the server has characters that no token has.")
        self._token = token
        self._timeout = seconds(timeout, "timeout")
        self._patience = seconds(patience, "patience")
        self._ids = Ids(SystemClock())

    async def call(self, route: str, arguments: Mapping[str, Any]) -> Any:
        """What the server answers, as plain data; raises what the operation did."""
        return await self.send(request_for(route, arguments))

    async def send(self, request: HttpRequest) -> Any:
        """Send it until there is an answer, or there is nothing to hope for."""
        latest = asyncio.get_running_loop().time() + self._patience
        failures, lost = 0, False
        while True:
            try:
                answer = await self._attempt(request)
            except httpx2.RequestError as error:
                lost = lost or not isinstance(error, _NOT_SENT)
                again = request.repeatable or not lost
                trouble: StepwellError = self._unavailable(error, lost and not request.repeatable)
                asked = 0.0
            else:
                if answer.status_code < 400:
                    return self._value(answer)
                trouble = error_of(answer.status_code, answer.content, self.url)
                if lost and request.method == "DELETE" and answer.status_code == 404:
                    return None  # the attempt whose answer was lost has done it
                asked = _retry_after(answer)
                again = _may_pass(answer.status_code, trouble, asked, request.repeatable)
            failures += 1
            pause = max(asked, _PAUSES.delay(failures, self._ids.fraction()))
            if not again or asyncio.get_running_loop().time() + pause > latest:
                raise trouble
            await asyncio.sleep(pause)

    async def _attempt(self, request: HttpRequest) -> httpx2.Response:
        limit = httpx2.Timeout(self._timeout + request.wait_seconds, connect=CONNECT_SECONDS)
        headers = dict(request.headers)
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        return await self._http.request(
            request.method, f"{self.url}/api{request.path}", content=request.body,
            headers=headers, timeout=limit,
        )  # fmt: skip

    async def events(self, path: str, after: str | None = None) -> AsyncGenerator[LiveEvent, None]:
        """Live events from `after` on, until they end: also when the connection breaks meanwhile.

        Whoever misses the last one asks again, with the id of the last that came.
        """
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        limit = httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        url = f"{self.url}/api{path}"
        begun = False
        try:
            async with self._http.stream("GET", url, headers=headers, timeout=limit) as answer:
                if answer.status_code == 204:  # nothing follows `after`
                    return
                if answer.status_code != 200:
                    raise error_of(answer.status_code, await answer.aread(), self.url)
                begun, event_id = True, ""
                async for line in answer.aiter_lines():
                    name, _, value = line.partition(":")
                    if name == "id":
                        event_id = value.strip()
                    elif name == "data":  # the last line of an event, and its only one of data
                        yield LiveEvent(event_id, value.strip())
        except httpx2.RequestError as error:
            if not begun:
                raise self._unavailable(error, False) from None

    @cached_property
    def _http(self) -> httpx2.AsyncClient:
        headers = {"Accept": "application/json", "User-Agent": "stepwell"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return httpx2.AsyncClient(
            headers=headers,
            limits=httpx2.Limits(max_connections=CONNECTIONS),
            # Certificates take a while to load, and proxies know nothing of this machine's own.
            verify=self.url.startswith("https:"),
            trust_env=not is_loopback(self.url),
        )

    def _value(self, answer: httpx2.Response) -> Any:
        if answer.status_code == 204:
            return None
        try:
            return msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise error_of(answer.status_code, b"", self.url) from None

    def _unavailable(self, error: httpx2.RequestError, unknown: bool) -> ServerUnavailable:
        why = str(error) or type(error).__name__
        doubt = " Whether it was done is not known." if unknown else ""
        return ServerUnavailable(
            f"The server {self.url} does not answer: {why}.{doubt}", url=self.url
        )

    def new_key(self) -> str:
        """An idempotency key that nobody has used."""
        return self._ids.new()

    async def close(self) -> None:
        if "_http" in vars(self):
            await self._http.aclose()


def check_server_url(url: Any) -> str:
    """The URL without a slash at its end, if it is one of a server."""
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() else None
        fits = parts is not None and parts.hostname and parts.port != 0
    except ValueError:  # a port, or an address, that is none
        parts, fits = None, False
    if parts is None or not fits or parts.scheme not in ("http", "https") or parts.query:
        raise InvalidInput(
            f"The server's URL: {show(url)} is none. Write it like http://localhost:8787."
        )
    if parts.username is not None:
        raise InvalidInput(
            "The server's URL names nobody: write it like http://localhost:8787, and give a token."
        )
    return str(url).rstrip("/")


def _may_pass(status: int, trouble: StepwellError, asked: float, repeatable: bool) -> bool:
    """Whether the same request may be answered better later, and can be sent again."""
    if status == 429:  # one that says not when is of a quota, which does not pass soon
        return asked > 0
    if status == 503:  # the store may have gone away after it had done what was asked
        return repeatable or trouble.code != "store_unavailable"
    return status in (502, 504) and repeatable


def _retry_after(answer: httpx2.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0
