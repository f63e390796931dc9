-- Who gets what is due, and the locks under which that is true.
--
-- 1. Lanes are locked before their fires, so that two calls never judge one lane at a time; a lane or a
--    fire that another call has locked is passed over, and the answer says to ask again soon.
-- 2. An expired claim counts as gone only if its row could be locked: a renewal may be under way.  A
--    renewal reads the clock once it has the row, and so comes before or after, never beside.
-- 3. Fires that only need a place are not even looked at when there is none left.

-- Fires that are due for an ask, in order, from a place on.

CREATE TYPE candidate AS (id bigint, lane text, run_at float8, key text);

CREATE FUNCTION expired(ask jsonb, here moment, since candidate) RETURNS SETOF candidate
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT id, lane, run_at, key::text FROM fires
    WHERE state = 'claimed' AND app = ask->>'app' AND expires > 0 AND expires <= here.mono
      AND (run_at, key) > (since.run_at, since.key) AND ask->'queues' ? queue;
END $$;

CREATE FUNCTION due(ask jsonb, here moment, since candidate, most integer) RETURNS SETOF candidate
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT id, lane, run_at, key::text FROM fires
    WHERE state = 'pending' AND app = ask->>'app' AND run_at <= here.wall
      AND (run_at, key) > (since.run_at, since.key) AND ask->'queues' ? queue
    ORDER BY run_at, key LIMIT most;
END $$;

-- Of those, the ones about which there may be more to say than that they could run: each kind by an
-- index of its own, as there may be very many of the others.
CREATE FUNCTION due_otherwise(ask jsonb, here moment, since candidate, most integer) RETURNS SETOF candidate
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    called text := ask->>'app';
    ids    bigint[] := special(called, here);
    names  text[] := ARRAY(
        SELECT job FROM removed WHERE app = called
        UNION ALL SELECT substr(name, 7) FROM notes
            WHERE app = called AND name >= 'pause/' AND name < 'pause0');
    taken  text[] := ARRAY(
        SELECT lane FROM fires WHERE app = called AND state = 'claimed' AND lane <> ''
        UNION SELECT lane FROM graces WHERE until > here.mono);
BEGIN
    IF names <> '{}' THEN
        ids := ids || ARRAY(SELECT id FROM fires WHERE job = ANY (names) AND state = 'pending'
                                                   AND origin = 'schedule');
    END IF;
    IF taken <> '{}' THEN
        ids := ids || ARRAY(SELECT id FROM fires WHERE lane = ANY (taken) AND lane <> '' AND state = 'pending'
                                                   AND run_at <= here.wall AND NOT waits);
    END IF;
    IF ids <> '{}' THEN
        RETURN QUERY WITH those AS MATERIALIZED (SELECT * FROM fires WHERE id = ANY (ids))
        SELECT id, lane, run_at, key::text FROM those
        WHERE state = 'pending' AND app = called AND run_at <= here.wall
          AND (run_at, key) > (since.run_at, since.key) AND ask->'queues' ? queue
        ORDER BY run_at, key LIMIT most;
    END IF;
END $$;

-- Hooks, heirs, what has a sentence, what is late.
CREATE FUNCTION special(called text, here moment) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT id FROM fires WHERE app = called AND state = 'pending' AND run_at <= here.wall
            AND (sentence IS NOT NULL OR origin = 'hook' OR concurrency = 'Replace')
    ) || ARRAY(
        SELECT id FROM fires WHERE app = called AND state = 'pending' AND attempt = 0
            AND start_by IS NOT NULL AND start_by < here.wall
    ) || ARRAY(
        SELECT id FROM fires WHERE app = called AND state = 'pending' AND attempt = 0
            AND origin = 'schedule' AND NOT waits AND due < here.wall - 60);
END $$;

-- Lock the lanes of the candidates that nobody else has locked; those that are ours by now.  A lane that
-- was pruned while a fire of it was being recorded is put back, and so is ours.
CREATE FUNCTION lock_lanes(chunk candidate[], held text[]) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted text[] := ARRAY(
        SELECT DISTINCT one.lane FROM unnest(chunk) AS one WHERE one.lane <> '' AND one.lane <> ALL (held));
    place  text;
BEGIN
    IF wanted = '{}' THEN
        RETURN held;
    END IF;
    held := held || ARRAY(SELECT lane FROM lanes WHERE lane = ANY (wanted) ORDER BY lane FOR UPDATE SKIP LOCKED);
    FOR place IN
        INSERT INTO lanes SELECT one FROM unnest(wanted) AS one
        WHERE one <> ALL (held) AND NOT EXISTS (SELECT FROM lanes WHERE lane = one)
        ORDER BY one ON CONFLICT DO NOTHING RETURNING lane
    LOOP
        held := held || place;
    END LOOP;
    RETURN held;
END $$;

-- Expired claims of these lanes that are not ours to lock: a renewal may be under way.
CREATE FUNCTION unsure_in(held text[], here moment) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    expired bigint[] := '{}';
BEGIN
    IF held <> '{}' THEN
        expired := ARRAY(
            SELECT id FROM fires
            WHERE lane = ANY (held) AND lane <> '' AND state = 'claimed' AND expires <= here.mono);
    END IF;
    IF expired = '{}' THEN
        RETURN expired;
    END IF;
    RETURN ARRAY(
        SELECT unnest(expired) EXCEPT SELECT id FROM (
            SELECT id FROM fires WHERE id = ANY (expired) AND state = 'claimed' AND expires <= here.mono
            ORDER BY id FOR UPDATE SKIP LOCKED) AS gone);
END $$;

-- Lock the candidates that are still due, and not in a lane of somebody else's.
CREATE FUNCTION lock_fires(chunk candidate[], held text[], here moment) RETURNS fires[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT one.id FROM unnest(chunk) AS one WHERE one.lane = '' OR one.lane = ANY (held));
BEGIN
    RETURN ARRAY(
        SELECT one FROM fires AS one
        WHERE id = ANY (ids)
          AND CASE state WHEN 'pending' THEN run_at <= here.wall WHEN 'claimed' THEN expires <= here.mono END
        ORDER BY run_at, key FOR UPDATE SKIP LOCKED);
END $$;

-- It started, or is over: whoever was to be told that it is late need not be.  One that another call has
-- locked is late indeed.
CREATE FUNCTION drop_late_hooks(me fires) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM fires WHERE id IN (
        SELECT id FROM fires WHERE key = ANY (me.late_hooks) AND state = 'pending' FOR UPDATE SKIP LOCKED);
END $$;

CREATE FUNCTION grant_to(ask jsonb, me fires, why text, here moment) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    number bigint := nextval(ask->>'fences');
    lasts  float8 := coalesce(nullif((ask->>'ttl')::float8, 0), me.claim_s);
BEGIN
    IF why IS NULL THEN
        me.attempt := me.attempt + 1;
        me.ran_node := ask->>'node';
        me.ran_fence := number;
        me.ran_at := here.wall;
        IF me.late_hooks <> '{}' THEN
            PERFORM drop_late_hooks(me);
        END IF;
    END IF;
    UPDATE fires SET state = 'claimed', node = ask->>'node', asked = (ask->>'number')::bigint,
        fence = number, ttl = lasts, expires = here.mono + lasts, renewed = here.mono, sentence = why,
        attempt = me.attempt, ran_node = me.ran_node, ran_fence = me.ran_fence, ran_at = me.ran_at
    WHERE id = me.id;
END $$;

-- Claim what is due for an ask; whether something had to be passed over.
CREATE FUNCTION grant_due(ask jsonb, here moment) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    room      integer := (ask->>'limit')::integer;
    hooks     integer := (ask->>'hooks')::integer;
    sentences integer := 200;
    since     candidate := (0, '', '-infinity', '');
    held      text[] := '{}';
    unsure    bigint[];
    dropped   text[] := '{}';
    passed    boolean := false;
    most      integer;
    chunk     candidate[];
    locked    fires[];
    me        fires;
    verdict   judgement;
BEGIN
    LOOP
        -- No more than can be granted: what is locked for nothing is in the way of others.
        most := CASE WHEN room > 0 THEN least(room, 200) ELSE 200 END;
        IF room > 0 THEN
            chunk := ARRAY(SELECT ROW(one.id, one.lane, one.run_at, one.key)::candidate FROM (
                SELECT * FROM expired(ask, here, since) UNION ALL SELECT * FROM due(ask, here, since, most)
            ) AS one ORDER BY run_at, key LIMIT most);
        ELSE
            chunk := ARRAY(SELECT ROW(one.id, one.lane, one.run_at, one.key)::candidate FROM (
                SELECT * FROM expired(ask, here, since)
                UNION ALL SELECT * FROM due_otherwise(ask, here, since, most)
            ) AS one ORDER BY run_at, key LIMIT most);
        END IF;
        EXIT WHEN cardinality(chunk) = 0;
        held := lock_lanes(chunk, held);
        unsure := unsure_in(held, here);
        locked := lock_fires(chunk, held, here);
        passed := passed OR cardinality(locked) < cardinality(chunk);
        FOREACH me IN ARRAY locked LOOP
            CONTINUE WHEN me.state = 'pending' AND me.key = ANY (dropped);
            verdict := judge(me, here, unsure);
            IF verdict.step = 'wait' AND NOT me.waits THEN
                UPDATE fires SET waits = true WHERE id = me.id;
            ELSIF verdict.step = 'sentence' AND sentences > 0 THEN
                sentences := sentences - 1;
                PERFORM grant_to(ask, me, verdict.why, here);
            ELSIF verdict.step = 'run' AND NOT ask->'without' ? me.job
                  AND (CASE me.origin WHEN 'hook' THEN hooks ELSE room END) > 0 THEN
                IF me.origin = 'hook' THEN hooks := hooks - 1; ELSE room := room - 1; END IF;
                PERFORM grant_to(ask, me, NULL, here);
                dropped := dropped || me.late_hooks;
            END IF;
            IF verdict.stops <> '{}' THEN
                passed := stop_all(verdict.stops, me) OR passed;
            END IF;
        END LOOP;
        EXIT WHEN cardinality(chunk) < most;
        since := chunk[cardinality(chunk)];
    END LOOP;
    RETURN passed;
END $$;

-- Tell holders to stop for the sake of another; whether one had to be passed over.
CREATE FUNCTION stop_all(holders bigint[], heir fires) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told integer;
BEGIN
    UPDATE fires SET stop = 'replaced by ' || heir.key WHERE id IN (
        SELECT id FROM fires WHERE id = ANY (holders) AND state = 'claimed' FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS told = ROW_COUNT;
    PERFORM ring(heir.app);
    RETURN told < cardinality(holders);
END $$;

-- The claims of lives that are proven dead are over now; they may be another app's.
CREATE FUNCTION bury(ask jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    name text;
BEGIN
    FOR name IN
        WITH buried AS (
            UPDATE fires SET expires = here.mono WHERE id IN (
                SELECT id FROM fires WHERE state = 'claimed' AND asked > 0 AND expires > here.mono
                    AND node IN (SELECT jsonb_array_elements_text(ask->'dead')) FOR UPDATE SKIP LOCKED)
            RETURNING app
        )
        SELECT DISTINCT app FROM buried
    LOOP
        PERFORM ring(name);
    END LOOP;
END $$;

-- What is claimed under an ask already, renewed.
CREATE FUNCTION grant_again(ask jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[] := ARRAY(
        SELECT id FROM fires
        WHERE state = 'claimed' AND node = ask->>'node' AND asked = (ask->>'number')::bigint AND asked > 0
        ORDER BY id FOR UPDATE);
    now float8 := clock() - here.steps;
BEGIN
    UPDATE fires SET expires = now + ttl, renewed = now WHERE id = ANY (ids) AND expires > now;
END $$;

-- What outlives the rows of fires that were granted.
CREATE FUNCTION remember(granted bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO jobs (job, reached)
    SELECT job, max(due) FROM fires WHERE id = ANY (granted) AND origin = 'schedule' GROUP BY job ORDER BY job
    ON CONFLICT (job) DO UPDATE SET reached = greatest(jobs.reached, excluded.reached);
    INSERT INTO ttls
    SELECT max(ttl) FROM fires WHERE id = ANY (granted)
    HAVING max(ttl) > coalesce((SELECT max(known.ttl) FROM ttls AS known), 0)
    ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION next_in(ask jsonb, here moment) RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF here.mono < here.calm_until THEN
        RETURN here.calm_until - here.mono;
    END IF;
    RETURN least(
        (SELECT run_at FROM fires WHERE state = 'pending' AND app = ask->>'app' AND run_at > here.wall
            AND ask->'queues' ? queue ORDER BY run_at LIMIT 1) - here.wall,
        (SELECT expires FROM fires WHERE state = 'claimed' AND app = ask->>'app' AND expires > 0
            AND expires > here.mono AND ask->'queues' ? queue ORDER BY expires LIMIT 1) - here.mono,
        (SELECT min(until) FROM graces WHERE until > here.mono) - here.mono);
END $$;

-- The server cannot guess what is in tables that change so fast, and it takes long over it: it is to use
-- their indexes, by plans that it makes once.
CREATE FUNCTION claim(ask jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_hashjoin TO off
SET enable_mergejoin TO off AS $$
DECLARE
    here   moment := arrive(ask->'memory');
    number bigint := (ask->>'number')::bigint;
    passed boolean := false;
    is_new boolean := false;
    ids    bigint[];
    claims jsonb;
BEGIN
    IF here.mono >= here.calm_until AND number > 0 THEN
        INSERT INTO asks VALUES (ask->>'node', number, here.mono)
        ON CONFLICT (node) DO UPDATE SET number = excluded.number, asked_at = excluded.asked_at
        WHERE asks.number < excluded.number;
        is_new := FOUND;
    END IF;
    IF is_new THEN
        ask := ask || jsonb_build_object('fences', 'fence_' || app_id(ask->>'app', here.wall));
        IF ask->'dead' <> '[]' THEN
            PERFORM bury(ask, here);
        END IF;
        passed := grant_due(ask, here);
    ELSE
        PERFORM grant_again(ask, here);
    END IF;
    SELECT array_agg(id), jsonb_agg(fire_json(one) || jsonb_build_object(
            'fence', fence, 'attempt', attempt, 'ttl', ttl, 'expires', expires + here.steps,
            'sentence', sentence, 'succeeded', succeeded) ORDER BY id)
        INTO ids, claims FROM fires AS one LEFT JOIN jobs USING (job)
        WHERE state = 'claimed' AND node = ask->>'node' AND asked = number AND asked > 0
          AND expires > here.mono;
    IF is_new AND ids IS NOT NULL THEN
        PERFORM remember(ids);
    END IF;
    RETURN answer(here, jsonb_build_object(
        'claims', coalesce(claims, '[]'), 'next_in', CASE
            WHEN passed THEN least(next_in(ask, here), 0.05) ELSE next_in(ask, here) END));
END $$;
