"""Locks on PostgreSQL: who may touch a run, a limit or an event name until the commit.

The isolation level is READ COMMITTED: every statement sees what was committed before it
began. So whatever decides by something it has read takes a lock first, in one statement,
and reads in the next one. The order is always the same, so that two batches cannot wait for
each other: names of limits and events by their hash, then rows of `runs` by id, then the rest.

- Writing for a held run locks its row: a takeover comes before all of it or after all of it.
- A signal, a cancellation, a wait for a child and the end of that child lock the run's row.
- An event locks its name, a wait for one shares it: whoever comes second finds the first.
- Counting the slots of a limit needs the lock on its name.

A claim comes last in its batch and waits for nobody: what others have locked it leaves alone.
Whoever gives runs to a worker shares its row, so that nobody ends its lease meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import asyncpg

from stepwell.stores.postgres.columns import pack_texts, texts


def event_name(event: str) -> str:
    return f"stepwell:event:{event}"


def limit_name(limit_key: str) -> str:
    return f"stepwell:limit:{limit_key}"


def _named(ending: str) -> str:
    """Locks the names $1, $2 and those of all limits of runs that are ending, in order."""
    return f"""names AS (
           SELECT hashtextextended(n.name, 0) AS hash, n.alone
           FROM unnest($1::text[], $2::boolean[]) AS n (name, alone)
           UNION ALL
           SELECT hashtextextended('stepwell:limit:' || l.limit_key, 0), true
           FROM limits l WHERE l.run_id = ANY({texts(ending)})
       ), named AS MATERIALIZED (
           SELECT CASE WHEN alone THEN pg_advisory_xact_lock(hash)::text
                       ELSE pg_advisory_xact_lock_shared(hash)::text END
           FROM (SELECT hash, bool_or(alone) AS alone FROM names GROUP BY hash ORDER BY hash) n
       )"""


async def lock_names(
    db: asyncpg.Connection, names: Mapping[str, bool], ending: Collection[str]
) -> None:
    """Lock names only, for whoever has to look before it knows which runs to lock."""
    await db.fetch(
        f"WITH {_named('$3')} SELECT count(*) FROM named",
        list(names),
        list(names.values()),
        pack_texts(list(ending)),
    )


async def lock(
    db: asyncpg.Connection,
    names: Mapping[str, bool],
    run_ids: Collection[str],
    ending: Collection[str],
) -> dict[str, asyncpg.Record]:
    """Lock names (True: for oneself alone), runs, and all that the end of runs concerns.

    Returns the locked runs (id, owner, fence, status, workspace_id) as they are by now.
    """
    rows = await db.fetch(
        f"""WITH {_named("$4")}
           SELECT r.id, r.owner, r.fence, r.status, r.workspace_id FROM runs r
           WHERE (SELECT count(*) FROM named) >= 0
             AND r.id = ANY(ARRAY(
               SELECT unnest({texts("$3")})
               UNION
               SELECT w.run_id FROM unnest({texts("$4")}) AS e (id) CROSS JOIN LATERAL (
                   SELECT run_id FROM waits
                   WHERE child_run_id = e.id AND ended_at IS NULL OFFSET 0) w))
           ORDER BY r.id FOR NO KEY UPDATE OF r""",
        list(names),
        list(names.values()),
        pack_texts(list(run_ids)),
        pack_texts(list(ending)),
    )
    return {row[0]: row for row in rows}


async def try_lock(db: asyncpg.Connection, limit_keys: Collection[str]) -> set[str]:
    """Lock limits, as far as that is possible at once, for whom to wait would be out of order."""
    rows = await db.fetch(
        """SELECT k.key FROM unnest($1::text[], $2::text[]) AS k (key, name)
           WHERE pg_try_advisory_xact_lock(hashtextextended(k.name, 0))""",
        list(limit_keys),
        [limit_name(key) for key in limit_keys],
    )
    return {row[0] for row in rows}
