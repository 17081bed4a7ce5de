-- Definitions that are data, and what people decide about them, on PostgreSQL.
--
-- The tables are those of the SQLite store; read the head of sqlite/0002_definitions.sql.

ALTER TABLE definitions RENAME TO versions;
ALTER INDEX definitions_pkey RENAME TO versions_pkey;
ALTER TABLE versions ADD COLUMN revision text;
ALTER TABLE runs ADD COLUMN revision text;
ALTER TABLE runs ADD COLUMN trigger text;
ALTER TABLE waits ADD COLUMN about text;

CREATE TABLE definitions (
    workspace_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    serial integer NOT NULL,
    title text NOT NULL,
    tags text NOT NULL,
    enabled boolean NOT NULL,
    hash text COLLATE "C",
    version text,
    number integer NOT NULL,
    layout text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (workspace_id, name)
);

CREATE TABLE drafts (
    workspace_id text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    document text NOT NULL,
    etag text NOT NULL,
    base_hash text,
    author text NOT NULL,
    saved_at bigint NOT NULL,
    PRIMARY KEY (workspace_id, definition)
);

CREATE TABLE documents (
    workspace_id text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    document text NOT NULL,
    kept_at bigint NOT NULL,
    PRIMARY KEY (workspace_id, hash)
);

CREATE INDEX documents_by_age ON documents (kept_at);

CREATE TABLE revisions (
    workspace_id text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    version text NOT NULL,
    source text NOT NULL,
    author text NOT NULL,
    note text NOT NULL,
    proposal_id text,
    created_at bigint NOT NULL,
    published_at bigint NOT NULL,
    PRIMARY KEY (workspace_id, definition, hash)
);

-- What names a document, for whoever looks whether anything does.
CREATE INDEX revisions_by_hash ON revisions (workspace_id, hash);
CREATE INDEX versions_by_revision ON versions (workspace_id, revision) WHERE revision IS NOT NULL;
CREATE INDEX runs_by_revision ON runs (workspace_id, revision) WHERE revision IS NOT NULL;

CREATE TABLE proposals (
    workspace_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    status text NOT NULL,
    expires_at bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

CREATE INDEX proposals_of_definition ON proposals (workspace_id, definition, id);

CREATE TABLE gates (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    status text NOT NULL,
    serial integer NOT NULL,
    body text NOT NULL
);

CREATE UNIQUE INDEX gates_of_run ON gates (run_id, key);
CREATE INDEX gates_open ON gates (workspace_id, id) WHERE status = 'open';

CREATE TABLE secrets (
    workspace_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key_id text NOT NULL,
    sealed text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (workspace_id, name)
);
