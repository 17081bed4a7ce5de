"""Why a run is where it is: a code, a sentence, and the row that blocks it."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.kernel.clock import shown, to_datetime
from stepwell.kernel.limits import STORE_LIMIT, describe_limit
from stepwell.kernel.programs import GRAPHS, definition_of, needs_of, shown_program
from stepwell.kernel.run import ErrorInfo, Explanation, WorkerInfo
from stepwell.kernel.states import ENDED


class WaitFact(msgspec.Struct):
    """An open wait of the run."""

    key: str
    kind: str
    due_at: int | None
    event: str | None
    match: Any
    child_run_id: str | None
    # What is wanted of people.
    about: Any = None


class RunFacts(msgspec.Struct):
    """What the store knows about a run's state at one moment."""

    run_id: str
    definition: str
    version: int
    program: str
    status: str
    now: int
    due_at: int | None
    owner: str | None
    blocked_on: str | None
    limit_capacity: int | None
    limit_taken: int
    # Some of them, if there are very many.
    limit_holders: list[str]
    queued_ahead: int
    running_steps: list[str]
    waits: list[WaitFact]
    workers: list[WorkerInfo]
    error: ErrorInfo | None
    # The debounce that has put it off.
    paced_by: str | None = None
    # If it queues for a throttle: when it is its turn, as far as that is known.
    turn_at: int | None = None


def explain(facts: RunFacts) -> Explanation:
    """The one reason that matters most."""
    if facts.status in ENDED:
        return _ended(facts)
    if facts.blocked_on is not None and facts.turn_at is not None:
        return _throttled(facts, facts.blocked_on, facts.turn_at)
    if facts.blocked_on is not None and facts.due_at is None:
        if not any(worker.alive and facts.program in worker.programs for worker in facts.workers):
            return _unclaimed(facts)  # who cannot be executed is not called up
        what = describe_limit(facts.blocked_on)
        return Explanation(
            "slot",
            f"Queued: {facts.limit_taken} of {facts.limit_capacity} {what} are active, "
            f"{facts.queued_ahead} queued ahead.",
            {
                "limit": facts.blocked_on,
                "capacity": facts.limit_capacity,
                # Those of other workspaces are nobody's business.
                "held_by": [] if facts.blocked_on == STORE_LIMIT else facts.limit_holders,
                "queued_ahead": facts.queued_ahead,
            },
        )
    if facts.owner is not None and facts.status == "running":
        alive = any(worker.id == facts.owner and worker.alive for worker in facts.workers)
        if not alive:
            return Explanation(
                "worker_lost",
                f"Worker {facts.owner} has gone silent; another one takes the run over.",
                {"worker": facts.owner},
            )
        steps = ", ".join(facts.running_steps)
        return Explanation(
            "running",
            f"Running on worker {facts.owner}" + (f", in step {steps}." if steps else "."),
            {"worker": facts.owner, "steps": facts.running_steps},
        )
    if facts.due_at is not None and facts.due_at <= facts.now:
        return _unclaimed(facts)
    if facts.due_at is not None and facts.status == "running":
        return Explanation(
            "suspect",
            f"Taken up again at {shown(facts.due_at)}, apart from others: it may have taken its "
            "worker down.",
            {"due_at": to_datetime(facts.due_at)},
        )
    if facts.waits:
        return _waiting(facts)
    if facts.due_at is not None and facts.paced_by is not None:
        return _debounced(facts.due_at, facts.paced_by)
    if facts.due_at is not None:
        at = to_datetime(facts.due_at)
        return Explanation("delay", f"Starts at {shown(facts.due_at)}.", {"due_at": at})
    return Explanation("none", "Nothing is known to wait for.", {})


def _throttled(facts: RunFacts, limit_key: str, turn_at: int) -> Explanation:
    """As many as may have begun, unless it could begin itself and nobody comes for it."""
    at = max(turn_at, facts.due_at or 0)
    if at <= facts.now:
        return _unclaimed(facts)
    return Explanation(
        "throttle",
        f"Throttled: as many as may have begun, {facts.queued_ahead} queued ahead; its turn is at "
        f"{shown(at)}.",
        {"due_at": to_datetime(at), "key": limit_key, "queued_ahead": facts.queued_ahead},
    )


def _debounced(due_at: int, paced_by: str) -> Explanation:
    return Explanation(
        "debounce",
        f"Debounced: begins at {shown(due_at)}, or later if more comes until then.",
        {"due_at": to_datetime(due_at), "key": paced_by},
    )


def _ended(facts: RunFacts) -> Explanation:
    sentence = {
        "completed": "The run completed.",
        "cancelled": "The run was cancelled.",
        "timed_out": "The run ran out of time.",
        "failed": "The run failed.",
    }[facts.status]
    details: dict[str, Any] = {}
    if facts.error is not None:
        where = f" in step {facts.error.step!r}" if facts.error.step else ""
        sentence = f"{sentence[:-1]}{where}: {facts.error.type}: {facts.error.message}"
        details = {"error": facts.error}
    return Explanation(facts.status, sentence, details)


def _unclaimed(facts: RunFacts) -> Explanation:
    alive = [worker for worker in facts.workers if worker.alive]
    if not alive:
        said = "No worker is alive. Start one: `stepwell worker …`."
        if facts.program.startswith(GRAPHS):
            said += f" Or let this run go on by itself: `stepwell resume {facts.run_id}`."
        return Explanation("no_worker", said, {})
    if any(facts.program in worker.programs for worker in alive):
        return Explanation(
            "queued",
            "Ready; the workers that can execute it are busy or about to claim it.",
            {"workers": [worker.id for worker in alive if facts.program in worker.programs]},
        )
    programs = {program for worker in alive for program in worker.programs}
    if needs := needs_of(facts.program):
        return _needs_more(needs, programs)
    known = sorted(map(shown_program, programs))
    same_name = sorted(shown_program(p) for p in programs if definition_of(p) == facts.definition)
    if same_name:
        return Explanation(
            "unknown_version",
            f"No living worker has version {facts.version} of {facts.definition!r}; "
            f"they have {', '.join(same_name)}.",
            {"version": facts.version, "programs": same_name},
        )
    return Explanation(
        "unknown_definition",
        f"No living worker has the definition {facts.definition!r}. Start one that has: stepwell "
        "worker MODULE",
        {"definition": facts.definition, "programs": known},
    )


def _needs_more(needs: list[tuple[str, str]], programs: set[str]) -> Explanation:
    """A graph needs functions or node types that no living worker has, or none has all of."""
    words = {"function": "Python function", "node_type": "node type"}
    kind = needs[0][0]
    wanted = " and the ".join(f"{words[of]} {name!r}" for of, name in needs)
    there = {need for program in programs for need in needs_of(program)}
    has = {of: sorted(name for kind_, name in there if kind_ == of) for of, _ in needs}
    listed = ", ".join(name for names in has.values() for name in names) or "none"
    return Explanation(
        f"unknown_{kind}",
        f"No living worker has the {wanted}; they have {listed}.",
        dict(needs) | {f"{of}s": names for of, names in has.items()},
    )


def _waiting(facts: RunFacts) -> Explanation:
    first = min(facts.waits, key=lambda wait: (wait.due_at is None, wait.due_at or 0))
    others = [wait.key for wait in facts.waits if wait is not first]
    at = to_datetime(first.due_at)
    until = "" if first.due_at is None else f" until {shown(first.due_at)}"
    which = "" if first.match is None else f" that matches {first.match}"
    sentence = {
        "sleep": f"Sleeping in {first.key!r}{until}.",
        "event": f"Waiting in {first.key!r} for the event {first.event!r}{which}{until}.",
        "gate": f"Waiting at {_asked(first.key)!r} for a decision{until}: {_said(first, 'prompt')}",
        "task": f"Waiting until {_asked(first.key)!r} is advanced{until}: {_said(first, 'title')}",
        "child": f"Waiting in {first.key!r} for the run {first.child_run_id}.",
        "retry": f"Step {first.key!r} failed and is tried again at {shown(first.due_at or 0)}.",
        "unknown": f"Whether step {first.key!r} took effect is not known; "
        f"send the signal {first.event!r} to decide, with "
        '{"action": "retry"}, {"action": "fail"} or {"output": …}.',
    }[first.kind]
    details = {
        "step": first.key,
        "due_at": at,
        "event": first.event,
        "match": first.match,
        "child_run_id": first.child_run_id,
        "about": first.about,
        "also_waiting": others or None,
    }
    return Explanation(
        first.kind, sentence, {name: value for name, value in details.items() if value is not None}
    )


def _asked(key: str) -> str:
    """The node that asks, by the key of its wait."""
    for ending in (".decision[", ".task"):
        node, found, _ = key.rpartition(ending)
        if found:
            return node
    return key


def _said(wait: WaitFact, field: str) -> str:
    return str(wait.about.get(field, "")) if isinstance(wait.about, dict) else ""
