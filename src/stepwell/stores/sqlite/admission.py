"""Admitting a picked run on SQLite: it takes its slots and turns, or queues behind a full limit."""

from __future__ import annotations

import apsw

from stepwell.stores.sqlite.limits import room_taken, take_turn
from stepwell.stores.sqlite.rows import all_rows, run


def admit(
    db: apsw.Connection, run_id: str, called_for: str | None, now: int, wanted: dict[str, None]
) -> bool:
    """Take what the run needs of each of its limits, or queue it behind the first that is full.

    In the queues of the limits `wanted` somebody may have to be called.
    """
    own = all_rows(
        db,
        """SELECT limit_key, capacity, period FROM limits
           WHERE run_id = ?1 AND slot = ?1 AND capacity IS NOT NULL AND admitted = 0""",
        run_id,
    )
    # Being called up counted as one of the limit's slots; now it is this run's turn.
    run(db, "UPDATE runs SET blocked_on = NULL WHERE id = ?", run_id)
    for limit_key, capacity, period in own:
        if room_taken(db, run_id, limit_key, period, now) >= capacity:
            run(
                db,
                "UPDATE runs SET due_at = NULL, blocked_on = ? WHERE id = ?",
                limit_key,
                run_id,
            )
            if period is not None:
                wanted[limit_key] = None  # for when the next turn comes
            if called_for is not None and called_for != limit_key:
                wanted[called_for] = None  # its call goes to the next in line
            return False
    run(db, "UPDATE limits SET admitted = 1 WHERE run_id = ?", run_id)
    for limit_key, _, period in own:
        if period is not None:
            take_turn(db, limit_key, period, run_id, now)
            wanted[limit_key] = None
    return True
