"""Durations: every way to write one, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from stepwell.errors import InvalidDuration
from stepwell.kernel.durations import MAX_SECONDS, check_deadline, seconds

HOUR = 3600
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("5m", 300),
        ("1.5h", 1.5 * HOUR),
        ("7d", 7 * DAY),
        ("2w", 14 * DAY),
        ("1h30m", 1.5 * HOUR),
        (" 1 h 30 m ", 1.5 * HOUR),
        ("1d2h3m4s5ms", DAY + 2 * HOUR + 184.005),
        ("0s", 0),
    ],
)
def test_texts_add_up_their_units(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT5M", 300),
        ("PT0.5S", 0.5),
        ("PT1H30M", 1.5 * HOUR),
        ("P1D", DAY),
        ("P1DT12H", 1.5 * DAY),
        ("P2W", 14 * DAY),
    ],
)
def test_iso_8601_is_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_numbers_are_seconds() -> None:
    assert [seconds(0), seconds(90), seconds(0.25)] == [0, 90, 0.25]


def test_a_timedelta_is_taken_as_it_is() -> None:
    assert seconds(timedelta(days=1, milliseconds=1)) == DAY + 0.001


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "soon", "5", "s", "5 minutes", "1H", "1h30", "1h, 30m", "h1", "1.h", ".5h", "1e3s",
        "-5m", "-PT5M", "P", "PT", "P1DT", "P1M", "P1Y", "PT1D", "1hP1D",
        None, True, b"5s", Decimal(5), [5], {"hours": 1},
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_a_hint(value: Any) -> None:
    with pytest.raises(InvalidDuration, match="is not a duration") as refused:
        seconds(value)
    assert refused.value.code == "invalid_duration"
    assert refused.value.details == {"value": value}
    assert '"1h30m"' in refused.value.message


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        timedelta(microseconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        MAX_SECONDS + 1,
        10**400,
        timedelta.max,
        "1001w1000000d",
        f"P{'9' * 90}D",
        "9" * 90 + "s",
    ],
)
def test_what_no_date_can_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidDuration, match="between 0 and 1000 years") as refused:
        seconds(value)
    assert refused.value.code == "invalid_duration"


def test_a_thousand_years_are_the_most() -> None:
    assert seconds(MAX_SECONDS) == seconds("365000d") == MAX_SECONDS


def test_the_error_names_what_the_duration_was_for() -> None:
    for value in ("soon", -1):
        with pytest.raises(InvalidDuration, match=r"^timeout: "):
            seconds(value, "timeout")


def test_a_deadline_may_be_a_time_and_the_error_says_so() -> None:
    check_deadline(datetime(2026, 1, 31, tzinfo=UTC))
    check_deadline("90m")
    for value in ("2099-01-01T00:00:00Z", "2030-13-01", "soon"):
        with pytest.raises(InvalidDuration, match=r"^deadline: .* a datetime in Python"):
            check_deadline(value)


@pytest.mark.parametrize(
    "value", ["1" * 8000, "1h" * 60, 10**5000], ids=["digits", "parts", "number"]
)
def test_what_is_far_too_long_is_refused_at_once(value: Any) -> None:
    with pytest.raises(InvalidDuration):
        seconds(value)
