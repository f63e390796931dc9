-- The tables of the SQLite store.  A section brings a file from the version before to its own; a file
-- that is older gets every section that it lacks.  A semicolon ends a statement and nothing else; the
-- rest of a line after two dashes is a comment.
--
-- Instants are seconds since the epoch by the wall clock; `expires`, `until`, `asked_at`, `charges.at` and
-- `calm_until` are readings of the monotonic clock of the boot that `world` names.

-- version 1

CREATE TABLE world (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    era         TEXT NOT NULL,
    file        TEXT NOT NULL,     -- the inode: another one is another epoch
    device      TEXT NOT NULL,
    boot        TEXT NOT NULL,
    clock       REAL NOT NULL,     -- wall minus monotonic: another value is a step of the wall clock
    calm_until  REAL NOT NULL,     -- nothing is granted before
    longest_ttl REAL NOT NULL,     -- of all claims ever granted
    rings       INTEGER NOT NULL   -- grows whenever somebody who waits may want to look
);

-- `id` grows: fires of a lane are looked at in the order in which they were recorded.
CREATE TABLE fires (
    id        INTEGER PRIMARY KEY,
    key       TEXT NOT NULL UNIQUE,
    app       TEXT NOT NULL,
    job       TEXT NOT NULL,
    due       REAL NOT NULL,
    run_id    TEXT NOT NULL,
    queue     TEXT NOT NULL,
    lane      TEXT NOT NULL,
    start_by  REAL,
    policy    TEXT NOT NULL,       -- JSON of what is not the default
    origin    TEXT NOT NULL,
    revision  TEXT NOT NULL,
    payload   TEXT NOT NULL,
    first     REAL,
    instants  INTEGER NOT NULL,
    run_at    REAL NOT NULL,
    state     TEXT NOT NULL DEFAULT 'pending',
    attempt   INTEGER NOT NULL DEFAULT 0,
    fence     INTEGER NOT NULL DEFAULT 0,
    node      TEXT NOT NULL DEFAULT '',
    ask       INTEGER NOT NULL DEFAULT 0,
    ttl       REAL NOT NULL DEFAULT 0,
    expires   REAL NOT NULL DEFAULT 0,
    waits     INTEGER NOT NULL DEFAULT 0,
    sentence  TEXT,                -- outcomes as in texts.py
    stop      TEXT,
    outcome   TEXT,
    verdict   TEXT,
    again     REAL,
    counts    INTEGER NOT NULL DEFAULT 1,
    ran_node  TEXT NOT NULL DEFAULT '',
    ran_fence INTEGER NOT NULL DEFAULT 0,
    ran_at    REAL NOT NULL DEFAULT 0,
    over_at   REAL NOT NULL DEFAULT 0
);

-- What is due; it covers what an ask without room needs to pass over thousands of fires.
CREATE INDEX fires_pending ON fires (
    app, run_at, key, queue, lane, origin, attempt, start_by, due, job, sentence
) WHERE state = 'pending';
CREATE INDEX fires_expiring ON fires (app, expires) WHERE state = 'claimed';
CREATE INDEX fires_asked ON fires (node, ask) WHERE state = 'claimed';
CREATE INDEX fires_lane ON fires (lane, state, run_at) WHERE state <> 'over' AND lane <> '';
CREATE INDEX fires_job ON fires (job, due, key);
CREATE INDEX fires_due ON fires (due, key);

CREATE TABLE attempts (
    fire     INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    node     TEXT NOT NULL,
    fence    INTEGER NOT NULL,
    started  REAL NOT NULL,
    ended    REAL NOT NULL,
    outcome  TEXT NOT NULL,
    status   INTEGER,
    took     REAL NOT NULL,
    PRIMARY KEY (fire, number)
) WITHOUT ROWID;

-- Apart from the attempts, so that history is read without them.
CREATE TABLE tails (
    fire   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tail   BLOB NOT NULL,
    UNIQUE (fire, number)
);

CREATE TABLE apps (
    app        TEXT PRIMARY KEY,
    generation INTEGER NOT NULL DEFAULT 0,
    fence      INTEGER             -- none before the first claim
) WITHOUT ROWID;

CREATE TABLE marks (
    job      TEXT PRIMARY KEY,
    app      TEXT NOT NULL,
    at       REAL NOT NULL,
    revision TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX marks_app ON marks (app);

CREATE TABLE asks (
    node     TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    asked_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE graces (
    lane  TEXT NOT NULL,
    until REAL NOT NULL
);
CREATE INDEX graces_lane ON graces (lane, until);

CREATE TABLE notes (
    app     TEXT NOT NULL,
    name    TEXT NOT NULL,
    text    TEXT NOT NULL,
    written REAL NOT NULL,
    lasts   REAL,                  -- none: for ever
    expires REAL,
    PRIMARY KEY (app, name)
) WITHOUT ROWID;

-- What outlives the rows of a job's fires.
CREATE TABLE jobs (
    job       TEXT PRIMARY KEY,
    succeeded REAL,                -- when one was last over with success
    reached   REAL                 -- its newest instant ever claimed, cancelled or pruned
) WITHOUT ROWID;

-- version 2

-- What calls returned.  Apart from the attempts too: it may be 64 KiB.
CREATE TABLE results (
    fire   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (fire, number)
);

-- Those who wait for their lane, as a lane may have many fires that are planned ahead.
CREATE INDEX fires_waiting ON fires (lane) WHERE state = 'pending' AND waits = 1;

-- version 3

-- Which section came last.  `user_version` is the oldest program that may use the file: one of version 2
-- goes on beside us.
CREATE TABLE version (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
);

-- What waits and what is claimed is read queue by queue: one that nobody serves costs nobody anything.
DROP INDEX fires_pending;
DROP INDEX fires_expiring;
CREATE INDEX fires_ready ON fires (app, queue, run_at, key) WHERE state = 'pending';
CREATE INDEX fires_claimed ON fires (app, queue, expires) WHERE state = 'claimed';

-- What may have to be judged even by an ask that has no room; it covers what that takes.
CREATE INDEX fires_doubtful ON fires (
    app, queue, run_at, key, lane, origin, attempt, start_by, due, job, sentence
) WHERE state = 'pending'
    AND (lane <> '' OR origin IN ('schedule', 'hook') OR start_by IS NOT NULL OR sentence IS NOT NULL);

-- What had no success: a few among the many.
CREATE INDEX fires_dead ON fires (due, key, queue) WHERE substr(outcome, 1, 10) <> 'succeeded ';

-- What was begun under a rate.  Of one name they are numbered without a gap, and `at` never shrinks.
CREATE TABLE charges (
    app    TEXT NOT NULL,
    name   TEXT NOT NULL,
    at     REAL NOT NULL,          -- by the monotonic clock
    number INTEGER NOT NULL,
    until  REAL NOT NULL,          -- no rate looks back to it any more
    PRIMARY KEY (app, name, at, number)
) WITHOUT ROWID;
