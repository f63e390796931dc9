-- The tables of the SQLite store.  A section upgrades a file from the version before.  A semicolon only ends a
-- statement; the rest of a line after two dashes is a comment.
--
-- Instants are Unix seconds by the wall clock.  `expires`, `asked_at` and `quarantined_until` are readings of
-- the steady clock (world.py).  Every row has the version of the commit that wrote it.

-- version 1

CREATE TABLE version (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL            -- of this schema; `user_version` is the oldest program that may use it
);

CREATE TABLE world (
    one               INTEGER PRIMARY KEY CHECK (one = 1),
    epoch             TEXT NOT NULL,   -- changes when the store may have lost data
    file              TEXT NOT NULL,
    device            TEXT NOT NULL,
    boot              TEXT NOT NULL,
    base              REAL NOT NULL,   -- steady clock minus monotonic clock of this boot
    clock             REAL NOT NULL,   -- wall clock minus steady clock
    seen              REAL NOT NULL,   -- steady clock at the newest commit
    quarantined_until REAL NOT NULL,   -- nothing is granted before
    longest_ttl_s     REAL NOT NULL,   -- of all claims ever granted
    wakeups           INTEGER NOT NULL, -- grows whenever nodes should ask
    version           INTEGER NOT NULL -- of the newest commit
);

CREATE TABLE apps (
    app        TEXT PRIMARY KEY,
    generation INTEGER NOT NULL DEFAULT 0, -- grows when the app's jobs change
    controls   INTEGER NOT NULL DEFAULT 0, -- grows when a pause or a rate changes
    fence      INTEGER                 -- the newest one, none before the first claim
) WITHOUT ROWID;

CREATE TABLE jobs (
    job       TEXT PRIMARY KEY,
    app       TEXT NOT NULL,
    at        REAL,                    -- watermark, none if the job was removed
    revision  TEXT NOT NULL,
    version   INTEGER NOT NULL,
    succeeded REAL,                    -- when one of its fires last succeeded
    reached   REAL                     -- its newest instant ever claimed, cancelled or pruned
) WITHOUT ROWID;
CREATE INDEX jobs_app ON jobs (app);

CREATE TABLE fires (
    id          INTEGER PRIMARY KEY,   -- in the order of recording
    key         TEXT NOT NULL UNIQUE,
    app         TEXT NOT NULL,
    job         TEXT NOT NULL,
    due         REAL NOT NULL,
    run_id      TEXT NOT NULL,
    queue       TEXT NOT NULL,
    lane        TEXT NOT NULL,
    start_by    REAL,
    policy      TEXT NOT NULL,         -- JSON of what is not the default
    origin      TEXT NOT NULL,
    revision    TEXT NOT NULL,
    payload     TEXT NOT NULL,
    first       REAL,                  -- of a span of instants
    instants    INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    tier        TEXT NOT NULL,         -- plain, judged or hook
    state       TEXT NOT NULL,         -- pending, claimed or over
    run_at      REAL NOT NULL,         -- when it is due, or due again
    look_at     REAL NOT NULL,         -- when an ask finds it
    parked      INTEGER NOT NULL,      -- it waits for its lane
    waits       INTEGER NOT NULL,      -- it counts as waiting for its lane
    attempt     INTEGER NOT NULL,      -- attempts granted
    recorded    INTEGER NOT NULL,      -- attempts that ended
    fence       INTEGER NOT NULL,
    node        TEXT NOT NULL,
    ask         INTEGER NOT NULL,
    ttl         REAL NOT NULL,
    expires     REAL NOT NULL,
    ran_node    TEXT NOT NULL,         -- of the newest attempt
    ran_fence   INTEGER NOT NULL,
    ran_at      REAL NOT NULL,
    disposition TEXT,                  -- outcomes are JSON: kind, reason, cause, other party
    stop        TEXT,
    outcome     TEXT,
    verdict     TEXT,
    kind        TEXT NOT NULL,         -- of the outcome
    over_at     REAL NOT NULL,
    keep_until  REAL NOT NULL          -- not pruned for its number before
);
CREATE INDEX fires_pending ON fires (app, queue, tier, look_at, run_at, key) WHERE state = 'pending';
CREATE INDEX fires_claimed ON fires (app, queue, expires) WHERE state = 'claimed';
CREATE INDEX fires_laned ON fires (app, expires) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX fires_asked ON fires (node, ask) WHERE state = 'claimed';
CREATE INDEX fires_lane ON fires (lane, due, key) WHERE state = 'pending' AND lane <> '';
CREATE INDEX fires_holders ON fires (lane) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX fires_waiting ON fires (lane, id) WHERE state = 'pending' AND waits;
CREATE INDEX fires_parked ON fires (lane, queue, run_at, key) WHERE state = 'pending' AND parked;
CREATE INDEX fires_instants ON fires (job, due) WHERE state <> 'over' AND origin = 'schedule';
CREATE INDEX fires_job ON fires (job, due, key);
CREATE INDEX fires_history ON fires (due, key);
-- Its condition differs from that of other queries, so that they do not read all that is over by this index.
CREATE INDEX fires_over ON fires (over_at) WHERE state <> 'pending' AND state <> 'claimed';
CREATE INDEX fires_unsuccessful ON fires (due, key) WHERE kind <> 'succeeded' AND kind <> '';

-- The long columns are last, so that history is read without them.
CREATE TABLE attempts (
    fire    INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    node    TEXT NOT NULL,
    fence   INTEGER NOT NULL,
    started REAL NOT NULL,
    ended   REAL NOT NULL,
    outcome TEXT NOT NULL,
    status  INTEGER,
    took    REAL NOT NULL,
    result  TEXT NOT NULL,
    tail    BLOB NOT NULL,
    UNIQUE (fire, number)
);

-- Notes, lanes and charges.
CREATE TABLE cells (
    app     TEXT NOT NULL,
    name    TEXT NOT NULL,
    text    TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (app, name)
) WITHOUT ROWID;

CREATE TABLE asks (
    node     TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    asked_at REAL NOT NULL
) WITHOUT ROWID;
