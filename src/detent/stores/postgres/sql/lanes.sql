-- Whether a due fire may run now: `rules/lanes.py` in SQL.  The caller has locked the lane.

CREATE FUNCTION is_late(me fires, now float8) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT me.origin = 'schedule' AND me.attempt = 0 AND NOT me.waits AND me.due + 60 < now $$;

CREATE FUNCTION pause_of(me fires, here moment) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT text FROM notes
            WHERE app = me.app AND name = 'pause/' || me.job AND (expires IS NULL OR expires > here.mono));
END $$;

-- Why a fire that is due may never run, whatever its lane looks like.
CREATE FUNCTION sentence_of(me fires, here moment) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    pause text;
BEGIN
    IF me.sentence IS NOT NULL THEN
        RETURN me.sentence;
    ELSIF me.state = 'claimed' THEN
        RETURN coalesce(me.stop, 'lost with ' || me.node);
    ELSIF me.origin = 'schedule' AND NOT EXISTS (SELECT FROM marks WHERE marks.job = me.job) THEN
        RETURN 'cancelled its job was removed';
    ELSIF me.attempt > 0 THEN
        RETURN NULL;
    ELSIF me.origin = 'schedule' THEN
        pause := pause_of(me, here);
        IF pause IS NOT NULL THEN
            RETURN 'skipped paused: ' || pause;
        END IF;
    END IF;
    IF me.start_by < here.wall THEN
        RETURN 'missed not started by '
            || to_char(to_timestamp(me.start_by) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
    END IF;
    RETURN NULL;
END $$;

-- Who holds a lane, as recorded; `unsure` are fires that must be taken for live.
CREATE FUNCTION holders_of(place text, here moment, unsure bigint[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT id FROM fires
        WHERE lane = place AND lane <> '' AND state = 'claimed' AND sentence IS NULL
          AND (expires > here.mono OR id = ANY (unsure)) ORDER BY id);
END $$;

-- The newest of those who hold a lane or are due for it, newest first.
CREATE FUNCTION heirs_of(me fires, here moment, holders bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(
        SELECT id FROM (
            SELECT id, due, key FROM fires WHERE id = ANY (holders)
            UNION ALL (
                SELECT id, due, key FROM fires AS one
                WHERE lane = me.lane AND lane <> '' AND state = 'pending' AND NOT aside AND run_at <= here.wall
                  AND sentence IS NULL AND NOT is_late(one, here.wall)
                  AND (attempt > 0 OR start_by IS NULL OR start_by >= here.wall)
                ORDER BY due DESC, key DESC LIMIT me.width)
            UNION ALL SELECT id, due, key FROM fires AS one
            WHERE lane = me.lane AND state = 'pending' AND aside AND run_at <= here.wall
              AND sentence IS NULL AND NOT is_late(one, here.wall)
              AND (attempt > 0 OR start_by IS NULL OR start_by >= here.wall)
        ) AS rivals ORDER BY due DESC, key DESC LIMIT me.width);
END $$;

CREATE TYPE judgement AS (
    step  text,      -- run | wait | hold | sentence
    why   text,      -- the sentence; of one that is held, for what: its lane or its job's plan
    stops bigint[]   -- holders that must go
);

CREATE FUNCTION judge(me fires, here moment, unsure bigint[]) RETURNS judgement LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    why     text := sentence_of(me, here);
    holders bigint[];
    graces  bigint;
    room    bigint;
BEGIN
    IF why IS NOT NULL THEN
        RETURN ('sentence', why, NULL)::judgement;
    ELSIF me.lane <> '' THEN
        holders := holders_of(me.lane, here, unsure);
        graces := (SELECT count(*) FROM graces AS g WHERE g.lane = me.lane AND g.until > here.mono);
        room := me.width - cardinality(holders) - graces;
    END IF;
    IF is_late(me, here.wall) THEN
        RETURN catch_up(me, here, room);
    ELSIF me.lane = '' THEN
        RETURN ('run', NULL, NULL)::judgement;
    ELSIF me.concurrency = 'Replace' THEN
        RETURN replace_older(me, here, holders, room);
    ELSIF room > 0 THEN
        RETURN ('run', NULL, NULL)::judgement;
    ELSIF room + graces > 0 THEN
        RETURN ('wait', NULL, NULL)::judgement;
    ELSIF me.concurrency = 'Queue' THEN
        RETURN wait_in_line(me);
    END IF;
    RETURN forbid(me, (SELECT key FROM fires WHERE id = holders[1]));
END $$;

CREATE FUNCTION catch_up(me fires, here moment, room bigint) RETURNS judgement LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF me.catch_up = 'latest' AND (SELECT at FROM marks WHERE job = me.job) < here.wall THEN
        RETURN ('hold', 'plan', NULL)::judgement;
    ELSIF room <= 0 THEN
        RETURN ('hold', 'lane', NULL)::judgement;
    ELSIF me.catch_up = 'latest' AND EXISTS (
        SELECT FROM fires WHERE job = me.job AND due > me.due AND due <= here.wall
                            AND state <> 'over' AND origin = 'schedule') THEN
        RETURN ('sentence', 'missed a newer instant is due', NULL)::judgement;
    END IF;
    RETURN ('run', NULL, NULL)::judgement;
END $$;

CREATE FUNCTION forbid(me fires, holder text) RETURNS judgement LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ('sentence', CASE
        WHEN me.attempt = 0 AND me.origin <> 'push' THEN 'skipped by ' || holder
        ELSE split_part(coalesce(me.outcome, 'failed'), ' ', 1) || ' contended by ' || holder
    END, NULL)::judgement;
END $$;

CREATE FUNCTION wait_in_line(me fires) RETURNS judgement LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiting text;
BEGIN
    IF NOT me.waits AND me.attempt = 0 AND me.origin <> 'push' THEN
        SELECT key INTO waiting FROM fires
        WHERE lane = me.lane AND state = 'pending' AND waits ORDER BY id LIMIT 1;
    END IF;
    IF waiting IS NULL THEN
        RETURN ('wait', NULL, NULL)::judgement;
    END IF;
    RETURN ('sentence', 'skipped ' || waiting || ' waits already', NULL)::judgement;
END $$;

CREATE FUNCTION replace_older(me fires, here moment, holders bigint[], room bigint) RETURNS judgement
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    heirs bigint[] := heirs_of(me, here, holders);
    gone  bigint[];
BEGIN
    IF me.id <> ALL (heirs) THEN
        RETURN ('sentence', 'replaced by ' || (SELECT key FROM fires WHERE id = heirs[1]), NULL)::judgement;
    ELSIF room > 0 THEN
        RETURN ('run', NULL, NULL)::judgement;
    ELSIF me.attempt = 0 THEN
        gone := ARRAY(SELECT id FROM fires WHERE id = ANY (holders) AND id <> ALL (heirs) AND stop IS NULL);
    END IF;
    RETURN ('wait', NULL, gone)::judgement;
END $$;
