-- Who may come in.
--
-- `users` can log in; `members` says what each of them is in which workspace. A token, a session
-- and a login link are stored as the hash of what is shown for them. `serial` counts the changes
-- of a user. `audit` only grows. Workers have no business here: on PostgreSQL their role may not
-- even read it.

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    title TEXT NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

-- What was used so far has a name that nobody may take.
INSERT INTO workspaces (id, title, created_at)
SELECT workspace_id, workspace_id, unixepoch() * 1000000 FROM (
    SELECT workspace_id FROM versions UNION SELECT workspace_id FROM definitions
    UNION SELECT workspace_id FROM documents UNION SELECT workspace_id FROM secrets
    UNION SELECT workspace_id FROM runs);

CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    created_at INTEGER NOT NULL,
    disabled_at INTEGER,
    serial INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE members (
    workspace_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    role TEXT NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
) WITHOUT ROWID;

CREATE INDEX members_of_user ON members (user_id, workspace_id);

CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    permission TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE INDEX tokens_of_user ON tokens (workspace_id, user_id, id);

CREATE TABLE sessions (
    hash TEXT NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE INDEX sessions_of_user ON sessions (user_id, id);
CREATE INDEX sessions_by_age ON sessions (expires_at);

CREATE TABLE links (
    hash TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) WITHOUT ROWID;

CREATE INDEX links_of_user ON links (user_id);
CREATE INDEX links_by_age ON links (expires_at);

CREATE TABLE audit (
    workspace_id TEXT NOT NULL,
    id TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    user_id TEXT,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    details TEXT NOT NULL,
    request_id TEXT,
    PRIMARY KEY (workspace_id, id)
) WITHOUT ROWID;
