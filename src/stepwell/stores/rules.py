"""What both stores say alike: the rows of a run, what a sweep looks at, what a retry keeps."""

from __future__ import annotations

from collections.abc import Iterable

from stepwell.errors import DuplicateDefinition
from stepwell.kernel.progress import ENDING, MOST_OUTPUT
from stepwell.kernel.states import ENDED, OPEN, REPLAYED, SETTLED, quoted

# The rows of a run, by what each statement deletes of them. Signals are in two indexes.
OF_A_RUN = (
    "payloads WHERE",
    "terms WHERE",
    "steps WHERE",
    "attempts WHERE",
    "waits WHERE",
    "limits WHERE",
    "gates WHERE",
    "absorbed WHERE",
    "events WHERE consumed_by IS NULL AND",
    "events WHERE consumed_by IS NOT NULL AND",
)
# How many those of run `r` are.
COUNT_OF_A_RUN = " + ".join(f"(SELECT count(*) FROM {own} run_id = r.id)" for own in OF_A_RUN)

# What a copy of a store has of its own. The workers belong to the original: here their leases have
# ended, so that the first worker of the copy takes their runs over.
IN_A_COPY = ("UPDATE workers SET expires_at = heartbeat_at", "DELETE FROM duties")
# Two stores that start the same runs are seldom meant.
PAUSED_IN_A_COPY = """UPDATE triggers SET next_at = NULL,
    paused = 'This store is a copy, and the original fires.' WHERE paused IS NULL"""

# What one sweep looks at: runs of a dead worker, runs out of time, queues; and dead workers.
SWEEP_LIMIT = 500
MOST_DEAD = 20

# How many are called for turns of a throttle at once: each that begins counts the others.
MOST_CALLED = 200

# All limits that runs queue behind, each found by a look at the index.
QUEUES = """queues (key) AS (
       SELECT min(blocked_on) FROM runs WHERE blocked_on IS NOT NULL
       UNION ALL
       SELECT (SELECT min(r.blocked_on) FROM runs r WHERE r.blocked_on > q.key)
       FROM queues q WHERE q.key IS NOT NULL)"""
# A step `s` that is at work, or was when its run ended; what the program gave up has an end. And a
# child that was to be started once more.
INTERRUPTED = f"""(s.kind IN ('step', 'start') AND (s.status IN ({quoted(OPEN)})
        OR (s.status = 'skipped' AND s.completed_at IS NULL)))"""
# What is not true of a child that a retry of its parent has no use for.
USABLE = f"status NOT IN ({quoted(ENDED - {'completed'})})"
# A child `s` that was waited for when the run ended, and is worth going on waiting for.
AWAITED_CHILD = f"""(s.kind = 'child' AND s.status = 'skipped' AND EXISTS (
        SELECT 1 FROM runs c WHERE c.id = trim(s.output, '"') AND c.{USABLE}))"""

# What a feed tells of `s`, at its place in it, and of run `r`; outputs only if they are short.
_PLACE = f"""CASE WHEN s.status = 'skipped' AND s.completed_at IS NULL THEN {ENDING}
        ELSE s.position END"""
FED_STEP = f"""s.key, s.seq, {_PLACE} AS place, s.kind, s.status, s.attempts,
        CASE WHEN octet_length(s.output) <= {MOST_OUTPUT} THEN s.output END AS output,
        s.output IS NOT NULL AS has_output, s.error, s.started_at, s.completed_at"""
FED_RUN = f"""r.status, r.definition, r.version, r.attempt, r.fence,
        r.owner IS NOT NULL, r.forked_from IS NOT NULL,
        r.created_at, r.started_at, r.claimed_at, r.completed_at,
        (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'output'
            AND octet_length(body) <= {MOST_OUTPUT}),
        EXISTS (SELECT 1 FROM payloads WHERE run_id = r.id AND kind = 'output'),
        (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'error'),
        r.revision IS NOT NULL"""
# Of a node's entry: its key, and its place if all it says is how the node ended.
FED_NODE = f"s.key, CASE WHEN s.kind = 'node' THEN {_PLACE} ELSE -1 END"
# Those that have ended, in the order of a feed; at ENDING only if the run has as well.
FED_ENDS = f"""s.kind <> 'now' AND s.status IN ({quoted(SETTLED)})
        AND (s.status <> 'skipped' OR s.completed_at IS NOT NULL
             OR EXISTS (SELECT 1 FROM runs e WHERE e.id = s.run_id AND e.completed_at > 0))"""


def check_names(data: Iterable[str]) -> None:
    """Refuse workflows in Python that have the names of definitions that are data."""
    if taken := sorted(data):
        raise DuplicateDefinition(
            f"There is a definition {taken[0]!r} in this store that is data. Give the workflow "
            "another name, or delete the definition."
        )


def child_of(step_in_trigger: str) -> str:
    """SQL: the child that `s` started, for `s` that was given up when only its result was left.

    That takes an expression for the step that the trigger of a run `c` names.
    """
    return f"""(SELECT min(c.id) FROM runs c WHERE s.kind = 'child' AND s.status = 'skipped'
        AND s.output IS NULL AND c.parent_run_id = s.run_id AND c.{USABLE}
        AND {step_in_trigger} = s.key)"""


# Of the children that a retry adopts, those that have what time was left to their old parent, and
# none of their own; who has ended does not expire.
TIMED_BY_PARENT = """(deadline_at = expires_at
        AND deadline_at = (SELECT p.deadline_at FROM runs p WHERE p.id = runs.parent_run_id))"""
# The status of `s` in a fork: that it may have happened is not forgotten.
STATUS_IN_FORK = """CASE WHEN s.status <> 'skipped' THEN s.status
        WHEN s.error IS NULL THEN 'running' ELSE 'retrying' END"""


# What `s` becomes in a retry if its child is to be started once more.
TO_BE_STARTED = """kind = 'start', status = 'running', output = NULL, error = NULL,
        completed_at = NULL"""


def end_of_keeping(run_id: str, step: str) -> str:
    """SQL: the position up to which a retry keeps failures; those after it may have come of it.

    That of the failure that ended the run, in `step`. But a child that could not be started says
    nothing: if it is one that was started before, its entry is in the old place.
    """
    return f"""coalesce((SELECT f.position FROM steps f WHERE f.run_id = {run_id}
        AND f.key = {step} AND f.kind <> 'start'), 9223372036854775807)"""


def dead_child(run_id: str, step: str) -> str:
    """SQL: `s` of that run started a child that did not complete, and whose result nobody got.

    Or it could not start one, and the run ended with that. A retry starts it once more, in its
    place: what came after it came after it.
    A result that is to be dropped with `step`, or because it failed after that, counts as none.
    Only `start` entries have the id of a run for sure. Early journals had `child` there too, made
    in no time, while the same of run_child has what the child put out: that may be any id, and
    took its time.
    """
    return f"""((s.kind IN ('start', 'child') AND s.status = 'completed' AND EXISTS (
        SELECT 1 FROM runs c WHERE c.id = trim(s.output, '"') AND c.parent_run_id IS NOT NULL
           AND c.status IN ({quoted(ENDED - {"completed"})}) AND (s.kind = 'start'
               OR (c.parent_run_id = {run_id} AND s.started_at = s.completed_at)))
    AND NOT EXISTS (SELECT 1 FROM steps t WHERE t.run_id = {run_id} AND t.key = s.key || '.result'
                    AND t.kind = 'child'
                    AND t.key IS DISTINCT FROM {step} AND t.status IN ({quoted(REPLAYED)})
                    AND NOT (t.status = 'failed' AND t.position > {end_of_keeping(run_id, step)})))
    OR (s.kind = 'start' AND s.status = 'failed' AND s.key = {step}))"""
