-- The kernel on SQLite.
--
-- `runs` is narrow and hot: one row a run, with one column, due_at, that says when somebody must
-- look at it. due_at in the past: ready. In the future: sleeping or delayed. NULL: held by a
-- worker, waiting for something that is not time, queued behind a limit, or ended. A held run
-- (owner set) may have due_at too; then its owner is to look, nobody else.
-- Every claim raises `fence`; writes of a held run are checked against owner and fence.
-- `payloads` holds what is large: inputs, outputs, errors. `steps` is the journal, `attempts` the
-- failures that were tried again, `waits` what runs wait for now, `events` the outbox and the
-- signals. `limits` ties runs to concurrency limits; slots are counted from it, never stored.
-- Times are microseconds since the epoch, JSON is text.

CREATE TABLE definitions (
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    program TEXT NOT NULL,
    retention_seconds INTEGER,
    max_concurrent_runs INTEGER,
    deadline_seconds REAL,
    PRIMARY KEY (workspace_id, name, version)
) WITHOUT ROWID;

CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    version INTEGER NOT NULL,
    program TEXT NOT NULL,
    status TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER,
    owner TEXT,
    fence INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 1,
    crashes INTEGER NOT NULL DEFAULT 0,
    crash_progress INTEGER,
    limited INTEGER NOT NULL DEFAULT 0,
    blocked_on TEXT,
    idempotency_key TEXT,
    concurrency_key TEXT,
    concurrency_limit INTEGER,
    parent_run_id TEXT,
    forked_from TEXT,
    key_base TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    claimed_at INTEGER,
    completed_at INTEGER,
    deadline_at INTEGER,
    expires_at INTEGER,
    retention_seconds INTEGER NOT NULL,
    prune_at INTEGER
) WITHOUT ROWID;

CREATE INDEX runs_live ON runs (workspace_id, program, priority DESC, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX runs_held ON runs (owner, due_at) WHERE owner IS NOT NULL;
CREATE INDEX runs_blocked ON runs (blocked_on, priority DESC, id) WHERE blocked_on IS NOT NULL;
CREATE INDEX runs_called ON runs (blocked_on)
    WHERE blocked_on IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX runs_expiring ON runs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX runs_to_prune ON runs (prune_at) WHERE prune_at IS NOT NULL;
CREATE INDEX runs_children ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_by_definition ON runs (workspace_id, definition, id);
CREATE INDEX runs_by_status ON runs (workspace_id, status, id) WHERE status <> 'completed';
CREATE UNIQUE INDEX runs_idempotent ON runs (workspace_id, definition, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE payloads (
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, kind)
) WITHOUT ROWID;

CREATE TABLE steps (
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    output TEXT,
    error TEXT,
    started_at INTEGER NOT NULL,
    completed_at INTEGER,
    PRIMARY KEY (run_id, key)
) WITHOUT ROWID;

CREATE TABLE attempts (
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    number INTEGER NOT NULL,
    error TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, key, number)
) WITHOUT ROWID;

CREATE TABLE waits (
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    due_at INTEGER,
    event TEXT,
    term TEXT NOT NULL DEFAULT '',
    match TEXT,
    child_run_id TEXT,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    result TEXT,
    PRIMARY KEY (run_id, key)
) WITHOUT ROWID;

CREATE INDEX waits_for_event ON waits (workspace_id, event, term) WHERE event IS NOT NULL AND ended_at IS NULL;
CREATE INDEX waits_for_child ON waits (child_run_id) WHERE child_run_id IS NOT NULL AND ended_at IS NULL;

CREATE TABLE events (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    once_key TEXT,
    run_id TEXT,
    payload TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    consumed_by TEXT
) WITHOUT ROWID;

CREATE INDEX events_by_type ON events (workspace_id, type, created_at, id) WHERE run_id IS NULL;
CREATE INDEX events_by_age ON events (created_at) WHERE run_id IS NULL;
CREATE INDEX events_buffered ON events (run_id, type, id)
    WHERE run_id IS NOT NULL AND consumed_by IS NULL;
CREATE INDEX events_consumed ON events (run_id, consumed_by) WHERE consumed_by IS NOT NULL;
CREATE UNIQUE INDEX events_once ON events (workspace_id, type, once_key) WHERE once_key IS NOT NULL;

CREATE TABLE limits (
    run_id TEXT NOT NULL,
    limit_key TEXT NOT NULL,
    capacity INTEGER,
    slot TEXT NOT NULL,
    admitted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, limit_key)
) WITHOUT ROWID;

CREATE INDEX limits_taken ON limits (limit_key, slot) WHERE admitted = 1 AND capacity IS NOT NULL;

CREATE TABLE workers (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    programs TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE duties (
    name TEXT NOT NULL PRIMARY KEY,
    worker_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
