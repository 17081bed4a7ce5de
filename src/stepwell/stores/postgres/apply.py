"""Applying a batch of changes to PostgreSQL: one transaction, a statement for each kind."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import asyncpg

from stepwell.kernel.changes import (
    FENCED,
    CancelRun,
    Change,
    Claimed,
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
    RestRun,
    ResumeRun,
    SendSignal,
    StartRun,
    WatchWaits,
)
from stepwell.kernel.claiming import date_claims, start_with_claim
from stepwell.kernel.clock import Clock
from stepwell.stores.postgres import emitting, pacing, recording, waiting
from stepwell.stores.postgres.claim import claim, peek
from stepwell.stores.postgres.columns import packable
from stepwell.stores.postgres.ending import cancel_runs, end_alone, end_runs, trees
from stepwell.stores.postgres.immediate import start_and_take
from stepwell.stores.postgres.locking import event_name, limit_name, lock, lock_names
from stepwell.stores.postgres.starting import adoptable, start_runs
from stepwell.stores.postgres.waking import emit_alone

log = logging.getLogger("stepwell.postgres")

# How often a batch that ran into a deadlock is applied, before the writer is told to wait.
TRIES = 3

Found = list[tuple[int, Any]]
Locked = dict[str, asyncpg.Record]


async def apply(
    db: asyncpg.Connection, batch: Sequence[Change], clock: Clock, *, expectant: bool = False
) -> Committed:
    """Apply the batch and make it durable, or raise: then sending it again does no harm.

    `expectant`: a claim will probably find something, so that no look need come first.
    """
    for _ in range(TRIES - 1):
        try:
            return await _apply(db, batch, clock, expectant)
        except asyncpg.TransactionRollbackError as error:
            # The order of locks is meant to rule this out; if it does not, somebody else is done.
            log.warning("A batch met another one and is applied again: %s", error)
    return await _apply(db, batch, clock, expectant)


async def _apply(
    db: asyncpg.Connection, batch: Sequence[Change], clock: Clock, expectant: bool
) -> Committed:
    """Apply it in one statement if its kinds allow that, else in a transaction."""
    date_claims(batch, clock.now())  # the server may have been away
    steps = [change for change in batch if type(change) is RecordStep]
    if len(steps) == len(batch) and not any(map(recording.gives_up, steps)):
        return await recording.record_alone(db, steps)
    ends = [change for change in batch if type(change) is EndRun]
    if len(ends) == len(batch):
        return await _apply_ends(db, ends, clock)
    alone = batch[0] if len(batch) == 1 else None
    if isinstance(alone, ClaimRuns) and not (expectant or alone.resent or alone.suspects):
        # Most claims find nothing, and to find nothing takes one trip and no transaction.
        nothing = await peek(db, alone)
        if nothing is not None:
            return Committed([nothing])
    if _are_events(batch):
        return await _apply_events(db, batch, clock, expectant)
    if pair := start_with_claim(batch):
        return await _apply_start(db, batch, clock, *pair)
    return await _commit(db, batch, clock)


def _are_events(batch: Sequence[Change]) -> bool:
    """Whether it is events that no run emits, with claims at most."""
    kinds = {type(change) for change in batch}
    return (
        EmitEvent in kinds
        and kinds <= {EmitEvent, ClaimRuns}
        and not any(type(change) is EmitEvent and change.held for change in batch)
    )


async def _apply_start(
    db: asyncpg.Connection, batch: Sequence[Change], clock: Clock, start: StartRun, ask: ClaimRuns
) -> Committed:
    """A start that shares its batch with a claim, as it does on an idle system."""
    new, claimed = await start_and_take(db, start, ask)
    if not new:
        return await _commit(db, batch, clock)
    done = Committed(outcomes=[None, None])
    if claimed is None:
        # Others come first, so the claim is made as usual; the start is durable meanwhile.
        done = await _commit(db, [start, ask], clock)
        claimed = done.outcomes[1]
    done.outcomes = [(start.id, True) if c is start else claimed for c in batch]
    done.due = done.due or not claimed.runs
    return done


async def _apply_ends(db: asyncpg.Connection, ends: list[EndRun], clock: Clock) -> Committed:
    """Ends of runs are apart from each other, so most of them need no transaction."""
    done = Committed(outcomes=[None] * len(ends))
    ended = await end_alone(db, ends)
    done.ended = [change.held.run_id for change, did in zip(ends, ended, strict=True) if did]
    left = [index for index, did in enumerate(ended) if not did]
    if left:
        rest = await _commit(db, [ends[index] for index in left], clock)
        for index, outcome in zip(left, rest.outcomes, strict=True):
            done.outcomes[index] = outcome
        done.ended += rest.ended
        done.due = rest.due
    return done


async def _apply_events(
    db: asyncpg.Connection, batch: Sequence[Change], clock: Clock, expectant: bool
) -> Committed:
    """Events that no run emits, with or without claims."""
    events = [change for change in batch if type(change) is EmitEvent]
    asks = [change for change in batch if type(change) is ClaimRuns]
    plain = len(asks) == 1 and not (asks[0].sweep or asks[0].resent or asks[0].suspects)
    told = await emit_alone(db, events, asks[0] if plain else None)
    if told is None:
        return await _commit(db, batch, clock)
    done, claimed = told
    claims: list[Claimed | None] = [claimed]
    if claimed is None and asks:
        # Claimed as usual; the events are durable meanwhile.
        rest = await _apply(db, asks, clock, expectant or done.due)
        done.due = done.due or rest.due
        claims = rest.outcomes
    emitted, given = iter(done.outcomes), iter(claims)
    done.outcomes = [next(emitted if type(c) is EmitEvent else given) for c in batch]
    return done


async def _commit(db: asyncpg.Connection, batch: Sequence[Change], clock: Clock) -> Committed:
    try:
        await db.execute("BEGIN")
        done = await apply_within(db, batch, clock)
        await db.execute("COMMIT")
    except Exception:
        if not db.is_closed():
            await db.execute("ROLLBACK")
        raise
    return done


async def apply_within(db: asyncpg.Connection, batch: Sequence[Change], clock: Clock) -> Committed:
    """Apply the batch within a transaction of the caller's."""
    done = Committed(outcomes=[None] * len(batch))
    by_kind: dict[type[Any], Found] = {}
    for index, change in enumerate(batch):
        by_kind.setdefault(type(change), []).append((index, change))
    locked, waits = await _lock(db, by_kind)
    _drop_fenced(by_kind, locked, done)
    for kind, work in _ORDER:
        if found := by_kind.get(kind):
            if kind is SendSignal:
                started = {change.id for _, change in by_kind.get(StartRun, ())}
                if mine := started & {change.run_id for _, change in found}:
                    locked |= await lock(db, {}, mine, [])
                await waiting.send_signals(db, found, locked, done)
            elif kind is EmitEvent:
                own = by_kind.get(OpenWait)
                await emitting.emit_events(db, found, None if own else waits, done)
            else:
                await work(db, found, done)
    date_claims(batch, clock.now())  # locks may have been waited for
    for index, asking in by_kind.get(ClaimRuns, ()):
        done.outcomes[index] = await claim(db, asking, done)
    return done


async def _lock(
    db: asyncpg.Connection, by_kind: dict[type[Any], Found]
) -> tuple[Locked, emitting.Waits]:
    """Lock all that the batch is about to touch, in order; and who waits for its events."""
    waits: emitting.Waits = {}
    names = _names(by_kind)
    ending = [c.held.run_id for _, c in by_kind.get(EndRun, ())]
    run_ids = _run_ids(by_kind)
    cancels = [c for _, c in by_kind.get(CancelRun, ())]
    if cancels:
        living = [run.run_id for run in await trees(db, cancels) if run.living]
        run_ids.update(living)
        ending += living
    retried = [c.forked_from for _, c in by_kind.get(StartRun, ()) if c.fork_for_retry]
    if retried:
        run_ids.update(await adoptable(db, retried))
    events = [c for _, c in by_kind.get(EmitEvent, ())]
    debounced = [c for _, c in by_kind.get(StartRun, ()) if c.debounce is not None]
    if events or debounced:
        # Only with their names locked does it stay true who waits for these events, or keys.
        await lock_names(db, names, ending)
        names = {}
        if events:
            waits = await emitting.waiting_for(db, events, emitting.places_of(events))
            run_ids.update(wait.run_id for found in waits.values() for wait in found)
        if debounced:
            run_ids.update(await pacing.absorbing(db, debounced))
    locked = await lock(db, names, run_ids, ending) if names or run_ids else {}
    while cancels:
        # Children that were started while we waited for their parents.
        missed = [r.run_id for r in await trees(db, cancels) if r.living and r.run_id not in locked]
        if not missed:
            break
        locked |= await lock(db, {}, missed, missed)
    return locked, waits


def _names(by_kind: dict[type[Any], Found]) -> dict[str, bool]:
    """Names of events and limits; True for those that nobody else may have at the same time."""
    names = {
        event_name(c.event): False for _, c in by_kind.get(OpenWait, ()) if c.event is not None
    }
    names.update({event_name(c.type): True for _, c in by_kind.get(EmitEvent, ())})
    names.update(
        {limit_name(key): True for _, c in by_kind.get(StartRun, ()) for key, _ in c.limits}
    )
    paced = [c for _, c in by_kind.get(StartRun, ()) if c.is_paced]
    names.update(dict.fromkeys(pacing.names_of(paced), True))
    return names


def _run_ids(by_kind: dict[type[Any], Found]) -> set[str]:
    held = {
        h.run_id
        for found in by_kind.values()
        for _, change in found
        if (h := getattr(change, "held", None)) is not None
    }
    children = {c.child_run_id for _, c in by_kind.get(OpenWait, ()) if c.child_run_id is not None}
    signalled = {c.run_id for _, c in by_kind.get(SendSignal, ()) if packable(c.run_id)}
    return held | children | signalled


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
    if held is None or type(change) in (ResumeRun, RestRun):  # a parked run is held by nobody
        return False
    run = locked.get(held.run_id)
    return run is None or run[1] != held.owner or run[2] != held.fence


_ORDER: list[tuple[type[Any], Any]] = [
    (StartRun, start_runs),
    (RecordStep, recording.record_steps),
    (LogAttempt, recording.log_attempts),
    (OpenWait, waiting.open_waits),
    (SendSignal, waiting.send_signals),
    (EmitEvent, emitting.emit_events),
    (EndRun, end_runs),
    (ParkRun, waiting.park_runs),
    (RestRun, waiting.rest_runs),
    (WatchWaits, waiting.watch_waits),
    (ResumeRun, waiting.resume_runs),
    (ReleaseRun, waiting.release_runs),
    (CancelRun, cancel_runs),
]
