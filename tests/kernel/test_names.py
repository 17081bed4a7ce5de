"""Names and other short values: what they may look like, and how a wrong one is told."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from stepwell.errors import InvalidInput, InvalidName
from stepwell.kernel.names import (
    MAX_LENGTH,
    check_count,
    check_step_name,
    check_text,
    check_time,
)
from stepwell.sdk.workflow import workflow


@pytest.mark.parametrize("text", ["a", "charge card", "zahlen-für/ä:1", "🪣", "x" * MAX_LENGTH])
def test_printable_text_is_a_name(text: str) -> None:
    assert check_text(text, "A key") == text
    assert check_step_name(text) == text


@pytest.mark.parametrize("value", ["", "  ", "\t", None, 7, b"key", ["key"]])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidName, match=r"^A key must be a text that is not empty") as refused:
        check_text(value, "A key")
    assert refused.value.code == "invalid_name"
    with pytest.raises(InvalidName, match=r"^A step's name must be a text"):
        check_step_name(value)


def test_what_has_a_name_is_no_name_but_can_be_asked_for_it() -> None:
    @workflow(name="onboard-user")
    async def onboard(ctx: Any, input: Any) -> Any: ...

    with pytest.raises(InvalidName, match="Pass its name, 'onboard-user'"):
        check_text(onboard, "A definition's name")


@pytest.mark.parametrize("value", ["a\nb", "a\x00", "a\x1b[31m", "a\u2028b", "a\u200bb", "\ud800"])
def test_characters_nobody_can_see_are_refused(value: str) -> None:
    with pytest.raises(InvalidName, match="has control characters"):
        check_text(value, "A key")
    with pytest.raises(InvalidName, match="has control characters"):
        check_step_name(value)


def test_a_long_text_is_refused_with_both_lengths() -> None:
    with pytest.raises(InvalidName, match="A key has 201 characters; at most 200"):
        check_text("x" * 201, "A key")


@pytest.mark.parametrize("name", ["charge#2", "#1", "a#2#33"])
def test_a_step_name_cannot_look_like_a_repetition(name: str) -> None:
    for _ in range(2):  # the second time from the cache
        with pytest.raises(InvalidName, match="ends like a repetition"):
            check_step_name(name)
    assert check_text(name, "A key") == name


@pytest.mark.parametrize("name", ["charge#", "charge#2b", "#2 charge", "charge 2"])
def test_a_hash_elsewhere_in_a_step_name_is_fine(name: str) -> None:
    assert check_step_name(name) == name


def test_a_time_is_a_datetime() -> None:
    at = datetime(2026, 7, 1, tzinfo=UTC)
    assert check_time(at, "after") is at
    for value in (date(2026, 7, 1), "2026-07-01T00:00:00Z", 0, None):
        with pytest.raises(InvalidInput, match=r"^after must be a datetime") as refused:
            check_time(value, "after")
        assert refused.value.code == "invalid_input"


def test_a_count_is_a_whole_number_within_its_bounds() -> None:
    assert check_count(1, "limit") == 1
    assert check_count(0, "limit", least=0) == 0
    assert check_count(2**31 - 1, "limit") == 2**31 - 1


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.0, True, "1", None])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^limit must be") as refused:
        check_count(value, "limit")
    assert refused.value.code == "invalid_input"
