"""Asking the caller about gates, as far as their protocol has a way.

The newest protocol has answers that require input: the call comes again, with what was said and
with the state it was given along. Older ones have questions that are asked while the call goes on,
where the connection can carry them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from stepwell.errors import GateClosed, GateDrifted, GateNotFound, InvalidInput
from stepwell.kernel.gates import awaits, progress
from stepwell.kernel.records import GateRecord
from stepwell.mcp.answers import read
from stepwell.mcp.seat import Seat

Context = ServerRequestContext[Any, Any]
Answered = types.CallToolResult | types.InputRequiredResult
Shown = tuple[str, str]

_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "deny"]},
        "note": {"type": "string", "title": "Note", "description": "Why; may be left empty."},
    },
    "required": ["decision"],
}


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What a call that comes again has to know; nothing that a caller could not ask for anyway."""

    run_id: str
    # By the ids of gates, the hashes of what was shown.
    seen: dict[str, str]


class _Said(msgspec.Struct):
    decision: str
    note: str | None = None


def shown(gate: GateRecord) -> Shown:
    """What somebody was shown of a gate: once it asks something else, they can be asked again."""
    return gate.id, gate.subject_hash


def asked_before(params: types.CallToolRequestParams) -> Asked | None:
    """What the caller was asked in an earlier answer to this call."""
    if params.request_state is None:
        return None
    try:
        return msgspec.json.decode(params.request_state, type=Asked)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"The state of the call is not what it was given: {error}.") from error


def decidable(gates: Sequence[GateRecord], seat: Seat) -> list[GateRecord]:
    """The gates about which the caller may decide, and has not yet."""
    return [gate for gate in gates if awaits(gate, seat.caller.name, seat.caller.roles)]


def require(
    context: Context, run_id: str, gates: Sequence[GateRecord]
) -> types.InputRequiredResult | None:
    """The answer that asks about gates, if the caller's protocol has such answers."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS or not _has_forms(context):
        return None
    state = Asked(run_id, dict(map(shown, gates)))
    return types.InputRequiredResult(
        input_requests={
            gate.id: types.ElicitRequest(
                params=types.ElicitRequestFormParams(message=_message(gate), requested_schema=_FORM)
            )
            for gate in gates
        },
        request_state=msgspec.json.encode(state).decode(),
    )


async def decide_asked(
    seat: Seat, asked: Asked, responses: Mapping[str, types.InputResponse]
) -> set[Shown]:
    """Decide what the caller was asked; what they have said something about, even if nothing."""
    answered = {each for each in asked.seen.items() if each[0] in responses}
    for gate_id, seen_hash in sorted(answered):
        await _decide(seat, gate_id, seen_hash, responses[gate_id])
    return answered


async def ask_now(context: Context, seat: Seat, gate: GateRecord) -> bool:
    """Ask about a gate while the call goes on, and decide; False if that led to nothing."""
    if not context.session.can_send_request or not _has_forms(context):
        return False
    try:
        response = await context.session.elicit_form(_message(gate), _FORM, context.request_id)
    except MCPError:  # they cannot be asked after all
        return False
    return await _decide(seat, gate.id, gate.subject_hash, response)


async def _decide(seat: Seat, gate_id: str, seen_hash: str, response: types.InputResponse) -> bool:
    """Decide as somebody said; False if they said nothing, which leaves it to others."""
    if not isinstance(response, types.ElicitResult) or response.action != "accept":
        return False
    # Somebody else was faster, or it asks something else by now: a look at the run shows it.
    with suppress(GateClosed, GateDrifted, GateNotFound):
        try:
            said = read(response.content or {}, _Said)
            await seat.call(
                "gates.decide", gate_id=gate_id, decision=said.decision, note=said.note or "",
                seen_hash=seen_hash,
            )  # fmt: skip
        except InvalidInput:
            return False
    return True


def _has_forms(context: Context) -> bool:
    """Whether the client can ask its user to fill in a form; an empty capability means forms."""
    found = context.session.client_capabilities
    asks = None if found is None else found.elicitation
    return asks is not None and (asks.form is not None or asks.url is None)


def _message(gate: GateRecord) -> str:
    """All that is to be decided about: the decision is bound to having seen it."""
    lines = [gate.prompt]
    if gate.subject is not None:
        lines.append(msgspec.json.format(msgspec.json.encode(gate.subject)).decode())
    lines.append(f"Run {gate.run_id} of {gate.definition} waits for it. {progress(gate)}".strip())
    return "\n\n".join(lines)
