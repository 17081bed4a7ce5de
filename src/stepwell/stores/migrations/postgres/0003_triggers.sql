-- What starts runs by itself, on PostgreSQL.
--
-- The tables are those of the SQLite store; read the head of sqlite/0003_triggers.sql. Places of
-- pending events come from a sequence: of two events the one that was begun later has the higher
-- one, unless they were emitted at the same time.

CREATE TABLE triggers (
    workspace_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    type text NOT NULL,
    origin text NOT NULL,
    serial integer NOT NULL,
    enabled boolean NOT NULL,
    config text NOT NULL,
    timezone text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    since bigint NOT NULL,
    event text COLLATE "C",
    path text COLLATE "C",
    next_at bigint,
    last_fired_at bigint,
    last_run_id text,
    last_error text,
    failures integer NOT NULL,
    paused text,
    PRIMARY KEY (workspace_id, id)
);

CREATE UNIQUE INDEX triggers_by_name ON triggers (workspace_id, definition, name);
CREATE UNIQUE INDEX triggers_by_path ON triggers (workspace_id, path) WHERE path IS NOT NULL;
CREATE INDEX triggers_due ON triggers (workspace_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX triggers_for_event ON triggers (workspace_id, event) WHERE event IS NOT NULL;

ALTER TABLE events ADD COLUMN pending bigint;
CREATE SEQUENCE events_places OWNED BY events.pending;

CREATE INDEX events_pending ON events (workspace_id, pending) WHERE pending IS NOT NULL;

CREATE TABLE refusals (
    workspace_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    trigger_id text COLLATE "C" NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    refused_at bigint NOT NULL,
    count integer NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

CREATE INDEX refusals_of_trigger ON refusals (workspace_id, trigger_id, id);
CREATE INDEX refusals_by_age ON refusals (refused_at);

CREATE TABLE buckets (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    full_at bigint NOT NULL
);

CREATE INDEX buckets_by_age ON buckets (full_at);

ALTER TABLE runs ADD COLUMN paced_by text COLLATE "C";

CREATE INDEX runs_paced ON runs (paced_by, id) WHERE paced_by IS NOT NULL;

CREATE TABLE turns (
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    over_at bigint NOT NULL,
    PRIMARY KEY (key, at, run_id)
);

CREATE INDEX turns_by_age ON turns (over_at);

CREATE TABLE absorbed (
    workspace_id text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (workspace_id, definition, idempotency_key)
);

CREATE INDEX absorbed_of_run ON absorbed (run_id);

CREATE TABLE usage (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    used bigint NOT NULL
);

-- What a version was called: the history keeps one name for each hash, the last one.
ALTER TABLE versions ADD COLUMN label text;

UPDATE versions SET label = (
    SELECT r.version FROM revisions r WHERE r.workspace_id = versions.workspace_id
       AND r.definition = versions.name AND r.number = versions.version);
