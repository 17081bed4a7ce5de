-- What triggers and limits need to be exact.
--
-- A trigger fires for the events behind the `place` that was the last one when it was made or
-- enabled: clocks of several machines do not agree so well on which was first. `turns` are when
-- throttled runs have begun, until when that counts, and their places in the order of those of one
-- key: how many there were of late is the last place less the first that counts. `paced_by` is the
-- debounce of a run. `max_queued_runs` is how many may queue when no slot is free.

ALTER TABLE triggers ADD COLUMN place INTEGER NOT NULL DEFAULT 0;

CREATE INDEX triggers_by_place ON triggers (workspace_id, place);

-- Whoever looks for gates whose time is up does not look at the others.
ALTER TABLE gates ADD COLUMN deadline_at INTEGER;

UPDATE gates SET deadline_at = json_extract(body, '$.deadline_at');

CREATE INDEX gates_late ON gates (workspace_id, deadline_at)
    WHERE status = 'open' AND deadline_at IS NOT NULL;

-- Only a run that has not begun takes in what comes later.
DROP INDEX runs_paced;

CREATE INDEX runs_paced ON runs (paced_by, id) WHERE paced_by IS NOT NULL AND status = 'pending';

-- How long a turn counts, if the limit is a throttle.
ALTER TABLE limits ADD COLUMN period INTEGER;

-- Turns were given at the start, and in advance; those that were given have a time in `due_at`.
DROP TABLE turns;

CREATE TABLE turns (
    key TEXT NOT NULL,
    place INTEGER NOT NULL,
    at INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    over_at INTEGER NOT NULL,
    PRIMARY KEY (key, place)
) WITHOUT ROWID;

CREATE INDEX turns_of_late ON turns (key, at, place);
CREATE INDEX turns_by_age ON turns (over_at);

ALTER TABLE versions ADD COLUMN max_queued_runs INTEGER;

CREATE INDEX limits_wanted ON limits (limit_key) WHERE admitted = 0;
