"""The nodes that wait, emit and start runs: what their configs may say."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.graph.problems import Problems
from stepwell.node import NodeType
from stepwell.nodes.delay import delay
from stepwell.nodes.emit import emit
from stepwell.nodes.run import run
from stepwell.nodes.wait_event import wait_event


def problems_of(kind: NodeType, config: dict[str, Any]) -> list[tuple[str, str]]:
    problems = Problems()
    kind.check(config, "config", problems)
    return [(each.path, each.message) for each in problems.found]


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (delay, {"duration": "1h30m"}),
        (delay, {"duration": "PT5M"}),
        (delay, {"duration": 2.5}),
        (delay, {"duration": "{{input.wait}}"}),
        (delay, {"duration_ms": 1500}),
        (delay, {"duration_ms": "@input.wait"}),
        (delay, {"until": "2026-01-31T12:00:00Z"}),
        (delay, {"until": "2026-01-31T12:00:00+02:00", "duration": None}),
        (delay, {"until": "2026-01-31"}),
        (delay, {"until": "{{input.day}}T12:00:00Z"}),
        (wait_event, {"event": "paid"}),
        (
            wait_event,
            {
                "event": "paid", "match": {"id": "@input.id"}, "timeout": "1d", "lookback": 60,
                "on_timeout": "fail",
            },
        ),
        (wait_event, {"event": "paid", "match": "{{input.match}}", "timeout": "{{input.wait}}"}),
        (emit, {"event": "paid", "payload": {"id": 1}, "key": "1", "once": True}),
        (emit, {"type": "paid"}),
        (run, {"definition": "tidy-up", "input": {"a": "@input.a"}, "wait": False, "version": 2}),
    ],
)  # fmt: skip
def test_good_configs_pass(kind: NodeType, config: dict[str, Any]) -> None:
    assert problems_of(kind, config) == []


@pytest.mark.parametrize(
    ("kind", "config", "path", "message"),
    [
        (delay, {}, "config", "Give one of duration, until, duration_ms."),
        (
            delay, {"duration": "{{input.wait}}", "until": "2026-01-31"}, "config",
            "Give only one of duration, until, duration_ms.",
        ),
        (delay, {"duratoin": "5s"}, "config.duratoin", "A delay has no 'duratoin'."),
        (delay, {"duration": "soon"}, "config.duration", "'soon' is not a duration. Write"),
        (delay, {"duration": True}, "config.duration", "True is not a duration."),
        (delay, {"duration": -1}, "config.duration", "-1 must lie between"),
        (delay, {"duration_ms": -1}, "config.duration_ms", "Input should be greater"),
        (delay, {"until": "tomorrow"}, "config.until", "This is not a time; write it like 2026"),
        (wait_event, {}, "config.event", "A wait_event needs 'event'."),
        (wait_event, {"event": "a", "timeout": "1x"}, "config.timeout", "'1x' is not a duration."),
        (wait_event, {"event": "a", "match": 3}, "config.match", "Input should be"),
        (wait_event, {"event": "a", "on_timeout": "cry"}, "config.on_timeout", "Input should be"),
        (emit, {"payload": 1}, "config.event", "An emit needs 'event'."),
        (run, {"input": 1}, "config.definition", "A run needs 'definition'."),
        (run, {"definition": "a", "version": 0}, "config.version", "Input should be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_stands(
    kind: NodeType, config: dict[str, Any], path: str, message: str
) -> None:
    [(found_path, found)] = problems_of(kind, config)
    assert found_path == path
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (delay, {"control_delay", "sleep"}),
        (run, {"subworkflow"}),
        (wait_event, set()),
        (emit, set()),
    ],
)
def test_they_are_handed_the_run_and_known_by_their_old_names(
    kind: NodeType, names: set[str]
) -> None:
    assert not kind.acts
    assert set(kind.aliases) == names
