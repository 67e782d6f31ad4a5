-- Threads whose newest events the database had acknowledged and does not have: it failed over to a replica without them. Nobody continues them.
-- `last` is the number of the last event that was acknowledged, `found` of the last one that is there.
CREATE TABLE lost_events (
    thread BIGINT PRIMARY KEY,
    last BIGINT NOT NULL,
    found BIGINT NOT NULL,
    noted_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
