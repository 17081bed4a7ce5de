"""W12: starting runs over HTTP and by webhook, at a server that executes them too."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import process
from benchmarks.engine import Options

ROOT = Path(__file__).resolve().parent.parent
CONNECTIONS = 64
DEFINITION = {
    "name": "greeting",
    "nodes": [{"id": "say", "type": "transform", "config": {"value": "Hello, {{input.name}}!"}}],
    "inputs": {"type": "object", "properties": {"name": {"type": "string"}}},
    "triggers": [{"id": "hook", "type": "webhook", "path": "greeting", "map": {"name": "$.name"}}],
}


def w12(options: Options) -> dict[str, Any]:
    """Runs started per second, by whoever has a token and by whoever knows a webhook's path."""
    with serving(options, "--concurrency", str(options.concurrency)) as (url, own):
        return _measured(url, own, options.sizes.http_seconds)


@contextmanager
def serving(options: Options, *arguments: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A server on the store: its address, and the headers of whoever may do everything there."""
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-") as folder:
        command = [
            sys.executable, "-m", "stepwell.cli", "serve", "--port", "0", "--json",
            "--store", options.dsn, *arguments,
        ]  # fmt: skip
        with Path(folder, "log").open("wb") as log:
            server = process.spawn(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            token = Path(folder, ".stepwell", "token").read_text().strip()
            yield url, {"Authorization": f"Bearer {token}"}
        finally:
            process.kill(server)


def _measured(url: str, own: dict[str, str], seconds: float) -> dict[str, Any]:
    _asked(f"{url}/api/definitions/publish", own, {"document": DEFINITION})
    body = '{"input": {"name": "{number}"}}'
    starts = _loaded(f"{url}/api/definitions/greeting/runs", own, body, seconds)
    _wait_until_done(url, own, starts["requests"])
    hooks = _loaded(f"{url}/hooks/greeting", {}, '{"name": "{number}"}', seconds)
    _wait_until_done(url, own, starts["requests"] + hooks["requests"])
    return {
        "starts_per_second": starts["per_second"],
        "start_p99_ms": starts["p99_ms"],
        "webhooks_per_second": hooks["per_second"],
        "webhook_p99_ms": hooks["p99_ms"],
    }


def _loaded(url: str, headers: dict[str, str], body: str, seconds: float) -> dict[str, Any]:
    given = {
        "url": url, "headers": headers, "body": body, "seconds": seconds,
        "connections": CONNECTIONS,
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.http_load", json.dumps(given)]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=ROOT))
    assert all(status.startswith("2") for status in found["statuses"]), found["statuses"]
    return found


def _wait_until_done(url: str, headers: dict[str, str], runs: int) -> None:
    """Every run that was started has to complete, and no other."""
    while True:
        items = _asked(f"{url}/api/runs/counts", headers)["items"]
        counts = {each["definition"]: each["runs"] for each in items}["greeting"]
        if counts == {"completed": runs}:
            return
        assert counts.keys() <= {"completed", "pending", "running", "waiting"}, counts
        time.sleep(0.1)


def _asked(url: str, headers: dict[str, str], body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    fields = {**headers, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, fields)) as answer:
        return json.load(answer)
