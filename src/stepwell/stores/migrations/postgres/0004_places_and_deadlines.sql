-- A trigger fires for the events behind the `place` that was the last one when it was made or
-- enabled: clocks of several machines do not agree so well on which was first.

ALTER TABLE triggers ADD COLUMN place bigint NOT NULL DEFAULT 0;

-- Whoever looks for gates whose time is up does not look at the others.
ALTER TABLE gates ADD COLUMN deadline_at bigint;

UPDATE gates SET deadline_at = (body::json ->> 'deadline_at')::bigint;

CREATE INDEX gates_late ON gates (workspace_id, deadline_at)
    WHERE status = 'open' AND deadline_at IS NOT NULL;
