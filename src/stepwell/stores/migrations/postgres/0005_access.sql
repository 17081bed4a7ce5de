-- Who may come in, on PostgreSQL: read the head of the SQLite store's.

CREATE TABLE workspaces (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    title text NOT NULL,
    created_at bigint NOT NULL
);

-- What was used so far has a name that nobody may take.
INSERT INTO workspaces (id, title, created_at)
SELECT workspace_id, workspace_id, (extract(epoch FROM now()) * 1000000)::bigint FROM (
    SELECT workspace_id FROM versions UNION SELECT workspace_id FROM definitions
    UNION SELECT workspace_id FROM documents UNION SELECT workspace_id FROM secrets
    UNION SELECT workspace_id FROM runs) AS used;

CREATE TABLE users (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    password_hash text,
    created_at bigint NOT NULL,
    disabled_at bigint,
    serial integer NOT NULL
);

CREATE TABLE members (
    workspace_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    role text NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
);

CREATE INDEX members_of_user ON members (user_id, workspace_id);

CREATE TABLE tokens (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    permission text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint
);

CREATE INDEX tokens_of_user ON tokens (workspace_id, user_id, id);

CREATE TABLE sessions (
    hash text COLLATE "C" NOT NULL PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    revoked_at bigint
);

CREATE INDEX sessions_of_user ON sessions (user_id, id);
CREATE INDEX sessions_by_age ON sessions (expires_at);

CREATE TABLE links (
    hash text COLLATE "C" NOT NULL PRIMARY KEY,
    user_id text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    used_at bigint
);

CREATE INDEX links_of_user ON links (user_id);
CREATE INDEX links_by_age ON links (expires_at);

CREATE TABLE audit (
    workspace_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    recorded_at bigint NOT NULL,
    actor text NOT NULL,
    user_id text COLLATE "C",
    operation text NOT NULL,
    subject text NOT NULL,
    details text NOT NULL,
    request_id text,
    PRIMARY KEY (workspace_id, id)
);
