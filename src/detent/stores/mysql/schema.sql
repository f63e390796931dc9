-- The tables of the MySQL store.  A section upgrades a database from the version before.  A semicolon only ends
-- a statement; the rest of a line after two dashes is a comment.  MySQL commits after each of these statements:
-- so each of them may be repeated.
--
-- Instants are Unix seconds by the wall clock.  `expires`, `asked_at`, `seen`, `born`, `doubted` and
-- `quarantined_until` are readings of the steady clock (stores/sql/server_clock.py).
--
-- Names are ASCII.  Other texts are compared and ordered by code points, and trailing spaces count: {text} is the
-- collation of the server that does so.  MySQL has no partial indexes, so `state` comes first in most of them.

-- version 1

CREATE TABLE IF NOT EXISTS gate (      -- every transaction that writes locks it: shared, or to correct the clock
    one TINYINT PRIMARY KEY
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS world (     -- server_clock.World
    one               TINYINT PRIMARY KEY,
    epoch             VARCHAR(64) NOT NULL,
    previous          VARCHAR(64) NOT NULL,
    `system`          VARCHAR(512) NOT NULL,
    steps             DOUBLE NOT NULL,
    seen              DOUBLE NOT NULL,
    born              DOUBLE NOT NULL,
    doubted           DOUBLE NOT NULL,
    quarantined_until DOUBLE NOT NULL,
    longest_ttl_s     DOUBLE NOT NULL
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {text};

CREATE TABLE IF NOT EXISTS apps (
    app        VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    generation BIGINT NOT NULL DEFAULT 0, -- grows when the app's jobs change
    controls   BIGINT NOT NULL DEFAULT 0, -- grows when a pause or a rate changes
    fence      BIGINT                  -- the newest one, none before the first claim
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS wakeups (
    app    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    number BIGINT NOT NULL             -- grows whenever the nodes of the app should ask
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS jobs (
    job       VARCHAR(280) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    app       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `at`      DOUBLE,                  -- watermark, none if the job was removed
    revision  VARCHAR(255) NOT NULL,
    version   BIGINT NOT NULL,
    succeeded DOUBLE,                  -- when one of its fires last succeeded
    reached   DOUBLE,                  -- its newest instant ever claimed, cancelled or pruned
    INDEX jobs_app (app)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {text};

CREATE TABLE IF NOT EXISTS fires (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY, -- in the order of recording
    `key`       VARCHAR(500) NOT NULL,
    app         VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    job         VARCHAR(280) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    due         DOUBLE NOT NULL,
    run_id      VARCHAR(500) NOT NULL,
    queue       VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    lane        VARCHAR(280) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    start_by    DOUBLE,
    policy      MEDIUMTEXT NOT NULL,   -- JSON of what is not the default
    origin      VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    revision    VARCHAR(255) NOT NULL,
    payload     LONGTEXT NOT NULL,
    `first`     DOUBLE,                -- of a span of instants
    instants    BIGINT NOT NULL,
    version     BIGINT NOT NULL,
    tier        VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- plain, judged or hook
    state       VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- pending, claimed or over
    run_at      DOUBLE NOT NULL,       -- when it is due, or due again
    look_at     DOUBLE NOT NULL,       -- when an ask finds it
    parked      BOOLEAN NOT NULL,      -- it waits for its lane
    waits       BOOLEAN NOT NULL,      -- it counts as waiting for its lane
    attempt     INTEGER NOT NULL,      -- attempts granted
    recorded    INTEGER NOT NULL,      -- attempts that ended
    fence       BIGINT NOT NULL,
    node        VARCHAR(255) NOT NULL,
    ask         BIGINT NOT NULL,
    ttl         DOUBLE NOT NULL,
    expires     DOUBLE NOT NULL,
    ran_node    VARCHAR(255) NOT NULL, -- of the newest attempt
    ran_fence   BIGINT NOT NULL,
    ran_at      DOUBLE NOT NULL,
    disposition MEDIUMTEXT,            -- outcomes are JSON: kind, reason, cause, other party
    stop        MEDIUMTEXT,
    outcome     MEDIUMTEXT,
    verdict     MEDIUMTEXT,
    kind        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- of the outcome
    over_at     DOUBLE NOT NULL,
    keep_until  DOUBLE NOT NULL,       -- not pruned for its number before
    unsuccessful BOOLEAN AS ({unsuccessful}) STORED,
    UNIQUE INDEX fires_key (`key`),
    INDEX fires_pending (state, app, queue, tier, look_at, run_at, `key`),
    INDEX fires_claimed (state, app, queue, expires),
    INDEX fires_laned (state, app, expires),
    INDEX fires_asked (state, node, ask),
    INDEX fires_lane (state, lane, due, `key`),
    INDEX fires_waiting (state, waits, lane, id),
    INDEX fires_parked (state, parked, lane, queue, run_at, `key`),
    INDEX fires_open (job, state, origin, due),
    INDEX fires_job (job, due, `key`),
    INDEX fires_history (due, `key`),
    INDEX fires_over (over_at),
    INDEX fires_unsuccessful (unsuccessful, due, `key`)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {text};

CREATE TABLE IF NOT EXISTS attempts (
    fire    BIGINT NOT NULL,
    number  INTEGER NOT NULL,
    node    VARCHAR(255) NOT NULL,
    fence   BIGINT NOT NULL,
    started DOUBLE NOT NULL,
    ended   DOUBLE NOT NULL,
    outcome MEDIUMTEXT NOT NULL,
    status  BIGINT,
    took    DOUBLE NOT NULL,
    result  LONGTEXT NOT NULL,
    tail    LONGBLOB NOT NULL,
    PRIMARY KEY (fire, number)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {text};

-- Notes, lanes and charges.
CREATE TABLE IF NOT EXISTS cells (
    app     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name    VARCHAR(700) NOT NULL,
    text    LONGTEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (app, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {text};

CREATE TABLE IF NOT EXISTS asks (
    node     VARCHAR(255) PRIMARY KEY,
    number   BIGINT NOT NULL,
    asked_at DOUBLE NOT NULL
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {text};
