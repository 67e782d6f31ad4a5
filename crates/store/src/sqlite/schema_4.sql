-- Configured instances of agents.
CREATE TABLE configurations (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    expires_at INTEGER,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX configurations_by_id ON configurations (tenant, id);
CREATE INDEX configurations_by_agent ON configurations (tenant, agent);
CREATE INDEX configurations_by_expiry ON configurations (expires_at) WHERE expires_at IS NOT NULL;

-- Stateless runs have a retention of their own.
ALTER TABLE runs ADD COLUMN stateless INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_stateless ON runs (ended_at) WHERE stateless = 1 AND ended_at IS NOT NULL;

-- Items of one run with a place stand in line: only the first is free. The others' `free_at` is the largest integer.
-- `held` says whether a worker has claimed an item and not given it back; only lines ask.
-- `next` is what was offered under an item's key while a worker held the item; it takes its place when the worker is done.
ALTER TABLE queue ADD COLUMN run INTEGER;
ALTER TABLE queue ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN next BLOB;
CREATE INDEX queue_in_line ON queue (run, place, id) WHERE run IS NOT NULL AND dead = 0;
CREATE UNIQUE INDEX queue_first_in_line ON queue (run)
    WHERE run IS NOT NULL AND dead = 0 AND free_at < 9223372036854775807;
