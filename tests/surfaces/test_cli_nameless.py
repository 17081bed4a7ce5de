"""The command line for a user whom no list of users names, as containers have them."""

from __future__ import annotations

import os

import pytest

from tests.surfaces.graphs import written
from tests.surfaces.support import Cli

UID = 2_000_054_321
HELLO = """
    name: hello
    triggers: [{id: often, type: schedule, every: 15m}]
    nodes: [{id: a, type: transform, config: {value: 1}}]
"""


@pytest.fixture
def nameless(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands of a user with nothing but a number."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: UID)
    monkeypatch.chdir(lite.folder)
    return lite


def test_who_has_no_name_is_told_by_their_number(nameless: Cli) -> None:
    file = written(nameless, HELLO)
    nameless.ok("definitions", "publish", file)
    assert f"uid-{UID}" in nameless("definitions", "history", "hello").stdout
    run_id = nameless.ok("runs", "start", "hello")["id"]
    assert f"uid-{UID}" in nameless("runs", "show", run_id).stdout
    nameless.ok("users", "create", "--name", "ada@example.org", "--role", "member")
    nameless.ok("triggers", "fire", "hello/often")
    assert nameless("run", file).exit_code == 0
