-- The least that processes need: reading and writing the tables of Stepwell, and nothing else. A
-- worker sees nothing of who may come in; a server does, and can only add to the audit log.
-- Executed by every migration, so that a role which came later gets its rights too.
-- Give a login role one of them: GRANT stepwell_worker TO somebody.
DO $$
DECLARE
    whose text;
BEGIN
    FOREACH whose IN ARRAY ARRAY['stepwell_worker', 'stepwell_server'] LOOP
        -- Roles belong to the whole server: another database may have made this one, or be about
        -- to.
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', whose);
        EXCEPTION
            WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
        END;
        CONTINUE WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = whose);
        EXECUTE format('GRANT USAGE ON SCHEMA stepwell TO %I', whose);
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA stepwell TO %I', whose);
        EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA stepwell TO %I', whose);
        EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON stepwell.migrations FROM %I', whose);
        EXECUTE format('REVOKE UPDATE, DELETE ON stepwell.audit FROM %I', whose);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'stepwell_worker') THEN
        REVOKE ALL ON stepwell.workspaces, stepwell.users, stepwell.members, stepwell.tokens,
            stepwell.sessions, stepwell.links, stepwell.audit FROM stepwell_worker;
        -- It executes the runs of all of them.
        GRANT SELECT (id) ON stepwell.workspaces TO stepwell_worker;
    END IF;
END
$$;
