"""A decision by people: the run waits at a gate, for as long as it takes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from stepwell.errors import GateDenied, GateTimedOut, RunDenied
from stepwell.kernel.clock import SECOND
from stepwell.kernel.durations import seconds
from stepwell.kernel.gates import gate_id, signal_name, subject_hash
from stepwell.node import Call, NodeConfig, Words, WrittenDuration, node


class Config(NodeConfig):
    """What is asked, who may answer, and what follows from it."""

    prompt: Words = Field(description="The question.")
    subject: Any = Field(None, description="What exactly is to be approved, beside the question.")
    timeout: WrittenDuration | None = Field(None, description="How long to wait.")
    on_timeout: Literal["approve", "deny", "fail"] = Field(
        "deny", description="What counts when nobody has decided in time."
    )
    on_deny: Literal["cancel", "fail", "continue"] = Field(
        "cancel", description="Whether a denial cancels the run, fails the node, or is an output."
    )
    approvers: list[str] = Field(
        default_factory=list, description="Names or roles that may decide; anyone if empty."
    )
    required: int = Field(1, ge=1, le=100, description="How many have to approve.")


@node(
    "approval", title="Approval", group="people", config=Config, durable=True,
    aliases=("human_gate",),
)  # fmt: skip
async def approval(config: Config, call: Call) -> dict[str, Any]:
    """Ask people for a decision, and go on once there is one.

    The decision is bound to what was asked: to the resolved prompt and subject, and to the
    revision. Where one of them is another than before, in a fork say, the question is asked anew.
    """
    asked = subject_hash({"prompt": config.prompt, "subject": config.subject}, call.revision)
    # The hash is part of the key: what was decided about something else is not found.
    mark = f"[{asked[:12]}]"
    limit = None if config.timeout is None else seconds(config.timeout)
    waited = f"{call.key}.decision{mark}"
    gate = gate_id(call.run_id, call.key + mark)
    if not call.durably.has_recorded(waited) and not call.durably.waits_for(waited):
        # Not journaled: a retry or a fork that has to ask needs a gate of its own.
        with call.durably.at_work():
            await call.host.gates.open(
                call.run_id, call.key + mark, call.definition, prompt=config.prompt,
                subject=config.subject, subject_hash=asked, on_timeout=config.on_timeout,
                approvers=config.approvers, required=config.required,
                timeout_micros=None if limit is None else int(limit * SECOND),
            )  # fmt: skip
    about = {
        "gate": gate, "prompt": config.prompt, "subject": config.subject,
        "approvers": config.approvers, "required": config.required,
    }  # fmt: skip
    answered, decision = await call.durably.ask(waited, "gate", signal_name(gate), about, limit)
    if not answered:
        decision = await call.durably.step(
            f"{call.key}.expired{mark}", call.host.gates.expire, gate, config.on_timeout
        )
    return _followed(config, call.key, {**decision, "gate": gate})


def _followed(config: Config, key: str, decision: dict[str, Any]) -> dict[str, Any]:
    """The output, unless the decision ends more than the node."""
    if decision["decision"] == "approve":
        return {"approved": True, **decision}
    if decision["decision"] == "fail":
        raise GateTimedOut(f"Nobody decided about {key!r} in time.", gate_id=decision["gate"])
    if config.on_deny == "continue":
        return {"approved": False, **decision}
    why = "it ran out of time" if decision["expired"] else f"by {', '.join(decision['by'])}"
    note = f": {decision['note']}" if decision["note"] else ""
    message = f"{key!r} was denied, {why}{note}."
    if config.on_deny == "cancel":
        raise RunDenied(message, gate_id=decision["gate"], step=key)
    raise GateDenied(message, gate_id=decision["gate"])
