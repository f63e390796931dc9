-- The tables of the PostgreSQL store.  A section upgrades a schema from the version before.
--
-- Instants are Unix seconds by the server's wall clock.  `expires`, `asked_at` and the instants of `world` are
-- readings of the steady clock, which is the wall clock minus the steps that were noticed.  The view `fire_history`
-- has the same instants as timestamps.

-- version 1

CREATE TABLE schema_version (
    one    integer PRIMARY KEY CHECK (one = 1),
    number integer NOT NULL,
    oldest integer NOT NULL
);
COMMENT ON TABLE schema_version IS 'the version of this schema, and the oldest one whose program can use it';

CREATE SEQUENCE versions;
COMMENT ON SEQUENCE versions IS 'numbers the commits; each row has the number of the commit that wrote it';
CREATE SEQUENCE wakeups;
COMMENT ON SEQUENCE wakeups IS 'grows whenever nodes should ask, for those that no notification reaches';

CREATE TABLE world (
    one               integer PRIMARY KEY CHECK (one = 1),
    epoch             text NOT NULL,
    previous          text NOT NULL,
    system            text NOT NULL,
    steps             float8 NOT NULL,
    seen              float8 NOT NULL,
    born              float8 NOT NULL,
    doubted           float8 NOT NULL,
    quarantined_until float8 NOT NULL,
    longest_ttl_s     float8 NOT NULL
);
COMMENT ON TABLE world IS 'the state of the store as a whole';
COMMENT ON COLUMN world.epoch IS 'changes when the store may have lost data';
COMMENT ON COLUMN world.previous IS 'the epoch before';
COMMENT ON COLUMN world.system IS 'the cluster and its timeline; another one begins another epoch';
COMMENT ON COLUMN world.steps IS 'wall clock minus steady clock';
COMMENT ON COLUMN world.seen IS 'the newest call, to a quarter of a second';
COMMENT ON COLUMN world.born IS 'when the schema was created';
COMMENT ON COLUMN world.doubted IS 'claims and charges from before got time that may not have passed';
COMMENT ON COLUMN world.quarantined_until IS 'nothing is granted before';
COMMENT ON COLUMN world.longest_ttl_s IS 'of all claims ever granted';

CREATE TABLE apps (
    app        text COLLATE "C" PRIMARY KEY,
    id         integer GENERATED ALWAYS AS IDENTITY,
    generation bigint NOT NULL DEFAULT 0,
    controls   bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE apps IS 'apps; the fences of an app are the sequence fence_ with its id';
COMMENT ON COLUMN apps.generation IS 'grows when the jobs of the app change';
COMMENT ON COLUMN apps.controls IS 'grows when a control note of the app changes';

CREATE TABLE jobs (
    job       text COLLATE "C" PRIMARY KEY,
    app       text COLLATE "C" NOT NULL,
    at        float8,
    revision  text NOT NULL,
    version   bigint NOT NULL,
    succeeded float8,
    reached   float8
);
CREATE INDEX jobs_app ON jobs (app);
COMMENT ON TABLE jobs IS 'jobs of the apps, and what is known of the past of former ones';
COMMENT ON COLUMN jobs.at IS 'the watermark: instants are planned up to here; none if the job was removed';
COMMENT ON COLUMN jobs.succeeded IS 'when one of its fires last succeeded';
COMMENT ON COLUMN jobs.reached IS 'its newest instant that was ever claimed, cancelled or pruned';

CREATE SEQUENCE fire_ids;
CREATE TABLE fires (
    id          bigint PRIMARY KEY DEFAULT nextval('fire_ids'),
    key         text COLLATE "C" NOT NULL UNIQUE,
    app         text COLLATE "C" NOT NULL,
    job         text COLLATE "C" NOT NULL,
    due         float8 NOT NULL,
    run_id      text NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    lane        text COLLATE "C" NOT NULL,
    start_by    float8,
    policy      text NOT NULL,
    origin      text NOT NULL,
    revision    text NOT NULL,
    payload     text NOT NULL,
    first       float8,
    instants    bigint NOT NULL,
    version     bigint NOT NULL,
    tier        text NOT NULL,
    state       text NOT NULL,
    run_at      float8 NOT NULL,
    look_at     float8 NOT NULL,
    parked      boolean NOT NULL,
    waits       boolean NOT NULL,
    attempt     bigint NOT NULL,
    recorded    bigint NOT NULL,
    fence       bigint NOT NULL,
    node        text COLLATE "C" NOT NULL,
    ask         bigint NOT NULL,
    ttl         float8 NOT NULL,
    expires     float8 NOT NULL,
    ran_node    text NOT NULL,
    ran_fence   bigint NOT NULL,
    ran_at      float8 NOT NULL,
    disposition text,
    stop        text,
    outcome     text,
    verdict     text,
    kind        text NOT NULL,
    over_at     float8 NOT NULL,
    keep_until  float8 NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX fires_pending ON fires (app, queue, tier, look_at, run_at, key) WHERE state = 'pending';
CREATE INDEX fires_claimed ON fires (app, queue, expires) WHERE state = 'claimed';
CREATE INDEX fires_laned ON fires (app, expires) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX fires_asked ON fires (node, ask) WHERE state = 'claimed';
CREATE INDEX fires_lane ON fires (lane, due, key) WHERE state = 'pending' AND lane <> '';
CREATE INDEX fires_holders ON fires (lane) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX fires_waiting ON fires (lane, id) WHERE state = 'pending' AND waits;
CREATE INDEX fires_parked ON fires (lane, queue, run_at, key) WHERE state = 'pending' AND parked;
CREATE INDEX fires_instants ON fires (job, due) WHERE state <> 'over' AND origin = 'schedule';
CREATE INDEX fires_job ON fires (job, due, key);
CREATE INDEX fires_history ON fires (due, key);
CREATE INDEX fires_over ON fires (over_at) WHERE state <> 'pending' AND state <> 'claimed';
CREATE INDEX fires_unsuccessful ON fires (due, key) WHERE kind <> 'succeeded' AND kind <> '';
COMMENT ON TABLE fires IS 'fires, waiting, running and over: see the view fire_history';
COMMENT ON COLUMN fires.id IS 'grows in the order of recording';
COMMENT ON COLUMN fires.due IS 'the instant of its schedule, or when it was pushed';
COMMENT ON COLUMN fires.lane IS 'fires of one lane run in turn; empty: it waits for no other';
COMMENT ON COLUMN fires.start_by IS 'it is not started later';
COMMENT ON COLUMN fires.policy IS 'JSON of what is not the default';
COMMENT ON COLUMN fires.first IS 'of a span of instants that count as one';
COMMENT ON COLUMN fires.version IS 'the number of the commit that wrote the row';
COMMENT ON COLUMN fires.tier IS 'plain, judged or hook: how an ask finds it';
COMMENT ON COLUMN fires.state IS 'pending, claimed or over';
COMMENT ON COLUMN fires.run_at IS 'when it is due, or due again';
COMMENT ON COLUMN fires.look_at IS 'when an ask finds it';
COMMENT ON COLUMN fires.parked IS 'it waits until its lane wakes it';
COMMENT ON COLUMN fires.waits IS 'it counts as waiting for its lane';
COMMENT ON COLUMN fires.attempt IS 'attempts granted';
COMMENT ON COLUMN fires.recorded IS 'attempts that ended';
COMMENT ON COLUMN fires.fence IS 'of the newest claim; it grows with each claim of the app';
COMMENT ON COLUMN fires.node IS 'that has the newest claim';
COMMENT ON COLUMN fires.ask IS 'the number of the call that got the newest claim';
COMMENT ON COLUMN fires.ttl IS 'how long the claim lasts, in seconds';
COMMENT ON COLUMN fires.expires IS 'when the claim ends, by the steady clock';
COMMENT ON COLUMN fires.ran_at IS 'when the newest attempt was granted';
COMMENT ON COLUMN fires.disposition IS 'the outcome to end it with, without running it';
COMMENT ON COLUMN fires.stop IS 'the outcome that its node is asked to stop it with';
COMMENT ON COLUMN fires.outcome IS 'JSON: kind, reason, cause and other party';
COMMENT ON COLUMN fires.kind IS 'of the outcome';
COMMENT ON COLUMN fires.keep_until IS 'not pruned for its number before';

CREATE TABLE attempts (
    fire    bigint NOT NULL,
    number  bigint NOT NULL,
    node    text NOT NULL,
    fence   bigint NOT NULL,
    started float8 NOT NULL,
    ended   float8 NOT NULL,
    outcome text NOT NULL,
    status  bigint,
    took    float8 NOT NULL,
    result  text NOT NULL,
    tail    bytea NOT NULL,
    PRIMARY KEY (fire, number)
);
COMMENT ON TABLE attempts IS 'the attempts of each fire that ended';
COMMENT ON COLUMN attempts.fire IS 'fires.id';
COMMENT ON COLUMN attempts.status IS 'the exit status of a command, or the status of a response';
COMMENT ON COLUMN attempts.took IS 'in seconds';
COMMENT ON COLUMN attempts.tail IS 'the end of its output';

CREATE TABLE cells (
    app     text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    text    text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (app, name)
);
COMMENT ON TABLE cells IS 'small values in JSON: notes (note/), lanes (lane/), charges of a rate (charge/)';

CREATE TABLE asks (
    node     text COLLATE "C" PRIMARY KEY,
    number   bigint NOT NULL,
    asked_at float8 NOT NULL
);
COMMENT ON TABLE asks IS 'the number of the newest ask of each node';

-- Nodes are woken when the transaction of a user commits: also those that look at `wakeups`.
CREATE TABLE bells (
    app text NOT NULL
);
COMMENT ON TABLE bells IS 'an insert wakes the nodes of the app at commit; the row is deleted';

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
