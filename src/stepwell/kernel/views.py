"""From rows, as both stores select them, to the records callers see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from stepwell.kernel.clock import moment, to_datetime
from stepwell.kernel.codec import decode
from stepwell.kernel.explaining import WaitFact
from stepwell.kernel.outcomes import read_error
from stepwell.kernel.run import Attempt, Run, Step, WorkerInfo

# What run_from_row expects, followed by the bodies of input, output and error.
RUN_COLUMNS = (
    "id", "status", "definition", "version", "attempt", "parent_run_id", "forked_from",
    "idempotency_key", "concurrency_key", "concurrency_limit", "priority", "created_at",
    "started_at", "completed_at", "deadline_at", "retention_seconds", "key_base", "revision",
    "trigger",
)  # fmt: skip


def run_from_row(row: Sequence[Any]) -> Run:
    (
        id_, status, definition, version, attempt, parent_run_id, forked_from, idempotency_key,
        concurrency_key, concurrency_limit, priority, created_at, started_at, completed_at,
        deadline_at, retention_seconds, key_base, revision, trigger, input_,
        output, error,
    ) = row  # fmt: skip
    return Run(
        id=id_,
        status=status,
        definition=definition,
        version=version,
        input=_value(input_),
        output=_value(output),
        error=read_error(error),
        attempt=attempt,
        parent_run_id=parent_run_id,
        forked_from=forked_from,
        idempotency_key=idempotency_key,
        concurrency_key=concurrency_key,
        concurrency_limit=concurrency_limit,
        priority=priority,
        created_at=moment(created_at),
        started_at=to_datetime(started_at),
        completed_at=to_datetime(completed_at),
        deadline_at=to_datetime(deadline_at),
        retention_seconds=retention_seconds,
        key_base=key_base or id_,
        revision=revision,
        trigger=_value(trigger),
    )


def attempts_by_key(rows: Iterable[Sequence[Any]]) -> dict[str, list[Attempt]]:
    """Rows (key, number, error, started_at, failed_at) by step."""
    found: dict[str, list[Attempt]] = {}
    for key, number, error, started_at, failed_at in rows:
        info = read_error(error)
        assert info is not None
        attempt = Attempt(number, info, moment(started_at), moment(failed_at))
        found.setdefault(key, []).append(attempt)
    return found


def step_from_row(row: Sequence[Any], failures: dict[str, list[Attempt]]) -> Step:
    key, kind, status, attempts, output, error, started_at, completed_at = row
    return Step(
        key=key,
        kind=kind,
        status=status,
        attempts=attempts,
        output=_value(output),
        error=read_error(error),
        started_at=moment(started_at),
        completed_at=to_datetime(completed_at),
        failures=tuple(failures.get(key, ())),
    )


def step_from_wait(row: Sequence[Any]) -> Step:
    key, kind, created_at, ended_at, about = row
    status = "waiting" if ended_at is None else "completed"
    return Step(
        key, kind, status, 1, None, None, moment(created_at), to_datetime(ended_at),
        about=_value(about),
    )  # fmt: skip


def wait_fact(row: Sequence[Any]) -> WaitFact:
    key, kind, due_at, event, match, child_run_id, about = row
    return WaitFact(key, kind, due_at, event, _value(match), child_run_id, _value(about))


def worker_from_row(row: Sequence[Any], now: int) -> WorkerInfo:
    id_, host, pid, concurrency, programs, started_at, heartbeat_at, expires_at = row
    return WorkerInfo(
        id=id_,
        host=host,
        pid=pid,
        concurrency=concurrency,
        programs=tuple(json.loads(programs)),
        started_at=moment(started_at),
        heartbeat_at=moment(heartbeat_at),
        expires_at=moment(expires_at),
        alive=expires_at > now,
    )


def _value(text: str | None) -> Any:
    return None if text is None else decode(text)
