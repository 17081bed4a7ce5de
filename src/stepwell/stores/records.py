"""Records that change seldom, on any store that speaks SQL.

Definitions, gates and secrets are few and not in anybody's way, so what both stores have to do
for them is written once, in SQL that both understand. A store brings two verbs: to fetch, and to
execute statements in one transaction, with changes of runs if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.errors import Overtaken
from stepwell.kernel.changes import Committed, SendSignal
from stepwell.kernel.records import (
    OPEN_PROPOSALS,
    DefinitionRecord,
    DraftRecord,
    GateRecord,
    ProposalRecord,
    RevisionRecord,
    SecretRecord,
)
from stepwell.kernel.states import ENDED, quoted
from stepwell.record import Amendment
from stepwell.stores.amendments import (
    deletion_of,
    draft_of,
    head_of,
    proposal_of,
    put_off_or_deleted,
    revision_of,
    triggers_of,
)
from stepwell.stores.paces import QUEUED, repaced
from stepwell.stores.statements import Statement, Statements, as_json

_DEFINITION = (
    "name, serial, title, tags, enabled, hash, version, number, {}, created_at, updated_at"
)
_REVISION = """definition, hash, number, version, source, author, note, proposal_id, created_at,
    published_at"""
_DRAFT = "definition, document, etag, base_hash, author, saved_at"

# Whether the run of a gate has given up waiting there; the keys of gates end with the mark of what
# is asked, `[…]` with 14 characters, and so do those of the waits.
_GIVEN_UP = """EXISTS (
    SELECT 1 FROM steps s WHERE s.run_id = g.run_id AND s.status = 'skipped'
    AND s.key = CASE WHEN length(g.key) > 14 THEN substr(g.key, 1, length(g.key) - 14)
                     || '.decision' || substr(g.key, length(g.key) - 13) END)"""


class SqlRecords:
    """Records in tables of either store."""

    def __init__(self, statements: Statements) -> None:
        self._fetch = statements.fetch
        self._amend = statements.amend
        self._next_place = statements.next_place

    # -- definitions ---------------------------------------------------------------------

    async def definition(self, workspace_id: str, name: str) -> DefinitionRecord | None:
        rows = await self._fetch(
            f"""SELECT {_DEFINITION.format("layout")} FROM definitions
                WHERE workspace_id = $1 AND name = $2""",
            workspace_id,
            name,
        )
        return _definition(rows[0]) if rows else None

    async def definitions(self, workspace_id: str) -> list[DefinitionRecord]:
        rows = await self._fetch(
            f"""SELECT {_DEFINITION.format("NULL")} FROM definitions
                WHERE workspace_id = $1 ORDER BY name""",
            workspace_id,
        )
        return [_definition(row) for row in rows]

    async def draft(self, workspace_id: str, definition: str) -> DraftRecord | None:
        rows = await self._fetch(
            f"SELECT {_DRAFT} FROM drafts WHERE workspace_id = $1 AND definition = $2",
            workspace_id,
            definition,
        )
        return DraftRecord(*rows[0]) if rows else None

    async def amend(self, workspace_id: str, amendment: Amendment) -> Committed:
        if amendment.deleted:
            statements = deletion_of(workspace_id, amendment.definition)
        else:
            statements = [
                *head_of(workspace_id, amendment),
                *draft_of(workspace_id, amendment),
                *revision_of(workspace_id, amendment),
                *triggers_of(workspace_id, amendment, self._next_place),
            ]
            if (proposal := amendment.proposal) is not None:
                statements.append(proposal_of(workspace_id, proposal, "approved"))
        done = await self._amend(
            statements, workspace_id=workspace_id, version=amendment.version,
            paces=repaced(workspace_id, amendment),
        )  # fmt: skip
        done.firing = bool(amendment.triggers)
        return done

    async def queued_revisions(self, workspace_id: str, definition: str) -> list[str]:
        rows = await self._fetch(
            f"SELECT DISTINCT revision FROM runs WHERE {QUEUED} AND revision IS NOT NULL",
            workspace_id,
            definition,
        )
        return [row[0] for row in rows]

    async def document(self, workspace_id: str, hash: str) -> str | None:
        rows = await self._fetch(
            "SELECT document FROM documents WHERE workspace_id = $1 AND hash = $2",
            workspace_id,
            hash,
        )
        return rows[0][0] if rows else None

    async def keep(self, workspace_id: str, hash: str, document: str, now: int) -> None:
        keep = """INSERT INTO documents VALUES ($1, $2, $3, $4)
                  ON CONFLICT (workspace_id, hash) DO UPDATE SET kept_at = $4"""
        await self._amend([Statement(keep, (workspace_id, hash, document, now))])

    async def prune_documents(self, before: int, now: int, limit: int) -> int:
        rows = await self._fetch(
            """SELECT workspace_id, hash FROM documents WHERE kept_at < $1
               ORDER BY kept_at LIMIT $2""",
            before,
            limit,
        )
        # One at a time: documents can be large, and who waits for a row here waits for no other.
        for workspace_id, hash in rows:
            await self._amend(put_off_or_deleted(workspace_id, hash, before, now))
        return len(rows)

    async def labelled(self, workspace_id: str, definition: str, label: str) -> str | None:
        rows = await self._fetch(
            """SELECT revision FROM versions WHERE workspace_id = $1 AND name = $2 AND label = $3
               ORDER BY version DESC LIMIT 1""",
            *(workspace_id, definition, label),
        )
        return rows[0][0] if rows else None

    async def revisions(self, workspace_id: str, definition: str) -> list[RevisionRecord]:
        rows = await self._fetch(
            f"""SELECT {_REVISION} FROM revisions WHERE workspace_id = $1 AND definition = $2
                ORDER BY number DESC""",
            workspace_id,
            definition,
        )
        return [RevisionRecord(*row) for row in rows]

    # -- proposals -----------------------------------------------------------------------

    async def proposal(self, workspace_id: str, proposal_id: str) -> ProposalRecord | None:
        rows = await self._fetch(
            "SELECT body FROM proposals WHERE workspace_id = $1 AND id = $2",
            workspace_id,
            proposal_id,
        )
        return msgspec.json.decode(rows[0][0], type=ProposalRecord) if rows else None

    async def proposals(
        self, workspace_id: str, definition: str | None, status: str | None = None, now: int = 0
    ) -> list[ProposalRecord]:
        # Nobody may have noticed yet that the time of an open one is up.
        shown = f"""CASE WHEN status IN ({quoted(OPEN_PROPOSALS)}) AND expires_at <= $4
                    THEN 'expired' ELSE status END"""
        rows = await self._fetch(
            f"""SELECT body FROM proposals WHERE workspace_id = $1
                   AND (CAST($2 AS text) IS NULL OR definition = $2)
                   AND (CAST($3 AS text) IS NULL OR {shown} = $3)
                ORDER BY id DESC""",
            *(workspace_id, definition, status, now),
        )
        return [msgspec.json.decode(row[0], type=ProposalRecord) for row in rows]

    async def put_proposal(
        self, workspace_id: str, proposal: ProposalRecord, was: str | None
    ) -> None:
        await self._amend([proposal_of(workspace_id, proposal, was)])

    # -- gates ---------------------------------------------------------------------------

    async def gate(self, workspace_id: str, gate_id: str) -> GateRecord | None:
        rows = await self._fetch(
            f"SELECT body, {_GIVEN_UP} FROM gates g WHERE workspace_id = $1 AND id = $2",
            workspace_id,
            gate_id,
        )
        if not rows:
            return None
        gate = _gate(rows[0])
        if gate.status == "open" and rows[0][1]:
            return msgspec.structs.replace(gate, status="void")
        return gate

    async def gates(
        self, workspace_id: str, run_id: str | None = None, *, only_open: bool = True
    ) -> list[GateRecord]:
        living = f"""AND g.status = 'open' AND NOT {_GIVEN_UP} AND EXISTS (
            SELECT 1 FROM runs r WHERE r.id = g.run_id AND r.status NOT IN ({quoted(ENDED)}))"""
        wanted = f"workspace_id = $1 {living if only_open else ''}"
        if run_id is None:
            rows = await self._fetch(
                f"SELECT g.body FROM gates g WHERE g.{wanted} ORDER BY g.id", workspace_id
            )
        else:
            # Children are looked for at once: they may have outlived the run. CROSS, and the
            # workspace of the run, let SQLite go from runs to their gates, not through all gates.
            rows = await self._fetch(
                f"""WITH RECURSIVE below (id, workspace_id) AS (
                        SELECT id, workspace_id FROM runs WHERE id = $2 OR parent_run_id = $2
                        UNION SELECT r.id, r.workspace_id FROM below b CROSS JOIN runs r
                              WHERE r.parent_run_id = b.id)
                    SELECT g.body FROM below b CROSS JOIN gates g
                    WHERE g.run_id = b.id AND b.{wanted} ORDER BY g.run_id <> $2, g.id""",
                workspace_id,
                run_id,
            )
        return [_gate(row) for row in rows]

    async def late_gates(self, workspace_id: str, now: int, limit: int) -> list[GateRecord]:
        rows = await self._fetch(
            """SELECT body FROM gates WHERE workspace_id = $1 AND status = 'open'
                  AND deadline_at <= $2 ORDER BY deadline_at LIMIT $3""",
            *(workspace_id, now, limit),
        )
        return [_gate(row) for row in rows]

    async def open_gate(self, workspace_id: str, gate: GateRecord) -> GateRecord:
        await self._amend(
            [
                Statement(
                    """INSERT INTO gates (id, workspace_id, run_id, key, status, serial, body,
                                          deadline_at)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING""",
                    (gate.id, workspace_id, gate.run_id, gate.key, gate.status, gate.serial,
                     as_json(gate), gate.deadline_at),
                )
            ]
        )  # fmt: skip
        rows = await self._fetch(
            "SELECT body FROM gates WHERE run_id = $1 AND key = $2", gate.run_id, gate.key
        )
        return _gate(rows[0])

    async def change_gate(
        self, workspace_id: str, gate: GateRecord, signal: SendSignal | None = None
    ) -> Committed:
        change = Statement(
            """UPDATE gates SET status = $3, serial = $4, body = $5
               WHERE workspace_id = $1 AND id = $2 AND serial = $4 - 1""",
            (workspace_id, gate.id, gate.status, gate.serial, as_json(gate)),
            must=True,
        )
        return await self._amend([change], changes=[] if signal is None else [signal])

    # -- secrets -------------------------------------------------------------------------

    async def secrets(self, workspace_id: str) -> list[SecretRecord]:
        rows = await self._fetch(
            """SELECT name, key_id, sealed, created_at, updated_at FROM secrets
               WHERE workspace_id = $1 ORDER BY name""",
            workspace_id,
        )
        return [SecretRecord(*row) for row in rows]

    async def put_secret(self, workspace_id: str, secret: SecretRecord) -> None:
        await self._amend(
            [
                Statement(
                    """INSERT INTO secrets VALUES ($1, $2, $3, $4, $5, $6)
                       ON CONFLICT (workspace_id, name) DO UPDATE
                       SET key_id = $3, sealed = $4, updated_at = $6""",
                    (workspace_id, *msgspec.structs.astuple(secret)),
                )
            ]
        )

    async def replace_secret(self, workspace_id: str, secret: SecretRecord, was: str) -> bool:
        return await self._has_changed(
            """UPDATE secrets SET key_id = $3, sealed = $4, updated_at = $5
               WHERE workspace_id = $1 AND name = $2 AND sealed = $6""",
            workspace_id, secret.name, secret.key_id, secret.sealed, secret.updated_at, was,
        )  # fmt: skip

    async def delete_secret(self, workspace_id: str, name: str) -> bool:
        delete = "DELETE FROM secrets WHERE workspace_id = $1 AND name = $2"
        return await self._has_changed(delete, workspace_id, name)

    async def _has_changed(self, sql: str, *values: Any) -> bool:
        """Whether the row was there to be changed."""
        try:
            await self._amend([Statement(sql, values, must=True)])
        except Overtaken:
            return False
        return True


def _definition(row: Sequence[Any]) -> DefinitionRecord:
    name, serial, title, tags, enabled, hash_, version, number, layout, created, updated = row
    return DefinitionRecord(
        name, serial, title, msgspec.json.decode(tags), bool(enabled), hash_, version, number,
        None if layout is None else msgspec.json.decode(layout), created, updated,
    )  # fmt: skip


def _gate(row: Sequence[Any]) -> GateRecord:
    return msgspec.json.decode(row[0], type=GateRecord)
