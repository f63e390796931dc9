-- The table of `server_clock.World`, for stores on a server.  Instants are readings of the steady clock.

-- version 1

CREATE TABLE IF NOT EXISTS world ( -- the state of the store as a whole
    one               integer PRIMARY KEY,
    epoch             line(64) NOT NULL, -- changes when the store may have lost data
    previous          line(64) NOT NULL, -- the epoch before
    system            line(512) NOT NULL, -- the server and its history; another one begins another epoch
    steps             real NOT NULL, -- wall clock minus steady clock
    seen              real NOT NULL, -- the newest call, to a quarter of a second
    born              real NOT NULL, -- when the store was created
    doubted           real NOT NULL, -- claims and charges from before got time that may not have passed
    quarantined_until real NOT NULL, -- nothing is granted before
    longest_ttl_s     real NOT NULL -- of all claims ever granted
);
