"""When cron expressions fire, against an oracle that looks at the clock every minute."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import ScheduleInvalid
from stepwell.kernel.cron import NAMED, Cron, read_cron
from tests.kernel.clocks import MICROS, Watched, fires, watch, years

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
EXPRESSIONS = (
    "*/15 * * * *", "7 * * * *", "*/20 2 * * *", "* 1 * * *", "*/5 2-3 * * SUN",
    "30 2 * * *", "30 1 * * *", "0 2 * * *", "0 3 * * *", "15 2 * * *", "45 1 * * *",
    "59 1 * * *", "0,30 1-3 * * *", "10-50/10 0-4 * * *", "15 */2 * * *", "5/20 1/3 * * *",
    "0 0 * * *", "0 2 * * 1-5", "30 2 * * SUN", "0 2 29 3 *", "30 2 25 10 *",
    "0 12 13 * FRI", "0 12 */2 * MON", "0 12 13 * */2", "30 1 1-7 * 0", "0 9 1,15 JAN-MAR,dec *",
    "0 0 29 2 *", "30 23 L * *", "30 2 LW * *", "15 3 * * 5L", "15 2 * * SUN#1,7L", "0 8 ? * ?",
    "0 0 * * 7",
)  # fmt: skip
# Clocks that are changed in other ways, and when.
CHANGES = (
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"), ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"), ("Australia/Lord_Howe", "2026-10-04"),  # half an hour
    ("America/Havana", "2026-03-08"), ("America/Havana", "2026-11-01"),  # from midnight, to it
    ("America/Santiago", "2026-04-05"), ("America/Santiago", "2026-09-06"),  # until midnight
    ("America/Nuuk", "2026-03-29"), ("America/Nuuk", "2026-10-25"),
    ("America/Nuuk", "2023-03-26"),  # for good
    ("America/St_Johns", "2010-03-14"), ("America/St_Johns", "2010-11-07"),  # one past midnight
    ("Antarctica/Troll", "2026-03-29"), ("Antarctica/Troll", "2026-10-25"),  # two hours
    ("Asia/Amman", "2022-10-28"),  # not when it was announced
    ("Pacific/Apia", "2011-12-30"),  # a whole day
    ("Africa/Casablanca", "2026-02-15"), ("Africa/Casablanca", "2026-03-22"),  # Ramadan
)  # fmt: skip


def later(cron: Cron, zone: str, watched: Watched) -> list[int]:
    ticks = cron.after(watched.begin * MICROS - 1, ZoneInfo(zone))
    return list(takewhile(lambda tick: tick < watched.end * MICROS, ticks))


def earlier(cron: Cron, zone: str, watched: Watched) -> list[int]:
    ticks = cron.until(watched.end * MICROS - 1, ZoneInfo(zone))
    return list(takewhile(lambda tick: tick >= watched.begin * MICROS, ticks))


@pytest.mark.parametrize("zone", ZONES)
def test_two_years_of_fires_are_those_of_the_oracle(zone: str) -> None:
    watched = years(zone, 2026, 2027)
    for expression in EXPRESSIONS:
        cron = read_cron(expression)
        expected = fires(expression, watched)
        assert expected or "29 2" in expression
        assert later(cron, zone, watched) == expected, expression
        assert earlier(cron, zone, watched) == expected[::-1], expression


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_unusual_changes_are_those_of_the_oracle(zone: str, day: str) -> None:
    watched = around(zone, day)
    for expression in ("* * * * *", "*/30 * * * *", "*/10 0 * * *", "*/30 23 * * *", "30 * * * *",
                       "0-59 0-23 * * *", "0 0 * * *", "30 0 * * *", "0,30 0,23 * * *",
                       "45 23 * * *", "*/15 0-2 5-8,27-30 * *", "15 2 * * 6,0"):  # fmt: skip
        cron = read_cron(expression)
        expected = fires(expression, watched)
        assert later(cron, zone, watched) == expected, expression
        assert earlier(cron, zone, watched) == expected[::-1], expression


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize("expression", ["0,30 0,23 * * *", "*/30 0,23 * * *"])
def test_it_goes_on_from_any_moment_of_a_change(zone: str, day: str, expression: str) -> None:
    watched, cron, clock = around(zone, day), read_cron(expression), ZoneInfo(zone)
    expected = fires(expression, watched)
    for index in range(len(expected) // 3, 2 * len(expected) // 3):  # the days next to it
        tick = expected[index]
        assert next(cron.after(tick - 1, clock)) == tick
        assert next(cron.after(tick, clock)) == expected[index + 1]
        assert next(cron.until(tick, clock)) == tick
        assert next(cron.until(tick - 1, clock)) == expected[index - 1]


def around(zone: str, day: str) -> Watched:
    change = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return watch(zone, change - timedelta(days=9), change + timedelta(days=9))


def values(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.tuples(st.one_of(st.just("*"), span, number.map(str)), st.integers(1, most))
    part = st.one_of(number.map(str), span, step.map(lambda parts: f"{parts[0]}/{parts[1]}"))
    return st.one_of(
        st.just("*"), number.map(str), st.lists(part, min_size=1, max_size=3).map(",".join)
    )


CRONS = st.tuples(
    values(0, 59),
    st.one_of(values(0, 23), values(0, 3)),
    st.one_of(st.just("*"), values(1, 31), st.sampled_from(["L", "LW", "?"])),
    st.sampled_from(["*", "*", "*", "3", "4-11", "*/2", "MAR,OCT"]),
    st.one_of(st.just("*"), values(0, 7), st.sampled_from(["SUN", "1#2", "0L", "MON-FRI"])),
).map(" ".join)


@settings(deadline=None)
@given(CRONS, st.sampled_from(CHANGES), st.integers(0, 18 * 24 * 60 * MICROS - 1))
def test_any_expression_fires_as_the_oracle_says(
    expression: str, change: tuple[str, str], shift: int
) -> None:
    zone = change[0]
    watched = around(*change)
    try:
        cron = read_cron(expression)
    except ScheduleInvalid:
        assert fires(expression, watched) == []
        return
    expected = fires(expression, watched)
    assert later(cron, zone, watched) == expected
    assert earlier(cron, zone, watched) == expected[::-1]
    # The same from any moment.
    at = watched.begin * MICROS + shift
    split = bisect_right(expected, at)
    if expected[split:]:
        assert next(cron.after(at, ZoneInfo(zone))) == expected[split]
    if expected[:split]:
        assert next(cron.until(at, ZoneInfo(zone))) == expected[split - 1]


def test_a_fixed_time_that_is_left_out_is_made_up_once() -> None:
    assert shown("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00",
    ]  # fmt: skip
    assert shown("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", 1) == [
        "2026-10-04T02:30:00+11:00"
    ]


def test_a_fixed_time_that_comes_twice_fires_the_first_time() -> None:
    assert shown("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip


def test_what_follows_the_clock_fires_twice_or_not_at_all() -> None:
    assert shown("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 1) == [
        "2026-03-30T02:00:00+02:00"
    ]
    assert shown("*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 4) == [
        "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00",
    ]  # fmt: skip


def shown(expression: str, zone: str, after: str, count: int) -> list[str]:
    clock = ZoneInfo(zone)
    begin = datetime.fromisoformat(after).replace(tzinfo=clock).timestamp()
    ticks = read_cron(expression).after(int(begin) * 1_000_000, clock)
    return [
        datetime.fromtimestamp(next(ticks) // 1_000_000, clock).isoformat() for _ in range(count)
    ]


def test_time_has_an_end_and_a_beginning() -> None:
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"):
        for expression in ("* * * * *", "0 0 29 2 *", "0 0 31 12 *"):
            cron = read_cron(expression)
            last = 253_402_300_800_000_000 - 1
            assert list(cron.after(last, ZoneInfo(zone))) == []
            assert next(cron.until(last, ZoneInfo(zone))) < last
            assert all(tick <= 0 for tick in cron.until(0, ZoneInfo(zone)))
            assert next(cron.after(0, ZoneInfo(zone))) > 0


@pytest.mark.parametrize("name", NAMED)
def test_names_stand_for_expressions(name: str) -> None:
    assert read_cron(f" {name.upper()} ") == read_cron(NAMED[name])


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("", "is empty", "@daily"),
        ("  ", "is empty", "@daily"),
        (None, "is a text", "@daily"),
        (["0"], "is a text", "@daily"),
        ("*" * 201, "at most 200", "@daily"),
        ("* * * *", "has 4 fields, not five", "five fields"),
        ("0 * * * * *", "has 6 fields, not five", "every: 30s"),
        ("0 0 * * * * 2027", "has 7 fields, not five", "every: 30s"),
        ("@reboot", "no machine", "@daily"),
        ("@dialy", "'@dialy'", "'@daily'"),
        ("@x", "'@x'", "@yearly, "),
        ("60 * * * *", "The minute", "0 to 59"),
        ("? * * * *", "The minute", "0 to 59"),
        ("* 24 * * *", "The hour", "0 to 23"),
        ("* 5-3 * * *", "The hour", "0 to 23"),
        ("* * 0 * *", "The day of month", "1 to 31"),
        ("* * 15W * *", "The day of month", "LW"),
        ("* * * 13 *", "The month", "JAN"),
        ("* * * FOO *", "The month", "JAN"),
        ("* * * * 8", "The day of week", "SUN"),
        ("* * * * FRI-SUN", "The day of week", "SUN"),
        ("* * * * MON#6", "The day of week", "1#2"),
        ("*/0 * * * *", "The minute", "*/2"),
        ("H * * * *", "The minute", "0 to 59"),
        ("\uff11 * * * *", "The minute", "0 to 59"),
        (f"{'1' * 150} * * * *", "The minute", "0 to 59"),
        ("0 0 30 2 *", "never fires", "the month"),
        ("0 0 31 4,6,9,11 *", "never fires", "the month"),
        ("* * */20 * 1L", "never fires", "day of week"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_a_way_out(
    expression: object, message: str, hint: str
) -> None:
    with pytest.raises(ScheduleInvalid) as raised:
        read_cron(expression)
    assert message in raised.value.message
    assert hint in raised.value.details["hint"]


@settings(deadline=None)
@given(st.one_of(st.text(max_size=30), st.text("*/-,#LW?0123456789 @", max_size=30)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cron = read_cron(text)
    except ScheduleInvalid:
        return
    assert next(cron.after(0, ZoneInfo("UTC"))) > 0
