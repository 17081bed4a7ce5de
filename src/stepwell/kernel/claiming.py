"""Starting and claiming in one go: what a store may do when both share a batch."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.kernel.changes import Change, Claimed, ClaimedRun, ClaimRuns, StartRun


def date_claims(batch: Sequence[Change], now: int) -> None:
    """Say that the claims of the writer take place now, and not when they were sent.

    A store may have been away or locked in between. The turn of a throttle that a claim takes would
    be over before its run begins, and others would begin beside it.
    """
    for change in batch:
        if type(change) is ClaimRuns and change.dated:
            change.now = now


def start_with_claim(batch: Sequence[Change]) -> tuple[StartRun, ClaimRuns] | None:
    """The start and the claim of a batch that is nothing else, if the one may answer the other."""
    if len(batch) != 2:
        return None
    start, ask = batch if type(batch[0]) is StartRun else reversed(batch)
    if type(start) is StartRun and type(ask) is ClaimRuns and _fits(start, ask):
        return start, ask
    return None


def _fits(start: StartRun, ask: ClaimRuns) -> bool:
    """Whether the worker could be given the run at once, as far as these two can tell."""
    return (
        ask.limit > 0
        and not (ask.sweep or ask.resent or ask.suspects)
        and start.program in ask.programs
        and start.workspace_id == ask.workspace_id
        and start.due_at <= ask.now
        and (start.expires_at is None or start.expires_at > ask.now)
        and not start.limits
        and not start.is_paced
        and start.parent_run_id is None
        and start.forked_from is None
    )


def taken_at_once(start: StartRun, next_at: int | None) -> Claimed:
    """What the claim says when it found nothing but the run that was just started."""
    run = ClaimedRun(
        start.id, start.definition, start.version, start.program, 1, 1, start.input,
        start.created_at, start.deadline_at, start.idempotency_key, start.key_base, start.revision,
        start.trigger, due_at=start.due_at,
    )  # fmt: skip
    times = [at for at in (next_at, start.deadline_at) if at is not None]
    return Claimed([run], min(times, default=None))
