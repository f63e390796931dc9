-- Grants due fires to an ask, in order, with the locks of `claim.sql`.

-- Claim a fire, to run or to settle; the fence.
CREATE FUNCTION grant_to(ask jsonb, me fires, why text, here moment) RETURNS bigint
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
            PERFORM drop_late_hooks(me.late_hooks);
        END IF;
    END IF;
    UPDATE fires SET state = 'claimed', node = ask->>'node', asked = (ask->>'number')::bigint,
        fence = number, ttl = lasts, expires = here.mono + lasts, renewed = here.mono, sentence = why, aside = false,
        attempt = me.attempt, ran_node = me.ran_node, ran_fence = me.ran_fence, ran_at = me.ran_at
    WHERE id = me.id;
    RETURN number;
END $$;

-- A fence for each.  The server is to think that they are few: it must look up each fire, also by a plan that it made
-- when there were hardly any.
CREATE FUNCTION numbered(ids bigint[], fences regclass) RETURNS TABLE (fire bigint, fence bigint) ROWS 1
LANGUAGE plpgsql VOLATILE AS
$$ BEGIN RETURN QUERY SELECT one, nextval(fences) FROM unnest(ids) AS one; END $$;

-- Claim fires that are plain, all to run.
CREATE FUNCTION grant_plain(ask jsonb, here moment, it progress, name text, ids bigint[]) RETURNS progress
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    fences regclass := ask->>'fences';
    life   text := ask->>'node';
    number bigint := (ask->>'number')::bigint;
    lasts  float8 := nullif((ask->>'ttl')::float8, 0);
    gate   gate;
BEGIN
    UPDATE fires SET state = 'claimed', node = life, asked = number, fence = given.fence,
        ttl = coalesce(lasts, claim_s), expires = here.mono + coalesce(lasts, claim_s), renewed = here.mono,
        attempt = attempt + 1, ran_node = life, ran_fence = given.fence, ran_at = here.wall
    FROM numbered(ids, fences) AS given WHERE id = given.fire;
    IF it.gates <> '{}' THEN
        gate := gate_of(it.gates, name);
    END IF;
    IF gate.queue IS NOT NULL THEN
        PERFORM put_charges(ask->>'app', gate.queue, here.mono, gate.it, cardinality(ids));
        it.gates := go_through(it.gates, name, cardinality(ids));
    END IF;
    it.room := it.room - cardinality(ids);
    RETURN it;
END $$;

-- Grant a fire to run, if its queue's rate and its breaker let it; else it may be put off.
CREATE FUNCTION let_in(ask jsonb, me fires, here moment, it progress) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gate   gate := gate_of(it.gates, me.queue);
    under  text := gate.queue;
    later  float8 := 0;
    broken float8 := 0;
    fence  bigint;
BEGIN
    IF gate.room <= 0 THEN
        RETURN it;
    ELSIF (gate.it).by_key THEN
        under := under || '/' || coalesce(nullif(me.policy, '')::jsonb->>'rate_key', '');
        later := (usage_of(me.app, under, here.mono, gate.it)).free_in;
    END IF;
    IF me.breaker <> '' THEN
        broken := breaker_wait(me, here);
    END IF;
    IF broken IS NULL THEN
        it.passed := true;
    ELSIF broken > 0 OR later > 0 THEN
        UPDATE fires SET run_at = here.wall + greatest(broken, later) WHERE id = me.id;
        it.delays := it.delays - 1;
    ELSE
        fence := grant_to(ask, me, NULL, here);
        IF under IS NOT NULL THEN
            PERFORM put_charges(me.app, under, here.mono, gate.it, 1);
            it.gates := go_through(it.gates, me.queue, 1);
        END IF;
        IF me.breaker <> '' THEN
            PERFORM probe(me, fence, here);
        END IF;
        it.room := it.room - 1;
        it.dropped := it.dropped || me.late_hooks;
    END IF;
    RETURN it;
END $$;

-- Judge these fires one by one, and do as judged.
CREATE FUNCTION judge_all(ask jsonb, here moment, it progress, ids bigint[]) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    unsure  bigint[];
    locked  fires[];
    me      fires;
    verdict judgement;
BEGIN
    it.held := lock_lanes(ids, it.held);
    unsure := unsure_in(it.held, here);
    locked := lock_fires(ids, it.held, here);
    it.passed := it.passed OR cardinality(locked) < cardinality(ids);
    FOREACH me IN ARRAY locked LOOP
        CONTINUE WHEN me.state = 'pending' AND me.key = ANY (it.dropped);
        verdict := judge(me, here, unsure);
        IF verdict.step IN ('wait', 'hold') THEN
            it := park(me, verdict, here, it);
        ELSIF verdict.step = 'sentence' AND it.sentences > 0 THEN
            it.sentences := it.sentences - 1;
            PERFORM grant_to(ask, me, verdict.why, here);
        ELSIF verdict.step = 'run' AND me.job <> ALL (it.unable) THEN
            IF me.origin <> 'hook' AND it.room > 0 THEN
                it := let_in(ask, me, here, it);
            ELSIF me.origin = 'hook' AND it.hooks > 0 THEN
                it.hooks := it.hooks - 1;
                PERFORM grant_to(ask, me, NULL, here);
                it.dropped := it.dropped || me.late_hooks;
            END IF;
        END IF;
        IF verdict.stops <> '{}' THEN
            it.passed := stop_all(verdict.stops, me) OR it.passed;
        END IF;
    END LOOP;
    RETURN it;
END $$;

-- What has expired, to be settled.
CREATE FUNCTION grant_expired(ask jsonb, here moment, it progress) RETURNS progress
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[] := ARRAY(
        SELECT id FROM fires
        WHERE state = 'claimed' AND app = ask->>'app' AND expires > 0 AND expires <= here.mono
          AND queue = ANY (it.queues) ORDER BY run_at, key LIMIT it.sentences);
BEGIN
    IF ids <> '{}' THEN
        it := judge_all(ask, here, it, ids);
        it.passed := it.passed OR it.sentences = 0;
    END IF;
    RETURN it;
END $$;

-- What is due on a queue, as long as there is room for it.  Who has no sentence left has settled the oldest: what
-- else is late is passed over then, and no more than so many are judged, as there may be a hundred thousand.
CREATE FUNCTION grant_queue(ask jsonb, here moment, it progress, name text) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    batch chunk;
    gate gate;
    most integer;
    left_to_judge integer := 1000;
BEGIN
    LOOP
        -- No more than can be granted: what is locked for nothing is in the way of others.
        IF it.gates <> '{}' THEN
            gate := gate_of(it.gates, name);
        END IF;
        most := least(it.room, gate.room, 200);
        EXIT WHEN most <= 0 OR it.delays <= 0;
        batch := lock_due(ask->>'app', here, it, name, most);
        IF batch.ids IS NULL OR cardinality(batch.ids) < most THEN
            it.passed := it.passed OR has_more(ask->>'app', here, it, name, batch.ids);
        END IF;
        EXIT WHEN batch.ids IS NULL;
        IF batch.are_plain AND (gate.it).by_key IS NOT TRUE THEN
            it := grant_plain(ask, here, it, name, batch.ids);
        ELSE
            it := judge_all(ask, here, it, batch.ids);
        END IF;
        it.since_at := batch.last_at;
        it.since_key := batch.last_key;
        EXIT WHEN cardinality(batch.ids) < most;
        IF it.held_up > 8 THEN
            it := park_alike(ask->>'app', here, it, name);
            EXIT WHEN it.delays <= 0;
        END IF;
        IF it.sentences <= 0 AND NOT batch.are_plain THEN
            it.passed := true;
            left_to_judge := left_to_judge - cardinality(batch.ids);
            EXIT WHEN left_to_judge <= 0;
            IF it.since_at < here.wall - 60 THEN
                it.since_at := here.wall - 60;
                it.since_key := '';
            END IF;
        END IF;
    END LOOP;
    it.passed := it.passed OR it.delays <= 0;
    RETURN it;
END $$;

-- What is due on these queues, and needs no room, or can be told that there is none.
CREATE FUNCTION grant_otherwise(ask jsonb, here moment, it progress, names text[]) RETURNS progress
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids  bigint[] := due_otherwise(ask->>'app', here, it, names);
    done integer := 0;
BEGIN
    WHILE done < cardinality(ids) LOOP
        IF it.delays <= 0 THEN
            it.passed := true;
            EXIT;
        END IF;
        it := judge_all(ask, here, it, ids[done + 1:done + 200]);
        done := done + 200;
        IF it.held_up > 8 THEN
            FOR place IN 1 .. cardinality(names) LOOP
                it := park_alike(ask->>'app', here, it, names[place]);
            END LOOP;
        END IF;
        IF it.sentences <= 0 AND done >= 1000 THEN
            it.passed := true;
            EXIT;
        END IF;
    END LOOP;
    RETURN it;
END $$;

-- An ask before anything is granted to it.
CREATE FUNCTION first_progress(ask jsonb, here moment) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    it    progress;
    names text[];
BEGIN
    it.queues := ARRAY(SELECT jsonb_array_elements_text(ask->'queues'));
    it.unable := CASE WHEN ask->'without' = '[]' THEN '{}'
                      ELSE ARRAY(SELECT jsonb_array_elements_text(ask->'without')) END;
    it.room := (ask->>'limit')::integer;
    it.hooks := (ask->>'hooks')::integer;
    it.sentences := 200;
    it.delays := 500;
    it.passed := false;
    it.held := '{}';
    it.taken := '{}';
    it.dropped := '{}';
    it.crowded := '{}';
    it.held_up := 0;
    it.gates := '{}';
    it.breakers := '{}';
    it.pauses := '{}';
    names := ARRAY(SELECT name FROM notes WHERE app = ask->>'app' AND (
        name >= 'breaker/' AND name < 'breaker0' OR name >= 'pause/' AND name < 'pause0'
        OR name >= 'rate/' AND name < 'rate0'));
    IF names <> '{}' THEN
        it.breakers := ARRAY(SELECT substr(name, 9) FROM unnest(names) AS name WHERE starts_with(name, 'breaker/'));
        it.pauses := ARRAY(SELECT substr(name, 7) FROM unnest(names) AS name WHERE starts_with(name, 'pause/'));
        it.gates := lock_gates(ask->>'app', it.queues, here);
    END IF;
    RETURN it;
END $$;

-- Those of the queues on which something is due.
CREATE FUNCTION busy(called text, names text[], here moment) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT name FROM unnest(names) WITH ORDINALITY AS one(name, place) CROSS JOIN LATERAL (
            SELECT FROM fires WHERE state = 'pending' AND app = called AND queue = name AND NOT aside AND run_at > 0
                AND run_at <= here.wall LIMIT 1) AS due ORDER BY place);
END $$;

-- Claim what is due for an ask.
CREATE FUNCTION grant_due(ask jsonb, here moment, it progress) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    queues text[];
BEGIN
    it := grant_expired(ask, here, it);
    it := bring_back(ask->>'app', here, it);
    queues := busy(ask->>'app', it.queues, here);
    FOR place IN 1 .. cardinality(queues) LOOP
        it.since_at := '-infinity';
        it.since_key := '';
        IF it.room > 0 THEN
            it := grant_queue(ask, here, it, queues[place]);
        END IF;
        IF it.room <= 0 THEN
            RETURN grant_otherwise(ask, here, it, queues[place:]);
        ELSIF it.gates <> '{}' AND (gate_of(it.gates, queues[place])).room <= 0 THEN
            it := grant_otherwise(ask, here, it, queues[place:place]);
        END IF;
    END LOOP;
    RETURN it;
END $$;

-- What outlives the rows of fires that were granted or cancelled.
CREATE FUNCTION remember(granted bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO jobs (job, reached)
    SELECT job, max(due) FROM fires WHERE id = ANY (granted) AND origin = 'schedule' GROUP BY job ORDER BY job
    ON CONFLICT (job) DO UPDATE SET reached = greatest(jobs.reached, excluded.reached);
END $$;

CREATE FUNCTION next_in(ask jsonb, here moment, has_rates boolean) RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    called text := ask->>'app';
    queues text[] := ARRAY(SELECT jsonb_array_elements_text(ask->'queues'));
BEGIN
    IF here.mono < here.quarantined_until THEN
        RETURN here.quarantined_until - here.mono;
    END IF;
    RETURN least(
        (SELECT min(soon.run_at) FROM unnest(queues) AS name CROSS JOIN LATERAL (
            SELECT run_at FROM fires WHERE state = 'pending' AND app = called AND queue = name AND NOT aside AND run_at > 0
                AND run_at > here.wall ORDER BY run_at LIMIT 1) AS soon) - here.wall,
        (SELECT expires FROM fires WHERE state = 'claimed' AND app = called AND expires > 0
            AND expires > here.mono AND queue = ANY (queues) ORDER BY expires LIMIT 1) - here.mono,
        (SELECT min(until) FROM graces WHERE until > here.mono) - here.mono,
        CASE WHEN has_rates THEN
            (SELECT min(opens) FROM unnest(look_at(called, queues, here)) WHERE opens > 0) END);
END $$;

-- What is claimed under an ask.
CREATE TYPE granted AS (claims json, planned bigint[], longest float8);

CREATE FUNCTION granted_to(life text, number bigint, here moment) RETURNS granted LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found granted;
BEGIN
    SELECT json_agg(json_build_object(
            'key', key, 'job', job, 'due', due, 'run_id', run_id, 'queue', queue, 'lane', lane,
            'start_by', start_by, 'policy', policy, 'origin', origin, 'revision', revision, 'payload', payload,
            'first', first, 'instants', instants, 'fence', fence, 'attempt', attempt, 'ttl', ttl,
            'expires', expires + here.steps, 'sentence', sentence, 'succeeded', succeeded) ORDER BY fence),
        array_agg(id) FILTER (WHERE origin = 'schedule'), max(ttl)
    INTO found FROM fires LEFT JOIN jobs USING (job)
    WHERE state = 'claimed' AND node = life AND asked = number AND asked > 0 AND expires > here.mono;
    RETURN found;
END $$;

-- The server cannot guess what is in tables that change so fast, and it takes long over it: it is to use
-- their indexes, by plans that it makes once.
CREATE FUNCTION claim(ask jsonb) RETURNS json LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_hashjoin TO off
SET enable_mergejoin TO off AS $$
DECLARE
    here   moment := arrive(ask->'memory');
    number bigint := (ask->>'number')::bigint;
    it     progress;
    is_new boolean := false;
    mine   granted;
    soon   float8;
BEGIN
    IF here.mono >= here.quarantined_until AND number > 0 THEN
        INSERT INTO asks VALUES (ask->>'node', number, here.mono)
        ON CONFLICT (node) DO UPDATE SET number = excluded.number, asked_at = excluded.asked_at
        WHERE asks.number < excluded.number;
        is_new := FOUND;
    END IF;
    IF is_new THEN
        ask := ask || jsonb_build_object('fences', 'fence_' || app_id(ask->>'app', here.wall));
        it := first_progress(ask, here);
        here := again(here);
        IF ask->'dead' <> '[]' THEN
            PERFORM declare_dead(ask, here);
        END IF;
        it := grant_due(ask, here, it);
        IF it.crowded <> '{}' THEN
            PERFORM wake_soon(it.crowded, here);
        END IF;
    ELSE
        PERFORM grant_again(ask, here);
    END IF;
    mine := granted_to(ask->>'node', number, here);
    IF is_new AND mine.planned IS NOT NULL THEN
        PERFORM remember(mine.planned);
    END IF;
    IF is_new AND mine.longest > coalesce((SELECT max(ttl) FROM ttls), 0) THEN
        INSERT INTO ttls VALUES (mine.longest) ON CONFLICT DO NOTHING;
    END IF;
    soon := next_in(ask, here, NOT is_new OR it.gates <> '{}');
    IF is_new THEN  -- an ask that put fires aside for a lane may not have seen the finish that freed the lane
        soon := least(soon, (
            SELECT greatest(wake - here.mono, 0.25) FROM lanes WHERE wake IS NOT NULL ORDER BY wake LIMIT 1));
    END IF;
    RETURN json_build_object(
        'now', here.wall, 'mono', here.mono, 'epoch', here.epoch, 'claims', coalesce(mine.claims, '[]'),
        'next_in', CASE WHEN it.passed THEN least(soon, 0.05) WHEN it.crowded <> '{}' THEN least(soon, 1) ELSE soon END);
END $$;
