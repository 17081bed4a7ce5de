"""A real server on a port of its own, in a thread: for tests that are async, and others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepwell import workflow
from stepwell.api.app import Api
from stepwell.api.server import listen, serve
from stepwell.app.beginnings import local_token
from stepwell.app.hosting import Host, Shape
from stepwell.kernel.sealing import new_key
from stepwell.settings import Settings

PATIENCE_SECONDS = 60


@workflow(name="greet")
async def greet(ctx: Any, input: Any) -> Any:
    return await ctx.step("greet", lambda: {"hello": (input or {}).get("name", "you")})


@workflow(name="break")
async def break_down(ctx: Any, input: Any) -> Any:
    await ctx.step("fine", lambda: 1)
    raise ValueError("broken on purpose")


@workflow(name="ask")
async def ask(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("answer")


@workflow(name="ask-twice")
async def ask_twice(ctx: Any, input: Any) -> Any:
    return [await ctx.wait_for_event("answer"), await ctx.wait_for_event("answer")]


ALL = (greet, break_down, ask, ask_twice)


class Server:
    """A server with a worker, between `start` and `stop`."""

    def __init__(self, store_url: str) -> None:
        self._store_url = store_url
        self._stop: Callable[[], object] = lambda: None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""
        self.token = ""

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        assert self.url, "the server did not come up"

    def stop(self) -> None:
        self._stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        stop = asyncio.Event()
        settings = Settings(secret_key=new_key())
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        try:
            with listen("127.0.0.1", 0) as listening:
                # Without workers of its own: the one here is of the first workspace alone.
                async with Host(self._store_url, Shape(ALL, worker=None), settings) as host:
                    self.token = await token_for(host)
                    async with host.first.worker():
                        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
                        self._ready.set()
                        await serve(Api(host, ["localhost"]), listening, stop, 1)
        finally:
            self._ready.set()


async def token_for(host: Host) -> str:
    """A token of an owner."""
    await host.doorkeeper.first_start()
    token = await local_token(host, None, Path("sdk"))
    assert token is not None
    return token


@contextmanager
def running(store_url: str) -> Iterator[Server]:
    server = Server(store_url)
    server.start()
    try:
        yield server
    finally:
        server.stop()
