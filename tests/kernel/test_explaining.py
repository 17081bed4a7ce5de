"""Explanations: for every state of a run one code, one sentence, and what it is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell.kernel.clock import to_micros
from stepwell.kernel.explaining import RunFacts, WaitFact, explain
from stepwell.kernel.limits import definition_limit, key_limit
from stepwell.kernel.programs import GRAPH_PROGRAM, graph_program, graph_programs
from stepwell.kernel.run import ErrorInfo, WorkerInfo

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 7, 2, 12, tzinfo=UTC)
SHOWN = "2026-07-02 12:00:00Z"
NOW = to_micros(AT)


def _worker(id: str, *programs: str, alive: bool = True) -> WorkerInfo:
    return WorkerInfo(id, "host", 1, 10, programs, AT, AT, AT, alive)


def _wait(kind: str, **changes: Any) -> WaitFact:
    fields: dict[str, Any] = {
        "key": kind, "due_at": None, "event": None, "match": None, "child_run_id": None
    }  # fmt: skip
    return WaitFact(kind=kind, **fields | changes)


def _facts(status: str, **changes: Any) -> RunFacts:
    fields: dict[str, Any] = {
        "run_id": "r1", "definition": "onboard", "version": 2, "program": "code:onboard@2",
        "now": NOW, "due_at": None, "owner": None, "blocked_on": None, "limit_capacity": None,
        "limit_taken": 0, "limit_holders": [], "queued_ahead": 0, "running_steps": [],
        "waits": [], "workers": [_worker("w1", "code:onboard@2")], "error": None,
    }  # fmt: skip
    return RunFacts(status=status, **fields | changes)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("completed", "The run completed."),
        ("cancelled", "The run was cancelled."),
        ("timed_out", "The run ran out of time."),
        ("failed", "The run failed."),
    ],
)
def test_an_ended_run_says_how_it_ended(status: str, sentence: str) -> None:
    found = explain(_facts(status, due_at=NOW, owner="w1", waits=[_wait("sleep")]))
    assert (found.code, found.message, found.details) == (status, sentence, {})


def test_a_failed_run_names_its_step_and_its_error() -> None:
    error = ErrorInfo("ValueError", "no card", "charge")
    found = explain(_facts("failed", error=error))
    assert found.message == "The run failed in step 'charge': ValueError: no card"
    assert found.details == {"error": error}
    found = explain(_facts("failed", error=ErrorInfo("ValueError", "no card")))
    assert found.message == "The run failed: ValueError: no card"


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        (definition_limit("acme", "onboard"), "runs of 'onboard'"),
        (key_limit("acme", "tenant/7"), "runs with the key 'tenant/7'"),
    ],
)
def test_a_run_above_a_limit_says_who_holds_it_without_the_workspace(limit: str, what: str) -> None:
    found = explain(
        _facts("pending", blocked_on=limit, limit_capacity=3, limit_taken=2, queued_ahead=4,
               limit_holders=["r8", "r9"])
    )  # fmt: skip
    assert found.code == "slot"
    assert found.message == f"Queued: 2 of 3 {what} are active, 4 queued ahead."
    assert found.details == {
        "limit": limit, "capacity": 3, "held_by": ["r8", "r9"], "queued_ahead": 4
    }  # fmt: skip


def test_a_run_called_up_for_a_slot_is_no_longer_blocked() -> None:
    found = explain(_facts("pending", blocked_on=key_limit("acme", "k"), due_at=NOW))
    assert found.code == "queued"


def test_a_running_run_names_its_worker_and_its_steps() -> None:
    found = explain(_facts("running", owner="w1", running_steps=["charge", "mail"]))
    assert found.code == "running"
    assert found.message == "Running on worker w1, in step charge, mail."
    assert found.details == {"worker": "w1", "steps": ["charge", "mail"]}
    assert explain(_facts("running", owner="w1")).message == "Running on worker w1."


@pytest.mark.parametrize(
    "workers",
    [[], [_worker("w2", "code:onboard@2")], [_worker("w1", "code:onboard@2", alive=False)]],
)
def test_a_run_whose_worker_is_silent_says_so(workers: list[WorkerInfo]) -> None:
    found = explain(_facts("running", owner="w1", workers=workers))
    assert (found.code, found.details) == ("worker_lost", {"worker": "w1"})
    assert "w1 has gone silent" in found.message


def test_a_due_run_names_the_living_workers_that_can_take_it() -> None:
    workers = [
        _worker("w1", "code:onboard@2"),
        _worker("w2", "code:other@1"),
        _worker("w3", "code:onboard@2", alive=False),
    ]
    found = explain(_facts("pending", due_at=NOW, workers=workers, waits=[_wait("sleep")]))
    assert (found.code, found.details) == ("queued", {"workers": ["w1"]})


@pytest.mark.parametrize(
    ("workers", "code", "message", "details"),
    [
        ([], "no_worker", "No worker is alive.", {}),
        ([_worker("w1", "code:onboard@2", alive=False)], "no_worker", "Start one", {}),
        (
            [_worker("w1", "code:onboard@3", "code:onboard@1", "code:other@2")],
            "unknown_version",
            "No living worker has version 2 of 'onboard'; they have onboard@1, onboard@3.",
            {"version": 2, "programs": ["onboard@1", "onboard@3"]},
        ),
        (
            [_worker("w1", "code:other@2"), _worker("w2", "code:onboard@2", alive=False)],
            "unknown_definition",
            "No living worker has the definition 'onboard'. Start one that has: "
            "stepwell worker MODULE",
            {"definition": "onboard", "programs": ["other@2"]},
        ),
    ],
)
def test_a_due_run_that_nobody_can_take_says_what_is_missing(
    workers: list[WorkerInfo], code: str, message: str, details: dict[str, Any]
) -> None:
    found = explain(_facts("pending", due_at=NOW, workers=workers))
    assert (found.code, found.details) == (code, details)
    assert message in found.message


@pytest.mark.parametrize(
    ("program", "code", "message", "details"),
    [
        (
            graph_program(function="score"), "unknown_function",
            "No living worker has the Python function 'score'; they have load, send.",
            {"function": "score", "functions": ["load", "send"]},
        ),
        (
            graph_program(["acme_mail"]), "unknown_node_type",
            "No living worker has the node type 'acme_mail'; they have none.",
            {"node_type": "acme_mail", "node_types": []},
        ),
        (
            graph_program(["acme_mail"], "send"), "unknown_node_type",
            "No living worker has the node type 'acme_mail' and the Python function 'send'; "
            "they have load, send.",
            {"node_type": "acme_mail", "node_types": [], "function": "send",
             "functions": ["load", "send"]},
        ),
    ],
)  # fmt: skip
def test_a_graph_that_nobody_can_go_on_with_says_what_it_needs(
    program: str, code: str, message: str, details: dict[str, Any]
) -> None:
    programs = [GRAPH_PROGRAM, *graph_programs([], ["send", "load"])]
    workers = [
        _worker("w1", *programs),
        _worker("w2", *graph_programs(["acme_mail"], ["score"]), alive=False),
    ]
    found = explain(_facts("running", due_at=NOW, program=program, workers=workers))
    assert (found.code, found.message, found.details) == (code, message, details)
    workers.append(_worker("w3", program))
    found = explain(_facts("running", due_at=NOW, program=program, workers=workers))
    assert (found.code, found.details) == ("queued", {"workers": ["w3"]})


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("pending", "delay", f"Starts at {SHOWN}."),
        ("running", "suspect", f"Taken up again at {SHOWN}, apart from others"),
    ],
)
def test_a_run_that_is_not_due_yet_says_when(status: str, code: str, message: str) -> None:
    found = explain(_facts(status, due_at=to_micros(LATER)))
    assert (found.code, found.details) == (code, {"due_at": LATER})
    assert message in found.message


@pytest.mark.parametrize(
    ("wait", "message", "details"),
    [
        (
            _wait("sleep", due_at=to_micros(LATER)),
            f"Sleeping in 'sleep' until {SHOWN}.",
            {"due_at": LATER},
        ),
        (
            _wait("event", event="paid", match={"id": 7}),
            "Waiting in 'event' for the event 'paid' that matches {'id': 7}.",
            {"event": "paid", "match": {"id": 7}},
        ),
        (
            _wait("event", event="paid", due_at=to_micros(LATER)),
            f"Waiting in 'event' for the event 'paid' until {SHOWN}.",
            {"event": "paid", "due_at": LATER},
        ),
        (
            _wait("child", child_run_id="r2"),
            "Waiting in 'child' for the run r2.",
            {"child_run_id": "r2"},
        ),
        (
            _wait("retry", due_at=to_micros(LATER)),
            f"Step 'retry' failed and is tried again at {SHOWN}.",
            {"due_at": LATER},
        ),
        (
            _wait("unknown", event="charge.outcome"),
            "Whether step 'unknown' took effect is not known; "
            "send the signal 'charge.outcome' to decide, with "
            '{"action": "retry"}, {"action": "fail"} or {"output": …}.',
            {"event": "charge.outcome"},
        ),
    ],
)
def test_a_waiting_run_says_for_what(wait: WaitFact, message: str, details: dict[str, Any]) -> None:
    found = explain(_facts("waiting", waits=[wait], due_at=wait.due_at))
    assert (found.code, found.message) == (wait.kind, message)
    assert found.details == {"step": wait.kind, **details}


def test_of_several_waits_the_one_that_ends_first_is_explained() -> None:
    waits = [
        _wait("event", event="paid"),
        _wait("sleep", key="week", due_at=to_micros(LATER) + 1),
        _wait("sleep", key="day", due_at=to_micros(LATER)),
    ]
    found = explain(_facts("waiting", waits=waits, due_at=to_micros(LATER)))
    assert (found.code, found.details["step"]) == ("sleep", "day")
    assert found.details["also_waiting"] == ["event", "week"]


def test_a_run_without_any_reason_admits_it() -> None:
    assert explain(_facts("waiting")).code == "none"
