-- Counters of the stores whose database has no sequences.

-- version 1

CREATE TABLE IF NOT EXISTS fences ( -- the newest fence of each app
    app    name(64) PRIMARY KEY,
    number integer NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS wakeups ( -- grows whenever the nodes of the app should ask
    app    name(64) PRIMARY KEY,
    number integer NOT NULL
) WITHOUT ROWID;
