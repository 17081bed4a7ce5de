"""`stepwell definitions`: edits that would undo somebody else's are refused."""

from __future__ import annotations

import json
from typing import Any

from tests.operations.support import document
from tests.surfaces.support import Cli


def published(cli: Cli, seconds: int) -> str:
    """The hash of a revision that has become current."""
    path = cli.folder / "checks.json"
    path.write_text(json.dumps(document(seconds=seconds)), "utf-8")
    found: dict[str, Any] = cli.ok("definitions", "publish", str(path))
    return str(found["hash"])


def test_a_rollback_says_what_it_replaces(cli: Cli) -> None:
    first, second, third = (published(cli, seconds) for seconds in (1, 2, 3))
    words = ("definitions", "rollback", "checks", "1.0.0", "--if-match")
    refused = cli(*words, second, "--json")
    assert refused.exit_code == 10
    error = refused.document["error"]
    assert (error["code"], error["details"]["hash"]) == ("conflict", third)
    assert error["details"]["changes"] == ["node wait: config.duration: 2 → 3"]
    assert cli.ok(*words, third)["hash"] == first
