-- Receipts in PostgreSQL.  The rules are those of receipts.py; instants are seconds of the server's clock.
-- Whoever judges a fire holds its job's row in `fences` until the end of the transaction.

CREATE SCHEMA IF NOT EXISTS detent_receive;
SET LOCAL search_path TO detent_receive, pg_temp;

CREATE TABLE IF NOT EXISTS fences (
    job    text PRIMARY KEY,
    newest bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS receipts (
    job       text,
    key       text,
    owner     text NOT NULL,
    until     float8 NOT NULL,
    answer    text,             -- null: it runs
    forget_at float8 NOT NULL,
    PRIMARY KEY (job, key)
);
CREATE INDEX IF NOT EXISTS old ON receipts (forget_at);

CREATE OR REPLACE FUNCTION begin(given jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    now float8;
    seen bigint;
    found receipts%ROWTYPE;
BEGIN
    INSERT INTO fences VALUES (given->>'job', (given->>'fence')::bigint)
        ON CONFLICT (job) DO UPDATE SET newest = greatest(fences.newest, excluded.newest)
        RETURNING newest INTO seen;
    now := extract(epoch FROM clock_timestamp());
    DELETE FROM receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM receipts WHERE forget_at < now LIMIT (given->>'prune')::integer
        FOR UPDATE SKIP LOCKED));
    SELECT * INTO found FROM receipts WHERE job = given->>'job' AND key = given->>'key';
    IF found.answer IS NOT NULL THEN
        RETURN jsonb_build_object('kind', 'handled', 'answer', found.answer);
    ELSIF (given->>'is_fenced')::boolean AND (given->>'fence')::bigint < seen THEN
        RETURN jsonb_build_object('kind', 'stale', 'newest', seen);
    ELSIF found.until > now THEN
        RETURN jsonb_build_object('kind', 'running', 'left_s', found.until - now);
    END IF;
    INSERT INTO receipts VALUES (given->>'job', given->>'key', given->>'owner',
            now + (given->>'lease_s')::float8, NULL, now + (given->>'keep_s')::float8)
        ON CONFLICT (job, key) DO UPDATE
        SET owner = excluded.owner, until = excluded.until, forget_at = excluded.forget_at;
    RETURN jsonb_build_object('kind', 'ours');
END $$;

CREATE OR REPLACE FUNCTION renew(given jsonb) RETURNS jsonb LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    UPDATE receipts SET until = extract(epoch FROM clock_timestamp()) + (given->>'lease_s')::float8
    WHERE job = given->>'job' AND key = given->>'key' AND owner = given->>'owner' AND answer IS NULL;
    SELECT '{}'::jsonb
$$;

CREATE OR REPLACE FUNCTION finish(given jsonb) RETURNS jsonb LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    UPDATE receipts SET answer = given->>'answer',
        forget_at = extract(epoch FROM clock_timestamp()) + (given->>'keep_s')::float8
    WHERE job = given->>'job' AND key = given->>'key' AND owner = given->>'owner' AND answer IS NULL;
    SELECT '{}'::jsonb
$$;

CREATE OR REPLACE FUNCTION release(given jsonb) RETURNS jsonb LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    DELETE FROM receipts
    WHERE job = given->>'job' AND key = given->>'key' AND owner = given->>'owner' AND answer IS NULL;
    SELECT '{}'::jsonb
$$;
