-- Rates and circuit breakers: `rules/rates.py` and `rules/breakers.py` in SQL.
--
-- 1. A call that charges a name holds its advisory lock, and waits for it before any lock on a fire; a rate per key
--    uses the lock of the queue.  It reads the clock after it has the lock.
-- 2. A closed breaker lets fires start without a lock: they started before it opened.  A call that finds it open takes
--    its lock; a claim skips a breaker that another call has locked, a finish waits.

CREATE TYPE rate AS (most integer, window_s float8, smooth boolean, by_key boolean);
CREATE TYPE usage AS (used integer, free_in float8);

CREATE FUNCTION rate_of(said jsonb) RETURNS rate LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ((said->>'most')::integer, coalesce((said->>'window_s')::float8, 60),
            coalesce((said->>'smooth')::boolean, false), coalesce((said->>'by_key')::boolean, false))::rate;
END $$;

CREATE FUNCTION gate_key(kind text, app text, name text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT hashtextextended(concat_ws(' ', 'detent', current_schema(), kind, app, name), 0) $$;

-- Names that share what comes before a slash share a lock.
CREATE FUNCTION lock_names(app text, names text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    number bigint;
BEGIN
    FOR number IN
        SELECT DISTINCT gate_key('rate', app, split_part(one, '/', 1)) AS it FROM unnest(names) AS one ORDER BY it
    LOOP
        PERFORM pg_advisory_xact_lock(number);
    END LOOP;
END $$;

CREATE FUNCTION usage_of(called text, under text, as_of float8, it rate) RETURNS usage
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    span    float8 := it.window_s + least(0.75, 0.25 + it.window_s / 10);
    used    integer;
    newest  float8;
    free_at float8 := as_of;
BEGIN
    SELECT count(*), max(at) INTO used, newest FROM charges
    WHERE app = called AND name = under AND at > as_of - span;
    IF used >= it.most THEN
        free_at := span + (SELECT at FROM charges WHERE app = called AND name = under AND at > as_of - span
                           ORDER BY at DESC OFFSET it.most - 1 LIMIT 1);
    END IF;
    IF it.smooth THEN
        free_at := greatest(free_at, newest + it.window_s / it.most);
    END IF;
    RETURN (used, greatest(0, free_at - as_of))::usage;
END $$;

-- Another rate may look back further than this one.
CREATE FUNCTION put_charges(called text, under text, as_of float8, it rate, times integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO charges
    SELECT called, under, as_of, greatest(it.window_s + 0.75, 3600) FROM generate_series(1, times);
    DELETE FROM charges WHERE app = called AND name = under AND at <= as_of - 3600 AND at <= as_of - lasts;
END $$;

CREATE FUNCTION charge(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here  moment := arrive(given->'memory');
    app   text := given->>'app';
    name  text := given->>'name';
    it    rate := rate_of(given->'rate');
    found usage;
BEGIN
    IF given->'count' <> '0' THEN
        PERFORM lock_names(app, ARRAY[name]);
    END IF;
    here := again(here);
    found := usage_of(app, name, here.mono, it);
    IF given->'count' <> '0' AND found.free_in = 0 THEN
        PERFORM put_charges(app, name, here.mono, it, 1);
        found.used := found.used + 1;
    END IF;
    RETURN answer(here, jsonb_build_object('used', found.used, 'free_in', found.free_in));
END $$;

CREATE FUNCTION reset(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here moment := arrive(given->'memory');
BEGIN
    PERFORM lock_names(given->>'app', ARRAY[given->>'name']);
    DELETE FROM charges WHERE app = given->>'app' AND name = given->>'name';
    PERFORM wake_nodes(given->>'app');
    RETURN answer(here, '{}');
END $$;

-- The rates of the queues of an ask.

CREATE TYPE gate AS (
    queue text,     -- without its priority
    it    rate,
    room  integer,  -- so many may begin now; none: that depends on their key
    opens float8    -- in so many seconds; 0: it is open
);

CREATE FUNCTION look_at(called text, queues text[], here moment) RETURNS gate[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found gate[] := '{}';
    one   record;
    it    rate;
    how   usage;
BEGIN
    FOR one IN
        SELECT substr(name, 6) AS queue, text::jsonb AS said FROM notes
        WHERE app = called AND (expires IS NULL OR expires > here.mono)
          AND name = ANY (ARRAY(SELECT 'rate/' || split_part(queue, '^', 1) FROM unnest(queues) AS queue))
    LOOP
        it := rate_of(one.said);
        IF it.by_key THEN
            found := found || (one.queue, it, NULL, 0)::gate;
        ELSE
            how := usage_of(called, one.queue, here.mono, it);
            found := found || (one.queue, it, CASE WHEN how.free_in > 0 THEN 0 WHEN it.smooth THEN 1
                                                   ELSE it.most - how.used END, how.free_in)::gate;
        END IF;
    END LOOP;
    RETURN found;
END $$;

-- Those that are shut need no lock: they do not open meanwhile.
CREATE FUNCTION lock_gates(called text, queues text[], here moment) RETURNS gate[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found gate[] := look_at(called, queues, here);
    names text[] := ARRAY(SELECT queue FROM unnest(found) WHERE opens = 0);
BEGIN
    IF names <> '{}' THEN
        PERFORM lock_names(called, names);
        found := ARRAY(SELECT CASE WHEN queue = ANY (names) THEN now ELSE (queue, it, 0, opens)::gate END
                       FROM unnest(look_at(called, queues, again(here))) AS now);
    END IF;
    RETURN found;
END $$;

-- The gate that a queue has; none: it has no rate.
CREATE FUNCTION gate_of(gates gate[], name text) RETURNS gate LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT one FROM unnest(gates) AS one WHERE one.queue = split_part(name, '^', 1));
END $$;

-- Those gates, after so many fires of a queue went through.
CREATE FUNCTION go_through(gates gate[], name text, times integer) RETURNS gate[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(SELECT CASE WHEN one.queue = split_part(name, '^', 1)
                             THEN (one.queue, one.it, one.room - times, one.opens)::gate ELSE one END
                 FROM unnest(gates) AS one);
END $$;

-- Breakers.

CREATE TYPE circuit AS (errors integer, opened float8, fence bigint, probe text);

CREATE FUNCTION circuit_of(called text, breaker text, here moment) RETURNS circuit LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    said jsonb := (SELECT text::jsonb FROM notes WHERE app = called AND name = 'breaker/' || breaker
                                                   AND (expires IS NULL OR expires > here.mono));
BEGIN
    RETURN (coalesce((said->>'errors')::integer, 0), coalesce((said->>'opened')::float8, 0),
            coalesce((said->>'fence')::bigint, 0), coalesce(said->>'probe', ''))::circuit;
END $$;

CREATE FUNCTION keep_circuit(called text, breaker text, it circuit, here moment) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF it = (0, 0, 0, '')::circuit THEN
        DELETE FROM notes WHERE app = called AND name = 'breaker/' || breaker;
    ELSE
        INSERT INTO notes VALUES (called, 'breaker/' || breaker, to_json(it)::text, here.wall)
        ON CONFLICT (app, name) DO UPDATE SET
            text = excluded.text, written = excluded.written, lasts = NULL, expires = NULL;
    END IF;
END $$;

-- Is there a live claim of that probe?  One that has expired and is not ours to lock may be renewed just now.
CREATE FUNCTION probe_lives(it circuit, here moment) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    number bigint := (SELECT id FROM fires WHERE key = it.probe AND fence = it.fence AND state = 'claimed');
BEGIN
    IF number IS NULL THEN
        RETURN false;
    END IF;
    PERFORM FROM fires WHERE id = number AND (state <> 'claimed' OR fence <> it.fence OR expires <= here.mono)
    FOR UPDATE SKIP LOCKED;
    RETURN NOT FOUND;
END $$;

-- How long to put off what would go through its breaker now; none: another call is judging.
CREATE FUNCTION breaker_wait(me fires, here moment) RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    it       circuit := circuit_of(me.app, me.breaker, here);
    cooldown float8;
BEGIN
    IF it.opened = 0 THEN
        RETURN 0;
    ELSIF NOT pg_try_advisory_xact_lock(gate_key('breaker', me.app, me.breaker)) THEN
        RETURN NULL;
    END IF;
    it := circuit_of(me.app, me.breaker, here);
    IF it.opened = 0 THEN
        RETURN 0;
    ELSIF it.fence > 0 AND probe_lives(it, here) THEN
        RETURN 1;
    END IF;
    cooldown := coalesce((nullif(me.policy, '')::jsonb->>'breaker_cooldown_s')::float8, 60);
    RETURN least(greatest(0, it.opened + cooldown - here.wall), cooldown);
END $$;

-- A fire went through its breaker under this claim.
CREATE FUNCTION probe(me fires, number bigint, here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    it circuit := circuit_of(me.app, me.breaker, here);
BEGIN
    IF it.opened > 0 THEN
        it.fence := number;
        it.probe := me.key;
        PERFORM keep_circuit(me.app, me.breaker, it, here);
    END IF;
END $$;

CREATE FUNCTION ended(it circuit, number bigint, how text, threshold integer, now float8) RETURNS circuit
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF it.opened > 0 AND it.fence <> number THEN
        RETURN it;
    ELSIF split_part(how, ' ', 1) = 'succeeded' THEN
        RETURN (0, 0, 0, '')::circuit;
    ELSIF NOT starts_with(how, 'failed backend: ') THEN
        RETURN (it.errors, it.opened, 0, '')::circuit;
    END IF;
    RETURN (it.errors + 1, CASE WHEN it.opened > 0 OR it.errors + 1 >= threshold THEN now ELSE 0 END, 0,
            '')::circuit;
END $$;

-- What attempts that ended tell of their breakers, in the order in which they were reported.
CREATE TYPE ending AS (app text, breaker text, fence bigint, how text, policy text);

CREATE FUNCTION leave(endings ending[], here moment) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    one    ending;
    number bigint;
    locked bigint[] := '{}';
    it     circuit;
    now    circuit;
BEGIN
    FOR number IN
        SELECT DISTINCT gate_key('breaker', app, breaker) AS it FROM unnest(endings) AS told
        WHERE starts_with(how, 'failed backend: ') OR EXISTS (
            SELECT FROM notes WHERE notes.app = told.app AND name = 'breaker/' || breaker) ORDER BY it
    LOOP
        PERFORM pg_advisory_xact_lock(number);
        locked := locked || number;
    END LOOP;
    FOREACH one IN ARRAY endings LOOP
        CONTINUE WHEN gate_key('breaker', one.app, one.breaker) <> ALL (locked);  -- there was nothing to change
        it := circuit_of(one.app, one.breaker, here);
        now := ended(it, one.fence, one.how,
                     coalesce((nullif(one.policy, '')::jsonb->>'breaker_threshold')::integer, 5), here.wall);
        IF now <> it THEN
            PERFORM keep_circuit(one.app, one.breaker, now, here);
        END IF;
    END LOOP;
END $$;
