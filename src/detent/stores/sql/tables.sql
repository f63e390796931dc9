-- The tables of all SQL stores.  A section upgrades a store from the version before.
--
-- Each store replaces the types by its own (schema.py): `name` and `line` are texts of limited length, `name` is
-- ASCII.  A semicolon only ends a statement.  The rest of a line after two dashes is a comment, which PostgreSQL
-- keeps with the table or column.  Instants are Unix seconds by the wall clock; `expires` and `asked_at` are
-- readings of the steady clock.

-- version 1

CREATE TABLE IF NOT EXISTS apps ( -- apps whose jobs or controls were ever set
    app        name(64) PRIMARY KEY,
    generation integer NOT NULL DEFAULT 0, -- grows when the jobs of the app change
    controls   integer NOT NULL DEFAULT 0 -- grows when a control note of the app changes
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS jobs ( -- jobs of the apps, and what is known of the past of former ones
    job       name(280) PRIMARY KEY,
    app       name(64) NOT NULL,
    at        real, -- the watermark: instants are planned up to here; none if the job was removed
    revision  line(255) NOT NULL,
    version   integer NOT NULL,
    succeeded real, -- when one of its fires last succeeded
    reached   real -- its newest instant that was ever claimed, cancelled or pruned
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_app ON jobs (app);

CREATE TABLE IF NOT EXISTS fires ( -- fires, waiting, running and over
    id          serial, -- grows in the order of recording
    key         line(500) NOT NULL UNIQUE,
    app         name(64) NOT NULL,
    job         name(280) NOT NULL,
    due         real NOT NULL, -- the instant of its schedule, or when it was pushed
    run_id      line(500) NOT NULL,
    queue       name(128) NOT NULL,
    lane        name(280) NOT NULL, -- fires of one lane run in turn; empty: it waits for no other
    start_by    real, -- it is not started later
    policy      text NOT NULL, -- JSON of what is not the default
    origin      name(16) NOT NULL,
    revision    line(255) NOT NULL,
    payload     text NOT NULL,
    first       real, -- of a span of instants that count as one
    instants    integer NOT NULL,
    version     integer NOT NULL, -- the number of the commit that wrote the row
    tier        name(8) NOT NULL, -- plain, judged or hook: how an ask finds it
    state       name(8) NOT NULL, -- pending, claimed or over
    run_at      real NOT NULL, -- when it is due, or due again
    look_at     real NOT NULL, -- when an ask finds it
    parked      boolean NOT NULL, -- it waits until its lane wakes it
    waits       boolean NOT NULL, -- it counts as waiting for its lane
    attempt     integer NOT NULL, -- attempts granted
    recorded    integer NOT NULL, -- attempts that ended
    fence       integer NOT NULL, -- of the newest claim; it grows with each claim of the app
    node        line(255) NOT NULL, -- that has the newest claim
    ask         integer NOT NULL, -- the number of the call that got the newest claim
    ttl         real NOT NULL, -- how long the claim lasts, in seconds
    expires     real NOT NULL, -- when the claim ends, by the steady clock
    ran_node    line(255) NOT NULL, -- of the newest attempt
    ran_fence   integer NOT NULL,
    ran_at      real NOT NULL, -- when the newest attempt was granted
    disposition text, -- the outcome to end it with, without running it
    stop        text, -- the outcome that its node is asked to stop it with
    outcome     text, -- JSON: kind, reason, cause and other party
    verdict     text,
    kind        name(16) NOT NULL, -- of the outcome
    over_at     real NOT NULL,
    keep_until  real NOT NULL -- not pruned for its number before
);
CREATE INDEX IF NOT EXISTS fires_pending ON fires (app, queue, tier, look_at, run_at, key) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS fires_claimed ON fires (app, queue, expires) WHERE state = 'claimed';
CREATE INDEX IF NOT EXISTS fires_laned ON fires (app, expires) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX IF NOT EXISTS fires_asked ON fires (node, ask) WHERE state = 'claimed';
CREATE INDEX IF NOT EXISTS fires_lane ON fires (lane, due, key) WHERE state = 'pending' AND lane <> '';
CREATE INDEX IF NOT EXISTS fires_holders ON fires (lane) WHERE state = 'claimed' AND lane <> '';
CREATE INDEX IF NOT EXISTS fires_waiting ON fires (lane, id) WHERE state = 'pending' AND waits;
CREATE INDEX IF NOT EXISTS fires_parked ON fires (lane, queue, run_at, key) WHERE state = 'pending' AND parked;
CREATE INDEX IF NOT EXISTS fires_instants ON fires (job, due) WHERE state <> 'over' AND origin = 'schedule';
CREATE INDEX IF NOT EXISTS fires_job ON fires (job, due, key);
CREATE INDEX IF NOT EXISTS fires_history ON fires (due, key);
-- Its condition differs from that of other queries, so that they do not read all that is over by this index.
CREATE INDEX IF NOT EXISTS fires_over ON fires (over_at) WHERE state <> 'pending' AND state <> 'claimed';
CREATE INDEX IF NOT EXISTS fires_unsuccessful ON fires (due, key) WHERE kind <> 'succeeded' AND kind <> '';

CREATE TABLE IF NOT EXISTS attempts ( -- the attempts of each fire that ended; the long columns are last
    fire    integer NOT NULL, -- fires.id
    number  integer NOT NULL,
    node    line(255) NOT NULL,
    fence   integer NOT NULL,
    started real NOT NULL,
    ended   real NOT NULL,
    outcome text NOT NULL,
    status  integer, -- the exit status of a command, or the status of a response
    took    real NOT NULL, -- in seconds
    result  text NOT NULL,
    tail    bytes NOT NULL, -- the end of its output
    PRIMARY KEY (fire, number)
);

CREATE TABLE IF NOT EXISTS cells ( -- small values in JSON: notes (note/), lanes (lane/), charges of a rate (charge/)
    app     name(64) NOT NULL,
    name    line(700) NOT NULL,
    text    text NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (app, name)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS asks ( -- the number of the newest ask of each node
    node     line(255) PRIMARY KEY,
    number   integer NOT NULL,
    asked_at real NOT NULL
) WITHOUT ROWID;
