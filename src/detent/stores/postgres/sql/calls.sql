-- The other calls of the store; each takes a JSON document and returns one.

CREATE FUNCTION fire_json(me fires) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'key', me.key, 'job', me.job, 'due', me.due, 'run_id', me.run_id, 'queue', me.queue, 'lane', me.lane,
        'start_by', me.start_by, 'policy', me.policy, 'origin', me.origin, 'revision', me.revision,
        'payload', me.payload, 'first', me.first, 'instants', me.instants)
$$;

-- Record fires whose key is new, in the order in which they are given; which were, and their apps.
-- No `run_at`: each is due at its instant.
CREATE TYPE recorded AS (places integer[], apps text[]);

CREATE FUNCTION record(given jsonb, now float8, run_at float8) RETURNS recorded LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF given @? '$[*] ? (@.lane != "")' THEN
        INSERT INTO lanes
        SELECT DISTINCT one.lane FROM jsonb_to_recordset(given) AS one(lane text)
        WHERE one.lane <> '' AND NOT EXISTS (SELECT FROM lanes WHERE lanes.lane = one.lane)
        ORDER BY one.lane ON CONFLICT DO NOTHING;
    END IF;
    RETURN insert_fires(given, now, run_at);
END $$;

-- A fire with `unique_s` takes the place of one that is over and was due that long ago, or had no success.
CREATE FUNCTION make_way(given jsonb, now float8) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    spent bigint[] := ARRAY(
        SELECT id FROM fires JOIN jsonb_to_recordset(given) AS one(key text, unique_s float8) USING (key)
        WHERE unique_s > 0 AND state = 'over'
          AND (split_part(outcome, ' ', 1) <> 'succeeded' OR due + unique_s <= now)
        ORDER BY key FOR UPDATE OF fires);
BEGIN
    DELETE FROM fires WHERE id = ANY (spent);
END $$;

CREATE FUNCTION insert_fires(given jsonb, now float8, run_at float8) RETURNS recorded LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done recorded;
BEGIN
    IF given @? '$[*] ? (@.unique_s > 0)' THEN
        PERFORM make_way(given, now);
    END IF;
    WITH numbered AS MATERIALIZED (
        SELECT nextval('fire_ids') AS id, one.*
        FROM jsonb_to_recordset(given) AS one(
            place integer, key text, job text, due float8, run_id text, queue text, lane text, start_by float8,
            policy text, concurrency text, width integer, claim_s float8, grace_s float8, catch_up text,
            late_hooks text[], origin text, revision text, payload text, first float8, instants integer,
            breaker text)
    ), fresh AS (
        INSERT INTO fires (id, key, app, job, due, run_id, queue, lane, start_by, policy, concurrency, width,
                           claim_s, grace_s, catch_up, late_hooks, origin, revision, payload, first, instants,
                           breaker, run_at)
        SELECT id, key, split_part(job, '.', 1), job, due, run_id, queue, coalesce(lane, ''), start_by, policy,
               concurrency, coalesce(width, 1), claim_s, coalesce(grace_s, 0), coalesce(catch_up, 'latest'),
               coalesce(late_hooks, '{}'), origin, coalesce(revision, ''), coalesce(payload, ''), first,
               coalesce(instants, 1), coalesce(breaker, ''), coalesce(insert_fires.run_at, due)
        FROM numbered ORDER BY key COLLATE "C", id  -- two calls that put the same keys must not cross
        ON CONFLICT (key) DO NOTHING RETURNING id, app
    )
    SELECT coalesce(array_agg(place), '{}'), coalesce(array_agg(DISTINCT app), '{}') INTO done
    FROM numbered JOIN fresh USING (id);
    RETURN done;
END $$;

-- Record messages that differ in nothing but key, run id and payload: what they share is read once.  None has a lane
-- or takes the place of another.  The keys that were new.
CREATE FUNCTION insert_alike(given jsonb, now float8, run_at float8) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    owner text := split_part(given->'same'->>'job', '.', 1);
    done  text[];
BEGIN
    WITH fresh AS (
        INSERT INTO fires (id, key, app, job, due, run_id, queue, lane, start_by, policy, concurrency, width,
                           claim_s, grace_s, catch_up, late_hooks, origin, revision, payload, first, instants,
                           breaker, run_at)
        SELECT nextval('fire_ids'), one.key, owner, job, due, one.run_id, queue, '', start_by, policy,
               concurrency, coalesce(width, 1), claim_s, coalesce(grace_s, 0), coalesce(catch_up, 'latest'),
               '{}', origin, coalesce(revision, ''), one.payload, first, coalesce(instants, 1),
               coalesce(breaker, ''), insert_alike.run_at
        FROM jsonb_to_record(given->'same') AS same(
            job text, due float8, queue text, start_by float8, policy text, concurrency text, width integer,
            claim_s float8, grace_s float8, catch_up text, origin text, revision text, first float8,
            instants integer, breaker text
        ) CROSS JOIN ROWS FROM (
            jsonb_array_elements_text(given->'keys'), jsonb_array_elements_text(given->'run_ids'),
            jsonb_array_elements_text(given->'payloads')
        ) WITH ORDINALITY AS one(key, run_id, payload, place)
        ORDER BY one.key COLLATE "C", one.place  -- two calls that put the same keys must not cross
        ON CONFLICT (key) DO NOTHING RETURNING key
    )
    SELECT coalesce(array_agg(key), '{}') INTO done FROM fresh;
    RETURN done;
END $$;

CREATE FUNCTION put(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
    due  float8 := here.wall + (given->>'delay')::float8;
    keys text[];
    done recorded;
BEGIN
    IF given ? 'alike' THEN
        keys := insert_alike(given->'alike', here.wall, due);
        IF keys <> '{}' THEN
            PERFORM wake_nodes(split_part(given->'alike'->'same'->>'job', '.', 1));
        END IF;
        RETURN answer(here, alike_answer(given, keys));
    END IF;
    done := record(given->'fires', here.wall, due);
    PERFORM wake_nodes(app) FROM unnest(done.apps) AS app;
    RETURN answer(here, jsonb_build_object('fresh', done.places));
END $$;

-- Most often all were new.
CREATE FUNCTION alike_answer(given jsonb, keys text[]) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF cardinality(keys) = jsonb_array_length(given->'alike'->'keys') THEN
        RETURN '{"all": true}';
    END IF;
    RETURN jsonb_build_object('keys', keys);
END $$;

-- The same in a transaction of the caller's, who needs no right on the tables.  It may last: no lock is kept that
-- others would wait for, but for the keys themselves; a lane that is missing is made by whoever claims first.
CREATE FUNCTION put_in(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
    now  float8 := clock();
    keys text[];
    done recorded;
BEGIN
    IF given ? 'alike' THEN
        keys := insert_alike(given->'alike', now, now + (given->>'delay')::float8);
        INSERT INTO bells SELECT split_part(given->'alike'->'same'->>'job', '.', 1) WHERE keys <> '{}';
        RETURN alike_answer(given, keys);
    END IF;
    done := insert_fires(given->'fires', now, now + (given->>'delay')::float8);
    INSERT INTO bells SELECT unnest(done.apps);
    RETURN jsonb_build_object('fresh', done.places);
END $$;

-- When it commits, those who wait are woken: also those who look whether it rang.
CREATE FUNCTION wake_at_commit() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM bells WHERE ctid = (SELECT ctid FROM bells WHERE app = NEW.app LIMIT 1);
    PERFORM wake_nodes(NEW.app);
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER wake_at_commit AFTER INSERT ON bells DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION wake_at_commit();

-- What was attempted is forgotten with its fire.
CREATE FUNCTION forget_attempts() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM attempts WHERE fire IN (SELECT id FROM gone);
    RETURN NULL;
END $$;

CREATE TRIGGER forget_attempts AFTER DELETE ON fires REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_attempts();

-- Planning.

CREATE FUNCTION watermarks(here moment, of text, marks jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN answer(here, jsonb_build_object(
        'generation', coalesce((SELECT generation FROM apps WHERE app = of), 0),
        'quarantined_until', CASE WHEN here.quarantined_until > here.mono THEN here.quarantined_until + here.steps END,
        'watermarks', coalesce(marks, '{}')));
END $$;

CREATE FUNCTION watermarks_of(of text) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT jsonb_object_agg(job, jsonb_build_array(at, revision)) FROM marks WHERE app = of);
END $$;

-- Changes nothing; `arrive` may put the store's clock right.
CREATE FUNCTION look(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN watermarks(arrive(given->'memory'), given->>'app', watermarks_of(given->>'app'));
END $$;

CREATE FUNCTION set_jobs(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
    name text := given->>'app';
    seen bigint := (given->>'seen')::bigint;
BEGIN
    IF seen = coalesce((SELECT generation FROM apps WHERE app = name), 0) THEN
        PERFORM app_id(name, here.wall);
        PERFORM FROM apps WHERE app = name AND generation = seen FOR UPDATE;
        IF FOUND AND given->'revisions' <> coalesce(
            (SELECT jsonb_object_agg(job, revision) FROM marks WHERE app = name), '{}') THEN
            here.wall := clock();  -- others may have claimed while we waited for our turn
            PERFORM revise(name, given->'revisions', here);
            UPDATE apps SET generation = seen + 1 WHERE app = name;
            PERFORM wake_nodes(name);
        END IF;
    END IF;
    RETURN watermarks(here, name, watermarks_of(name));
END $$;

-- Which jobs are new, changed or removed (no `revised`), and where the plan of each starts:
-- `stores.base.resume_at`.
CREATE FUNCTION changes(called text, revisions jsonb, here moment)
RETURNS TABLE (job text, was_at float8, is_new boolean, revised text, since float8) LANGUAGE sql VOLATILE AS $$
    SELECT it.job, it.at, it.at IS NULL AND gone.text IS NULL, it.revised, least(coalesce(it.at, gone.text::float8), CASE
        WHEN planned.first IS NULL OR it.at IS NULL AND gone.text IS NULL THEN greatest(here.wall, known.reached)
        ELSE greatest(planned.first - 1, known.reached) END)  -- instants are whole seconds
    FROM (SELECT coalesce(m.job, r.key) AS job, m.at, r.value AS revised
          FROM (SELECT * FROM marks WHERE app = called) AS m
          FULL JOIN jsonb_each_text(revisions) AS r ON r.key = m.job
          WHERE m.revision IS DISTINCT FROM r.value) AS it
    LEFT JOIN jobs AS known ON known.job = it.job
    LEFT JOIN notes AS gone ON gone.app = called AND gone.name = 'gone/' || it.job AND gone.expires > here.mono
    CROSS JOIN LATERAL (
        SELECT min(coalesce(f.first, f.due)) AS first FROM fires AS f
        WHERE f.job = it.job AND f.state = 'pending' AND f.attempt = 0 AND f.origin = 'schedule'
          AND coalesce(f.first, f.due) <= here.wall
          AND coalesce(f.first, f.due) > coalesce(known.reached, '-infinity')) AS planned
$$;

CREATE FUNCTION revised(changes jsonb)
RETURNS TABLE (job text, was_at float8, is_new boolean, revised text, since float8) LANGUAGE sql IMMUTABLE AS $$
    SELECT * FROM jsonb_to_recordset(changes)
        AS one(job text, was_at float8, is_new boolean, revised text, since float8)
$$;

CREATE FUNCTION revise(called text, revisions jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    changed jsonb;
BEGIN
    PERFORM FROM marks WHERE app = called ORDER BY job FOR UPDATE;
    changed := (SELECT jsonb_agg(to_jsonb(change)) FROM changes(called, revisions, here) AS change);
    DELETE FROM fires USING revised(changed) AS change
    WHERE fires.job = change.job AND change.revised IS NOT NULL AND fires.state = 'pending' AND fires.attempt = 0
      AND (change.is_new OR fires.due > change.since AND coalesce(fires.first, fires.due) > change.since)
      AND (fires.origin = 'schedule' OR fires.origin = 'hook' AND fires.key ~ '/on_late[^/]*$');
    DELETE FROM marks USING revised(changed) AS change WHERE marks.job = change.job AND change.revised IS NULL;
    DELETE FROM removed WHERE job IN (SELECT jsonb_object_keys(revisions));
    DELETE FROM notes WHERE app = called AND notes.name IN (SELECT 'gone/' || jsonb_object_keys(revisions));
    INSERT INTO removed SELECT job, called FROM revised(changed) WHERE revised IS NULL ON CONFLICT DO NOTHING;
    INSERT INTO notes SELECT called, 'gone/' || job, was_at::text, here.wall, 3600, here.mono + 3600
    FROM revised(changed) WHERE revised IS NULL
    ON CONFLICT (app, name) DO UPDATE SET
        text = excluded.text, written = excluded.written, lasts = excluded.lasts, expires = excluded.expires;
    INSERT INTO marks SELECT job, called, since, revised FROM revised(changed) WHERE revised IS NOT NULL
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
    PERFORM record(coalesce(jsonb_agg(one), '[]'), here.wall, NULL) FROM jsonb_array_elements(given->'fires') AS one
    WHERE coalesce((one->>'first')::float8, (one->>'due')::float8) > (cutoffs->>(one->>'plan'))::float8;
    PERFORM bring_back_planned(names);
    RETURN watermarks(here, given->>'app', (
        SELECT jsonb_object_agg(job, jsonb_build_array(at, revision)) FROM marks WHERE job = ANY (names)));
END $$;

-- What becomes of a claim.

-- The claims of a call, by key.  The server is to think that they are few, as in `told`.
CREATE FUNCTION claimed(claims jsonb) RETURNS TABLE (place integer, key text, fence bigint, ttl float8) ROWS 1
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM jsonb_to_recordset(claims) AS one(place integer, key text, fence bigint, ttl float8)
    ORDER BY one.key COLLATE "C";
END $$;

CREATE FUNCTION renew(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_hashjoin TO off
SET enable_mergejoin TO off AS $$
DECLARE
    here moment := arrive(given->'memory');
    now  float8;
    said jsonb;
BEGIN
    PERFORM FROM claimed(given->'claims') AS one CROSS JOIN LATERAL (
        SELECT FROM fires WHERE key = one.key COLLATE "C" AND fence = one.fence AND state = 'claimed' FOR UPDATE) AS it;
    now := clock() - here.steps;
    UPDATE fires SET expires = now + one.ttl, renewed = now FROM claimed(given->'claims') AS one
    WHERE fires.key = one.key COLLATE "C" AND fires.fence = one.fence AND state = 'claimed' AND expires > now;
    SELECT jsonb_agg(CASE WHEN id IS NULL THEN 'lost no longer ours' ELSE stop END ORDER BY place) INTO said
    FROM claimed(given->'claims') AS one LEFT JOIN LATERAL (
        SELECT id, stop FROM fires
        WHERE key = one.key COLLATE "C" AND fence = one.fence AND state = 'claimed' AND expires > now LIMIT 1
    ) AS it ON true;
    RETURN answer(here, jsonb_build_object('stops', coalesce(said, '[]')));
END $$;

CREATE FUNCTION end_as(me fires, how text, here moment) RETURNS fires LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    me.state := 'over';
    me.outcome := how;
    me.over_at := here.wall;
    IF me.late_hooks <> '{}' THEN
        PERFORM drop_late_hooks(me.late_hooks);
    END IF;
    RETURN me;
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
            PERFORM remember(ARRAY[me.id]);
        END IF;
        UPDATE fires SET stop = me.stop, state = me.state, outcome = me.outcome, over_at = me.over_at
        WHERE id = me.id;
        PERFORM wake_nodes(me.app);
    END IF;
    RETURN answer(here, jsonb_build_object('done', me.id IS NOT NULL));
END $$;

-- Forget those of these fires that are over and were not planned.
CREATE FUNCTION forget(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
    ids  bigint[] := ARRAY(
        SELECT id FROM fires WHERE key IN (SELECT jsonb_array_elements_text(given->'keys'))
            AND state = 'over' AND origin <> 'schedule' ORDER BY key FOR UPDATE);
BEGIN
    DELETE FROM fires WHERE id = ANY (ids);
    RETURN answer(here, jsonb_build_object('gone', cardinality(ids)));
END $$;

-- Book-keeping.

-- How many messages the queues of an app have: those that are named, or all.
CREATE FUNCTION count(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here  moment := arrive(given->'memory');
    named text[] := ARRAY(SELECT jsonb_array_elements_text(given->'queues'));
    said  jsonb;
BEGIN
    WITH counted AS (
        SELECT queue, CASE WHEN run_at > here.wall THEN 'delayed' ELSE 'pending' END AS word,
               pg_catalog.count(*) AS number
        FROM fires
        WHERE app = given->>'app' AND state = 'pending' AND run_at > 0 AND origin = 'push'
          AND (named = '{}' OR queue = ANY (named))
        GROUP BY queue, word
        UNION ALL
        SELECT queue, 'running', pg_catalog.count(*) FROM fires
        WHERE app = given->>'app' AND state = 'claimed' AND expires > 0 AND origin = 'push'
          AND (named = '{}' OR queue = ANY (named))
        GROUP BY queue
        UNION ALL
        SELECT queue, 'dead', pg_catalog.count(*) FROM fires
        WHERE app = given->>'app' AND state = 'over' AND origin = 'push' AND outcome NOT LIKE 'succeeded %'
          AND split_part(outcome, ' ', 1) IN ('failed', 'rejected', 'timed-out', 'lost', 'missed')
          AND (named = '{}' OR queue = ANY (named))
        GROUP BY queue
    ), sizes AS (
        SELECT queue, jsonb_object_agg(word, number) AS size FROM counted GROUP BY queue
    )
    SELECT jsonb_object_agg(queue, size) FROM sizes INTO said;
    RETURN answer(here, jsonb_build_object('sizes', coalesce(said, '{}')));
END $$;

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
    IF given->>'name' ~ '^(pause|rate|breaker)/' THEN
        PERFORM wake_nodes(given->>'app');
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
