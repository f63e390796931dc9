-- The other verbs of the store; each takes one JSON document and answers with one.

CREATE FUNCTION fire_json(me fires) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'key', me.key, 'job', me.job, 'due', me.due, 'run_id', me.run_id, 'queue', me.queue, 'lane', me.lane,
        'start_by', me.start_by, 'policy', me.policy, 'origin', me.origin, 'revision', me.revision,
        'payload', me.payload, 'first', me.first, 'instants', me.instants)
$$;

-- Record fires whose key is new, in the order in which they are given; the places of those that were.
-- No `run_at`: each is due at its instant.
CREATE FUNCTION record(given jsonb, run_at float8) RETURNS SETOF integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO lanes
    SELECT DISTINCT one.lane FROM jsonb_to_recordset(given) AS one(lane text)
    WHERE one.lane <> '' AND NOT EXISTS (SELECT FROM lanes WHERE lanes.lane = one.lane)
    ORDER BY one.lane ON CONFLICT DO NOTHING;
    RETURN QUERY
    WITH numbered AS MATERIALIZED (
        SELECT nextval('fire_ids') AS id, one.*
        FROM jsonb_to_recordset(given) AS one(
            place integer, key text, job text, due float8, run_id text, queue text, lane text, start_by float8,
            policy text, concurrency text, width integer, claim_s float8, grace_s float8, catch_up text,
            late_hooks text[], origin text, revision text, payload text, first float8, instants integer)
    ), fresh AS (
        INSERT INTO fires (id, key, app, job, due, run_id, queue, lane, start_by, policy, concurrency, width,
                           claim_s, grace_s, catch_up, late_hooks, origin, revision, payload, first, instants,
                           run_at)
        SELECT id, key, split_part(job, '.', 1), job, due, run_id, queue, lane, start_by, policy, concurrency,
               width, claim_s, grace_s, catch_up, late_hooks, origin, revision, payload, first, instants,
               coalesce(record.run_at, due)
        FROM numbered ORDER BY key COLLATE "C", id  -- two calls that put the same keys must not cross
        ON CONFLICT (key) DO NOTHING RETURNING id
    )
    SELECT place FROM numbered JOIN fresh USING (id);
END $$;

CREATE FUNCTION put(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here  moment := arrive(given->'memory');
    fresh integer[] := ARRAY(SELECT record(given->'fires', here.wall + (given->>'delay')::float8));
BEGIN
    IF fresh <> '{}' THEN
        PERFORM ring(app) FROM (
            SELECT DISTINCT split_part(one.job, '.', 1) AS app
            FROM jsonb_to_recordset(given->'fires') AS one(place integer, job text)
            WHERE place = ANY (fresh)) AS apps;
    END IF;
    RETURN answer(here, jsonb_build_object('fresh', fresh));
END $$;

-- Planning.

CREATE FUNCTION chart(here moment, of text, marks jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN answer(here, jsonb_build_object(
        'generation', coalesce((SELECT generation FROM apps WHERE app = of), 0),
        'marks', coalesce(marks, '{}')));
END $$;

CREATE FUNCTION marks_of(of text) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT jsonb_object_agg(job, jsonb_build_array(at, revision)) FROM marks WHERE app = of);
END $$;

CREATE FUNCTION adopt(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
    name text := given->>'app';
    seen bigint := (given->>'seen')::bigint;
BEGIN
    IF seen >= 0 AND seen = coalesce((SELECT generation FROM apps WHERE app = name), 0) THEN
        PERFORM app_id(name, here.wall);
        PERFORM FROM apps WHERE app = name AND generation = seen FOR UPDATE;
        IF FOUND AND given->'revisions' <> coalesce(
            (SELECT jsonb_object_agg(job, revision) FROM marks WHERE app = name), '{}') THEN
            here.wall := clock();  -- others may have claimed while we waited for our turn
            PERFORM revise(name, given->'revisions', here.wall);
            UPDATE apps SET generation = seen + 1 WHERE app = name;
        END IF;
    END IF;
    RETURN chart(here, name, marks_of(name));
END $$;

-- What was a job's mark, and since when its instants are to be planned anew; the clock may have been set
-- back behind one that was claimed.  No `revised`: the job is gone.
CREATE FUNCTION changes(name text, revisions jsonb, now float8)
RETURNS TABLE (job text, is_known boolean, revised text, since float8) LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(m.job, r.key), m.job IS NOT NULL, r.value,
           least(m.at, greatest(now, (SELECT reached FROM jobs WHERE jobs.job = coalesce(m.job, r.key))))
    FROM (SELECT * FROM marks WHERE app = name) AS m
    FULL JOIN jsonb_each_text(revisions) AS r ON r.key = m.job
    WHERE m.revision IS DISTINCT FROM r.value
$$;

CREATE FUNCTION revise(name text, revisions jsonb, now float8) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM marks WHERE app = name ORDER BY job FOR UPDATE;
    -- Nobody can have claimed what is planned after that.
    DELETE FROM fires USING changes(name, revisions, now) AS change
    WHERE fires.job = change.job AND change.is_known AND fires.state = 'pending' AND fires.attempt = 0
      AND fires.due > change.since AND coalesce(fires.first, fires.due) > change.since
      AND (fires.origin = 'schedule' OR fires.origin = 'hook' AND fires.key ~ '/on_late[^/]*$');
    DELETE FROM removed WHERE job IN (SELECT jsonb_object_keys(revisions));
    WITH change AS MATERIALIZED (SELECT * FROM changes(name, revisions, now)), gone AS (
        DELETE FROM marks USING change WHERE marks.job = change.job AND change.revised IS NULL
        RETURNING marks.job
    ), kept AS (
        INSERT INTO removed SELECT job, name FROM gone ON CONFLICT DO NOTHING
    )
    INSERT INTO marks SELECT job, name, since, revised FROM change WHERE revised IS NOT NULL
    ON CONFLICT (job) DO UPDATE SET at = excluded.at, revision = excluded.revision;
END $$;

CREATE FUNCTION advance(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here    moment := arrive(given->'memory');
    names   text[] := ARRAY(SELECT DISTINCT one->>'job' FROM jsonb_array_elements(given->'plans') AS one);
    cutoffs jsonb := '{}';  -- of each plan that is taken, where the mark was
    plan    record;
    mark    float8;
BEGIN
    PERFORM FROM marks WHERE job = ANY (names) ORDER BY job FOR UPDATE;
    FOR plan IN SELECT * FROM jsonb_to_recordset(given->'plans') AS one(
        place integer, job text, revision text, since float8, until float8, spans_from float8
    ) LOOP
        SELECT at INTO mark FROM marks
        WHERE job = plan.job AND revision = plan.revision AND plan.since <= at AND at < plan.until
          AND (plan.spans_from IS NULL OR plan.spans_from > at);
        IF FOUND THEN
            UPDATE marks SET at = plan.until WHERE job = plan.job;
            cutoffs := jsonb_set(cutoffs, ARRAY[plan.place::text], to_jsonb(mark));
        END IF;
    END LOOP;
    PERFORM record(coalesce(jsonb_agg(one), '[]'), NULL) FROM jsonb_array_elements(given->'fires') AS one
    WHERE coalesce((one->>'first')::float8, (one->>'due')::float8) > (cutoffs->>(one->>'plan'))::float8;
    RETURN chart(here, given->>'app', (
        SELECT jsonb_object_agg(job, jsonb_build_array(at, revision)) FROM marks WHERE job = ANY (names)));
END $$;

-- What becomes of a claim.

CREATE FUNCTION renew(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_hashjoin TO off
SET enable_mergejoin TO off AS $$
DECLARE
    here moment := arrive(given->'memory');
    now  float8;
    said jsonb;
BEGIN
    PERFORM FROM fires JOIN jsonb_to_recordset(given->'claims') AS one(key text, fence bigint) USING (key, fence)
    WHERE state = 'claimed' ORDER BY id FOR UPDATE OF fires;
    now := clock() - here.steps;
    WITH claims AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(given->'claims') AS one(place integer, key text, fence bigint, ttl float8)
    ), renewed AS (
        UPDATE fires SET expires = now + claims.ttl, renewed = now FROM claims
        WHERE fires.key = claims.key AND fires.fence = claims.fence AND state = 'claimed' AND expires > now
        RETURNING fires.key, fires.fence, stop
    )
    SELECT jsonb_agg(CASE WHEN renewed.key IS NULL THEN 'lost no longer ours' ELSE stop END ORDER BY place)
    INTO said FROM claims LEFT JOIN renewed USING (key, fence);
    RETURN answer(here, jsonb_build_object('stops', coalesce(said, '[]')));
END $$;

CREATE TYPE report AS (
    key text, fence bigint, outcome text, again float8, counts boolean, status bigint, took float8, tail text,
    result text, follow jsonb
);

CREATE FUNCTION finish(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_hashjoin TO off
SET enable_mergejoin TO off AS $$
DECLARE
    here     moment := arrive(given->'memory');
    told     report;
    me       fires;
    verdicts jsonb := '[]';
    follow   jsonb := '[]';
    settled  bigint[] := '{}';
BEGIN
    PERFORM FROM fires WHERE key IN (SELECT one->>'key' FROM jsonb_array_elements(given->'reports') AS one)
    ORDER BY id FOR UPDATE;
    FOR told IN SELECT * FROM jsonb_populate_recordset(NULL::report, given->'reports') LOOP
        SELECT * INTO me FROM fires WHERE key = told.key AND fence = told.fence;
        IF me.state = 'claimed' THEN
            me := settle(me, told, here);
            settled := settled || me.id;
            IF told.again IS NULL THEN
                follow := follow || told.follow;
            END IF;
        END IF;
        verdicts := verdicts || jsonb_build_array(
            CASE WHEN me.id IS NOT NULL THEN jsonb_build_array(me.verdict, me.again, me.counts) END);
    END LOOP;
    IF follow <> '[]' THEN
        PERFORM record(follow, here.wall);
    END IF;
    PERFORM succeed(settled), ring_after(settled, follow, here);
    RETURN answer(here, jsonb_build_object('verdicts', verdicts));
END $$;

CREATE FUNCTION settle(me fires, told report, here moment) RETURNS fires LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF told.counts AND me.attempt > 0 THEN
        INSERT INTO attempts VALUES (me.id, me.attempt, me.ran_node, me.ran_fence, me.ran_at, here.wall,
            told.outcome, told.status, told.took, decode(told.tail, 'base64'), told.result)
        ON CONFLICT DO NOTHING;
        IF FOUND AND me.lane <> '' AND me.grace_s > 0 AND me.sentence IS NULL THEN
            INSERT INTO graces VALUES (me.lane, here.mono + me.grace_s, me.grace_s);
        END IF;
    END IF;
    IF told.counts THEN
        me.sentence := NULL;
    ELSIF me.sentence IS NULL THEN
        me.attempt := me.attempt - 1;
    END IF;
    me.waits := false;
    me.verdict := told.outcome;
    me.again := told.again;
    me.counts := told.counts;
    IF told.again IS NULL OR me.stop IS NOT NULL THEN
        IF told.again IS NOT NULL THEN
            me.verdict := me.stop;
            me.again := NULL;
            me.counts := true;
        END IF;
        me := end_as(me, me.verdict, here);
    ELSE
        me.state := 'pending';
        me.outcome := CASE WHEN told.counts THEN told.outcome ELSE me.outcome END;
        me.run_at := here.wall + told.again;
    END IF;
    UPDATE fires SET state = me.state, attempt = me.attempt, sentence = me.sentence, waits = me.waits,
        verdict = me.verdict, again = me.again, counts = me.counts, outcome = me.outcome,
        run_at = me.run_at, over_at = me.over_at
    WHERE id = me.id;
    RETURN me;
END $$;

CREATE FUNCTION end_as(me fires, how text, here moment) RETURNS fires LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    me.state := 'over';
    me.outcome := how;
    me.over_at := here.wall;
    IF me.late_hooks <> '{}' THEN
        PERFORM drop_late_hooks(me);
    END IF;
    RETURN me;
END $$;

CREATE FUNCTION succeed(settled bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO jobs (job, succeeded)
    SELECT job, max(over_at) FROM fires
    WHERE id = ANY (settled) AND state = 'over' AND origin <> 'hook' AND split_part(outcome, ' ', 1) = 'succeeded'
    GROUP BY job ORDER BY job
    ON CONFLICT (job) DO UPDATE SET succeeded = excluded.succeeded;
END $$;

-- Does somebody wait for a place that was freed, or for what was put?
CREATE FUNCTION ring_after(settled bigint[], follow jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM ring(app) FROM (SELECT DISTINCT app FROM fires AS mine WHERE id = ANY (settled) AND (
        follow <> '[]'
        OR EXISTS (SELECT FROM fires WHERE lane = mine.lane AND lane <> '' AND state = 'pending'
                                       AND run_at <= here.wall)
        OR EXISTS (SELECT FROM fires WHERE lane = mine.lane AND lane <> '' AND state = 'claimed'
                                       AND expires <= here.mono))) AS apps;
END $$;

CREATE FUNCTION cancel(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
    me   fires;
BEGIN
    SELECT * INTO me FROM fires WHERE key = given->>'key' AND state <> 'over' FOR UPDATE;
    IF me.id IS NOT NULL THEN
        me.stop := given->>'stop';
        IF me.state = 'pending' THEN
            me := end_as(me, me.stop, here);
        END IF;
        UPDATE fires SET stop = me.stop, state = me.state, outcome = me.outcome, over_at = me.over_at
        WHERE id = me.id;
        PERFORM ring(me.app);
    END IF;
    RETURN answer(here, jsonb_build_object('done', me.id IS NOT NULL));
END $$;

-- Book-keeping.

-- The conditions are put together, so that the server sees which of its indexes are enough.
CREATE FUNCTION find(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    query text := 'SELECT id FROM fires WHERE true';
    name  text;
    said  jsonb;
BEGIN
    FOREACH name IN ARRAY ARRAY['app', 'job', 'key', 'state'] LOOP
        IF given->>name <> '' THEN
            query := query || format(' AND %I = %L', name, given->>name);
        END IF;
    END LOOP;
    IF given->'origins' <> '[]' THEN
        query := query || format(' AND origin IN (SELECT jsonb_array_elements_text(%L))', given->'origins');
    END IF;
    IF given->>'since' IS NOT NULL THEN
        query := query || format(' AND due >= %L', given->>'since');
    END IF;
    IF given->>'until' IS NOT NULL THEN
        query := query || format(' AND due <= %L', given->>'until');
    END IF;
    EXECUTE 'SELECT jsonb_agg(row_json(fires, $1) ORDER BY due DESC, key DESC) FROM fires JOIN ('
        || query || format(' ORDER BY due DESC, key DESC LIMIT %L) AS found USING (id)', given->>'limit')
        INTO said USING given->>'key' <> '';
    RETURN jsonb_build_object('rows', coalesce(said, '[]'));
END $$;

CREATE FUNCTION row_json(me fires, whole boolean) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT fire_json(me) || jsonb_build_object(
        'state', me.state, 'attempt', me.attempt, 'node', me.node, 'fence', me.fence, 'run_at', me.run_at,
        'ran_at', me.ran_at, 'over_at', me.over_at, 'outcome', me.outcome, 'stop', me.stop,
        'attempts', coalesce((
            SELECT jsonb_agg(jsonb_build_array(
                number, node, fence, started, ended, outcome, status, took,
                CASE WHEN whole THEN encode(tail, 'base64') ELSE '' END, result) ORDER BY number)
            FROM attempts WHERE fire = me.id), '[]'))
$$;

CREATE FUNCTION note(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here  moment := arrive(given->'memory');
    lasts float8 := nullif((given->>'ttl')::float8, 0);
BEGIN
    IF given->>'text' = '' THEN
        DELETE FROM notes WHERE app = given->>'app' AND name = given->>'name';
    ELSE
        INSERT INTO notes VALUES (
            given->>'app', given->>'name', given->>'text', here.wall, lasts, here.mono + lasts)
        ON CONFLICT (app, name) DO UPDATE SET
            text = excluded.text, written = excluded.written, lasts = excluded.lasts, expires = excluded.expires;
    END IF;
    IF starts_with(given->>'name', 'pause/') THEN
        PERFORM ring(given->>'app');
    END IF;
    RETURN answer(here, '{}');
END $$;

CREATE FUNCTION notes(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
BEGIN
    RETURN answer(here, jsonb_build_object('notes', coalesce((
        SELECT jsonb_agg(jsonb_build_array(name, text, written, expires + here.steps) ORDER BY name)
        FROM notes
        WHERE app = given->>'app' AND starts_with(name, given->>'prefix')
          AND (expires IS NULL OR expires > here.mono)), '[]')));
END $$;
