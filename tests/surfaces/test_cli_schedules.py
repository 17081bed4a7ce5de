"""`stepwell schedules preview`: what it prints, and how it exits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.surfaces.support import Cli

DOCS = Path(__file__).parent.parent.parent / "docs"
NIGHTLY = ("schedules", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-27")


def test_a_preview_as_a_document(lite: Cli) -> None:
    assert lite.ok(*NIGHTLY, "--count", "3") == {
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "description": "At 02:30, every day, in Europe/Berlin.",
        "next": [
            "2026-03-27T02:30:00+01:00",
            "2026-03-28T02:30:00+01:00",
            "2026-03-29T03:00:00+02:00",
        ],
    }
    assert len(lite.ok(*NIGHTLY)["next"]) == 5
    assert len(lite.ok(*NIGHTLY, "--count", "1000")["next"]) == 1000


def test_a_preview_for_people_is_the_one_of_the_documentation(lite: Cli) -> None:
    page = (DOCS / "triggers.md").read_text("utf-8")
    [command] = re.findall(r"^stepwell (schedules preview .*)$", page, re.MULTILINE)
    done = lite.shell(command)
    assert done.exit_code == 0
    assert f"```\n{done.stdout}```" in page


def test_even_steps_begin_where_the_preview_does(lite: Cli) -> None:
    found = lite.ok(
        "schedules", "preview", "--every", "90m", "--tz", "Asia/Kolkata",
        "--from", "2026-06-01T09:00Z", "--count", "2",
    )  # fmt: skip
    assert found == {
        "cron": None,
        "every": "90m",
        "timezone": "Asia/Kolkata",
        "description": "Every 1 hour 30 minutes.",
        "next": ["2026-06-01T16:00:00+05:30", "2026-06-01T17:30:00+05:30"],
    }


def test_the_next_fires_are_those_from_now_on_and_no_store_is_needed(lite: Cli) -> None:
    found = lite.ok("schedules", "preview", "@hourly", "--count", "2")
    assert all(at.endswith(":00:00+00:00") for at in found["next"])
    assert not (lite.folder / "stepwell.db").exists()


def test_it_says_when_nothing_comes_any_more(lite: Cli) -> None:
    done = lite("schedules", "preview", "@daily", "--from", "9999-12-29")
    assert done.stdout == "At 00:00, every day, in UTC.\n  It does not fire any more.\n"


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "message"),
    [
        (["61 * * * *"], 10, "schedule_invalid", "The minute"),
        (["0 0 30 2 *"], 10, "schedule_invalid", "never fires"),
        ([""], 10, "schedule_invalid", "empty"),
        (["@daily", "--tz", "Europe/Berln"], 10, "schedule_invalid", "'Europe/Berlin'"),
        (["@daily", "--tz", "Europe/Berln", "--from", "2026-01-01"], 10, "schedule_invalid",
         "'Europe/Berlin'"),
        (["@daily", "--from", "soon"], 10, "invalid_input", "--from"),
        (["@daily", "--from", "0001-01-01"], 10, "invalid_input", "1970"),
        (["@daily", "--from", "9999-12-31T23:59-12:00"], 10, "invalid_input", "9999"),
        (["@daily", "--count", "0"], 10, "invalid_input", "--count"),
        (["@daily", "--count", "1001"], 10, "invalid_input", "--count"),
        (["--every", "0.5s"], 10, "schedule_invalid", "less than one second"),
        (["--every", "x"], 10, "schedule_invalid", "every"),
        ([], 20, "usage_error", "--every"),
        (["@daily", "--every", "1h"], 20, "usage_error", "one of the two"),
        (["*", "*", "*", "*", "*"], 20, "usage_error", "quotes"),
    ],
)  # fmt: skip
def test_bad_input(lite: Cli, words: list[str], exit_code: int, code: str, message: str) -> None:
    done = lite("schedules", "preview", *words, "--json")
    assert done.exit_code == exit_code
    assert done.document["error"]["code"] == code
    assert message in done.document["error"]["message"]


def test_an_expression_without_quotes_is_told_that_it_needs_them(lite: Cli) -> None:
    done = lite("schedules", "preview", "0", "2", "a.txt", "b.txt", "1-5")
    assert (done.exit_code, 'quotes, like "0 2 * * 1-5"' in done.stderr) == (20, True)


def test_a_field_is_named_with_its_article(lite: Cli) -> None:
    assert "An hour is 0 to 23" in lite("schedules", "preview", "0 25 * * *").stderr
