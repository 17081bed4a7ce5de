"""Triggers, the events that wait for them, and what they refused, on any store that speaks SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.errors import Overtaken
from stepwell.kernel.changes import Committed, StartRun
from stepwell.kernel.clock import SECOND
from stepwell.kernel.records import EventRecord, Firing, RefusalRecord, TriggerRecord
from stepwell.stores.statements import Statement, Statements, as_json

_FIELDS = TriggerRecord.__struct_fields__
_TRIGGER = ", ".join(_FIELDS)
_EVENT = "id, type, key, payload, created_at, traceparent"
_REFUSAL = "id, trigger_id, code, message, refused_at, count"
# What people change of a record; when it fired last is for those to write who fire it.
_EDITED = [name for name in _FIELDS if name not in ("id", "last_fired_at", "last_run_id")]
# What firing changes.
_FATE = ("next_at", "last_fired_at", "last_run_id", "last_error", "failures", "paused")
# Clocks of processes that are less apart than this are taken to be the same.
_SET_BACK = 60 * SECOND


class SqlTriggers:
    """Triggers in tables of either store."""

    def __init__(self, statements: Statements) -> None:
        self._fetch = statements.fetch
        self._amend = statements.amend
        self._next_place = statements.next_place

    async def trigger(self, workspace_id: str, trigger_id: str) -> TriggerRecord | None:
        return await self._one("id = $2", workspace_id, trigger_id)

    async def trigger_at(self, workspace_id: str, path: str) -> TriggerRecord | None:
        return await self._one("path = $2", workspace_id, path)

    async def _one(self, where: str, *values: Any) -> TriggerRecord | None:
        found = await self._several(where, *values)
        return found[0] if found else None

    async def triggers(
        self, workspace_id: str, definition: str | None = None
    ) -> list[TriggerRecord]:
        where = "(CAST($2 AS text) IS NULL OR definition = $2) ORDER BY definition, name"
        return await self._several(where, workspace_id, definition)

    async def due(
        self, workspace_id: str, now: int, limit: int, after: TriggerRecord | None = None
    ) -> list[TriggerRecord]:
        where = "next_at <= $2 AND (next_at, id) > ($4, $5) ORDER BY next_at, id LIMIT $3"
        at, id = (-1, "") if after is None else (after.next_at, after.id)
        return await self._several(where, workspace_id, now, limit, at, id)

    async def next_at(self, workspace_id: str, now: int) -> int | None:
        rows = await self._fetch(
            """SELECT next_at FROM triggers WHERE workspace_id = $1 AND next_at > $2
               ORDER BY next_at LIMIT 1""",
            workspace_id,
            now,
        )
        return rows[0][0] if rows else None

    async def listening(self, workspace_id: str, types: Sequence[str]) -> list[TriggerRecord]:
        found: list[TriggerRecord] = []
        for each in types:
            found += await self._several("event = $2 ORDER BY id", workspace_id, each)
        return found

    async def _several(self, where: str, *values: Any) -> list[TriggerRecord]:
        rows = await self._fetch(
            f"SELECT {_TRIGGER} FROM triggers WHERE workspace_id = $1 AND {where}", *values
        )
        return [_trigger(row) for row in rows]

    async def put(self, workspace_id: str, trigger: TriggerRecord) -> Committed:
        done = await self._amend([trigger_of(workspace_id, trigger, self._next_place)])
        done.firing = True
        return done

    async def delete(self, workspace_id: str, trigger_id: str) -> bool:
        delete = "DELETE FROM triggers WHERE workspace_id = $1 AND id = $2"
        try:
            await self._amend([Statement(delete, (workspace_id, trigger_id), must=True)])
        except Overtaken:
            return False
        return True

    async def fire(
        self, workspace_id: str, firings: Sequence[Firing], starts: Sequence[StartRun],
        refusals: Sequence[RefusalRecord] = (), events: Sequence[str] = (),
    ) -> Committed:  # fmt: skip
        # Rows in the same order whoever it is, so that two of them cannot wait for each other.
        dispatched = "UPDATE events SET pending = NULL WHERE id = $1 AND pending IS NOT NULL"
        statements = [Statement(dispatched, (event_id,), must=True) for event_id in sorted(events)]
        statements += [
            _fate_of(workspace_id, each) for each in sorted(firings, key=lambda f: f.trigger.id)
        ]
        statements += [_refusal_of(workspace_id, each) for each in refusals]

        def renamed(done: Committed) -> list[Statement]:
            names = {start.id: done.outcomes[index][0] for index, start in enumerate(starts)}
            return [
                _run_of(workspace_id, firing.trigger.id, found)
                for firing in firings
                if (found := names.get(id := firing.trigger.last_run_id or "", id)) != id
            ]

        return await self._amend(statements, changes=starts, then=renamed)

    async def pending_events(self, workspace_id: str, limit: int) -> list[tuple[int, EventRecord]]:
        rows = await self._fetch(
            f"""SELECT pending, {_EVENT} FROM events WHERE workspace_id = $1 AND pending IS NOT NULL
                ORDER BY pending LIMIT $2""",
            workspace_id,
            limit,
        )
        return [(row[0], _event(row[1:])) for row in rows]

    async def events(
        self, workspace_id: str, type: str | None, before: str | None, limit: int
    ) -> list[EventRecord]:
        rows = await self._fetch(
            f"""SELECT {_EVENT} FROM events WHERE workspace_id = $1 AND run_id IS NULL
                   AND (CAST($2 AS text) IS NULL OR type = $2)
                   AND (CAST($3 AS text) IS NULL OR id < $3)
                ORDER BY id DESC LIMIT $4""",
            *(workspace_id, type, before, limit),
        )
        return [_event(row) for row in rows]

    async def refuse(self, workspace_id: str, refusals: Sequence[RefusalRecord]) -> None:
        await self._amend([_refusal_of(workspace_id, each) for each in refusals])

    async def refusals(
        self, workspace_id: str, trigger_id: str | None, limit: int
    ) -> list[RefusalRecord]:
        rows = await self._fetch(
            f"""SELECT {_REFUSAL} FROM refusals WHERE workspace_id = $1
                   AND (CAST($2 AS text) IS NULL OR trigger_id = $2) ORDER BY id DESC LIMIT $3""",
            *(workspace_id, trigger_id, limit),
        )
        return [RefusalRecord(*row) for row in rows]

    async def prune_refusals(self, before: int, limit: int) -> int:
        rows = await self._fetch(
            """SELECT workspace_id, id FROM refusals WHERE refused_at < $1
               ORDER BY refused_at LIMIT $2""",
            before,
            limit,
        )
        delete = "DELETE FROM refusals WHERE workspace_id = $1 AND id = $2"
        await self._amend([Statement(delete, tuple(row)) for row in rows])
        return len(rows)

    async def take(self, key: str, limit: int, period: int, now: int) -> int:
        if limit < 1:
            return period
        each = max(period // limit, 1)
        # What is missing in the bucket comes back one by one: it is full again at `full_at`.
        now_at, step, room = (f"CAST(${number} AS bigint)" for number in (2, 3, 4))
        # One that will be full later than any can be was used before the clock was set back: what
        # has come back to it since is not known, and it is taken to be one.
        full = f"""CASE WHEN buckets.full_at > {now_at} + {room} + {_SET_BACK}
                        THEN {now_at} + {room} - {step}
                        WHEN buckets.full_at > {now_at} THEN buckets.full_at ELSE {now_at} END"""
        take = f"""INSERT INTO buckets (key, full_at) VALUES ($1, {now_at} + {step})
                   ON CONFLICT (key) DO UPDATE SET full_at = {full} + {step}
                   WHERE {full} + {step} <= {now_at} + {room}"""
        try:
            await self._amend([Statement(take, (key, now, each, max(period, each)), must=True)])
        except Overtaken:
            rows = await self._fetch("SELECT full_at FROM buckets WHERE key = $1", key)
            full_at = rows[0][0] if rows else now
            return max(full_at + each - period - now, 1)
        return 0

    async def prune_buckets(self, before: int, limit: int) -> int:
        rows = await self._fetch(
            "SELECT key FROM buckets WHERE full_at < $1 ORDER BY full_at LIMIT $2", before, limit
        )
        delete = "DELETE FROM buckets WHERE key = $1 AND full_at < $2"
        await self._amend([Statement(delete, (row[0], before)) for row in rows])
        return len(rows)

    async def prune_turns(self, before: int, limit: int) -> int:
        rows = await self._fetch(
            "SELECT key, at, run_id FROM turns WHERE over_at < $1 ORDER BY over_at LIMIT $2",
            before,
            limit,
        )
        delete = "DELETE FROM turns WHERE key = $1 AND at = $2 AND run_id = $3"
        await self._amend([Statement(delete, tuple(row)) for row in rows])
        return len(rows)


def trigger_of(workspace_id: str, trigger: TriggerRecord, next_place: str) -> Statement:
    """A trigger that is new, or that was changed from the serial before."""

    def value(name: str, number: int) -> str:
        last = f"coalesce(CAST(${number} AS bigint), {next_place})"
        return last if name == "place" else f"${number}"

    if trigger.serial == 1:
        values = ", ".join(value(name, number) for number, name in enumerate(_FIELDS, 2))
        sql = f"""INSERT INTO triggers (workspace_id, {_TRIGGER}) VALUES ($1, {values})
                  ON CONFLICT DO NOTHING"""
        return Statement(sql, (workspace_id, *_values(trigger, _FIELDS)), must=True)
    sets = ", ".join(f"{name} = {value(name, number)}" for number, name in enumerate(_EDITED, 3))
    sql = f"""UPDATE triggers SET {sets}
              WHERE workspace_id = $1 AND id = $2 AND serial = ${_EDITED.index("serial") + 3} - 1"""
    return Statement(sql, (workspace_id, trigger.id, *_values(trigger, _EDITED)), must=True)


def _fate_of(workspace_id: str, firing: Firing) -> Statement:
    sets = ", ".join(f"{name} = ${number}" for number, name in enumerate(_FATE, 5))
    sql = f"""UPDATE triggers SET {sets} WHERE workspace_id = $1 AND id = $2 AND serial = $3
                 AND next_at IS NOT DISTINCT FROM CAST($4 AS bigint)"""
    fate = [getattr(firing.trigger, name) for name in _FATE]
    values = (workspace_id, firing.was.id, firing.was.serial, firing.was.next_at, *fate)
    return Statement(sql, values, must=True)


def _run_of(workspace_id: str, trigger_id: str, run_id: str) -> Statement:
    sql = "UPDATE triggers SET last_run_id = $3 WHERE workspace_id = $1 AND id = $2"
    return Statement(sql, (workspace_id, trigger_id, run_id))


def _refusal_of(workspace_id: str, refusal: RefusalRecord) -> Statement:
    # The same again is what was sent again, because no answer came.
    sql = f"""INSERT INTO refusals (workspace_id, {_REFUSAL}) VALUES ($1, $2, $3, $4, $5, $6, $7)
              ON CONFLICT DO NOTHING"""
    return Statement(sql, (workspace_id, *msgspec.structs.astuple(refusal)))


def _values(trigger: TriggerRecord, fields: Sequence[str]) -> list[Any]:
    found = [(name, getattr(trigger, name)) for name in fields]
    return [as_json(value) if name == "config" else value for name, value in found]


def _trigger(row: Sequence[Any]) -> TriggerRecord:
    found = dict(zip(_FIELDS, row, strict=True))
    found["config"] = msgspec.json.decode(found["config"])
    found["enabled"] = bool(found["enabled"])
    return TriggerRecord(**found)


def _event(row: Sequence[Any]) -> EventRecord:
    event_id, type_, key, payload, *rest = row
    return EventRecord(event_id, type_, key, msgspec.json.decode(payload), *rest)
