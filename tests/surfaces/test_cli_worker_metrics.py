"""`stepwell worker --metrics-port`: what each process shows of itself."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing

import httpx2
import pytest

from tests.surfaces.support import Cli, until

COMPLETED = "workflow_runs_completed_total"


def counted(address: str, sample: str) -> float:
    """The number that a worker shows for a sample, named with its labels."""
    lines = httpx2.get(address).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))


def test_a_worker_shows_what_it_has_executed(cli: Cli) -> None:
    with cli.worker("jobs:greet", "--metrics-port", "0") as worker:
        [ready] = worker.ready["workers"]
        cli.ok("runs", "start", "greet", "--wait")
        ended = COMPLETED + '{status="completed",workflow="greet"}'
        until(lambda: counted(ready["metrics"], ended) == 1)
        found = httpx2.get(ready["metrics"])
        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert counted(ready["metrics"], "stepwell_commit_seconds_count") > 0


def test_a_worker_shows_that_it_is_alive_and_nothing_else(lite: Cli) -> None:
    with lite.worker("jobs:greet", "--metrics-port", "0") as worker:
        base = worker.ready["workers"][0]["metrics"].removesuffix("/metrics")
        assert httpx2.get(f"{base}/healthz").json() == {"status": "ok"}
        assert httpx2.get(f"{base}/api/runs").status_code == 404
        assert httpx2.get(f"{base}/").status_code == 404
        refused = httpx2.post(f"{base}/metrics", content=b"x" * 100_000)
        assert refused.status_code == 405
        assert refused.headers["allow"] == "GET, HEAD"
        assert worker.stop() == 0


def test_every_process_has_a_port_and_its_successor_takes_it_over(lite: Cli) -> None:
    first = free_ports(2)
    with lite.worker("jobs:greet", "--processes", "2", "--metrics-port", str(first)) as worker:
        addresses = {each["metrics"]: each["pid"] for each in worker.ready["workers"]}
        assert addresses.keys() == {
            f"http://127.0.0.1:{port}/metrics" for port in (first, first + 1)
        }
        address, pid = addresses.popitem()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not answers(address))
        until(lambda: answers(address))
        assert worker.stop() == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_said_before_anything_is_executed(
    lite: Cli, processes: str
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        options = ("--processes", processes, "--metrics-port", port, "--json")
        done = lite.process("worker", "jobs:greet", *options)
    assert done.exit_code == 40
    assert done.document["error"]["code"] == "address_unavailable"
    assert "Choose another with --metrics-port." in done.document["error"]["message"]


def test_ports_beyond_the_last_are_refused(lite: Cli) -> None:
    options = ("--processes", "2", "--metrics-port", "65535", "--json")
    done = lite.process("worker", "jobs:greet", *options)
    assert done.exit_code == 10
    assert "choose 65534 at most" in done.document["error"]["message"]


def answers(address: str) -> bool:
    try:
        return httpx2.get(address).status_code == 200
    except httpx2.TransportError:
        return False


def free_ports(number: int) -> int:
    """The first of so many ports in a row that nobody listens at."""
    while True:
        with closing(socket.create_server(("127.0.0.1", 0))) as first:
            port: int = first.getsockname()[1]
            try:
                for each in range(port + 1, port + number):
                    socket.create_server(("127.0.0.1", each)).close()
            except (OSError, OverflowError):
                continue
        return port
