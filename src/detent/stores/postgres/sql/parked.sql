-- Fires that cannot run now are parked, so that asks do not read them: there may be a hundred thousand.
--
-- 1. A late instant or a message whose lane is full is parked for the lane.  `wake` of the lane says when to check it
--    again: first soon, because a concurrent finish may not have seen it; then when the first place is free at the
--    latest.  A call that frees a place sets `wake`, and waits for the lane's lock.
-- 2. A late instant of a job that is not planned up to now is parked for the plan, under a lock on its watermark: the
--    call that moves the watermark brings it back.
-- 3. Other events bring it back too: its deadline to start, a pause, the removal of its job, a step of the clock.

-- How many places of a lane are taken for sure.
CREATE FUNCTION taken_in(place text, here moment) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (SELECT count(*) FROM fires WHERE lane = place AND lane <> '' AND state = 'claimed' AND sentence IS NULL
                AND expires > here.mono)
        + (SELECT count(*) FROM graces WHERE lane = place AND until > here.mono)
$$;

-- One was judged to wait for its lane, or to be held.
CREATE FUNCTION park(me fires, verdict judgement, here moment, it progress) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    is_parked boolean := verdict.step = 'hold' OR me.concurrency = 'Queue' AND (
        me.waits OR me.attempt > 0 OR me.origin = 'push');
BEGIN
    IF verdict.why = 'plan' THEN
        PERFORM FROM marks WHERE job = me.job AND at < here.wall FOR SHARE SKIP LOCKED;
        is_parked := FOUND;
    ELSIF is_parked THEN
        it.crowded := it.crowded || me.lane;
    END IF;
    IF verdict.step = 'wait' THEN
        it.taken := it.taken || (me.lane || ' ' || me.width);
    END IF;
    IF is_parked OR verdict.step = 'wait' AND NOT me.waits THEN
        UPDATE fires SET aside = is_parked, waits = waits OR verdict.step = 'wait' WHERE id = me.id;
        it.delays := it.delays - 1;
        it.held_up := it.held_up + is_parked::integer;
    END IF;
    RETURN it;
END $$;

-- Put aside, unjudged, what comes next in a queue and surely would be: where there was one, there may be thousands.
CREATE FUNCTION park_alike(called text, here moment, it progress, name text) RETURNS progress
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids    bigint[];
    jobs   text[];
    lanes  text[];
    many   bigint;
BEGIN
    ids := ARRAY(
        SELECT id FROM (
            SELECT * FROM fires
            WHERE state = 'pending' AND app = called AND queue = name AND NOT aside AND run_at > 0
              AND run_at <= here.wall AND (run_at, key) > (it.since_at, it.since_key)
            ORDER BY run_at, key LIMIT 1000) AS one
        WHERE sentence IS NULL AND (attempt > 0 OR start_by IS NULL OR start_by >= here.wall) AND (
            is_late(one::fires, here.wall) AND job <> ALL (it.pauses)
            AND EXISTS (SELECT FROM marks WHERE marks.job = one.job)
            OR origin = 'push' AND concurrency = 'Queue' AND lane <> ''));
    it.held_up := 0;
    IF ids = '{}' THEN
        RETURN it;
    END IF;
    it.held := lock_lanes(ids, it.held);
    jobs := ARRAY(
        SELECT job FROM marks WHERE at < here.wall AND job IN (
            SELECT job FROM fires WHERE id = ANY (ids) AND origin = 'schedule' AND catch_up = 'latest')
        ORDER BY job FOR SHARE SKIP LOCKED);
    WITH gone AS (
        UPDATE fires SET aside = true, waits = waits OR origin = 'push' WHERE id IN (
            SELECT id FROM fires
            WHERE id = ANY (ids) AND state = 'pending' AND (
                origin = 'schedule' AND catch_up = 'latest' AND job = ANY (jobs)
                OR lane <> '' AND lane = ANY (it.held) AND taken_in(lane, here) >= width)
            FOR UPDATE SKIP LOCKED)
        RETURNING lane, origin = 'schedule' AND catch_up = 'latest' AND job = ANY (jobs) AS for_plan
    )
    SELECT coalesce(array_agg(DISTINCT lane) FILTER (WHERE NOT for_plan), '{}'), pg_catalog.count(*)
    INTO lanes, many FROM gone;
    it.crowded := it.crowded || lanes;
    it.delays := it.delays - many / 2;  -- it costs less than to judge them
    RETURN it;
END $$;

-- Look soon whether lanes that are ours have a place for those who were parked for them.
CREATE FUNCTION wake_soon(crowded text[], here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE lanes SET wake = here.mono + 1 WHERE lane = ANY (crowded) AND (wake IS NULL OR wake > here.mono + 1);
END $$;

-- A place of these lanes may be free: they come before those that are only looked at now and then.  Whether anybody was
-- parked for one.
CREATE FUNCTION wake(freed text[]) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE lanes SET wake = 0 WHERE lane = ANY (ARRAY(
        SELECT lane FROM lanes WHERE lane = ANY (freed) AND wake IS NOT NULL ORDER BY lane FOR UPDATE));
    RETURN FOUND;
END $$;

-- Jobs were planned further.
CREATE FUNCTION bring_back_planned(names text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fires SET aside = false WHERE state = 'pending' AND aside AND origin = 'schedule' AND catch_up = 'latest'
        AND job = ANY (names);
END $$;

-- Bring back, for an ask, what may be able to run by now or has to be settled.
CREATE FUNCTION bring_back(called text, here moment, it progress) RETURNS progress LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gone   text[];
    woken  text[];
    place  text;
    most   integer := greatest(5, least(it.room, 50));  -- others want lanes, too
BEGIN
    gone := it.pauses || ARRAY(SELECT job FROM removed WHERE app = called);
    IF gone <> '{}' THEN
        UPDATE fires SET aside = false WHERE id IN (
            SELECT id FROM fires WHERE state = 'pending' AND aside AND job = ANY (gone) AND origin = 'schedule'
            LIMIT 300 FOR UPDATE SKIP LOCKED);
    END IF;
    IF EXISTS (SELECT FROM fires WHERE state = 'pending' AND aside AND attempt = 0 AND start_by IS NOT NULL
               AND app = called AND queue = ANY (it.queues) AND start_by < here.wall) THEN
        UPDATE fires SET aside = false WHERE id IN (
            SELECT id FROM fires WHERE state = 'pending' AND aside AND attempt = 0 AND start_by IS NOT NULL
                AND app = called AND queue = ANY (it.queues) AND start_by < here.wall
            LIMIT 300 FOR UPDATE SKIP LOCKED);
    END IF;
    IF EXISTS (SELECT FROM lanes WHERE wake IS NOT NULL AND wake <= here.mono) THEN
        woken := ARRAY(
            SELECT lane FROM lanes WHERE wake IS NOT NULL AND wake <= here.mono
            ORDER BY wake LIMIT most FOR UPDATE SKIP LOCKED);
        FOREACH place IN ARRAY woken LOOP
            PERFORM look_at_lane(place, here);
        END LOOP;
        it.held := it.held || ARRAY(SELECT unnest(woken) EXCEPT SELECT unnest(it.held));
        it.passed := it.passed OR cardinality(woken) = most;
    END IF;
    RETURN it;
END $$;

-- Bring back the first of those who wait for a lane of ours, of each kind that is alike to whoever asks, if it has room
-- for them.  Most often it is taken then; where it is not, whoever asks a little later brings back more.
CREATE FUNCTION look_at_lane(place text, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken    bigint := taken_in(place, here);
    kind     record;
    is_any   boolean := false;
    has_room boolean := false;
BEGIN
    FOR kind IN
        WITH RECURSIVE kinds AS (
            (SELECT queue, job, width FROM fires WHERE state = 'pending' AND aside AND lane = place
             ORDER BY queue, job, width LIMIT 1)
            UNION ALL
            SELECT next.* FROM kinds CROSS JOIN LATERAL (
                SELECT queue, job, width FROM fires WHERE state = 'pending' AND aside AND lane = place
                    AND (queue, job, width) > (kinds.queue, kinds.job, kinds.width)
                ORDER BY queue, job, width LIMIT 1) AS next
        ) SELECT * FROM kinds
    LOOP
        is_any := true;
        IF kind.width > taken THEN
            has_room := true;
            UPDATE fires SET aside = false WHERE id IN (
                SELECT id FROM fires WHERE state = 'pending' AND aside AND lane = place AND queue = kind.queue
                    AND job = kind.job AND width = kind.width
                ORDER BY run_at, key LIMIT kind.width - taken + 1 FOR UPDATE SKIP LOCKED);
        END IF;
    END LOOP;
    UPDATE lanes SET wake = CASE WHEN NOT is_any THEN NULL WHEN has_room THEN here.mono + 0.25 ELSE least(
        (SELECT min(expires) FROM fires WHERE lane = place AND lane <> '' AND state = 'claimed' AND sentence IS NULL
             AND expires > here.mono),
        (SELECT min(until) FROM graces WHERE graces.lane = place AND until > here.mono)) END
    WHERE lane = place;
END $$;
