-- Deletes old and surplus fires, and other rows that are no longer needed.

-- Forget some of what may be forgotten, and what nobody needs any more; how many fires.
CREATE FUNCTION prune(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
    name text := given->>'app';
    gone bigint[];
BEGIN
    DELETE FROM asks WHERE asked_at <= here.mono - 86400;
    DELETE FROM graces WHERE until <= here.mono;
    DELETE FROM notes WHERE expires <= here.mono;
    DELETE FROM charges WHERE at <= here.mono - lasts;
    gone := ARRAY(
        SELECT id FROM fires WHERE state = 'over' AND id IN (
            SELECT id FROM (
                SELECT id, job, due, origin, over_at, outcome, policy,
                       row_number() OVER (PARTITION BY job ORDER BY due DESC, key DESC) AS place
                FROM fires WHERE app = name AND state = 'over'
            ) AS ranked LEFT JOIN marks USING (job)
            WHERE (over_at < here.wall - (given->>'older_than')::float8
                   OR place > (given->>'keep')::bigint
                      AND NOT (origin = 'push' AND is_wanted(outcome, due, over_at, policy, here.wall)))
              AND NOT (origin = 'schedule' AND due > least(coalesce(at, here.wall), here.wall))
            LIMIT (given->>'most')::bigint)
        FOR UPDATE SKIP LOCKED);
    INSERT INTO jobs (job, reached)
    SELECT job, max(due) FROM fires WHERE id = ANY (gone) AND origin = 'schedule' GROUP BY job ORDER BY job
    ON CONFLICT (job) DO UPDATE SET reached = greatest(jobs.reached, excluded.reached);
    DELETE FROM fires WHERE id = ANY (gone);
    PERFORM prune_lanes(given), prune_jobs(given, here);
    RETURN answer(here, jsonb_build_object('gone', cardinality(gone)));
END $$;

-- Is a message a dead letter, does its key still count as taken, or is its result kept for longer?
CREATE FUNCTION is_wanted(outcome text, due float8, over_at float8, policy text, now float8) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    said jsonb := nullif(policy, '')::jsonb;
BEGIN
    RETURN NOT starts_with(outcome, 'succeeded ')
        OR due + coalesce((said->>'unique_s')::float8, 0) > now
        OR coalesce(said->>'drop_result', '') <> 'true'
            AND over_at + coalesce((said->>'result_s')::float8, 3600) > now;  -- the default of `model.Policy`
END $$;

-- Lanes of no job and no open fire.  They are locked first, and looked at by a later snapshot: whoever
-- records a fire meanwhile finds its lane gone at the claim, and puts it back.
CREATE FUNCTION prune_lanes(given jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    idle text[] := ARRAY(
        SELECT lane FROM lanes WHERE is_idle(lane) LIMIT (given->>'most')::bigint FOR UPDATE SKIP LOCKED);
BEGIN
    DELETE FROM lanes WHERE lane = ANY (idle) AND is_idle(lane);
END $$;

CREATE FUNCTION is_idle(place text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM marks WHERE job = place)
        AND NOT EXISTS (SELECT FROM fires WHERE lane = place AND lane <> '' AND state = 'pending' AND NOT aside)
        AND NOT EXISTS (SELECT FROM fires WHERE lane = place AND lane <> '' AND state = 'pending' AND aside)
        AND NOT EXISTS (SELECT FROM fires WHERE lane = place AND lane <> '' AND state = 'claimed' AND sentence IS NULL);
END $$;

-- What is left of jobs that went: hosts come and go, and each may have had jobs of its own name.
CREATE FUNCTION prune_jobs(given jsonb, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    silent float8 := here.wall - greatest((given->>'older_than')::float8, 30 * 86400);
BEGIN
    DELETE FROM removed WHERE NOT EXISTS (
        SELECT FROM fires WHERE fires.job = removed.job AND state <> 'over' AND origin = 'schedule');
    DELETE FROM jobs WHERE job IN (
        SELECT job FROM jobs
        WHERE greatest(succeeded, reached) < silent
          AND NOT EXISTS (SELECT FROM marks WHERE marks.job = jobs.job)
          AND NOT EXISTS (SELECT FROM fires WHERE fires.job = jobs.job)
        LIMIT (given->>'most')::bigint FOR UPDATE SKIP LOCKED);
END $$;
