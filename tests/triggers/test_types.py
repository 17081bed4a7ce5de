"""Triggers in a document: every field that does not fit is named, with what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.catalog import node_types, trigger_types
from stepwell.graph.documents import checked


def problems_of(trigger: dict[str, Any], **fields: Any) -> list[Any]:
    nodes = [{"id": "a", "type": "transform", "config": {"value": 1}}]
    document = {"name": "x", "nodes": nodes, "triggers": [{"id": "t", **trigger}], **fields}
    return checked(document, node_types()).problems


DAILY = {"type": "schedule", "cron": "@daily"}
EVENT = {"type": "event", "event": "released"}


@pytest.mark.parametrize(
    ("trigger", "field", "code"),
    [
        ({}, ".type", "missing_field"),
        ({"type": 5}, ".type", "missing_field"),
        ({"type": "shcedule", "cron": "@daily"}, ".type", "unknown_type"),
        ({**DAILY, "title": 5}, ".title", "bad_field"),
        ({**DAILY, "enabled": "yes"}, ".enabled", "bad_field"),
        ({**DAILY, "corn": "@daily"}, ".corn", "unknown_field"),
        ({**DAILY, "map": 5}, ".map", "bad_field"),
        ({**DAILY, "map": {"x": "$."}}, ".map", "bad_field"),
        ({"type": "schedule", "cron": "61 * * * *"}, ".cron", "bad_cron"),
        ({"type": "schedule", "cron": "* * * *"}, ".cron", "bad_cron"),
        ({"type": "schedule", "cron": 5}, ".cron", "bad_cron"),
        ({"type": "schedule", "cron": "@fortnightly"}, ".cron", "bad_cron"),
        ({"type": "schedule", "cron": "0 0 30 2 *"}, ".cron", "bad_cron"),
        ({"type": "schedule"}, "", "missing_field"),
        ({**DAILY, "every": "1h"}, "", "bad_field"),
        ({"type": "schedule", "every": "soon"}, ".every", "bad_duration"),
        ({"type": "schedule", "every": 0}, ".every", "bad_duration"),
        ({"type": "schedule", "at": "tomorrow"}, ".at", "bad_time"),
        ({**DAILY, "misfire": "none"}, ".misfire", "bad_field"),
        ({**DAILY, "limit": 0}, ".limit", "bad_field"),
        ({**DAILY, "grace": "long"}, ".grace", "bad_duration"),
        ({**DAILY, "timezone": "UTC"}, ".timezone", "unknown_field"),
        ({"type": "event"}, ".event", "missing_field"),
        ({**EVENT, "event": ""}, ".event", "bad_field"),
        ({**EVENT, "event": ["a"]}, ".event", "bad_field"),
        ({**EVENT, "filter": "payload.n >"}, ".filter", "bad_field"),
        ({**EVENT, "filter": "payload.n + 1"}, ".filter", "bad_field"),
        ({**EVENT, "filter": "input.n == 1"}, ".filter", "bad_field"),
        ({**EVENT, "filter": 5}, ".filter", "bad_field"),
        ({**EVENT, "fliter": {}}, ".fliter", "unknown_field"),
        ({"type": "manual", "cron": "@daily"}, ".cron", "unknown_field"),
    ],
    ids=str,
)
def test_a_field_that_does_not_fit_is_named(trigger: Any, field: str, code: str) -> None:
    assert [(each.path, each.code) for each in problems_of(trigger)] == [
        (f"triggers[0]{field}", code)
    ]


HOOK = {"type": "webhook", "path": "a/b"}
SIGNED = {**HOOK, "verify": "hmac", "secret": "s"}
# Each field of a webhook, and what cannot stand there.
WRONG: dict[str, list[Any]] = {
    "path": [5, None, ["a"], "/a", "a//b", "a b", "ä", "../a", "a" * 201],
    "method": [5, None, [], [5], ["POST", 5], {}, "SEND", ["POST", "SEND"], ""],
    "verify": [5, ["hmac"], "md5", ""],
    "secret": [5, None, [5], ["a", None], {}, "", ["a", ""], ["a", "b", "c"]],
    "header": [5, ["a"], "", "a b", "a:b", "ä"],
    "tolerance": [None, True, [], {}, "soon", "", -1, "-5m"],
    "headers": [5, None, [], "a: b", {"a b": "c"}, {"": "c"}],
    "rate": [5, [], "", "30", "30/", "/1m", "0/1m", "-1/1m", "30/soon", "30/0s", "many/1m"],
    "dedupe": [5, None, "yes", []],
    "becomes": [5, None, "", "event", ["run"]],
    "event": [5, [], "", " ", "a\nb", "a" * 201],
    "map": [5, [], "$.a", {"a": "$."}, {"a": {"path": "a", "default": 1}}],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]], ids=repr
)
def test_every_field_of_a_webhook_that_does_not_fit_is_named(field: str, value: Any) -> None:
    trigger = {**SIGNED, "becomes": "both", field: value}
    assert [(each.path, each.code) for each in problems_of(trigger)] == [
        (f"triggers[0].{field}", "bad_field")
    ]


@pytest.mark.parametrize(
    ("fields", "place"),
    [({"headers": {"a": 5}}, ".headers.a"), ({"headers": {"a": None}}, ".headers.a")],
    ids=repr,
)
def test_a_part_of_a_field_is_named_as_it_was_written(fields: Any, place: str) -> None:
    assert [each.path for each in problems_of({**HOOK, **fields})] == [f"triggers[0]{place}"]


def test_there_is_a_wrong_value_for_every_field_of_a_webhook() -> None:
    assert WRONG.keys() == trigger_types()["webhook"].config.model_fields.keys()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"verify": "hmac"}, "needs a secret"),
        ({"secret": "s"}, "needs verify"),
        ({"header": "X-Sig"}, "header is for"),
        ({"verify": "github", "secret": "s", "header": "X-Sig"}, "header is for"),
        ({"event": "e"}, "event needs becomes"),
    ],
    ids=repr,
)
def test_fields_of_a_webhook_that_do_not_fit_together_are_named(fields: Any, named: str) -> None:
    [problem] = problems_of({**HOOK, **fields})
    assert problem.path == "triggers[0]"
    assert named in problem.message


def test_what_may_be_written_in_several_ways_says_so_once() -> None:
    [problem] = problems_of({**EVENT, "filter": 5})
    assert problem.message == "This must be a mapping or a text or null."
    [problem] = problems_of({**HOOK, "secret": 5})
    assert "a text or a list of texts" in problem.message


@pytest.mark.parametrize(
    "trigger",
    [
        *({"type": "schedule", "cron": cron}
          for cron in ("@hourly", "*/5 9-17 * * MON-FRI", "0 2 ? * *", "0 0 29 2 *")),
        {"type": "schedule", "every": "15m", "misfire": "all", "limit": 3, "grace": "5m"},
        {"type": "schedule", "at": "2030-01-01T09:00", "map": {"suite": "all"}},
        {**EVENT, "filter": {"env": "prod"}, "map": {"tag": "$.tag"}},
        {**EVENT, "filter": "payload.n > 3 && event.key == 'k'"},
        HOOK,
        {"type": "webhook", "verify": None, "header": None, "rate": None, "event": None,
         "map": None},
        {**SIGNED, "secret": ["new", "old"], "method": "put", "header": "X-Sig", "tolerance": 60,
         "headers": {"X-A": "1"}, "rate": "30 / 1m", "dedupe": False, "becomes": "events",
         "event": "e"},
        {"type": "manual", "title": "By hand", "enabled": False},
    ],
    ids=str,
)  # fmt: skip
def test_a_trigger_that_makes_sense_is_no_problem(trigger: Any) -> None:
    assert problems_of(trigger) == []


def test_problems_of_a_schedule_have_their_places_and_ways_out() -> None:
    found = problems_of({"type": "schedule", "cron": "@dayly", "limit": 0, "misfier": "all"})
    hints = {each.path: each.hint for each in found}
    assert hints["triggers[0].cron"] == "Did you mean '@daily'?"
    assert hints["triggers[0].misfier"] == "Did you mean 'misfire'?"
    assert "triggers[0].limit" in hints


def test_every_type_has_a_schema_and_says_what_it_is_for() -> None:
    assert {"manual", "schedule", "event", "webhook"} <= trigger_types().keys()
    for kind in trigger_types().values():
        assert kind.help
        assert kind.title
        for field in kind.schema()["properties"].values():
            assert field["description"]


NEEDY = {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}}


@pytest.mark.parametrize(
    ("trigger", "inputs", "named"),
    [
        (DAILY, NEEDY, '"who" is a required property'),
        ({**DAILY, "map": {}}, NEEDY, '"who" is a required property'),
        ({**DAILY, "map": {"who": "$.whom"}}, NEEDY, '"who" is a required property'),
        ({**DAILY, "map": {"who": {"path": "$.whom", "required": True}}}, NEEDY, "whom"),
        ({**DAILY, "map": {"who": 5}}, NEEDY, "5 is not of type"),
    ],
    ids=str,
)
def test_a_schedule_that_can_start_no_run_is_doubted(trigger: Any, inputs: Any, named: str) -> None:
    [problem] = problems_of(trigger, inputs=inputs)
    assert (problem.path, problem.code, problem.severity) == (
        "triggers[0]", "input_invalid", "warning",
    )  # fmt: skip
    assert named in problem.message


@pytest.mark.parametrize(
    ("trigger", "inputs"),
    [
        ({**DAILY, "map": {"who": "all"}}, NEEDY),
        ({**DAILY, "map": {"who": "$.scheduled_at"}}, NEEDY),
        (DAILY, {**NEEDY, "properties": {"who": {"type": "string", "default": "all"}}}),
        (DAILY, {"type": "object", "required": ["scheduled_at"]}),
        ({**EVENT, "map": {}}, None),
        (EVENT, NEEDY),  # what events carry is not known
        (HOOK, NEEDY),
    ],
    ids=str,
)
def test_a_trigger_that_may_start_runs_is_not_doubted(trigger: Any, inputs: Any) -> None:
    assert problems_of(trigger, inputs=inputs) == []
