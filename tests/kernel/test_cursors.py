"""Cursors: they lead back to the run they were made from, and nothing else passes for one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stepwell.errors import InvalidCursor
from stepwell.kernel.cursors import digest_of, read_cursor, write_cursor
from stepwell.kernel.ids import Ids
from stepwell.testing.clock import FakeClock

DIGEST = digest_of(["default", None, "a", {"x": 1, "y": 2}])


def test_a_cursor_leads_back_to_its_run(clock: FakeClock) -> None:
    ids = Ids(clock)
    for run_id in (ids.new(), ids.new()):
        assert read_cursor(write_cursor(run_id, DIGEST), DIGEST) == run_id


def test_a_cursor_of_a_list_that_asks_for_something_else_is_refused(clock: FakeClock) -> None:
    assert digest_of(["default", None, "a", {"y": 2, "x": 1}]) == DIGEST
    cursor = write_cursor(Ids(clock).new(), DIGEST)
    for other in (["default", None, "b", {"x": 1, "y": 2}], ["default", ["failed"], "a", None]):
        with pytest.raises(InvalidCursor, match="not a cursor of this list"):
            read_cursor(cursor, digest_of(other))


def test_a_cursor_can_stand_in_a_url_and_does_not_show_the_run(clock: FakeClock) -> None:
    run_id = Ids(clock).new()
    cursor = write_cursor(run_id, DIGEST)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)
    assert run_id not in cursor


@pytest.mark.parametrize(
    "garbage", ["", "!!!!", "AA", "YWJj", "hello", "hell", "_-_-", "é", "\ud800", None, 5, b"MDZo"]
)
def test_garbage_is_no_cursor(garbage: Any) -> None:
    with pytest.raises(InvalidCursor) as refused:
        read_cursor(garbage, DIGEST)
    assert refused.value.code == "invalid_cursor"
    assert repr(garbage) in refused.value.message
