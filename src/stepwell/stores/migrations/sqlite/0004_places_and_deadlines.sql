-- A trigger fires for the events behind the `place` that was the last one when it was made or
-- enabled: clocks of several machines do not agree so well on which was first.

ALTER TABLE triggers ADD COLUMN place INTEGER NOT NULL DEFAULT 0;

CREATE INDEX triggers_by_place ON triggers (workspace_id, place);

-- Whoever looks for gates whose time is up does not look at the others.
ALTER TABLE gates ADD COLUMN deadline_at INTEGER;

UPDATE gates SET deadline_at = json_extract(body, '$.deadline_at');

CREATE INDEX gates_late ON gates (workspace_id, deadline_at)
    WHERE status = 'open' AND deadline_at IS NOT NULL;
