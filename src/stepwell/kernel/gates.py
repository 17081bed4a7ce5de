"""What becomes of a gate when somebody decides, or nobody does."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from typing import Any

import msgspec

from stepwell.errors import GateClosed, GateDrifted, InvalidInput, NotAnApprover, TokenInvalid
from stepwell.kernel.clock import shown
from stepwell.kernel.names import check_text, show
from stepwell.kernel.records import Decision, GateDecision, GateRecord, GateStatus, OnTimeout

MAX_NOTE = 10_000
# How signals begin that tell runs of decisions; nobody else may send any.
SIGNALS = "gate:"
_STATUS: dict[Decision, GateStatus] = {"approve": "approved", "deny": "denied"}


def gate_id(run_id: str, key: str) -> str:
    """The id of a run's gate: the same however often the run comes to it, and only this run's."""
    return hashlib.sha256(f"{run_id}/{key}".encode()).hexdigest()[:26]


def subject_hash(subject: Any, revision: str) -> str:
    """The hash of exactly what is to be decided about, and of the document that asks."""
    text = msgspec.json.encode([subject, revision], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def token_hash(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(f"stepwell gate {token}".encode()).hexdigest()


def signal_name(gate_id: str) -> str:
    """The signal that tells a run of the decision."""
    return f"{SIGNALS}{gate_id}"


def with_token(gate: GateRecord, token: str) -> GateRecord:
    """The gate once a token for it has been given out."""
    return msgspec.structs.replace(
        gate, serial=gate.serial + 1, tokens=[*gate.tokens, token_hash(token)]
    )


def decided(
    gate: GateRecord, decision: Decision, *, by: str, now: int, note: str = "",
    roles: Collection[str] = (), token: str | None = None, seen_hash: str | None = None,
) -> GateRecord:  # fmt: skip
    """The gate after a decision; raises if it cannot be decided so, by them, now.

    `seen_hash` is the hash of what whoever decides was shown.
    """
    given: object = decision
    if given not in _STATUS:
        raise InvalidInput(f"A decision is approve or deny, not {show(given)}.")
    check_text(by, "Who decides")
    text: object = note
    if not isinstance(text, str) or len(text) > MAX_NOTE:
        raise InvalidInput(f"A note is a text of at most {MAX_NOTE:,} characters.")
    check_open(gate, now)
    if seen_hash is not None and seen_hash != gate.subject_hash:
        raise GateDrifted(
            f"What gate {gate.id} asks is not what you were shown; look at it again.",
            gate_id=gate.id,
        )
    tokens = gate.tokens if token is None else _used(gate, token)
    if token is None:
        check_approver(gate, by, roles)
    if by in [each.by for each in gate.decisions]:
        raise NotAnApprover(
            f"{by!r} has decided about gate {gate.id} already; it needs {gate.required} people.",
            gate_id=gate.id,
        )
    decisions = [*gate.decisions, GateDecision(decision, by, note, now)]
    approvals = sum(each.decision == "approve" for each in decisions)
    final = decision == "deny" or approvals >= gate.required
    return msgspec.structs.replace(
        gate, serial=gate.serial + 1, decisions=decisions, tokens=[] if final else tokens,
        status=_STATUS[decision] if final else "open",
    )  # fmt: skip


def check_approver(gate: GateRecord, by: str, roles: Collection[str]) -> None:
    """Raise unless somebody, by their name or by what they are, may decide about the gate."""
    if not _is_approver(gate, by, roles):
        raise NotAnApprover(
            f"{by!r} may not decide about gate {gate.id}: {', '.join(gate.approvers)} may.",
            gate_id=gate.id,
        )


def awaits(gate: GateRecord, by: str, roles: Collection[str]) -> bool:
    """Whether somebody may decide about a gate that is open, and has not yet."""
    return _is_approver(gate, by, roles) and by not in [each.by for each in gate.decisions]


def _is_approver(gate: GateRecord, by: str, roles: Collection[str]) -> bool:
    return not gate.approvers or not {by, *roles}.isdisjoint(gate.approvers)


def progress(gate: GateRecord) -> str:
    """Who may decide, how many have to, and who has; nothing if anybody may, alone."""
    may = f"{', '.join(gate.approvers)} may decide. " if gate.approvers else ""
    if gate.required == 1:
        return may.strip()
    who = ", ".join(each.by for each in gate.decisions if each.decision == "approve")
    done = f"{len(gate.decisions)} of {gate.required}, approved by {who}" if who else ""
    return f"{may}{done or f'{gate.required} people have to approve'}."


def check_open(gate: GateRecord, now: int) -> None:
    """Raise if nobody can decide about the gate any more."""
    if gate.status == "void":
        raise GateClosed(
            f"Nothing waits at gate {gate.id} any more: run {gate.run_id} has ended, or has gone "
            "on without a decision.",
            gate_id=gate.id,
            status=gate.status,
        )
    if gate.status != "open":
        who = ", ".join(each.by for each in gate.decisions)
        raise GateClosed(
            f"Gate {gate.id} is {gate.status}{f' by {who}' if who else ''}.",
            gate_id=gate.id,
            status=gate.status,
        )
    if gate.deadline_at is not None and now >= gate.deadline_at:
        raise GateClosed(
            f"Gate {gate.id} ran out of time at {shown(gate.deadline_at)}.",
            gate_id=gate.id,
            status="expired",
        )


def expired(gate: GateRecord) -> GateRecord:
    """The gate once its time was up."""
    return msgspec.structs.replace(gate, serial=gate.serial + 1, status="expired", tokens=[])


def voided(gate: GateRecord) -> GateRecord:
    """The gate of a run that had ended before somebody decided."""
    return msgspec.structs.replace(gate, serial=gate.serial + 1, status="void", decisions=[])


def expired_outcome(default: OnTimeout) -> dict[str, Any]:
    """What a run is told when nobody has decided."""
    return {"decision": default, "by": [], "note": "", "expired": True}


def outcome(gate: GateRecord) -> dict[str, Any]:
    """What a run is told of a gate that is closed."""
    if gate.status == "expired":
        return expired_outcome(gate.on_timeout)
    decision: Decision = "approve" if gate.status == "approved" else "deny"
    notes = [each.note for each in gate.decisions if each.note]
    return {
        "decision": decision,
        "by": [each.by for each in gate.decisions if each.decision == decision],
        "note": "\n".join(notes),
        "expired": False,
    }


def _used(gate: GateRecord, token: str) -> list[str]:
    """The tokens that are left once this one was used."""
    given = token_hash(token)
    left = [each for each in gate.tokens if not hmac.compare_digest(each, given)]
    if len(left) == len(gate.tokens):
        raise TokenInvalid("The token is wrong, or was used already.", gate_id=gate.id)
    return left
