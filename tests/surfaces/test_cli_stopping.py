"""`stepwell serve` told to stop while it is busy."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.surfaces.support import PATIENCE_SECONDS, Cli, until

GRACE_SECONDS = 6
# Long before what is waited for would end by itself.
PROMPT_SECONDS = 30


class Server:
    """`stepwell serve` in a process of its own."""

    def __init__(self, cli: Cli, process: Any, url: str) -> None:
        self.process = process
        self.url = url
        token = (cli.folder / ".stepwell" / "token").read_text().strip()
        self.headers = {"authorization": f"Bearer {token}"}
        self.http = httpx2.Client(base_url=url, headers=self.headers, timeout=PATIENCE_SECONDS)

    def start(self, definition: str, input: Any = None, **headers: str) -> httpx2.Response:
        path = f"/api/definitions/{definition}/runs"
        return self.http.post(path, json={"input": input}, headers=headers)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def serving(cli: Cli, grace_seconds: float) -> Iterator[Server]:
    words = ("serve", "jobs:hold_on", "jobs:ask", "jobs:nap", "--port", "0", "--json")
    with cli.started(*words, "--grace", f"{grace_seconds}s") as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            server = Server(cli, process, json.loads(line)["url"])
            with server.http:
                yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_SECONDS)


def meanwhile(work: Any, *args: Any) -> Future[Any]:
    """What comes of a function that is called in a thread."""
    found: Future[Any] = Future()

    def call() -> None:
        try:
            found.set_result(work(*args))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return found


@pytest.fixture
def door(tmp_path: Path) -> Path:
    return tmp_path / "door"


def held(server: Server, door: Path) -> str:
    """A run that is inside of a step until its door is open."""
    run_id: str = server.start("hold", {"door": str(door)}).json()["id"]
    until(Path(f"{door}.entered").exists)
    return run_id


def test_a_server_that_stops_lets_waiting_callers_go_and_begins_nothing(
    cli: Cli, door: Path
) -> None:
    with serving(cli, PATIENCE_SECONDS) as server:
        working = held(server, door)
        asking = meanwhile(lambda: server.start("ask", Prefer="wait=60"))
        waiting = until(lambda: server.http.get("/api/runs?definition=ask").json()["items"])
        with server.http.stream("GET", f"/api/runs/{working}/events") as events:
            lines = events.iter_lines()
            while "run.started" not in next(lines):
                pass
            server.stop()
            answer = asking.result(PROMPT_SECONDS)
            rest = list(lines)
        assert answer.status_code == 202
        assert answer.json()["id"] == waiting[0]["id"]
        assert answer.json()["status"] in ("pending", "running", "waiting")
        assert "event: run.finished" not in rest
        assert server.process.poll() is None  # its step goes on
        late = cli.ok("runs", "start", "nap", "--input", '{"for": "1ms"}', "--store", cli.store)
        door.touch()
        said = server.process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert server.process.returncode == 0
    assert "Exception in" not in said
    assert cli.status(working, cli.store) == "completed"
    assert cli.status(late["id"], cli.store) == "pending"


def test_requests_and_steps_share_one_grace(lite: Cli, door: Path) -> None:
    with serving(lite, GRACE_SECONDS) as server:
        working = held(server, door)
        where = urlsplit(server.url)
        with socket.create_connection((where.hostname, where.port)) as slow:
            authorization = server.headers["authorization"]
            slow.sendall(
                "POST /api/definitions/ask/runs HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: {authorization}\r\nContent-Type: application/json\r\n"
                "Content-Length: 100\r\n\r\n{".encode()
            )
            server.http.get("/healthz")
            server.stop()
            began = time.monotonic()
            answer = slow.makefile("rb").read()
        said = server.process.communicate(timeout=PATIENCE_SECONDS)[1]
        took = time.monotonic() - began
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":"not_open"' in answer
    assert "Exception in" not in said
    assert GRACE_SECONDS - 1 < took < GRACE_SECONDS * 1.8
    door.touch()
    with lite.worker("jobs:hold_on"):  # it was given back, for whoever works next
        until(lambda: lite.status(working, lite.store) == "completed")
