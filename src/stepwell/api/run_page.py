"""The page of a run: where it is, why, and what came of it."""

from __future__ import annotations

from html import escape

from stepwell.api.exchange import Answer
from stepwell.api.visits import Visit, page, shown_data
from stepwell.kernel.records import GateRecord
from stepwell.kernel.run import Run

# Of an input or an output; the API has all of it.
MOST_TEXT = 10_000


async def show_run(visit: Visit) -> Answer:
    """A run, and the gates that it waits at."""
    run: Run = await visit.call("runs.get", run_id=visit.values["run_id"])
    why = await visit.call("runs.explain", run_id=run.id)
    gates: list[GateRecord] = await visit.call("gates.list", run_id=run.id)
    rows = [
        f"<h2>Run {escape(run.id)} of {escape(run.definition)}: {run.status}</h2>",
        f"<p>{escape(why.message)}</p>",
        f"<p>Started {run.created_at:%Y-%m-%d %H:%M:%S} UTC"
        + (f", ended {run.completed_at:%Y-%m-%d %H:%M:%S} UTC" if run.completed_at else "")
        + ".</p>",
        *(
            f'<p>Waits at a gate: <a href="{visit.path("gates", each.id)}">'
            f"{escape(each.prompt)}</a></p>"
            for each in gates
        ),
        f"<h3>Input</h3>{shown_data(run.input, MOST_TEXT)}",
    ]
    if run.error is not None:
        rows.append(f"<h3>Error</h3>{shown_data(run.error, MOST_TEXT)}")
    if run.status == "completed":
        rows.append(f"<h3>Output</h3>{shown_data(run.output, MOST_TEXT)}")
    return page("\n".join(rows))
