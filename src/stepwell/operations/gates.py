"""Gates: what waits for a decision, and deciding about it."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Collection
from typing import Annotated

import msgspec

from stepwell.errors import (
    GateClosed,
    GateDrifted,
    GateNotFound,
    InvalidInput,
    NotAnApprover,
    Overtaken,
    TokenInvalid,
)
from stepwell.kernel import gates as rules
from stepwell.kernel.changes import SendSignal
from stepwell.kernel.presenting import HIDDEN
from stepwell.kernel.records import Decision, GateRecord
from stepwell.operation import Caller, Noun, Workspace, allows, operation

TOKEN_BYTES = 32

GateToken = Annotated[
    str | None,
    HIDDEN,
    msgspec.Meta(description="A token of the gate: who has one need not be among its approvers."),
]


class Gates(Noun):
    """The gates of a workspace."""

    noun = "gates"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._records = workspace.store.records

    @operation("GET /gates", needs="read")
    async def list(self, run_id: str | None = None) -> builtins.list[GateRecord]:
        """Gates that wait for a decision: all, or those of a run and of those below it."""
        return await self._records.gates(self._workspace.id, run_id)

    @operation("GET /gates/{gate_id}", needs="read", raises=(GateNotFound,))
    async def get(self, gate_id: str) -> GateRecord:
        """The gate as it is now."""
        gate = await self._records.gate(self._workspace.id, gate_id)
        if gate is None:
            raise GateNotFound(f"There is no gate {gate_id!r}.", gate_id=gate_id)
        return gate

    @operation(
        "POST /gates/{gate_id}/tokens", needs="build", status=201, result="token",
        caller={"caller": "itself"}, raises=(GateNotFound, GateClosed, NotAnApprover),
    )  # fmt: skip
    async def token(self, gate_id: str, caller: Caller | None = None) -> str:
        """A new token, with which somebody can decide once who is no approver.

        They need the permission to decide as always. Only its hash is kept. It is for those to give
        out who may decide about the gate themselves, and for owners.
        """
        # Begins with the gate, so that the token alone is enough to answer with.
        token = f"{gate_id}.{secrets.token_urlsafe(TOKEN_BYTES)}"
        while True:
            gate = await self.get(gate_id)
            if caller is not None and not allows(caller.permission, "own"):
                rules.check_approver(gate, caller.name, caller.roles)
            rules.check_open(gate, self._workspace.clock.now())
            try:
                await self._records.change_gate(self._workspace.id, rules.with_token(gate, token))
            except Overtaken:
                continue
            return token

    @operation(
        "POST /gates/{gate_id}/decide", needs="run", caller={"by": "name", "roles": "roles"},
        destructive=True,
        raises=(GateNotFound, GateClosed, GateDrifted, NotAnApprover, TokenInvalid),
        example={"decision": "approve", "note": "Looks right."},
    )  # fmt: skip
    async def decide(
        self, gate_id: str, decision: Decision, *, by: str, note: str = "",
        roles: Collection[str] = (), token: GateToken = None, seen_hash: str | None = None,
    ) -> GateRecord:  # fmt: skip
        """Approve or deny; the run goes on with it, or the gate waits for more people.

        Whoever decides, or a role of theirs, has to be among the gate's approvers. `seen_hash` is
        the `subject_hash` of what they were shown. A server knows who calls; elsewhere that is
        said.
        """
        while True:
            now = self._workspace.clock.now()
            gate = rules.decided(
                await self.get(gate_id), decision, by=by, now=now, note=note, roles=roles,
                token=token, seen_hash=seen_hash,
            )  # fmt: skip
            try:
                await self._write(gate, now)
            except Overtaken:
                continue
            return gate

    @operation(
        "POST /gates", needs="run", caller={"by": "name", "roles": "roles"}, destructive=True,
        raises=(TokenInvalid, GateClosed, GateDrifted),
        example={"token": "06gu….…", "decision": "approve"},
    )  # fmt: skip
    async def answer(
        self, token: Annotated[str, HIDDEN], decision: Decision, *, by: str, note: str = "",
        roles: Collection[str] = (), seen_hash: str | None = None,
    ) -> GateRecord:  # fmt: skip
        """Approve or deny with a token, which says which gate it is for."""
        if not token.isprintable():  # no store need be asked for it, and one could not be
            raise InvalidInput("The token has characters that no token has.")
        try:
            return await self.decide(
                token.partition(".")[0], decision, by=by, note=note, roles=roles, token=token,
                seen_hash=seen_hash,
            )  # fmt: skip
        except GateNotFound:
            raise TokenInvalid("This token is for no gate that there is.") from None

    async def _write(self, gate: GateRecord, now: int) -> None:
        """Write the decision down, and tell the run along with it if the gate is closed."""
        workspace = self._workspace
        signal = None
        if gate.status != "open":
            signal = SendSignal(
                id=workspace.ids.new(),
                workspace_id=workspace.id,
                run_id=gate.run_id,
                type=rules.signal_name(gate.id),
                payload=msgspec.json.encode(rules.outcome(gate)).decode(),
                created_at=now,
            )
        committed = await self._records.change_gate(workspace.id, gate, signal)
        if signal is not None and not committed.outcomes[0]:
            await self._records.change_gate(workspace.id, rules.voided(gate))
            raise GateClosed(
                f"Run {gate.run_id} has ended; nothing waits at gate {gate.id} any more.",
                gate_id=gate.id,
            )
        workspace.changed(committed)
