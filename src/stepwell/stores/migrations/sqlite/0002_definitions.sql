-- Definitions that are data, and what people decide about them.
--
-- What was called `definitions` are the versions that runs can be started of; it is `versions`
-- now. `definitions` has one row for each definition that is data, with `serial` counting its
-- changes: whoever changes one says which serial the change was made from. `documents` are
-- immutable, found by their hash, and deleted some time after `kept_at` unless a revision, a
-- version or a run names them; `revisions` are those that a definition has had published,
-- one row for each hash. A draft is an edit that was not published yet. `gates` are decisions
-- that runs wait for, `secrets` are encrypted before they come here. `trigger` says what started
-- a run, as JSON.

ALTER TABLE definitions RENAME TO versions;
ALTER TABLE versions ADD COLUMN revision TEXT;
ALTER TABLE runs ADD COLUMN revision TEXT;
ALTER TABLE runs ADD COLUMN trigger TEXT;
ALTER TABLE waits ADD COLUMN about TEXT;

CREATE TABLE definitions (
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    serial INTEGER NOT NULL,
    title TEXT NOT NULL,
    tags TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    hash TEXT,
    version TEXT,
    number INTEGER NOT NULL,
    layout TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, name)
) WITHOUT ROWID;

CREATE TABLE drafts (
    workspace_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    document TEXT NOT NULL,
    etag TEXT NOT NULL,
    base_hash TEXT,
    author TEXT NOT NULL,
    saved_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, definition)
) WITHOUT ROWID;

CREATE TABLE documents (
    workspace_id TEXT NOT NULL,
    hash TEXT NOT NULL,
    document TEXT NOT NULL,
    kept_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, hash)
) WITHOUT ROWID;

CREATE INDEX documents_by_age ON documents (kept_at);

CREATE TABLE revisions (
    workspace_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    hash TEXT NOT NULL,
    number INTEGER NOT NULL,
    version TEXT NOT NULL,
    source TEXT NOT NULL,
    author TEXT NOT NULL,
    note TEXT NOT NULL,
    proposal_id TEXT,
    created_at INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, definition, hash)
) WITHOUT ROWID;

-- What names a document, for whoever looks whether anything does.
CREATE INDEX revisions_by_hash ON revisions (workspace_id, hash);
CREATE INDEX versions_by_revision ON versions (workspace_id, revision) WHERE revision IS NOT NULL;
CREATE INDEX runs_by_revision ON runs (workspace_id, revision) WHERE revision IS NOT NULL;

CREATE TABLE proposals (
    workspace_id TEXT NOT NULL,
    id TEXT NOT NULL,
    definition TEXT NOT NULL,
    status TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (workspace_id, id)
) WITHOUT ROWID;

CREATE INDEX proposals_of_definition ON proposals (workspace_id, definition, id);

CREATE TABLE gates (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    serial INTEGER NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX gates_of_run ON gates (run_id, key);
CREATE INDEX gates_open ON gates (workspace_id, id) WHERE status = 'open';

CREATE TABLE secrets (
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    key_id TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, name)
) WITHOUT ROWID;
