-- What starts runs by itself.
--
-- `triggers` has one row for each; `serial` counts the changes that people made, while what became
-- of its firings is written beside them. A schedule has `next_at`; whoever starts its runs moves
-- that on in the same transaction, and only from the value it has read. `event` is the type of the
-- events that a trigger fires for: an event of such a type is `pending` from its first moment,
-- with the place it has in its workspace, until its runs are started in the transaction that says
-- it is not. `refusals` are firings that started nothing. `buckets` say when each of them will be
-- full again; whoever takes something out of one puts that off. `turns` are when throttled runs
-- begin, and until when that counts; `usage` is what was used of quotas. `paced_by` names what a
-- run was put off by; `absorbed` are the starts that a debounced run stands for beside its own.

CREATE TABLE triggers (
    workspace_id TEXT NOT NULL,
    id TEXT NOT NULL,
    definition TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    origin TEXT NOT NULL,
    serial INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    config TEXT NOT NULL,
    timezone TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    since INTEGER NOT NULL,
    event TEXT,
    path TEXT,
    next_at INTEGER,
    last_fired_at INTEGER,
    last_run_id TEXT,
    last_error TEXT,
    failures INTEGER NOT NULL,
    paused TEXT,
    PRIMARY KEY (workspace_id, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX triggers_by_name ON triggers (workspace_id, definition, name);
CREATE UNIQUE INDEX triggers_by_path ON triggers (workspace_id, path) WHERE path IS NOT NULL;
CREATE INDEX triggers_due ON triggers (workspace_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX triggers_for_event ON triggers (workspace_id, event) WHERE event IS NOT NULL;

ALTER TABLE events ADD COLUMN pending INTEGER;

CREATE UNIQUE INDEX events_pending ON events (workspace_id, pending) WHERE pending IS NOT NULL;

CREATE TABLE refusals (
    workspace_id TEXT NOT NULL,
    id TEXT NOT NULL,
    trigger_id TEXT NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    refused_at INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, id)
) WITHOUT ROWID;

CREATE INDEX refusals_of_trigger ON refusals (workspace_id, trigger_id, id);
CREATE INDEX refusals_by_age ON refusals (refused_at);

CREATE TABLE buckets (
    key TEXT NOT NULL PRIMARY KEY,
    full_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX buckets_by_age ON buckets (full_at);

ALTER TABLE runs ADD COLUMN paced_by TEXT;

CREATE INDEX runs_paced ON runs (paced_by, id) WHERE paced_by IS NOT NULL;

CREATE TABLE turns (
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    over_at INTEGER NOT NULL,
    PRIMARY KEY (key, at, run_id)
) WITHOUT ROWID;

CREATE INDEX turns_by_age ON turns (over_at);

CREATE TABLE absorbed (
    workspace_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (workspace_id, definition, idempotency_key)
) WITHOUT ROWID;

CREATE INDEX absorbed_of_run ON absorbed (run_id);

CREATE TABLE usage (
    key TEXT NOT NULL PRIMARY KEY,
    used INTEGER NOT NULL
) WITHOUT ROWID;

-- What a version was called: the history keeps one name for each hash, the last one.
ALTER TABLE versions ADD COLUMN label TEXT;

UPDATE versions SET label = (
    SELECT r.version FROM revisions r WHERE r.workspace_id = versions.workspace_id
       AND r.definition = versions.name AND r.number = versions.version);
