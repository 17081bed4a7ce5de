-- Runs found by what their inputs say, on PostgreSQL: read the head of the SQLite store's.

CREATE TABLE terms (
    run_id text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    term bigint NOT NULL,
    PRIMARY KEY (run_id, term)
);

CREATE INDEX terms_of_runs ON terms (workspace_id, term, run_id);

INSERT INTO terms (run_id, workspace_id, term)
SELECT id, workspace_id, 0 FROM runs r WHERE EXISTS (
    SELECT FROM payloads p WHERE p.run_id = r.id AND p.kind = 'input' AND p.body LIKE '{%');

DROP INDEX runs_by_status;

CREATE INDEX runs_by_status ON runs (workspace_id, status, id, definition)
    WHERE status <> 'completed';
