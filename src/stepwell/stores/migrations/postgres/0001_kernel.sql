-- The kernel on PostgreSQL, in a schema of its own: `stepwell`.
--
-- The tables and the meaning of their columns are those of the SQLite store; read the head of
-- sqlite/0001_kernel.sql first. Here is what differs.
-- Texts that are looked up or sorted compare by bytes (COLLATE "C"), as ids must on every
-- server. JSON is text and never jsonb: order of keys, \u0000 and numbers replay exactly.
-- Many processes write at once. Whoever changes a run, or writes on its behalf, holds its row
-- in `runs`; limits and event names have advisory locks. See stores/postgres/locking.py.

CREATE TABLE definitions (
    workspace_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    kind text NOT NULL,
    program text NOT NULL,
    retention_seconds bigint,
    max_concurrent_runs integer,
    deadline_seconds double precision,
    PRIMARY KEY (workspace_id, name, version)
);

CREATE TABLE runs (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    program text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    due_at bigint,
    owner text COLLATE "C",
    fence integer NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 1,
    crashes integer NOT NULL DEFAULT 0,
    crash_progress integer,
    limited boolean NOT NULL DEFAULT false,
    blocked_on text COLLATE "C",
    idempotency_key text COLLATE "C",
    concurrency_key text COLLATE "C",
    concurrency_limit integer,
    parent_run_id text COLLATE "C",
    forked_from text COLLATE "C",
    key_base text COLLATE "C",
    created_at bigint NOT NULL,
    started_at bigint,
    claimed_at bigint,
    completed_at bigint,
    deadline_at bigint,
    expires_at bigint,
    retention_seconds bigint NOT NULL,
    prune_at bigint
);

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
    run_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (run_id, kind)
);

CREATE TABLE steps (
    run_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    position bigint NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    attempts integer NOT NULL,
    output text,
    error text,
    started_at bigint NOT NULL,
    completed_at bigint,
    PRIMARY KEY (run_id, key)
);

CREATE TABLE attempts (
    run_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    error text NOT NULL,
    started_at bigint NOT NULL,
    failed_at bigint NOT NULL,
    PRIMARY KEY (run_id, key, number)
);

CREATE TABLE waits (
    run_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    kind text NOT NULL,
    due_at bigint,
    event text COLLATE "C",
    term text COLLATE "C" NOT NULL DEFAULT '',
    match text,
    child_run_id text COLLATE "C",
    created_at bigint NOT NULL,
    ended_at bigint,
    result text,
    PRIMARY KEY (run_id, key)
);

CREATE INDEX waits_for_event ON waits (workspace_id, event, term) WHERE event IS NOT NULL AND ended_at IS NULL;
CREATE INDEX waits_for_child ON waits (child_run_id) WHERE child_run_id IS NOT NULL AND ended_at IS NULL;

CREATE TABLE events (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    once_key text COLLATE "C",
    run_id text COLLATE "C",
    payload text NOT NULL,
    created_at bigint NOT NULL,
    consumed_by text COLLATE "C"
);

CREATE INDEX events_by_type ON events (workspace_id, type, created_at, id) WHERE run_id IS NULL;
CREATE INDEX events_by_age ON events (created_at) WHERE run_id IS NULL;
-- NULLS FIRST: the primary key has another order, so the planner does not choose it for this.
CREATE INDEX events_buffered ON events (run_id, type, id NULLS FIRST)
    WHERE run_id IS NOT NULL AND consumed_by IS NULL;
CREATE INDEX events_consumed ON events (run_id, consumed_by) WHERE consumed_by IS NOT NULL;
CREATE UNIQUE INDEX events_once ON events (workspace_id, type, once_key) WHERE once_key IS NOT NULL;

CREATE TABLE limits (
    run_id text COLLATE "C" NOT NULL,
    limit_key text COLLATE "C" NOT NULL,
    capacity integer,
    slot text COLLATE "C" NOT NULL,
    admitted boolean NOT NULL DEFAULT false,
    PRIMARY KEY (run_id, limit_key)
);

CREATE INDEX limits_taken ON limits (limit_key, slot) WHERE admitted AND capacity IS NOT NULL;

CREATE TABLE workers (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    pid_started text NOT NULL,
    concurrency integer NOT NULL,
    programs text NOT NULL,
    started_at bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE duties (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    worker_id text NOT NULL,
    expires_at bigint NOT NULL
);
