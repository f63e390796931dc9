-- The start of every call: the time, the epoch, and whether the clock was set.
--
-- A caller sends what it remembers of the store: the epoch, `mono` at the last reply, and how many seconds have passed
-- since, at `least` (since the reply) and at `most` (since the request), by a clock that is never set.  That tells a
-- step of the server's clock from a pause between calls.  Without a memory, the newest call of any client counts; if
-- that is too long ago, live claims are extended.
--
-- Functions with queries are in PL/pgSQL, because a session keeps their plans.
--
-- Locks are taken in this order, and a call never waits for a lock that comes before one that it holds:
-- the clock (advisory), world, asks, apps, names of rates (advisory), marks, fires by key, breakers (advisory),
-- new lanes and keys in order, jobs in order, ttls.  A claim call waits for no lane, fire or breaker: it skips what
-- another call has locked.

CREATE TYPE moment AS (
    wall              float8,
    mono              float8,
    steps             float8,
    epoch             text,
    quarantined_until float8
);

CREATE FUNCTION clock() RETURNS float8 LANGUAGE plpgsql VOLATILE AS
$$ BEGIN RETURN extract(epoch FROM clock_timestamp()); END $$;

-- The cluster and its timeline: a promotion or a restored backup begins another.  Who may not see the
-- cluster's number still sees the timeline.
CREATE FUNCTION system_now() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN cluster() || left(pg_walfile_name(pg_current_wal_lsn()), 8);
END $$;

-- The server reads a file for it, and a session never moves to another cluster: so it is read once in each.
CREATE FUNCTION cluster() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known text := current_setting('detent.cluster', true);
BEGIN
    IF coalesce(known, '') <> '' THEN
        RETURN CASE known WHEN 'unknown' THEN '' ELSE known || '/' END;
    END IF;
    IF has_function_privilege('pg_control_system()', 'EXECUTE') THEN
        PERFORM set_config('detent.cluster', (SELECT system_identifier::text FROM pg_control_system()), false);
    ELSE
        PERFORM set_config('detent.cluster', 'unknown', false);
    END IF;
    RETURN cluster();
END $$;

CREATE FUNCTION longest_ttl() RETURNS float8 LANGUAGE plpgsql VOLATILE AS
$$ BEGIN RETURN (SELECT coalesce(max(ttl), 30) FROM ttls); END $$;

-- By how much `mono` is ahead of what it should be; 0: it is right, as far as one can tell.
CREATE FUNCTION ahead(it world, memory jsonb, mono float8) RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    passed float8 := mono - (memory->>'mono')::float8;
    fewest float8 := (memory->>'least')::float8;
    most   float8 := (memory->>'most')::float8;
    moved  float8 := mono - it.seen;
BEGIN
    IF memory->>'epoch' IN (it.era, it.previous) THEN
        -- Clocks drift.  This call may also have been held up on its way: then others were here meanwhile, as
        -- a rule, and so much has not passed since the newest call of anybody.
        moved := moved - greatest(0, (memory->>'mono')::float8 + fewest - it.seen);
        RETURN CASE
            WHEN passed < fewest - 1 - fewest / 1000 THEN passed - fewest
            WHEN passed > most + 0.5 + most / 1000 AND moved > 0.5 + most / 1000 THEN moved
            ELSE 0
        END;
    END IF;
    RETURN CASE WHEN mono < it.seen - 1 THEN mono - it.seen ELSE 0 END;
END $$;

-- May somebody still run what a store that was here before has granted?
CREATE FUNCTION has_orphans(it world, memory jsonb, mono float8) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN memory->>'epoch' NOT IN (it.era, it.previous) AND mono < it.born + 30 AND it.calm_until < it.born + 30;
END $$;

CREATE FUNCTION arrive(memory jsonb) RETURNS moment LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    it    world;
    wall  float8 := clock();
    mono  float8;
    alone boolean;
    wrong boolean;
BEGIN
    SELECT * INTO STRICT it FROM world;
    -- While a call goes by the clock as it found it, nobody sets it right: what that call writes is not seen yet,
    -- and could not be moved along.
    alone := ahead(it, memory, wall - it.steps) <> 0;
    IF alone THEN
        PERFORM pg_advisory_xact_lock(1685352052, 'world'::regclass::oid::integer);
    ELSE
        PERFORM pg_advisory_xact_lock_shared(1685352052, 'world'::regclass::oid::integer);
    END IF;
    SELECT * INTO STRICT it FROM world;
    mono := wall - it.steps;
    wrong := ahead(it, memory, mono) <> 0;
    IF wrong AND NOT alone THEN
        RAISE serialization_failure USING MESSAGE = 'the clock was set while this call waited';  -- it is sent again
    END IF;
    IF wrong OR it.system <> system_now() OR has_orphans(it, memory, mono)
       OR NOT memory ? 'epoch' AND mono > it.seen + 1 AND mono > it.seen + longest_ttl() / 2 THEN
        SELECT * INTO STRICT it FROM world FOR UPDATE;
        it := set_right(it, memory, wall);
    ELSIF mono > it.seen + 0.25 THEN
        UPDATE world SET seen = mono WHERE one IN (SELECT one FROM world FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN (wall, wall - it.steps, it.steps, it.era, it.calm_until)::moment;
END $$;

CREATE FUNCTION set_right(it world, memory jsonb, wall float8) RETURNS world LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    step float8 := ahead(it, memory, wall - it.steps);
    mono float8 := wall - it.steps - step;
BEGIN
    IF step <> 0 THEN
        -- Calls that were held up, as by a server that stood still, told of too little time: `mono` fell behind,
        -- and now leaps ahead.  Claims that were granted or renewed meanwhile must not lose what it leaps over;
        -- it cannot be told which these are.  (`wall` was read before we waited for our turn.)
        PERFORM step_by(step, mono, CASE
            WHEN step < 0 AND clock() - it.steps >= it.seen THEN '-infinity'
            ELSE coalesce((memory->>'mono')::float8, it.seen) END);
        it.steps := it.steps + step;
        it.calm_until := least(it.calm_until, mono + greatest(longest_ttl(), 30));
    END IF;
    IF it.system <> system_now() THEN
        it.previous := it.era;
        it.system := system_now();
        it.era := gen_random_uuid()::text;
        -- What is pending may have been claimed, for longer than anything before: that may be what was forgotten.
        it.calm_until := mono + greatest(longest_ttl(), (
            SELECT max(claim_s) FROM fires WHERE state = 'pending' AND run_at > 0));
        PERFORM leap(wall);
        PERFORM give_time(it.seen, mono);
    ELSIF NOT memory ? 'epoch' AND mono > it.seen + longest_ttl() / 2 THEN
        PERFORM doubt(it.seen, mono);
    END IF;
    IF has_orphans(it, memory, mono) THEN
        it.calm_until := it.born + 30;
    END IF;
    it.seen := mono;
    UPDATE world SET era = it.era, previous = it.previous, system = it.system, steps = it.steps,
                     seen = it.seen, calm_until = it.calm_until;
    RETURN it;
END $$;

-- Claims that were live at the newest call get a whole ttl, and what was charged by then counts as if no time
-- had passed since: nobody can tell how much has.
CREATE FUNCTION give_time(seen float8, now float8) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE fires SET expires = greatest(expires, now + ttl), renewed = now
    WHERE state = 'claimed' AND expires > least(seen, now);
    UPDATE charges SET at = at + greatest(0, now - seen) WHERE at > seen - lasts
$$;

-- As `give_time`, but to each charge once, and to each claim once until it is renewed, which then expires later than a
-- ttl after that: where only triggers call, and each remembers nothing, a claim of a dead one would never be over.
CREATE FUNCTION doubt(seen float8, now float8) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE fires SET expires = greatest(expires, now + ttl)
    WHERE state = 'claimed' AND expires > least(seen, now) AND expires < renewed + ttl + 0.001;
    UPDATE charges SET at = at + greatest(0, now - seen), doubted = true WHERE at > seen - lasts AND NOT doubted
$$;

-- The clock was set by `step`.  Retries and delays move along: they are durations.  No claim is cut
-- short that was granted or renewed after `known`, perhaps by a clock that was behind; and none lives
-- longer than its ttl from now.
CREATE FUNCTION step_by(step float8, now float8, known float8) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fires SET run_at = run_at + step
    WHERE state = 'pending' AND NOT (origin = 'schedule' AND run_at = due);
    UPDATE fires SET aside = false WHERE state = 'pending' AND aside;  -- it has to be judged again
    IF step < 0 THEN
        UPDATE fires SET expires = expires - step, renewed = renewed - step
        WHERE state = 'claimed' AND renewed > known;
        UPDATE charges SET at = at - step WHERE at > known;
    END IF;
    UPDATE charges SET at = now WHERE at > now;
    UPDATE fires SET expires = now + ttl, renewed = now WHERE state = 'claimed' AND expires > now + ttl;
    UPDATE graces SET until = now + lasts WHERE until > now + lasts;
    UPDATE notes SET expires = now + lasts WHERE expires > now + lasts;
END $$;

-- Fences of a new epoch start above all that an older one can have counted to.
CREATE FUNCTION leap(wall float8) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    one  record;
    last bigint;
BEGIN
    FOR one IN SELECT id FROM apps ORDER BY app LOOP
        EXECUTE format('SELECT last_value FROM %I', 'fence_' || one.id) INTO last;
        PERFORM setval(('fence_' || one.id)::regclass, greatest(last + (1 << 22), first_fence(wall)));
    END LOOP;
END $$;

CREATE FUNCTION first_fence(wall float8) RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(wall - 1577836800)::bigint << 22 $$;

-- The number of an app.  Its fences are a sequence, which no claim waits for.
CREATE FUNCTION app_id(name text, wall float8) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    number integer := (SELECT id FROM apps WHERE app = name);
BEGIN
    IF number IS NULL THEN
        INSERT INTO apps (app) VALUES (name) ON CONFLICT DO NOTHING RETURNING id INTO number;
        IF number IS NOT NULL THEN
            EXECUTE format('CREATE SEQUENCE %I MINVALUE 0 START %s', 'fence_' || number, first_fence(wall) + 1);
        ELSE
            SELECT id INTO number FROM apps WHERE app = name;
        END IF;
    END IF;
    RETURN number;
END $$;

-- The same, by now: a call may have waited.
CREATE FUNCTION again(here moment) RETURNS moment LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    here.wall := clock();
    here.mono := here.wall - here.steps;
    RETURN here;
END $$;

-- What every answer holds: what its caller is to remember.
CREATE FUNCTION answer(here moment, said jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN jsonb_build_object('now', here.wall, 'mono', here.mono, 'epoch', here.epoch) || said;
END $$;

-- Wakes those of an app who wait.
CREATE FUNCTION wake_nodes(app text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM nextval('rings'), pg_notify(current_schema(), app);
END $$;
