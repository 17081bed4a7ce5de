"""From rows, as both stores select them, to the records callers see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from stepwell.kernel.clock import to_datetime
from stepwell.kernel.codec import decode
from stepwell.kernel.outcomes import read_error
from stepwell.kernel.run import Attempt, Run, Step, WorkerInfo

# What run_from_row expects, followed by the bodies of input, output and error.
RUN_COLUMNS = (
    "id", "status", "definition", "version", "attempt", "parent_run_id", "forked_from",
    "idempotency_key", "concurrency_key", "concurrency_limit", "priority", "created_at", "started_at", "completed_at",
    "deadline_at",
)  # fmt: skip


def run_from_row(row: Sequence[Any]) -> Run:
    (
        id_, status, definition, version, attempt, parent_run_id, forked_from, idempotency_key,
        concurrency_key, concurrency_limit, priority, created_at, started_at, completed_at, deadline_at, input_,
        output, error,
    ) = row  # fmt: skip
    created = to_datetime(created_at)
    assert created is not None
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
        created_at=created,
        started_at=to_datetime(started_at),
        completed_at=to_datetime(completed_at),
        deadline_at=to_datetime(deadline_at),
    )


def attempts_by_key(rows: Iterable[Sequence[Any]]) -> dict[str, list[Attempt]]:
    """Rows (key, number, error, started_at, failed_at) by step."""
    found: dict[str, list[Attempt]] = {}
    for key, number, error, started_at, failed_at in rows:
        info, started, failed = read_error(error), to_datetime(started_at), to_datetime(failed_at)
        assert info is not None and started is not None and failed is not None
        found.setdefault(key, []).append(Attempt(number, info, started, failed))
    return found


def step_from_row(row: Sequence[Any], failures: dict[str, list[Attempt]]) -> Step:
    key, kind, status, attempts, output, error, started_at, completed_at = row
    started = to_datetime(started_at)
    assert started is not None
    return Step(
        key=key,
        kind=kind,
        status=status,
        attempts=attempts,
        output=_value(output),
        error=read_error(error),
        started_at=started,
        completed_at=to_datetime(completed_at),
        failures=tuple(failures.get(key, ())),
    )


def step_from_wait(row: Sequence[Any]) -> Step:
    key, kind, created_at = row
    started = to_datetime(created_at)
    assert started is not None
    return Step(key, kind, "waiting", 1, None, None, started, None)


def worker_from_row(row: Sequence[Any], now: int) -> WorkerInfo:
    id_, host, pid, concurrency, programs, started_at, heartbeat_at, expires_at = row
    started, beat, expires = (to_datetime(at) for at in (started_at, heartbeat_at, expires_at))
    assert started is not None and beat is not None and expires is not None
    return WorkerInfo(
        id=id_,
        host=host,
        pid=pid,
        concurrency=concurrency,
        programs=tuple(json.loads(programs)),
        started_at=started,
        heartbeat_at=beat,
        expires_at=expires,
        alive=expires_at > now,
    )


def _value(text: str | None) -> Any:
    return None if text is None else decode(text)
