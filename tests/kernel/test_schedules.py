"""Schedules: what may be written, what it means in words, and what is done about missed ticks."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from time import perf_counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import ScheduleInvalid
from stepwell.kernel.clock import SECOND, to_micros
from stepwell.kernel.schedules import MOST_COUNTED, Due, Schedule, schedule_problems

BERLIN = "Europe/Berlin"
NOW = to_micros(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
YEAR = 365 * DAY


def at(text: str) -> int:
    return to_micros(datetime.fromisoformat(text))


# -- when ----------------------------------------------------------------------------------


def test_even_steps_begin_at_their_anchor() -> None:
    schedule = Schedule(every="90s", anchor=NOW)
    assert schedule.next_fires(NOW - 1, 3) == [NOW, NOW + 90 * SECOND, NOW + 180 * SECOND]
    assert schedule.next_after(NOW) == NOW + 90 * SECOND
    assert schedule.next_after(0) == NOW
    assert schedule.next_after(NOW + 90 * SECOND - 1) == NOW + 90 * SECOND


def test_once_is_once() -> None:
    schedule = Schedule(at="2027-01-01T09:00", zone=BERLIN)
    assert schedule.next_fires(NOW, 5) == [at("2027-01-01T09:00+01:00")]
    assert schedule.next_after(at("2027-01-01T09:00+01:00")) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2027-01-01T09:00:30Z", "2027-01-01T09:00:30+00:00"),
        ("2027-01-01 09:00+05:30", "2027-01-01T09:00+05:30"),
        ("2027-01-01", "2027-01-01T00:00+01:00"),
        ("2026-10-25T02:30", "2026-10-25T02:30+02:00"),  # twice: the first
        ("2026-03-29T02:30", "2026-03-29T03:30+02:00"),  # never: an hour later
    ],
)
def test_a_time_without_offset_is_what_the_clock_shows(text: str, meant: str) -> None:
    assert Schedule(at=text, zone=BERLIN).next_after(0) == at(meant)


def test_cron_follows_the_zone() -> None:
    schedule = Schedule(cron="@daily", zone="Asia/Kolkata")
    assert schedule.next_fires(NOW, 2) == [
        at("2026-10-26T00:00+05:30"), at("2026-10-27T00:00+05:30"),
    ]  # fmt: skip


def test_time_ends() -> None:
    assert Schedule(every="900d").next_after(10**30) is None
    assert Schedule(every="365000d", anchor=NOW).next_fires(NOW, 20)[-1] < 10**18


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"every": "1h30m"}, 5400),
        ({"at": "2027-01-01T09:00"}, float("inf")),
        ({"cron": "* * * * *"}, 60),
        ({"cron": "*/15 9-17 * * *"}, 900),
        ({"cron": "0,50 * * * *"}, 600),
        ({"cron": "0 2 * * *"}, 86_400),
        ({"cron": "0 2 * * 1"}, 7 * 86_400),
        ({"cron": "0 0,23 * * *"}, 3600),
        ({"cron": "0 0,23 * * 1"}, 23 * 3600),
        ({"cron": "0 0 1 * *"}, 28 * 86_400),
        ({"cron": "0 0 1,31 * *"}, 86_400),
        ({"cron": "0 0 13 * 5"}, 86_400),
        ({"cron": "0 0 29 2 *"}, 1461 * 86_400),
        ({"cron": "45 1,2,3 * * *", "zone": BERLIN}, 3600),  # whatever is made up in March
    ],
)
def test_the_shortest_interval(fields: dict[str, Any], seconds: float) -> None:
    assert Schedule(**fields).shortest_interval() == seconds


@pytest.mark.parametrize("cron", ["*/7 3,5 LW 2-4 *", "0 0 13 * 5", "10-50/20 */5 * * 1#2,5L"])
def test_the_shortest_interval_is_that_of_ten_years(cron: str) -> None:
    schedule = Schedule(cron=cron)
    ticks = [tick for tick in schedule.next_fires(NOW, 3000) if tick < NOW + 10 * YEAR]
    shortest = min(later - earlier for earlier, later in pairwise(ticks))
    assert schedule.shortest_interval() == shortest / SECOND


# -- words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"every": "15m"}, "Every 15 minutes."),
        ({"every": 3600}, "Every hour."),
        ({"every": "1h30m"}, "Every 1 hour 30 minutes."),
        ({"every": "1w"}, "Every 7 days."),
        ({"every": 1}, "Every second."),
        ({"every": 1.5}, "Every 1.5 seconds."),
        ({"at": "2027-01-01T09:00", "zone": BERLIN}, "Once, at 2027-01-01 09:00 in Europe/Berlin."),
        ({"at": "2027-01-01T09:00:05Z"}, "Once, at 2027-01-01 09:00:05 in UTC."),
    ],
)
def test_others_in_words(fields: dict[str, Any], words: str) -> None:
    assert Schedule(**fields).described() == words


# -- missed ticks --------------------------------------------------------------------------

# Down from 00:30 to 05:00:30, with a tick each hour: four are late, the one of 05:00 is on time.
DOWN, UP = at("2026-06-01T00:30Z"), at("2026-06-01T05:00:30Z")
HOURS = [at(f"2026-06-01T0{hour}:00Z") for hour in range(7)]


@pytest.mark.parametrize("way", [{"cron": "0 * * * *"}, {"every": "1h", "anchor": HOURS[0]}])
@pytest.mark.parametrize(
    ("policy", "fires", "missed"),
    [
        ({}, HOURS[5:6], 4),
        ({"misfire": "latest"}, HOURS[5:6], 4),
        ({"misfire": "latest", "grace": "10s"}, HOURS[5:6], 4),
        ({"misfire": "all"}, HOURS[1:6], 0),
        ({"misfire": "all", "limit": 3}, HOURS[2:6], 1),
        ({"grace": "10s"}, [], 5),
        ({"grace": "30s"}, HOURS[5:6], 4),
        ({"grace": 0}, [], 5),
        ({"grace": "2h30s"}, HOURS[3:6], 2),
        ({"misfire": "all", "limit": 1, "grace": "10s"}, HOURS[5:6], 4),
    ],
)
def test_policies(way: Any, policy: Any, fires: list[int], missed: int) -> None:
    schedule = Schedule(**way, **policy)
    assert schedule.due(DOWN, UP) == Due(fires, missed, at_least=False, next_at=HOURS[6])
    assert schedule.due(UP, UP) == Due([], 0, at_least=False, next_at=HOURS[6])


def test_a_single_time_that_was_missed_goes_by_the_same_policies() -> None:
    once = {"at": "2026-06-01T01:00Z"}
    assert Schedule(**once).due(DOWN, UP) == Due([], 1, at_least=False, next_at=None)
    assert Schedule(**once, misfire="latest").due(DOWN, UP).fires == [HOURS[1]]
    assert Schedule(**once, misfire="latest").due(HOURS[1], UP).fires == []
    assert Schedule(**once).due(DOWN, HOURS[1] + MINUTE).fires == [HOURS[1]]


def test_a_clock_that_goes_back_fires_nothing_again() -> None:
    schedule = Schedule(cron="0 * * * *", misfire="all")
    assert schedule.due(UP, DOWN) == Due([], 0, at_least=False, next_at=HOURS[6])
    assert Schedule(every="1h", misfire="all").due(UP, DOWN).fires == []


WAYS = st.one_of(
    st.sampled_from(
        ["* * * * *", "*/5 * * * *", "*/20 1-2 * * *", "0,30 1-3 * * *", "30 2 * * *", "1 2 * * 0"]
    ).map(lambda cron: {"cron": cron}),
    st.integers(20, 7200).map(lambda every: {"every": every, "anchor": NOW - 7}),
    st.just({"at": "2026-10-25T02:45"}),
)
POLICIES = st.fixed_dictionaries(
    {
        "misfire": st.sampled_from(["skip", "latest", "all"]),
        "limit": st.integers(1, 20),
        "grace": st.integers(0, 3 * 3600),
    }
)


@settings(deadline=None)
@given(WAYS, POLICIES, st.lists(st.floats(0, 1), max_size=40))
def test_looking_often_enough_fires_every_tick_exactly_once(
    way: dict[str, Any], policy: dict[str, Any], pauses: list[float]
) -> None:
    schedule = Schedule(**way, **policy, zone=BERLIN)
    begin = cursor = NOW - HOUR
    fired: list[int] = []
    for pause in pauses:
        now = cursor + int(pause * policy["grace"] * SECOND)
        due = schedule.due(cursor, now)
        assert due.missed == 0
        assert all(cursor < tick <= now for tick in due.fires)
        assert due.next_at == schedule.next_after(now)
        fired += due.fires
        cursor = now
    assert fired == ticks_between(schedule, begin, cursor)


@settings(deadline=None)
@given(WAYS, POLICIES, st.integers(-DAY, DAY), st.integers(0, 15 * HOUR))
def test_what_is_due_is_what_the_policies_say(
    way: dict[str, Any], policy: dict[str, Any], shift: int, down: int
) -> None:
    schedule = Schedule(**way, **policy, zone=BERLIN)
    cursor = NOW + shift
    now = cursor + down
    due = schedule.due(cursor, now)
    ticks = ticks_between(schedule, cursor, now)
    on_time = [tick for tick in ticks if now - tick <= policy["grace"] * SECOND]
    late = ticks[: len(ticks) - len(on_time)]
    made_up = {"skip": [], "all": late[-policy["limit"] :], "latest": [] if on_time else late[-1:]}
    assert due.fires == [*made_up[policy["misfire"]], *on_time]
    assert len(due.fires) + due.missed == len(ticks)
    assert not due.at_least


def ticks_between(schedule: Schedule, cursor: int, now: int) -> list[int]:
    found = []
    tick = schedule.next_after(cursor)
    while tick is not None and tick <= now:
        found.append(tick)
        tick = schedule.next_after(tick)
    return found


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
@pytest.mark.parametrize(
    "way",
    [{"every": 1}, {"cron": "* * * * *"}, {"cron": "0 0 29 2 *"}, {"cron": "@daily"}],
    ids=str,
)
def test_a_long_pause_takes_no_long_time(way: dict[str, Any], misfire: Any) -> None:
    schedule = Schedule(**way, misfire=misfire, limit=1000, zone=BERLIN, anchor=NOW - 40 * YEAR)
    began = perf_counter()
    due = schedule.due(NOW - 40 * YEAR, NOW)
    assert perf_counter() - began < 1
    assert len(due.fires) <= 1061
    ticks = 40 * YEAR // (SECOND if "every" in way else MINUTE)
    if due.at_least:
        assert MOST_COUNTED <= due.missed < ticks
    elif "every" in way:
        assert len(due.fires) + due.missed == ticks


# -- what may be written -------------------------------------------------------------------


def test_a_schedule_is_read_from_the_fields_of_a_trigger() -> None:
    config = {"id": "t", "type": "schedule", "cron": "@daily", "misfire": "all", "limit": 3,
              "grace": None, "enabled": True}  # fmt: skip
    schedule = Schedule.read(config, BERLIN, NOW)
    assert schedule == Schedule(cron="@daily", misfire="all", limit=3, zone=BERLIN, anchor=NOW)
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, [("", "missing_field")]),
        ({"cron": "@daily", "at": "2027-01-01"}, [("", "bad_field")]),
        ({"cron": "@dayly"}, [("cron", "bad_cron")]),
        ({"cron": 5}, [("cron", "bad_cron")]),
        ({"every": "soon"}, [("every", "bad_duration")]),
        ({"every": "999ms"}, [("every", "bad_duration")]),
        ({"every": 0}, [("every", "bad_duration")]),
        ({"every": -5}, [("every", "bad_duration")]),
        ({"every": True}, [("every", "bad_duration")]),
        ({"every": float("nan")}, [("every", "bad_duration")]),
        ({"every": []}, [("every", "bad_duration")]),
        ({"at": "tomorrow"}, [("at", "bad_time")]),
        ({"at": "2027-02-30T09:00"}, [("at", "bad_time")]),
        ({"at": "0001-01-01T00:00"}, [("at", "bad_time")]),
        ({"at": "9999-12-31T23:59"}, [("at", "bad_time")]),
        ({"at": "2" * 1000}, [("at", "bad_time")]),
        ({"at": 1_800_000_000}, [("at", "bad_time")]),
        ({"cron": "@daily", "misfire": "al"}, [("misfire", "bad_field")]),
        ({"cron": "@daily", "misfire": []}, [("misfire", "bad_field")]),
        ({"cron": "@daily", "limit": 0}, [("limit", "bad_field")]),
        ({"cron": "@daily", "limit": 1001}, [("limit", "bad_field")]),
        ({"cron": "@daily", "limit": True}, [("limit", "bad_field")]),
        ({"cron": "@daily", "limit": "3"}, [("limit", "bad_field")]),
        ({"cron": "@daily", "grace": "-1s"}, [("grace", "bad_duration")]),
        ({"cron": "@daily", "grace": {}}, [("grace", "bad_duration")]),
        ({"every": "1s", "grace": "1d"}, [("grace", "bad_field")]),
        ({"cron": "* * * * *", "grace": "7d"}, [("grace", "bad_field")]),
        ({"cron": "x", "limit": 0, "grace": "x"}, [("cron", "bad_cron"), ("limit", "bad_field"),
                                                   ("grace", "bad_duration")]),
    ],
    ids=str,
)  # fmt: skip
def test_each_wrong_field_is_named(config: dict[str, Any], found: list[tuple[str, str]]) -> None:
    problems = schedule_problems(config, BERLIN)
    assert [(each.field, each.code) for each in problems] == found
    with pytest.raises(ScheduleInvalid) as raised:
        Schedule.read(config, BERLIN, NOW)
    assert raised.value.details["problems"] == [msgspec.to_builtins(each) for each in problems]
    for each in problems:
        assert each.field in each.message
        assert each.message in raised.value.message


@pytest.mark.parametrize(("text", "zone"), [
    ("9999-12-29T23:00", "America/New_York"), ("1970-01-01T00:00", "Asia/Tokyo"),
])  # fmt: skip
def test_a_time_has_to_be_one_in_its_zone(text: str, zone: str) -> None:
    assert schedule_problems({"at": text}, "UTC") == []
    assert [each.code for each in schedule_problems({"at": text}, zone)] == ["bad_time"]


@pytest.mark.parametrize("config", [
    {"every": "1s", "grace": "2h"}, {"cron": "0 2 * * *", "grace": "365d"},
    {"at": "2027-01-01", "grace": "365d"}, {"cron": "@daily", "limit": 1000}, {"every": "1000d"},
], ids=str)  # fmt: skip
def test_what_is_large_but_bounded_may_be_written(config: dict[str, Any]) -> None:
    assert schedule_problems(config, BERLIN) == []


@pytest.mark.parametrize(
    ("zone", "hint"),
    [("Europe/Berln", "'Europe/Berlin'"), ("", "like"), ("../etc/passwd", ""), (5, "like")],
)
def test_an_unknown_zone_is_refused(zone: Any, hint: str) -> None:
    with pytest.raises(ScheduleInvalid, match="There is no time zone") as raised:
        Schedule(cron="@daily", zone=zone)
    [problem] = raised.value.details["problems"]
    assert problem["code"] == "unknown_timezone"
    assert hint in problem["hint"]
