-- Receipts in PostgreSQL.  base.py and clock.py beside this file have the rules.  Instants are readings of `mono`.
-- Every call locks the one row of `clock` until the end of its transaction, so calls run one after the other.

CREATE SCHEMA IF NOT EXISTS detent_receive;
SET LOCAL search_path TO detent_receive, pg_temp;

CREATE TABLE fences (
    job     text PRIMARY KEY,
    newest  bigint NOT NULL,
    seen_at float8 NOT NULL
);
CREATE TABLE receipts (
    job       text,
    key       text,
    owner     text NOT NULL,
    until     float8 NOT NULL,
    answer    text,                            -- null: it is running
    forget_at float8 NOT NULL,
    held      boolean NOT NULL DEFAULT false,  -- extended since its last renewal
    PRIMARY KEY (job, key)
);
CREATE INDEX old ON receipts (forget_at);
CREATE INDEX live ON receipts (until) WHERE answer IS NULL;
CREATE TABLE clock AS
    SELECT gen_random_uuid()::text AS epoch, 0::float8 AS steps, extract(epoch FROM clock_timestamp())::float8 AS seen;

CREATE OR REPLACE FUNCTION arrive(given jsonb, OUT mono float8, OUT reading jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    wall   float8 := extract(epoch FROM clock_timestamp());  -- before it waits for the lock
    memory jsonb  := given->'memory';
    it     clock;
    moved  float8;
    low    float8 := (memory->>'mono')::float8 + (memory->>'least_s')::float8;
    high   float8 := (memory->>'mono')::float8 + (memory->>'most_s')::float8;
    slack  float8 := 1 + (memory->>'most_s')::float8 / 1000;
BEGIN
    SELECT * INTO STRICT it FROM clock FOR UPDATE;
    moved := wall - it.steps;
    mono := moved;
    IF memory->>'epoch' = it.epoch THEN
        IF moved < greatest(it.seen, low) - slack THEN
            mono := greatest(it.seen, low);
            UPDATE receipts SET until = until + mono - greatest(it.seen, moved) WHERE answer IS NULL AND until > it.seen;
        ELSIF moved > high + slack THEN
            mono := greatest(it.seen, high);
        END IF;
    ELSIF moved < it.seen - 1 THEN
        mono := it.seen;
    ELSIF moved > it.seen + 1 + (given->>'lease_s')::float8 / 3 THEN
        mono := least(moved, it.seen + 86400);
        UPDATE receipts SET until = until + mono - it.seen, held = true
        WHERE answer IS NULL AND until > it.seen AND NOT held;
    END IF;
    it.steps := wall - mono;
    mono := extract(epoch FROM clock_timestamp()) - it.steps;
    UPDATE clock SET steps = it.steps, seen = greatest(it.seen, mono);
    reading := jsonb_build_object('reading', jsonb_build_array(it.epoch, mono));
END $$;

CREATE OR REPLACE FUNCTION begin(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here  record;
    seen  bigint;
    found receipts%ROWTYPE;
    said  jsonb;
BEGIN
    SELECT * INTO here FROM arrive(given);
    PERFORM prune(here.mono, given);
    INSERT INTO fences VALUES (given->>'job', (given->>'fence')::bigint, here.mono)
        ON CONFLICT (job) DO UPDATE SET newest = greatest(fences.newest, excluded.newest), seen_at = excluded.seen_at
        RETURNING newest INTO seen;
    SELECT * INTO found FROM receipts WHERE job = given->>'job' AND key = given->>'key';
    IF found.answer IS NOT NULL THEN
        said := jsonb_build_object('kind', 'handled', 'answer', found.answer);
    ELSIF (given->>'is_fenced')::boolean AND (given->>'fence')::bigint < seen THEN
        said := jsonb_build_object('kind', 'stale', 'newest', seen);
    ELSIF found.until > here.mono THEN
        said := jsonb_build_object('kind', 'running', 'left_s', found.until - here.mono);
    ELSE
        INSERT INTO receipts VALUES (given->>'job', given->>'key', given->>'owner',
                here.mono + (given->>'lease_s')::float8, NULL, here.mono + (given->>'keep_s')::float8)
            ON CONFLICT (job, key) DO UPDATE
            SET owner = excluded.owner, until = excluded.until, forget_at = excluded.forget_at, held = false;
        said := jsonb_build_object('kind', 'ours');
    END IF;
    RETURN here.reading || jsonb_build_object('found', said);
END $$;

-- Removes at most `prune` receipts, and none whose lease is live.  A fence is kept for `keep_s` after the last call of its job.
CREATE OR REPLACE FUNCTION prune(mono float8, given jsonb) RETURNS void LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    DELETE FROM receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM receipts WHERE forget_at < mono AND (answer IS NOT NULL OR until < mono)
        LIMIT (given->>'prune')::integer));
    DELETE FROM fences WHERE seen_at < mono - (given->>'keep_s')::float8 AND (given->>'prune')::integer > 0
$$;

-- Renews, finishes or releases a running fire, if it is still the caller's.
CREATE OR REPLACE FUNCTION settle(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    here record;
    ours tid;
BEGIN
    SELECT * INTO here FROM arrive(given);
    SELECT ctid INTO ours FROM receipts
    WHERE job = given->>'job' AND key = given->>'key' AND owner = given->>'owner' AND answer IS NULL;
    CASE given->>'verb'
        WHEN 'renew' THEN
            UPDATE receipts SET until = here.mono + (given->>'lease_s')::float8, held = false WHERE ctid = ours;
        WHEN 'finish' THEN
            UPDATE receipts SET answer = given->>'answer', forget_at = here.mono + (given->>'keep_s')::float8 WHERE ctid = ours;
        WHEN 'release' THEN
            DELETE FROM receipts WHERE ctid = ours;
    END CASE;
    RETURN here.reading;
END $$;
