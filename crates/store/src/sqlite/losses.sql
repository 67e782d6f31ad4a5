-- How many commits no frame's id shows: see `commit_position`.
CREATE TABLE commit_count (
    count INTEGER NOT NULL
) STRICT;
INSERT INTO commit_count VALUES (0);

-- Acknowledged commits that a start did not find again. `is_least` says that there may have been more.
CREATE TABLE log_losses (
    found_at INTEGER PRIMARY KEY,
    commits INTEGER NOT NULL,
    is_least INTEGER NOT NULL
) STRICT;

-- Threads that stay closed because acknowledged changes of them are lost, until they are removed.
CREATE TABLE damaged_threads (
    thread INTEGER PRIMARY KEY,
    why TEXT NOT NULL
) STRICT;
