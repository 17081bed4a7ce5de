"""Gates that a run waits at: what is asked, who may decide, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.kernel.clock import moment
from stepwell.kernel.gates import progress
from stepwell.kernel.records import GateRecord

# Whoever has the store is trusted with these.
ROLES = ("owner", "admin")


def gate_document(gate: GateRecord) -> dict[str, Any]:
    """A gate as programs read it."""
    return {
        "id": gate.id, "run_id": gate.run_id, "step": _step(gate), "prompt": gate.prompt,
        "subject": gate.subject, "subject_hash": gate.subject_hash,
        "approvers": gate.approvers, "required": gate.required,
        "decisions": [
            {"decision": each.decision, "by": each.by, "note": each.note,
             "decided_at": moment(each.decided_at)}
            for each in gate.decisions
        ],
        "deadline_at": None if gate.deadline_at is None else moment(gate.deadline_at),
    }  # fmt: skip


def gate_lines(run_id: str, gates: Sequence[GateRecord]) -> list[str]:
    """What a run's gates ask, how far they are, and the commands that decide."""
    lines = []
    for gate in gates:
        which = f" --gate {_step(gate)}" if len(gates) > 1 else ""
        named = gate.required > 1 or (gate.approvers and not {*ROLES} & {*gate.approvers})
        lines += [
            f"Waiting for a decision: {gate.prompt}",
            *([f"  {said}"] if (said := progress(gate)) else []),
            f"  stepwell resume {run_id}{which} --decision approve{' --by NAME' if named else ''}",
        ]
    return lines


def _step(gate: GateRecord) -> str:
    return gate.key.rpartition("[")[0]
