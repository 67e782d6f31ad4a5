-- The keys that encrypt what nodes tell each other over NATS. No look-up of a client reads them, and no copy of the store has them.
CREATE TABLE news_keys (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    secret BYTEA NOT NULL,
    made_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
