"""Applying a batch of changes to PostgreSQL: one transaction, a statement for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from stepwell.kernel.changes import (
    FENCED,
    CancelRun,
    Change,
    ClaimRuns,
    Committed,
    EmitEvent,
    EndRun,
    Held,
    LogAttempt,
    OpenWait,
    ParkRun,
    RecordStep,
    ReleaseRun,
    SendSignal,
    StartRun,
    WatchWaits,
)
from stepwell.stores.postgres import recording, waiting
from stepwell.stores.postgres.claim import claim, peek
from stepwell.stores.postgres.ending import cancel_runs, end_runs, trees
from stepwell.stores.postgres.locking import event_name, limit_name, lock
from stepwell.stores.postgres.starting import start_runs

Found = list[tuple[int, Any]]
Locked = dict[str, asyncpg.Record]


async def apply(db: asyncpg.Connection, batch: Sequence[Change]) -> Committed:
    """Apply the batch and make it durable, or raise and leave nothing."""
    steps = [change for change in batch if type(change) is RecordStep]
    if len(steps) == len(batch) and not any(map(recording.gives_up, steps)):
        return await recording.record_alone(db, steps)
    if len(batch) == 1 and isinstance(ask := batch[0], ClaimRuns):
        nothing = await peek(db, ask)
        if nothing is not None:
            return Committed([nothing])
    await db.execute("BEGIN")
    try:
        done = await _apply(db, batch)
        await db.execute("COMMIT")
    except asyncpg.PostgresError:
        await db.execute("ROLLBACK")
        raise
    return done


async def _apply(db: asyncpg.Connection, batch: Sequence[Change]) -> Committed:
    done = Committed(outcomes=[None] * len(batch))
    by_kind: dict[type[Any], Found] = {}
    for index, change in enumerate(batch):
        by_kind.setdefault(type(change), []).append((index, change))
    locked = await _lock(db, by_kind)
    _drop_fenced(by_kind, locked, done)
    for kind, work in _ORDER:
        if found := by_kind.get(kind):
            await work(db, found, done)
    for index, ask in by_kind.get(ClaimRuns, ()):
        done.outcomes[index] = await claim(db, ask, done)
    return done


async def _lock(db: asyncpg.Connection, by_kind: dict[type[Any], Found]) -> Locked:
    """Lock all that the batch is about to touch, in order."""
    names = _names(by_kind)
    ending = [c.held.run_id for _, c in by_kind.get(EndRun, ())]
    run_ids = _run_ids(by_kind)
    cancels = [c for _, c in by_kind.get(CancelRun, ())]
    if cancels:
        living = [run.run_id for run in await trees(db, cancels) if run.living]
        run_ids.update(living)
        ending += living
    events = [c for _, c in by_kind.get(EmitEvent, ())]
    if events:
        # Only with their names locked does it stay true who waits for these events.
        await lock(db, names, [], ending)
        names = {}
        run_ids.update(row[1] for row in await waiting.waiting_for(db, events))
    locked = await lock(db, names, run_ids, ending) if names or run_ids else {}
    while cancels:
        # Children that were started while we waited for their parents.
        missed = [r.run_id for r in await trees(db, cancels) if r.living and r.run_id not in locked]
        if not missed:
            break
        locked |= await lock(db, {}, missed, missed)
    return locked


def _names(by_kind: dict[type[Any], Found]) -> dict[str, bool]:
    """Names of events and limits; True for those that nobody else may have at the same time."""
    names = {
        event_name(c.event): False for _, c in by_kind.get(OpenWait, ()) if c.event is not None
    }
    names.update({event_name(c.type): True for _, c in by_kind.get(EmitEvent, ())})
    names.update(
        {limit_name(key): True for _, c in by_kind.get(StartRun, ()) for key, _ in c.limits}
    )
    return names


def _run_ids(by_kind: dict[type[Any], Found]) -> set[str]:
    held = {
        h.run_id
        for found in by_kind.values()
        for _, change in found
        if (h := getattr(change, "held", None)) is not None
    }
    children = {c.child_run_id for _, c in by_kind.get(OpenWait, ()) if c.child_run_id is not None}
    return held | children | {c.run_id for _, c in by_kind.get(SendSignal, ())}


def _drop_fenced(by_kind: dict[type[Any], Found], locked: Locked, done: Committed) -> None:
    """Take out the changes of whoever no longer holds the run it says it holds."""
    for kind, found in by_kind.items():
        fenced = [(index, change) for index, change in found if _is_fenced(change, locked)]
        if fenced:
            by_kind[kind] = [pair for pair in found if pair not in fenced]
            for index, _ in fenced:
                done.outcomes[index] = FENCED


def _is_fenced(change: Change, locked: Locked) -> bool:
    held: Held | None = getattr(change, "held", None)
    if held is None:
        return False
    run = locked.get(held.run_id)
    return run is None or run[1] != held.owner or run[2] != held.fence


_ORDER: list[tuple[type[Any], Any]] = [
    (StartRun, start_runs),
    (RecordStep, recording.record_steps),
    (LogAttempt, recording.log_attempts),
    (OpenWait, waiting.open_waits),
    (SendSignal, waiting.send_signals),
    (EmitEvent, waiting.emit_events),
    (EndRun, end_runs),
    (ParkRun, waiting.park_runs),
    (WatchWaits, waiting.watch_waits),
    (ReleaseRun, waiting.release_runs),
    (CancelRun, cancel_runs),
]
