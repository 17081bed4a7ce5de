"""What a run has besides its own row, on either store."""

from __future__ import annotations

# The rows of a run, by what each statement deletes of them. Signals are in two indexes.
OF_A_RUN = (
    "payloads WHERE",
    "steps WHERE",
    "attempts WHERE",
    "waits WHERE",
    "limits WHERE",
    "events WHERE consumed_by IS NULL AND",
    "events WHERE consumed_by IS NOT NULL AND",
)
# How many those of run `r` are.
COUNT_OF_A_RUN = " + ".join(f"(SELECT count(*) FROM {own} run_id = r.id)" for own in OF_A_RUN)
