-- For how long the database could be reached, as the nodes' signs of life measure it: each adds the time since the one before it, of any node, but at most `step`, which is a heartbeat.
-- A node is dead after so much of this time without a sign of life. An outage that all nodes share makes none look dead, nor does a clock that was set.
CREATE TABLE reachable_time (
    counted INTERVAL NOT NULL,
    reached_at TIMESTAMPTZ NOT NULL,
    step INTERVAL NOT NULL
);
INSERT INTO reachable_time VALUES ('0', clock_timestamp(), '1 second');
-- The reachable time at a node's last sign of life. NULL where its version does not measure it: then `seen_at` tells.
ALTER TABLE nodes ADD COLUMN seen_counted INTERVAL;
