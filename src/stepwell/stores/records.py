"""Records that change seldom, on any store that speaks SQL.

Definitions, gates and secrets are few and not in anybody's way, so what both stores have to do
for them is written once, in SQL that both understand. A store brings two verbs: to fetch, and to
execute statements in one transaction, with changes of runs if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from stepwell.errors import Overtaken
from stepwell.kernel.changes import Change, Committed, SendSignal
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
from stepwell.store import Amendment, VersionRow


class Statement(NamedTuple):
    """A statement with `$1`, `$2` …; if it `must` change a row and does not, all is undone."""

    sql: str
    values: tuple[Any, ...]
    must: bool = False


class Statements(Protocol):
    """What a store brings."""

    async def fetch(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]: ...

    async def amend(
        self, statements: Sequence[Statement], *, changes: Sequence[Change] = (),
        workspace_id: str = "", version: VersionRow | None = None,
    ) -> Committed:  # fmt: skip
        """Execute all of it in one transaction; raises Overtaken if a statement must and cannot."""
        ...


def checked(statement: Statement, changed: int) -> None:
    """Raise if a statement that must has changed nothing."""
    if statement.must and changed == 0:
        raise Overtaken("Somebody else was faster; look again.")


_DEFINITION = (
    "name, serial, title, tags, enabled, hash, version, number, {}, created_at, updated_at"
)
_REVISION = """definition, hash, number, version, source, author, note, proposal_id, created_at,
    published_at"""
_DRAFT = "definition, document, etag, base_hash, author, saved_at"


class SqlRecords:
    """Records in tables of either store."""

    def __init__(self, statements: Statements) -> None:
        self._fetch = statements.fetch
        self._amend = statements.amend

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
            statements = _deletion(workspace_id, amendment.definition)
        else:
            statements = [
                _head(workspace_id, amendment.definition),
                *_draft(workspace_id, amendment),
                *_revision(workspace_id, amendment),
            ]
            if (proposal := amendment.proposal) is not None:
                statements.append(_proposal(workspace_id, proposal, "approved"))
        return await self._amend(statements, workspace_id=workspace_id, version=amendment.version)

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
            await self._amend(_put_off_or_deleted(workspace_id, hash, before, now))
        return len(rows)

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
        self, workspace_id: str, definition: str, status: str | None = None, now: int = 0
    ) -> list[ProposalRecord]:
        # Nobody may have noticed yet that the time of an open one is up.
        shown = f"""CASE WHEN status IN ({quoted(OPEN_PROPOSALS)}) AND expires_at <= $4
                    THEN 'expired' ELSE status END"""
        rows = await self._fetch(
            f"""SELECT body FROM proposals WHERE workspace_id = $1 AND definition = $2
                {"" if status is None else f"AND {shown} = $3"} ORDER BY id DESC""",
            *(workspace_id, definition),
            *(() if status is None else (status, now)),
        )
        return [msgspec.json.decode(row[0], type=ProposalRecord) for row in rows]

    async def put_proposal(
        self, workspace_id: str, proposal: ProposalRecord, was: str | None
    ) -> None:
        await self._amend([_proposal(workspace_id, proposal, was)])

    # -- gates ---------------------------------------------------------------------------

    async def gate(self, workspace_id: str, gate_id: str) -> GateRecord | None:
        rows = await self._fetch(
            "SELECT body FROM gates WHERE workspace_id = $1 AND id = $2", workspace_id, gate_id
        )
        return _gate(rows[0]) if rows else None

    async def gates(
        self, workspace_id: str, run_id: str | None = None, *, only_open: bool = True
    ) -> list[GateRecord]:
        living = f"""AND g.status = 'open' AND EXISTS (
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

    async def open_gate(self, workspace_id: str, gate: GateRecord) -> GateRecord:
        await self._amend(
            [
                Statement(
                    """INSERT INTO gates (id, workspace_id, run_id, key, status, serial, body)
                       VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING""",
                    (gate.id, workspace_id, gate.run_id, gate.key, gate.status, gate.serial,
                     _json(gate)),
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
            (workspace_id, gate.id, gate.status, gate.serial, _json(gate)),
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


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _definition(row: Sequence[Any]) -> DefinitionRecord:
    name, serial, title, tags, enabled, hash_, version, number, layout, created, updated = row
    return DefinitionRecord(
        name, serial, title, msgspec.json.decode(tags), bool(enabled), hash_, version, number,
        None if layout is None else msgspec.json.decode(layout), created, updated,
    )  # fmt: skip


def _gate(row: Sequence[Any]) -> GateRecord:
    return msgspec.json.decode(row[0], type=GateRecord)


def _head(workspace_id: str, found: DefinitionRecord) -> Statement:
    layout = None if found.layout is None else _json(found.layout)
    values = (
        workspace_id, found.name, found.serial, found.title, _json(found.tags), found.enabled,
        found.hash, found.version, found.number, layout, found.created_at, found.updated_at,
    )  # fmt: skip
    if found.serial == 1:
        sql = """INSERT INTO definitions
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
                 ON CONFLICT DO NOTHING"""
        return Statement(sql, values, must=True)
    sql = """UPDATE definitions SET serial = $3, title = $4, tags = $5, enabled = $6, hash = $7,
                 version = $8, number = $9, layout = $10, created_at = $11, updated_at = $12
             WHERE workspace_id = $1 AND name = $2 AND serial = $3 - 1"""
    return Statement(sql, values, must=True)


def _draft(workspace_id: str, amendment: Amendment) -> list[Statement]:
    draft = amendment.draft
    if draft is msgspec.UNSET:
        return []
    if draft is None:
        delete = "DELETE FROM drafts WHERE workspace_id = $1 AND definition = $2"
        return [Statement(delete, (workspace_id, amendment.definition.name))]
    sql = """INSERT INTO drafts VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (workspace_id, definition) DO UPDATE
             SET document = $3, etag = $4, base_hash = $5, author = $6, saved_at = $7"""
    return [Statement(sql, (workspace_id, *msgspec.structs.astuple(draft)))]


def _document(workspace_id: str, hash: str, document: str, now: int) -> Statement:
    # Texts for people may differ under one hash; those published last stand.
    sql = """INSERT INTO documents VALUES ($1, $2, $3, $4)
             ON CONFLICT (workspace_id, hash) DO UPDATE SET document = $3, kept_at = $4"""
    return Statement(sql, (workspace_id, hash, document, now))


# Whether anything names a document.
_NAMED = " OR ".join(
    f"""EXISTS (SELECT 1 FROM {table} n
                WHERE n.workspace_id = documents.workspace_id AND n.{column} = documents.hash)"""
    for table, column in (("revisions", "hash"), ("versions", "revision"), ("runs", "revision"))
)


def _put_off_or_deleted(workspace_id: str, hash: str, before: int, now: int) -> list[Statement]:
    """A document that something names is looked at again when it has got old once more.

    Who is about to name one has kept it just before, so that it is not old any more.
    """
    this = "workspace_id = $1 AND hash = $2 AND kept_at < $3"
    put_off = f"UPDATE documents SET kept_at = $4 WHERE {this} AND ({_NAMED})"
    delete = f"DELETE FROM documents WHERE {this} AND NOT ({_NAMED})"
    return [
        Statement(put_off, (workspace_id, hash, before, now)),
        Statement(delete, (workspace_id, hash, before)),
    ]


def _revision(workspace_id: str, amendment: Amendment) -> list[Statement]:
    revision = amendment.revision
    if revision is None:
        return []
    sql = """INSERT INTO revisions VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (workspace_id, definition, hash) DO UPDATE
             SET number = $4, version = $5, source = $6, author = $7, note = $8, proposal_id = $9,
                 published_at = $11"""
    found = [Statement(sql, (workspace_id, *msgspec.structs.astuple(revision)))]
    if amendment.document is not None:
        now = amendment.definition.updated_at
        found.append(_document(workspace_id, revision.hash, amendment.document, now))
    return found


def _proposal(workspace_id: str, proposal: ProposalRecord, was: str | None) -> Statement:
    values = (
        workspace_id, proposal.id, proposal.definition, proposal.status, proposal.expires_at,
        _json(proposal),
    )  # fmt: skip
    if was is None:
        return Statement("INSERT INTO proposals VALUES ($1, $2, $3, $4, $5, $6)", values)
    sql = """UPDATE proposals SET definition = $3, status = $4, expires_at = $5, body = $6
             WHERE workspace_id = $1 AND id = $2 AND status = $7"""
    return Statement(sql, (*values, was), must=True)


def _deletion(workspace_id: str, definition: DefinitionRecord) -> list[Statement]:
    """All of a definition but its documents: runs in flight go on by them.

    Versions that are code stay: a process may have brought a workflow of the same name since.
    """
    name = (workspace_id, definition.name)
    head = "DELETE FROM definitions WHERE workspace_id = $1 AND name = $2 AND serial = $3 - 1"
    # A run may be about to start whose version was found just before.
    keep = """UPDATE documents SET kept_at = $3 WHERE workspace_id = $1 AND hash IN (
                  SELECT hash FROM revisions WHERE workspace_id = $1 AND definition = $2)"""
    return [
        Statement(head, (*name, definition.serial), must=True),
        Statement(keep, (*name, definition.updated_at)),
        *(
            Statement(f"DELETE FROM {table} WHERE workspace_id = $1 AND {column} = $2", name)
            for table, column in (
                ("drafts", "definition"),
                ("revisions", "definition"),
                ("proposals", "definition"),
                ("versions", "kind = 'graph' AND name"),
            )
        ),
    ]
