-- What triggers and limits need to be exact, on PostgreSQL: read the head of the SQLite store's.

ALTER TABLE triggers ADD COLUMN place bigint NOT NULL DEFAULT 0;

-- Whoever looks for gates whose time is up does not look at the others.
ALTER TABLE gates ADD COLUMN deadline_at bigint;

UPDATE gates SET deadline_at = (body::json ->> 'deadline_at')::bigint;

CREATE INDEX gates_late ON gates (workspace_id, deadline_at)
    WHERE status = 'open' AND deadline_at IS NOT NULL;

-- Only a run that has not begun takes in what comes later.
DROP INDEX runs_paced;

CREATE INDEX runs_paced ON runs (paced_by, id) WHERE paced_by IS NOT NULL AND status = 'pending';

-- How long a turn counts, if the limit is a throttle.
ALTER TABLE limits ADD COLUMN period bigint;

-- Turns were given at the start, and in advance; those that were given have a time in `due_at`.
DROP TABLE turns;

CREATE TABLE turns (
    key text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    at bigint NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    over_at bigint NOT NULL,
    PRIMARY KEY (key, place)
);

CREATE INDEX turns_of_late ON turns (key, at, place);
CREATE INDEX turns_by_age ON turns (over_at);

ALTER TABLE versions ADD COLUMN max_queued_runs integer;

CREATE INDEX limits_wanted ON limits (limit_key) WHERE NOT admitted;

-- Claims pass over what is dead at the beginning of their index. Of many finished runs a fifth, as is
-- the default, would be too long to wait for: 200,000 of them made a claim take 5 ms instead of 1.
ALTER TABLE runs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);
ALTER TABLE waits SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);
