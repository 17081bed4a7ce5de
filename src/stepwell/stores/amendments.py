"""Changes of definitions and what belongs to them, as statements."""

from __future__ import annotations

import msgspec

from stepwell.kernel.records import DefinitionRecord, ProposalRecord
from stepwell.record import Amendment
from stepwell.stores.statements import Statement, as_json
from stepwell.stores.triggers import trigger_of


def head_of(workspace_id: str, amendment: Amendment) -> list[Statement]:
    """The record itself; a new one only if there may be one more."""
    found = amendment.definition
    layout = None if found.layout is None else as_json(found.layout)
    values = (
        workspace_id, found.name, found.serial, found.title, as_json(found.tags), found.enabled,
        found.hash, found.version, found.number, layout, found.created_at, found.updated_at,
    )  # fmt: skip
    if found.serial == 1 and amendment.most is not None:
        # Whoever else makes one waits for this row, and then counts what was made here.
        alone = """INSERT INTO usage (key, used) VALUES ($1, 0)
                   ON CONFLICT (key) DO UPDATE SET used = 0"""
        sql = """INSERT INTO definitions
                 SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
                 WHERE (SELECT count(*) FROM definitions WHERE workspace_id = $1) < $13
                 ON CONFLICT DO NOTHING"""
        return [
            Statement(alone, (f"definitions:{workspace_id}",)),
            Statement(sql, (*values, amendment.most), must=True),
        ]
    if found.serial == 1:
        sql = """INSERT INTO definitions
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
                 ON CONFLICT DO NOTHING"""
        return [Statement(sql, values, must=True)]
    sql = """UPDATE definitions SET serial = $3, title = $4, tags = $5, enabled = $6, hash = $7,
                 version = $8, number = $9, layout = $10, created_at = $11, updated_at = $12
             WHERE workspace_id = $1 AND name = $2 AND serial = $3 - 1"""
    return [Statement(sql, values, must=True)]


def draft_of(workspace_id: str, amendment: Amendment) -> list[Statement]:
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


def document_of(workspace_id: str, hash: str, document: str, now: int) -> Statement:
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


def put_off_or_deleted(workspace_id: str, hash: str, before: int, now: int) -> list[Statement]:
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


def revision_of(workspace_id: str, amendment: Amendment) -> list[Statement]:
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
        found.append(document_of(workspace_id, revision.hash, amendment.document, now))
    return found


def proposal_of(workspace_id: str, proposal: ProposalRecord, was: str | None) -> Statement:
    values = (
        workspace_id, proposal.id, proposal.definition, proposal.status, proposal.expires_at,
        as_json(proposal),
    )  # fmt: skip
    if was is None:
        return Statement("INSERT INTO proposals VALUES ($1, $2, $3, $4, $5, $6)", values)
    sql = """UPDATE proposals SET definition = $3, status = $4, expires_at = $5, body = $6
             WHERE workspace_id = $1 AND id = $2 AND status = $7"""
    return Statement(sql, (*values, was), must=True)


def triggers_of(workspace_id: str, amendment: Amendment, next_place: str) -> list[Statement]:
    """Those that go first: one that comes may have the name of one that goes.

    Before that all of them give up their paths, which may go from one to another; in the order in
    which whoever fires them locks them, so that the two cannot wait for each other.
    """
    free = "UPDATE triggers SET path = NULL WHERE workspace_id = $1 AND id = $2"
    touched = sorted(each.id for each in (*amendment.removed, *amendment.triggers))
    freed = [Statement(free, (workspace_id, trigger_id)) for trigger_id in touched]
    delete = "DELETE FROM triggers WHERE workspace_id = $1 AND id = $2"
    gone = [Statement(delete, (workspace_id, each.id)) for each in amendment.removed]
    kept = [trigger_of(workspace_id, each, next_place) for each in amendment.triggers]
    return freed + gone + kept


def deletion_of(workspace_id: str, definition: DefinitionRecord) -> list[Statement]:
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
                ("triggers", "definition"),
                ("versions", "kind = 'graph' AND name"),
            )
        ),
    ]
