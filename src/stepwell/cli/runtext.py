"""Runs and their steps as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.cli.output import brief, moment, table, took
from stepwell.kernel.run import Explanation, Page, Run, Step


def list_lines(page: Page) -> list[str]:
    """A page of runs."""
    if not page.items:
        return ["No runs."]
    heads = ("run", "definition", "status", "created", "took", "input")
    rows = [
        (
            run.id,
            _definition(run),
            run.status,
            moment(run.created_at),
            took(run.started_at, run.completed_at),
            brief(run.input),
        )
        for run in page.items
    ]
    more = [] if page.next_cursor is None else ["", f"More: --cursor {page.next_cursor}"]
    return [*table(heads, rows), *more]


def _definition(run: Run) -> str:
    """What it is a run of; what was run from a file has no version."""
    return f"{run.definition} v{run.version}" if run.version else f"{run.definition} (a file)"


def show_lines(run: Run, steps: list[Step], explanation: Explanation) -> list[str]:
    """A run with everything that is known of it."""
    return [*_head(run, explanation), "", *(_journal(steps) if steps else ["No steps yet."])]


def _head(run: Run, explanation: Explanation) -> Iterator[str]:
    yield f"Run {run.id}: {_definition(run)}, {run.status}"
    facts = {
        "why": f"{explanation.message} ({explanation.code})",
        "started by": _cause(run),
        "created": moment(run.created_at),
        "started": moment(run.started_at),
        "ended": moment(run.completed_at),
        "took": took(run.started_at, run.completed_at),
        "deadline": run.deadline_at and moment(run.deadline_at),
        "attempt": run.attempt if run.attempt > 1 else None,
        "priority": run.priority or None,
        "idempotency key": run.idempotency_key,
        "concurrency key": run.concurrency_key,
        "child of": run.parent_run_id,
        "forked from": run.forked_from,
        "input": brief(run.input, 400),
        "output": brief(run.output, 400) if run.status == "completed" else None,
    }
    for name, fact in facts.items():
        if fact not in (None, "–"):
            yield f"  {name:<15}  {fact}"


def _cause(run: Run) -> str | None:
    """What started a run, if that was a trigger, or who."""
    trigger = run.trigger
    if not isinstance(trigger, dict):
        return None
    by = trigger.get("by")
    if "name" not in trigger:
        return by
    event = trigger.get("event")
    facts = (
        "by hand" if trigger.get("by_hand") else None,
        trigger.get("scheduled_at") and f"for {trigger['scheduled_at']}",
        event and f"for the event {event['type']} ({event['id']})",
        trigger.get("delivery") and f"for the delivery {trigger['delivery']}",
        by and (f"again by {by}" if run.forked_from else f"by {by}"),
    )
    said = ", ".join(each for each in facts if each)
    kind, name = trigger["type"], trigger["name"]
    who = name if name == kind else f"{kind} {name}"
    return f"{who} ({said})" if said else f"{who}"


def _journal(steps: list[Step]) -> Iterator[str]:
    heads = ("step", "kind", "status", "attempts", "started", "took", "output")
    rows = [
        (
            step.key,
            step.kind,
            step.status,
            "–" if _was_skipped(step) else step.attempts,
            f"{step.started_at:%H:%M:%S.%f}"[:-3],
            took(step.started_at, step.completed_at),
            brief(step.output) if step.status == "completed" or _was_skipped(step) else "",
        )
        for step in steps
    ]
    head, *lines = table(heads, rows)
    yield head
    for step, line in zip(steps, lines, strict=True):
        yield line
        for failure in step.failures:
            after = took(failure.started_at, failure.failed_at)
            error = f"{failure.error.type}: {failure.error.message}"
            yield f"    attempt {failure.number} failed after {after}: {error}"
        if step.error is not None and not step.failures:
            yield f"    {step.error.type}: {step.error.message}"


def _was_skipped(step: Step) -> bool:
    """Whether it is a node that was never tried: its output says why."""
    return step.kind == "node" and step.status == "skipped"
