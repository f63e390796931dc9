-- The tables of the PostgreSQL store: one section for each version, with its changes to the version before.
--
-- Instants are Unix seconds by the server's clock, `wall`.  The server has no clock that is never set, so the store
-- keeps one: `mono` is `wall` minus the steps that were noticed.  `expires`, `until`, `renewed`, `seen`, `born` and
-- `calm_until` are readings of it.

-- version 1

CREATE TABLE world (
    one        integer PRIMARY KEY CHECK (one = 1),
    version    integer NOT NULL,      -- of the schema
    oldest     integer NOT NULL,      -- the oldest version of the program that may still use it
    era        text NOT NULL,
    previous   text NOT NULL,         -- the epoch before
    system     text NOT NULL,         -- which cluster and timeline: another one is another epoch
    steps      float8 NOT NULL,       -- wall less mono
    seen       float8 NOT NULL,       -- the newest call, to a second
    born       float8 NOT NULL,
    calm_until float8 NOT NULL        -- nothing is granted before
);

CREATE TABLE apps (
    app        text PRIMARY KEY,
    id         integer GENERATED ALWAYS AS IDENTITY,  -- its fences are the sequence of this number
    generation bigint NOT NULL DEFAULT 0
);

-- Locked by whoever judges fires of the lane, before the fires.
CREATE TABLE lanes (
    lane text PRIMARY KEY
);

-- `id` grows: fires of a lane are looked at in the order in which they were recorded.
CREATE SEQUENCE fire_ids;
CREATE TABLE fires (
    id          bigint PRIMARY KEY,
    key         text COLLATE "C" NOT NULL UNIQUE,
    app         text NOT NULL,
    job         text NOT NULL,
    due         float8 NOT NULL,
    run_id      text NOT NULL,
    queue       text NOT NULL,
    lane        text NOT NULL,
    start_by    float8,
    policy      text NOT NULL,        -- JSON of what is not the default; what is needed here follows
    concurrency text NOT NULL,
    width       integer NOT NULL,
    claim_s     float8 NOT NULL,
    grace_s     float8 NOT NULL,
    catch_up    text NOT NULL,
    late_hooks  text[] NOT NULL,      -- keys of fires that are dropped when this one starts
    origin      text NOT NULL,
    revision    text NOT NULL,
    payload     text NOT NULL,
    first       float8,
    instants    integer NOT NULL,
    run_at      float8 NOT NULL,
    state       text NOT NULL DEFAULT 'pending',
    attempt     integer NOT NULL DEFAULT 0,
    fence       bigint NOT NULL DEFAULT 0,
    node        text NOT NULL DEFAULT '',
    asked       bigint NOT NULL DEFAULT 0,  -- under which number
    ttl         float8 NOT NULL DEFAULT 0,
    expires     float8 NOT NULL DEFAULT 0,
    renewed     float8 NOT NULL DEFAULT 0,
    waits       boolean NOT NULL DEFAULT false,
    sentence    text,                 -- outcomes as in texts.py; those decided here are a kind, a space and a reason
    stop        text,
    outcome     text,
    verdict     text,
    again       float8,
    counts      boolean NOT NULL DEFAULT true,
    ran_node    text NOT NULL DEFAULT '',
    ran_fence   bigint NOT NULL DEFAULT 0,
    ran_at      float8 NOT NULL DEFAULT 0,
    over_at     float8 NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX fires_pending ON fires (app, run_at, key) WHERE state = 'pending';
-- Those that may need something else than a place to run: an ask without room looks only at them.
CREATE INDEX fires_judged ON fires (app, run_at)
    WHERE state = 'pending' AND (sentence IS NOT NULL OR origin = 'hook' OR concurrency = 'Replace');
CREATE INDEX fires_missed ON fires (app, start_by)
    WHERE state = 'pending' AND attempt = 0 AND start_by IS NOT NULL;
CREATE INDEX fires_late ON fires (app, due)
    WHERE state = 'pending' AND attempt = 0 AND origin = 'schedule' AND NOT waits;
-- A query names the whole condition of the index that it is meant to use, so that no other one will do.
CREATE INDEX fires_expiring ON fires (app, expires) WHERE state = 'claimed' AND expires > 0;
CREATE INDEX fires_asked ON fires (node, asked) WHERE state = 'claimed' AND asked > 0;
CREATE INDEX fires_held ON fires (lane, id) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX fires_queued ON fires (lane, run_at) WHERE state = 'pending' AND lane <> '';
CREATE INDEX fires_waiting ON fires (lane, id) WHERE state = 'pending' AND waits;
CREATE INDEX fires_job ON fires (job, due, key);
CREATE INDEX fires_due ON fires (due, key);

CREATE TABLE attempts (
    fire    bigint NOT NULL REFERENCES fires ON DELETE CASCADE,
    number  integer NOT NULL,
    node    text NOT NULL,
    fence   bigint NOT NULL,
    started float8 NOT NULL,
    ended   float8 NOT NULL,
    outcome text NOT NULL,
    status  bigint,
    took    float8 NOT NULL,
    tail    bytea NOT NULL,           -- a long one is kept aside by the server
    result  text NOT NULL,
    PRIMARY KEY (fire, number)
);

CREATE TABLE marks (
    job      text PRIMARY KEY,
    app      text NOT NULL,
    at       float8 NOT NULL,
    revision text NOT NULL
);
CREATE INDEX marks_app ON marks (app);

CREATE TABLE asks (
    node     text PRIMARY KEY,
    number   bigint NOT NULL,
    asked_at float8 NOT NULL
);

CREATE TABLE graces (
    lane  text NOT NULL,
    until float8 NOT NULL,
    lasts float8 NOT NULL
);
CREATE INDEX graces_lane ON graces (lane, until);

CREATE TABLE notes (
    app     text NOT NULL,
    name    text COLLATE "C" NOT NULL,
    text    text NOT NULL,
    written float8 NOT NULL,
    lasts   float8,                   -- none: for ever
    expires float8,
    PRIMARY KEY (app, name)
);

-- What outlives the rows of a job's fires.
CREATE TABLE jobs (
    job       text PRIMARY KEY,
    succeeded float8,                 -- when one was last over with success
    reached   float8                  -- its newest instant ever claimed, cancelled or pruned
);

-- Jobs that went, and whose fires are to be cancelled when they are due.
CREATE TABLE removed (
    job text PRIMARY KEY,
    app text NOT NULL
);

-- How long a claim was ever granted for: the longest, and those that were before it.
CREATE TABLE ttls (
    ttl float8 PRIMARY KEY
);

-- Grows whenever somebody who waits may want to look, for those whom no notification reaches.
CREATE SEQUENCE rings;

-- version 2

-- What is due is read queue by queue, so that what waits on one that nobody serves is in nobody's way.
DROP INDEX fires_pending, fires_judged, fires_missed, fires_late;
CREATE INDEX fires_pending ON fires (app, queue, run_at, key) WHERE state = 'pending' AND run_at > 0;
CREATE INDEX fires_judged ON fires (app, queue, run_at)
    WHERE state = 'pending' AND (sentence IS NOT NULL OR origin = 'hook' OR concurrency = 'Replace');
CREATE INDEX fires_missed ON fires (app, queue, start_by)
    WHERE state = 'pending' AND attempt = 0 AND start_by IS NOT NULL;
CREATE INDEX fires_late ON fires (app, queue, due)
    WHERE state = 'pending' AND attempt = 0 AND origin = 'schedule' AND NOT waits;
CREATE INDEX fires_failed ON fires (queue, due, key) WHERE outcome NOT LIKE 'succeeded %';

ALTER TABLE fires ADD COLUMN breaker text NOT NULL DEFAULT '';

-- What was granted under a rate, or charged by hand.
CREATE TABLE charges (
    app     text NOT NULL,
    name    text NOT NULL,
    at      float8 NOT NULL,          -- a reading of `mono`
    lasts   float8 NOT NULL,          -- it is kept for so long
    doubted boolean NOT NULL DEFAULT false  -- it was given time that nobody could tell to have passed
);
CREATE INDEX charges_name ON charges (app, name, at);

-- A key that points at its fire would be checked, and the fire locked, for each attempt.
ALTER TABLE attempts DROP CONSTRAINT attempts_fire_fkey;

-- Whom a transaction of somebody else's wakes when it commits.
CREATE TABLE bells (
    app text NOT NULL
);

-- version 3

-- Its functions are others: messages that are alike are told by what they share, and the clock is set right alone.
-- There are functions that count messages, and find what is next.

-- version 4

-- What cannot run now is put aside (`aside.sql`): there may be a hundred thousand of it.
ALTER TABLE fires ADD COLUMN aside boolean NOT NULL DEFAULT false;
ALTER TABLE lanes ADD COLUMN wake float8;  -- when (mono) to look whether there is a place; none: nobody was put aside for it
DROP INDEX fires_pending, fires_judged, fires_late, fires_queued, fires_held;
CREATE INDEX fires_pending ON fires (app, queue, aside, run_at, key) WHERE state = 'pending' AND run_at > 0;
CREATE INDEX fires_judged ON fires (app, queue, run_at)
    WHERE state = 'pending' AND NOT aside AND (sentence IS NOT NULL OR origin = 'hook' OR concurrency = 'Replace');
CREATE INDEX fires_late ON fires (app, queue, due)
    WHERE state = 'pending' AND NOT aside AND attempt = 0 AND origin = 'schedule' AND NOT waits AND catch_up <> 'all';
CREATE INDEX fires_queued ON fires (lane, due, key) WHERE state = 'pending' AND NOT aside AND lane <> '';
CREATE INDEX fires_held ON fires (lane, id) WHERE state = 'claimed' AND sentence IS NULL AND lane <> '';
CREATE INDEX fires_crowd ON fires (lane, queue, job, width, run_at, key) WHERE state = 'pending' AND aside;
CREATE INDEX fires_aside ON fires (job) WHERE state = 'pending' AND aside;
CREATE INDEX fires_ending ON fires (app, queue, start_by)
    WHERE state = 'pending' AND aside AND attempt = 0 AND start_by IS NOT NULL;
CREATE INDEX lanes_wake ON lanes (wake) WHERE wake IS NOT NULL;

-- version 5

-- Its functions are others: searches are bounded, a chart is read without changing anything, and pruning spares
-- the messages whose results are kept for longer.

-- version 6

-- Functions have new names.
