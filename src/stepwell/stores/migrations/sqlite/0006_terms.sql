-- Runs are found by what their inputs say: `terms` has a row for each of the first terms of an
-- input, as a number that comes of its path and value. Under 0 are runs with more terms than are
-- kept, and those that were started before there was this table: they are looked at one by one.

CREATE TABLE terms (
    run_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    term INTEGER NOT NULL,
    PRIMARY KEY (run_id, term)
) WITHOUT ROWID;

CREATE INDEX terms_of_runs ON terms (workspace_id, term, run_id);

INSERT INTO terms (run_id, workspace_id, term)
SELECT id, workspace_id, 0 FROM runs r WHERE EXISTS (
    SELECT 1 FROM payloads p WHERE p.run_id = r.id AND p.kind = 'input' AND p.body LIKE '{%');

-- With the definition in it, a list of a definition's failures passes over those of others without
-- looking at their rows, and statuses are counted by it.
DROP INDEX runs_by_status;

CREATE INDEX runs_by_status ON runs (workspace_id, status, id, definition)
    WHERE status <> 'completed';
