-- Finds and locks due fires.
--
-- 1. Lanes are locked before their fires, so that two calls never decide on one lane at a time.  A call skips a lane
--    or a fire that another call has locked, and its result says to ask again soon.
-- 2. An expired claim counts as expired only if its row could be locked, because a renewal may be running.  A renewal
--    reads the clock after it has the row.
-- 3. Without room, fires that need only room are not read; with room, they are granted by one statement.
-- 4. Expired claims come first, then queue by queue in the order of the ask, by (run_at, key).
-- 5. A fire that was delayed, marked as waiting or parked is not read again before its time; one call does so with a
--    bounded number of fires.

-- How far an ask has got.
CREATE TYPE progress AS (
    queues    text[],    -- of the ask
    unable    text[],    -- jobs that its node cannot run
    room      integer,   -- fires that may still be granted to run
    hooks     integer,
    sentences integer,
    delays    integer,   -- fires that may still be put off or told to wait
    passed    boolean,   -- something had to be passed over
    held      text[],    -- lanes that are ours
    taken     text[],    -- lanes and widths that were found full
    dropped   text[],    -- keys of late hooks
    crowded   text[],    -- lanes for which some were parked
    held_up   integer,   -- so many were judged, and parked: there may be thousands alike
    gates     gate[],
    breakers  text[],    -- those of which something is known
    pauses    text[],    -- jobs
    since_at  float8,    -- up to where its queue was looked at
    since_key text
);

CREATE TYPE chunk AS (ids bigint[], are_plain boolean, last_at float8, last_key text);

-- Lock the next fires of a queue that are due and not locked by others.  They are plain if all that they need is a
-- place.  Messages that wait for a lane that is still full, or that this node cannot run, are not looked at.
CREATE FUNCTION lock_due(called text, here moment, it progress, name text, most integer) RETURNS chunk
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found chunk;
BEGIN
    SELECT array_agg(id), bool_and(is_plain), max(run_at), (array_agg(key))[count(*)] INTO found FROM (
        SELECT id, run_at, key,
            lane = '' AND origin <> 'hook' AND sentence IS NULL AND late_hooks = '{}' AND job <> ALL (it.unable)
            AND (breaker = '' OR breaker <> ALL (it.breakers))
            AND (attempt > 0 OR start_by IS NULL OR start_by >= here.wall)
            AND (origin <> 'schedule' OR EXISTS (SELECT FROM marks WHERE marks.job = fires.job) AND (
                attempt > 0 OR job <> ALL (it.pauses) AND (waits OR due + 60 >= here.wall))) AS is_plain
        FROM fires
        WHERE state = 'pending' AND app = called AND queue = name AND NOT aside AND run_at > 0 AND run_at <= here.wall
          AND (run_at, key) > (it.since_at, it.since_key)
          AND NOT ((waits OR job = ANY (it.unable)) AND origin = 'push' AND sentence IS NULL
                   AND (attempt > 0 OR start_by IS NULL OR start_by >= here.wall)
                   AND CASE lane WHEN '' THEN job = ANY (it.unable) ELSE waits AND concurrency <> 'Replace'
                            AND lane || ' ' || width = ANY (it.taken) END)
        ORDER BY run_at, key LIMIT most FOR UPDATE OF fires SKIP LOCKED) AS due;
    RETURN found;
END $$;

-- Is there more that is due, which others have locked?
CREATE FUNCTION has_more(called text, here moment, it progress, name text, ids bigint[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM fires WHERE state = 'pending' AND app = called AND queue = name AND NOT aside AND run_at > 0
            AND run_at <= here.wall AND (run_at, key) > (it.since_at, it.since_key) AND NOT waits
            AND job <> ALL (it.unable) AND id <> ALL (coalesce(ids, '{}')));
END $$;

-- Of what is due on these queues, in order, the fires about which there may be more to say than that they
-- could run: each kind by an index of its own, as there may be very many of the others.
CREATE FUNCTION due_otherwise(called text, here moment, it progress, names text[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[] := special(called, names, it.pauses, here);
BEGIN
    IF ids = '{}' THEN
        RETURN ids;
    END IF;
    RETURN ARRAY(
        WITH those AS MATERIALIZED (SELECT * FROM fires WHERE id = ANY (ids))
        SELECT id FROM those
        WHERE state = 'pending' AND app = called AND run_at <= here.wall AND queue = ANY (names)
          AND (queue <> names[1] OR (run_at, key) > (it.since_at, it.since_key))
        ORDER BY array_position(names, queue), run_at, key);
END $$;

-- Hooks, heirs, what has a sentence; what is late; what is paused, or its job gone; what may find its lane full.
-- Of each no more than can be judged at once: there may be very many.  What is late and caught up by all its instants
-- either runs or is held.
CREATE FUNCTION special(called text, names text[], pauses text[], here moment) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        (SELECT id FROM fires WHERE app = called AND queue = ANY (names) AND state = 'pending' AND NOT aside
            AND run_at <= here.wall AND (sentence IS NOT NULL OR origin = 'hook' OR concurrency = 'Replace') LIMIT 1000)
        UNION ALL
        (SELECT id FROM fires WHERE app = called AND queue = ANY (names) AND state = 'pending' AND attempt = 0
            AND start_by IS NOT NULL AND start_by < here.wall LIMIT 300)
        UNION ALL
        SELECT id FROM (
            SELECT id, job, due FROM fires WHERE app = called AND queue = ANY (names) AND state = 'pending' AND NOT aside
                AND attempt = 0 AND origin = 'schedule' AND NOT waits AND catch_up <> 'all' AND due < here.wall - 60
            LIMIT 1000) AS late
        WHERE EXISTS (SELECT FROM marks WHERE marks.job = late.job AND at < here.wall) OR EXISTS (
            SELECT FROM fires WHERE job = late.job AND due > late.due AND due <= here.wall AND state <> 'over'
                AND origin = 'schedule')
        UNION ALL
        (SELECT id FROM fires WHERE state = 'pending' AND origin = 'schedule'
            AND job = ANY (pauses || ARRAY(SELECT job FROM removed WHERE app = called)) LIMIT 300)
        UNION ALL
        (SELECT id FROM fires WHERE lane <> '' AND state = 'pending' AND run_at <= here.wall AND NOT waits AND NOT aside
            AND lane = ANY (ARRAY(SELECT lane FROM fires WHERE app = called AND state = 'claimed' AND lane <> ''
                                      AND sentence IS NULL
                                  UNION SELECT lane FROM graces WHERE until > here.mono)) LIMIT 300));
END $$;

-- Lock the lanes of these fires that nobody else has locked; those that are ours by now.  A lane that
-- was pruned while a fire of it was being recorded is put back, and so is ours.
CREATE FUNCTION lock_lanes(ids bigint[], held text[]) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted text[] := ARRAY(
        SELECT DISTINCT one.lane FROM fires AS one
        WHERE id = ANY (ids) AND one.lane <> '' AND one.lane <> ALL (held));
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
            WHERE lane = ANY (held) AND lane <> '' AND state = 'claimed' AND sentence IS NULL AND expires <= here.mono);
    END IF;
    IF expired = '{}' THEN
        RETURN expired;
    END IF;
    RETURN ARRAY(
        SELECT unnest(expired) EXCEPT SELECT id FROM (
            SELECT id FROM fires WHERE id = ANY (expired) AND state = 'claimed' AND expires <= here.mono
            ORDER BY id FOR UPDATE SKIP LOCKED) AS gone);
END $$;

-- Lock those of these fires that are still due, and not in a lane of somebody else's.
CREATE FUNCTION lock_fires(ids bigint[], held text[], here moment) RETURNS fires[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT one FROM fires AS one
        WHERE id = ANY (ids) AND (lane = '' OR lane = ANY (held))
          AND CASE state WHEN 'pending' THEN run_at <= here.wall WHEN 'claimed' THEN expires <= here.mono END
        ORDER BY array_position(ids, id) FOR UPDATE SKIP LOCKED);
END $$;

-- It started, or is over: whoever was to be told that it is late need not be.  One that another call has
-- locked is late indeed.
CREATE FUNCTION drop_late_hooks(keys text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM fires WHERE id IN (
        SELECT id FROM fires WHERE key = ANY (keys) AND state = 'pending' FOR UPDATE SKIP LOCKED);
END $$;

-- Tell holders to stop for the sake of another; whether one had to be passed over.
CREATE FUNCTION stop_all(holders bigint[], heir fires) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told integer;
BEGIN
    UPDATE fires SET stop = 'replaced by ' || heir.key WHERE id IN (
        SELECT id FROM fires WHERE id = ANY (holders) AND state = 'claimed' FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS told = ROW_COUNT;
    PERFORM wake_nodes(heir.app);
    RETURN told < cardinality(holders);
END $$;

-- The claims of lives that are proven dead are over now; they may be another app's.
CREATE FUNCTION declare_dead(ask jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    name text;
BEGIN
    PERFORM wake(ARRAY(
        SELECT lane FROM fires WHERE state = 'claimed' AND asked > 0 AND lane <> ''
            AND node IN (SELECT jsonb_array_elements_text(ask->'dead'))));
    FOR name IN
        WITH expired_now AS (
            UPDATE fires SET expires = here.mono WHERE id IN (
                SELECT id FROM fires WHERE state = 'claimed' AND asked > 0 AND expires > here.mono
                    AND node IN (SELECT jsonb_array_elements_text(ask->'dead')) FOR UPDATE SKIP LOCKED)
            RETURNING app
        )
        SELECT DISTINCT app FROM expired_now
    LOOP
        PERFORM wake_nodes(name);
    END LOOP;
END $$;

-- What is claimed under an ask already, renewed.
CREATE FUNCTION grant_again(ask jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[] := ARRAY(
        SELECT id FROM fires
        WHERE state = 'claimed' AND node = ask->>'node' AND asked = (ask->>'number')::bigint AND asked > 0
        ORDER BY key FOR UPDATE);
    now float8 := clock() - here.steps;
BEGIN
    UPDATE fires SET expires = now + ttl, renewed = now WHERE id = ANY (ids) AND expires > now;
END $$;

