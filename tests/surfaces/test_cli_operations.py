"""Every operation as a command, at a server and on its store: it shows what the operation returns.

A command may show more, or what several operations return; `commands.py` says which ones do.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from stepwell.catalog import operations
from stepwell.cli import GENERATED
from tests.surfaces.commands import BY_HAND, MORE, OTHERWISE, Typist, result_in
from tests.surfaces.scenario import Recorder, walk, walk_access
from tests.surfaces.serving import served
from tests.surfaces.support import Cli

pytestmark = pytest.mark.anyio

# Whoever has the store is nobody in particular there, and has no tokens or sessions.
PERSONAL = {"users.me", "users.sessions", "tokens.list", "workspaces.list", "workspaces.get"}
# What is new at every look.
PASSING = {"health", "looked_at", "last_heartbeat_at", "heartbeat_at", "expires_at", "next"}


def steady(value: Any) -> Any:
    """A document without what is new at every look."""
    if isinstance(value, dict):
        return {name: steady(each) for name, each in value.items() if name not in PASSING}
    return [steady(each) for each in value] if isinstance(value, list) else value


def test_there_is_a_command_for_every_operation() -> None:
    assert BY_HAND.keys() | set(GENERATED) == operations().keys()
    assert not BY_HAND.keys() & set(GENERATED)
    assert MORE.keys() | OTHERWISE.keys() <= BY_HAND.keys()


async def test_every_operation_shows_what_it_returns(store_url: str, tmp_path: Path) -> None:
    called: set[str] = set()
    typist = Typist(tmp_path)
    async with served(store_url) as server:
        sw = server.host.first
        place = Recorder(sw)
        server.host._open[server.host.first_id] = cast("Any", place)
        link = await server.host.doorkeeper.new_link("owner-1")
        await server.http.get(f"/login/{link}")
        there, here = Cli(tmp_path, store_url), Cli(tmp_path, store_url)
        there.named = {
            "STEPWELL_STORE": None, "STEPWELL_URL": server.url,
            "STEPWELL_TOKEN": server.tokens["owner"],
        }  # fmt: skip

        async def do(operation: str, /, **arguments: Any) -> Any:
            declared = operations()[operation]
            words, stdin = typist.typed(declared, arguments)
            done = await asyncio.to_thread(there, *words, "--json", stdin=stdin)
            if operation == "definitions.validate":  # works without a store
                await place.noun("definitions").validation(**arguments)
                assert done.exit_code == 10
            else:
                assert done.exit_code == 0, (operation, done.stdout, done.stderr)
            given, value = place.calls.pop(f"{declared.noun}.{declared.function.__name__}")
            result = msgspec.json.decode(msgspec.json.encode(declared.shown(value)))
            found, expected = result_in(operation, done.document, result)
            assert found == expected, operation
            for name, each in arguments.items():
                if (operation, name) not in UNSAID:
                    assert _same(given[name], each), (operation, name)
            if "by" in declared.caller:
                assert given["by"] == "owner-1"
            if declared.method == "GET" and operation not in PERSONAL:
                on_store = await asyncio.to_thread(here, *words, "--json")
                assert steady(on_store.document) == steady(done.document), operation
            called.add(operation)
            if "wait" in arguments:
                return {**result, "status": "completed"}
            return result

        await walk(sw, do)
        await walk_access(do)
    assert called == operations().keys()


# Arguments that a command has in other words: whoever waits does so itself, `draft publish` leaves
# a definition as enabled as it is, and a draft is the text of a file.
UNSAID = {("runs.start", "wait"), ("drafts.publish", "enabled"), ("drafts.save", "document")}


def _same(given: Any, typed: Any) -> bool:
    return bool(given == typed or str(given) == str(typed))
