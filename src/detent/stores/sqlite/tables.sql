-- What only the SQLite store has.  A section upgrades a file from the version before.

-- version 1

CREATE TABLE version (
    one    INTEGER PRIMARY KEY,
    number INTEGER NOT NULL            -- of this schema; `user_version` is the oldest program that may use it
);

CREATE TABLE world (                   -- world.State
    one               INTEGER PRIMARY KEY,
    epoch             TEXT NOT NULL,   -- changes when the store may have lost data
    file              TEXT NOT NULL,
    device            TEXT NOT NULL,
    boot              TEXT NOT NULL,
    base              REAL NOT NULL,   -- steady clock minus monotonic clock of this boot
    clock             REAL NOT NULL,   -- wall clock minus steady clock
    seen              REAL NOT NULL,   -- steady clock at the newest commit
    quarantined_until REAL NOT NULL,   -- nothing is granted before
    longest_ttl_s     REAL NOT NULL,   -- of all claims ever granted
    version           INTEGER NOT NULL -- of the newest commit
);
