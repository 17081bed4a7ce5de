-- The least a worker needs: reading and writing the tables of Stepwell, and nothing else.
-- Executed by every migration, so that a role which came later gets its rights too.
-- Give a login role this one: GRANT stepwell_worker TO somebody.
DO $$
BEGIN
    -- Roles belong to the whole server: another database may have made this one, or be about to.
    BEGIN
        CREATE ROLE stepwell_worker NOLOGIN;
    EXCEPTION
        WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
    END;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'stepwell_worker') THEN
        GRANT USAGE ON SCHEMA stepwell TO stepwell_worker;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA stepwell TO stepwell_worker;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA stepwell TO stepwell_worker;
        REVOKE INSERT, UPDATE, DELETE ON stepwell.migrations FROM stepwell_worker;
    END IF;
END
$$;
