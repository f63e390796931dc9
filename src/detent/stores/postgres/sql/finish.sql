-- Settles reports: one statement for all of a call, and others only for what follows from them.

CREATE TYPE settled AS (
    ids      bigint[],
    verdicts jsonb,      -- as they stand, in the order of the reports
    follow   jsonb,      -- fires to be recorded
    has_lane boolean,
    graces   bigint[],   -- fires whose place is kept for a while
    hooks    text[],     -- keys of fires that need not run any more
    endings  ending[],   -- what their breakers are told
    pushed   text[],     -- jobs of messages that were over with success
    others   text[]      -- jobs of other fires that were
);

-- The reports of a call, by key; of two on one claim the first.  The server is to think that they are few: it must
-- look up each fire, also by a plan that it made when there were hardly any.
CREATE FUNCTION told(reports jsonb) RETURNS TABLE (
    key text, fence bigint, how text, wanted float8, counted boolean, status bigint, took float8, tail text,
    result text, follow jsonb, place bigint) ROWS 1 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT DISTINCT ON (one.key COLLATE "C", one.fence)
        one.key, one.fence, one.how, one.wanted, coalesce(one.counted, true), one.status, one.took,
        coalesce(one.tail, ''), coalesce(one.result, ''), coalesce(one.follow, '[]'), one.place
    FROM ROWS FROM (jsonb_to_recordset(reports) AS (
        key text, fence bigint, outcome text, again float8, counts boolean, status bigint, took float8, tail text,
        result text, follow jsonb)) WITH ORDINALITY AS one(
        key, fence, how, wanted, counted, status, took, tail, result, follow, place)
    ORDER BY one.key COLLATE "C", one.fence, one.place;
END $$;

-- Settle the claims that are still the newest of their fires.  A fire that was told to stop is not due again.
CREATE FUNCTION settle(reports jsonb, here moment) RETURNS settled LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done settled;
BEGIN
    WITH mine AS MATERIALIZED (
        SELECT told.*, it.*, stopped AND wanted IS NOT NULL AS is_stopped, stopped OR wanted IS NULL AS is_over
        FROM told(reports) CROSS JOIN LATERAL (
            SELECT id, app, job, origin, lane, grace_s, late_hooks, breaker, policy, attempt,
                   sentence IS NULL AS has_run, ran_node, ran_fence, ran_at, stop IS NOT NULL AS stopped
            FROM fires WHERE key = told.key COLLATE "C" AND fence = told.fence AND state = 'claimed' FOR UPDATE
        ) AS it
    ), kept AS (
        INSERT INTO attempts
        SELECT id, attempt, ran_node, ran_fence, ran_at, here.wall, how, status, took, decode(tail, 'base64'),
               result FROM mine WHERE counted AND attempt > 0 ON CONFLICT DO NOTHING RETURNING fire
    ), changed AS (
        UPDATE fires SET
            state = CASE WHEN is_over THEN 'over' ELSE 'pending' END,
            attempt = fires.attempt - (NOT counted AND has_run)::integer,
            sentence = CASE WHEN NOT counted THEN sentence END,
            waits = false,
            verdict = CASE WHEN is_stopped THEN stop ELSE how END,
            again = CASE WHEN NOT is_stopped THEN wanted END,
            counts = counted OR is_stopped,
            outcome = CASE WHEN is_stopped THEN stop WHEN is_over OR counted THEN how ELSE outcome END,
            run_at = CASE WHEN is_over THEN run_at ELSE here.wall + wanted END,
            over_at = CASE WHEN is_over THEN here.wall ELSE over_at END
        FROM mine WHERE fires.id = mine.id
        RETURNING mine.*, verdict, again, counts
    )
    SELECT coalesce(array_agg(id), '{}'), jsonb_agg(jsonb_build_array(verdict, again, counts) ORDER BY place),
        coalesce(jsonb_agg(follow ORDER BY place) FILTER (WHERE wanted IS NULL AND follow <> '[]'), '[]'),
        bool_or(lane <> ''),
        array_agg(id) FILTER (WHERE lane <> '' AND grace_s > 0 AND has_run AND id IN (SELECT fire FROM kept)),
        array_agg(late_hooks::text) FILTER (WHERE is_over AND late_hooks <> '{}'),
        array_agg((app, breaker, ran_fence, how, policy)::ending ORDER BY place) FILTER (WHERE breaker <> ''),
        array_agg(DISTINCT job) FILTER (WHERE is_over AND origin = 'push' AND starts_with(verdict, 'succeeded ')),
        array_agg(DISTINCT job) FILTER (
            WHERE is_over AND origin NOT IN ('push', 'hook') AND starts_with(verdict, 'succeeded '))
    INTO done FROM changed;
    RETURN done;
END $$;

-- The verdicts that stand, for reports of which some have settled nothing.
CREATE FUNCTION verdicts_on(reports jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(CASE WHEN id IS NOT NULL THEN jsonb_build_array(verdict, again, counts) END ORDER BY place)
        FROM ROWS FROM (jsonb_to_recordset(reports) AS (key text, fence bigint)) WITH ORDINALITY AS one(
            key, fence, place) LEFT JOIN LATERAL (
            SELECT id, verdict, again, counts FROM fires
            WHERE key = one.key COLLATE "C" AND fence = one.fence LIMIT 1) AS it ON true);
END $$;

CREATE FUNCTION finish(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_hashjoin TO off
SET enable_mergejoin TO off AS $$
DECLARE
    here    moment := arrive(given->'memory');
    reports jsonb := given->'reports';
    done    settled := settle(reports, here);
    follow  jsonb;
    is_awake boolean := false;  -- those who were parked for a lane
BEGIN
    IF done.endings IS NOT NULL THEN
        PERFORM leave(done.endings, here);
    END IF;
    IF cardinality(done.ids) < jsonb_array_length(reports) THEN
        done.verdicts := verdicts_on(reports);  -- before a hook with a verdict is deleted
    END IF;
    IF done.hooks IS NOT NULL THEN
        -- Reports count in their order: a hook that a later report returned stays.
        PERFORM drop_late_hooks(ARRAY(
            SELECT hook FROM unnest(done.hooks) AS keys, unnest(keys::text[]) AS hook
            WHERE NOT EXISTS (
                SELECT FROM jsonb_array_elements(reports) WITH ORDINALITY AS later(report, place),
                            jsonb_array_elements(reports) WITH ORDINALITY AS ended(report, place)
                WHERE later.report->>'key' = hook AND later.place > ended.place
                  AND starts_with(hook, ended.report->>'key' || '/'))));
    END IF;
    IF done.graces IS NOT NULL THEN
        INSERT INTO graces SELECT lane, here.mono + grace_s, grace_s FROM fires WHERE id = ANY (done.graces);
    END IF;
    IF done.has_lane THEN
        is_awake := wake(ARRAY(SELECT lane FROM fires WHERE id = ANY (done.ids) AND lane <> ''));
    END IF;
    IF done.follow <> '[]' THEN
        follow := (SELECT jsonb_agg(fire) FROM jsonb_array_elements(done.follow) AS many,
                                               jsonb_array_elements(many) AS fire);
        PERFORM record(follow, here.wall, here.wall);
    END IF;
    PERFORM succeed(done.pushed, done.others, here.wall);
    IF done.has_lane OR follow IS NOT NULL THEN
        PERFORM wake_after(done.ids, is_awake OR follow IS NOT NULL, here);
    END IF;
    RETURN answer(here, jsonb_build_object('verdicts', coalesce(done.verdicts, '[]')));
END $$;

-- When jobs were last over with success.  Of messages there may be so many at once that nobody waits to say so:
-- whoever has the row is saying the same.
CREATE FUNCTION succeed(pushed text[], others text[], at float8) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told integer;
BEGIN
    IF others IS NOT NULL THEN
        INSERT INTO jobs (job, succeeded) SELECT one, at FROM unnest(others) AS one ORDER BY one
        ON CONFLICT (job) DO UPDATE SET succeeded = excluded.succeeded;
    END IF;
    IF pushed IS NOT NULL THEN
        UPDATE jobs SET succeeded = at WHERE job = ANY (ARRAY(
            SELECT job FROM jobs WHERE job = ANY (pushed) FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS told = ROW_COUNT;
        IF told < cardinality(pushed) THEN
            INSERT INTO jobs (job, succeeded) SELECT one, at FROM unnest(pushed) AS one
            WHERE NOT EXISTS (SELECT FROM jobs WHERE job = one) ORDER BY one ON CONFLICT DO NOTHING;
        END IF;
    END IF;
END $$;

-- Does somebody wait for a place that was freed, or for what was put?
CREATE FUNCTION wake_after(settled bigint[], is_sure boolean, here moment) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM wake_nodes(app) FROM (SELECT DISTINCT app FROM fires AS mine WHERE id = ANY (settled) AND (
        is_sure
        OR EXISTS (SELECT FROM fires WHERE lane = mine.lane AND lane <> '' AND state = 'pending' AND NOT aside
                                       AND run_at <= here.wall)
        OR EXISTS (SELECT FROM fires WHERE lane = mine.lane AND lane <> '' AND state = 'claimed' AND sentence IS NULL
                                       AND expires <= here.mono))) AS apps;
END $$;
