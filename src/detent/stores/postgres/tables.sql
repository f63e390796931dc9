-- What only the PostgreSQL store has.  A section upgrades a schema from the version before.  The view
-- `fire_history` has the instants of fires as timestamps.

-- version 1

CREATE TABLE schema_version ( -- the version of this schema, and the oldest one whose program can use it
    one    integer PRIMARY KEY,
    number integer NOT NULL,
    oldest integer NOT NULL
);

CREATE SEQUENCE versions;
COMMENT ON SEQUENCE versions IS 'numbers the commits; each row has the number of the commit that wrote it';
CREATE SEQUENCE wakeups;
COMMENT ON SEQUENCE wakeups IS 'grows whenever nodes should ask, for those that no notification reaches';

CREATE TABLE fences ( -- apps with claims; the fences of an app are the sequence fence_ with its id
    app name(64) PRIMARY KEY,
    id  integer GENERATED ALWAYS AS IDENTITY
);

ALTER TABLE fires SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);

-- Nodes are woken when the transaction of a user commits: also those that look at `wakeups`.
CREATE TABLE bells ( -- an insert wakes the nodes of the app at commit; the row is deleted
    app name(64) NOT NULL
);

CREATE FUNCTION wake_at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM bells WHERE ctid = (SELECT ctid FROM bells WHERE app = NEW.app LIMIT 1);
    PERFORM nextval('wakeups'), pg_notify(TG_TABLE_SCHEMA, NEW.app);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER wake_at_commit AFTER INSERT ON bells DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION wake_at_commit();

CREATE FUNCTION clock() RETURNS float8 LANGUAGE sql VOLATILE AS
$$ SELECT extract(epoch FROM clock_timestamp())::float8 $$;

-- The server reads a file for it, and a session never moves to another cluster: so it is read once in each session.
-- A user who may not read it still sees the timeline.
CREATE FUNCTION cluster() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known text := current_setting('detent.cluster', true);
BEGIN
    IF coalesce(known, '') = '' THEN
        known := 'unknown';
        IF has_function_privilege('pg_control_system()', 'EXECUTE') THEN
            known := (SELECT system_identifier::text FROM pg_control_system());
        END IF;
        PERFORM set_config('detent.cluster', known, false);
    END IF;
    RETURN CASE known WHEN 'unknown' THEN '' ELSE known || '/' END;
END $$;

CREATE VIEW fire_history AS
SELECT
    f.key, f.app, f.job, f.queue, f.origin, f.state,
    to_timestamp(f.due) AS due_at,
    to_timestamp(CASE WHEN f.state = 'pending' THEN f.run_at END) AS run_at,
    to_timestamp(nullif(f.over_at, 0)) AS over_at,
    f.outcome::json->>0 AS outcome,
    f.outcome::json->>1 AS reason,
    f.outcome::json->>2 AS cause,
    a.number AS attempt, a.node, a.fence,
    to_timestamp(a.started) AS started_at,
    to_timestamp(a.ended) AS ended_at,
    a.outcome::json->>0 AS attempt_outcome,
    a.outcome::json->>1 AS attempt_reason,
    a.outcome::json->>2 AS attempt_cause,
    a.status, a.took AS took_s
FROM fires AS f LEFT JOIN attempts AS a ON a.fire = f.id;
COMMENT ON VIEW fire_history IS 'one row for each attempt of a fire that ended, or for a fire without one';
