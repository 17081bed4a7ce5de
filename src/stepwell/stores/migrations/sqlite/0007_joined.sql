-- Since when somebody has belonged to a workspace: what they joined first is where a session acts
-- that names none, so that nobody who takes them in elsewhere can change that.

ALTER TABLE members ADD COLUMN joined_at INTEGER NOT NULL DEFAULT 0;

-- When those who are there came is not known; so far the default workspace was the first choice.
UPDATE members SET joined_at = CASE WHEN workspace_id = 'default' THEN 0 ELSE 1 END
    + (SELECT created_at FROM users WHERE users.id = members.user_id);
