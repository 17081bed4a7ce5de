"""The page of a gate, where people decide."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from stepwell.api.exchange import Answer
from stepwell.api.visits import Visit, page, shown_data
from stepwell.errors import BodyInvalid
from stepwell.kernel.gates import awaits, progress
from stepwell.kernel.records import GateRecord
from stepwell.operation import allows

# A note has at most 10,000 characters, each of up to twelve in a form.
MAX_FORM_BYTES = 128 * 1024
MOST_FIELDS = 10

_FORM = """<form method="post" action="{action}">
<input type="hidden" name="seen_hash" value="{seen_hash}">
<p><label>Note <input name="note" maxlength="10000"></label></p>
<p><button name="decision" value="approve">Approve</button>
<button name="decision" value="deny">Deny</button></p>
</form>"""


async def show_gate(visit: Visit) -> Answer:
    """What is to be decided, by whom, and what was."""
    gate: GateRecord = await visit.call("gates.get", gate_id=visit.values["gate_id"])
    run = f'<a href="{visit.path("runs", gate.run_id)}">{escape(gate.run_id)}</a>'
    rows = [
        f"<h2>Gate {escape(gate.id)}: {gate.status}</h2>",
        f"<pre>{escape(gate.prompt)}</pre>",
        "" if gate.subject is None else shown_data(gate.subject),
        f"<p>Asked by run {run} of {escape(gate.definition)}.</p>",
        *(
            f"<p>{escape(each.by)}: {each.decision}. {escape(each.note)}</p>"
            for each in gate.decisions
        ),
    ]
    if gate.status == "open":
        rows.append(f"<p>{escape(progress(gate) or 'Anybody may decide.')}</p>")
        caller = visit.admission.caller
        if allows(caller.permission, "run") and awaits(gate, caller.name, caller.roles):
            action = visit.path("gates", gate.id, "decide")
            rows.append(_FORM.format(action=action, seen_hash=escape(gate.subject_hash)))
    return page("\n".join(rows))


async def decide_gate(visit: Visit) -> Answer:
    """Take the decision that the form was sent with."""
    body = await visit.request.body(MAX_FORM_BYTES)
    try:
        found = parse_qs(body.decode("ascii"), max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise BodyInvalid(f"The body is no form: {error}.") from None
    given = {name: values[-1] for name, values in found.items()}
    gate_id = visit.values["gate_id"]
    # What they were shown is what they decide about: a form that does not say so is none of ours.
    await visit.call(
        "gates.decide", gate_id=gate_id, decision=given.get("decision", ""),
        note=given.get("note", ""), seen_hash=given.get("seen_hash", ""),
    )  # fmt: skip
    return Answer(303, headers=[("location", visit.path("gates", gate_id))])
