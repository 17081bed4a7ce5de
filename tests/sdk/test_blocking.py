"""The client for programs that are not async: anywhere, also where a loop runs already."""

from __future__ import annotations

import threading

import pytest

from stepwell import RunFailed, RunNotFound
from stepwell.sdk.client import Client
from tests.sdk.serving import Server


def use(server: Server) -> None:
    """What a script does."""
    with Client.blocking(server.url, server.token) as client:
        run = client.start("greet", {"name": "Ada"})
        assert run.created
        assert run.result(timeout="30s") == {"hello": "Ada"}
        assert client.get_run(run.id).status == "completed"
        assert [each.id for each in client.all_runs(limit=1, definition="greet")] == [run.id]
        assert client.definitions.list() == []
        assert client.gates.list() == []
        with pytest.raises(RunFailed, match="broken on purpose"):
            client.start("break").result("30s")
        with pytest.raises(RunNotFound):
            client.get_run("0" * 26)
        assert "start" in dir(client)


def test_it_works_without_a_loop(lite_server: Server) -> None:
    use(lite_server)
    assert "stepwell-client" not in [thread.name for thread in threading.enumerate()]


async def test_it_works_where_a_loop_runs(lite_server: Server) -> None:
    use(lite_server)
