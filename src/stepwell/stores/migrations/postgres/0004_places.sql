-- A trigger fires for the events behind the `place` that was the last one when it was made or
-- enabled: clocks of several machines do not agree so well on which was first.

ALTER TABLE triggers ADD COLUMN place bigint NOT NULL DEFAULT 0;
