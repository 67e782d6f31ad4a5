-- `position` grows with the order in which rows were first written, over all nodes: "newest first" is by it. Keys come in blocks for each opening, and their order means nothing.
-- A `body` is the whole row in the versioned form with its checksum; the columns beside it are what is searched by, and are checked against it on every read.
-- Text that clients choose freely is BYTEA: TEXT takes no null character. Ids are compared byte by byte.

-- `searched` is the checksum of the metadata that a row's search rows were made from, zero before there are any: they are rewritten only when it changes.

-- What nodes of this store, and of no other, tell each other under.
CREATE TABLE store (
    id TEXT NOT NULL
);
INSERT INTO store VALUES (gen_random_uuid()::text);

-- Each opening of the store takes one number: the block of its keys.
CREATE SEQUENCE openings;

-- The processes that share the store. One that gives no sign of life is dead; its threads are taken over by whoever is asked for them.
-- `id` is made anew at each start, and is the `owner_node` of threads.
CREATE TABLE nodes (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    address TEXT NOT NULL,
    version TEXT NOT NULL,
    opening BIGINT NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX nodes_by_name ON nodes (name);

CREATE TABLE threads (
    key BIGINT PRIMARY KEY,
    position BIGINT GENERATED ALWAYS AS IDENTITY,
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    owner_node TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    ephemeral BOOLEAN NOT NULL,
    searched BIGINT NOT NULL DEFAULT 0,
    body BYTEA NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX threads_by_id ON threads (tenant, id);
CREATE INDEX threads_by_owner ON threads (tenant, owner, position) WHERE NOT ephemeral;
CREATE INDEX threads_by_tenant ON threads (tenant, position) WHERE NOT ephemeral;

-- The end of each thread's log and the epoch of its owner: what an append is compared with, in the statement that writes.
-- `stamp` names the batch that was written last, so that a writer whose connection broke finds out whether its batch is stored.
CREATE TABLE heads (
    thread BIGINT PRIMARY KEY,
    owner_node TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    last BIGINT NOT NULL,
    stamp BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE frames (
    thread BIGINT NOT NULL,
    run BIGINT,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    first_run BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, first)
);
-- Frames are small or compressed already where they are not: a try to compress costs more than it spares.
ALTER TABLE frames ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX frames_by_run ON frames (run, first_run) WHERE run IS NOT NULL;

-- Thread numbers whose run was removed: a hole anywhere else in a log is damage.
CREATE TABLE gaps (
    thread BIGINT NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    PRIMARY KEY (thread, first)
);

CREATE TABLE runs (
    key BIGINT PRIMARY KEY,
    position BIGINT GENERATED ALWAYS AS IDENTITY,
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    thread BIGINT NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    ended_at BIGINT,
    stateless BOOLEAN NOT NULL,
    searched BIGINT NOT NULL DEFAULT 0,
    body BYTEA NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX runs_by_id ON runs (tenant, id);
CREATE INDEX runs_by_tenant ON runs (tenant, position);
CREATE INDEX runs_by_thread ON runs (thread, position);
CREATE INDEX runs_by_agent ON runs (tenant, agent, position);
CREATE INDEX runs_by_principal ON runs (tenant, principal, position);
CREATE INDEX runs_by_status ON runs (tenant, status, position);
CREATE INDEX runs_open ON runs (thread) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at, position) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_stateless ON runs (ended_at) WHERE stateless AND ended_at IS NOT NULL;

-- A message's id is unique in its thread; another thread may hold the same one. `alias` is another id, by which the message's agent knows it.
CREATE TABLE messages (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    thread BIGINT NOT NULL,
    run BIGINT NOT NULL,
    alias TEXT COLLATE "C",
    body BYTEA NOT NULL
);
CREATE INDEX messages_by_id ON messages (tenant, id);
CREATE UNIQUE INDEX messages_by_thread ON messages (thread, id);
CREATE INDEX messages_by_alias ON messages (thread, alias) WHERE alias IS NOT NULL;
CREATE INDEX messages_by_run ON messages (thread, run);

CREATE TABLE checkpoints (
    key BIGINT PRIMARY KEY,
    thread BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    parent BIGINT,
    run BIGINT,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (thread, id);
CREATE INDEX checkpoints_by_run ON checkpoints (run) WHERE run IS NOT NULL;

CREATE TABLE interrupts (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    thread BIGINT NOT NULL,
    run BIGINT NOT NULL,
    pending BOOLEAN NOT NULL,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX interrupts_by_id ON interrupts (tenant, id);
CREATE INDEX interrupts_by_run ON interrupts (thread, run);
CREATE INDEX interrupts_by_principal ON interrupts (tenant, principal);
CREATE INDEX interrupts_pending ON interrupts (tenant, key) WHERE pending;

CREATE TABLE bindings (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread BIGINT NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX bindings_by_agent ON bindings (thread, agent);

CREATE TABLE idempotency (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    text BYTEA NOT NULL,
    thread BIGINT NOT NULL,
    run TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX idempotency_by_key ON idempotency (tenant, principal, agent, text);
CREATE INDEX idempotency_by_run ON idempotency (thread, run);
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- `free_at` is when an item can be claimed: when it falls due, and while it is held when its lease ends.
-- Items of one run with a place stand in line: only the first is free, and the others' `free_at` is the largest integer.
-- `held` says whether a worker has claimed an item and not given it back.
-- `about` is the run that an item's reference names.
-- `next` is what was offered under an item's key while a worker held the item; it takes its place when the worker is done.
CREATE TABLE queue (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    thread BIGINT,
    due BIGINT NOT NULL,
    free_at BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    dead BOOLEAN NOT NULL,
    error BYTEA NOT NULL,
    about BIGINT,
    run BIGINT,
    place BIGINT NOT NULL DEFAULT 0,
    held BOOLEAN NOT NULL DEFAULT FALSE,
    body BYTEA NOT NULL,
    next BYTEA
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX queue_by_key ON queue (kind, tenant, key);
CREATE INDEX queue_claimable ON queue (kind, free_at, id) WHERE NOT dead;
CREATE INDEX queue_dead ON queue (tenant, id) WHERE dead;
CREATE INDEX queue_by_thread ON queue (thread, key) WHERE thread IS NOT NULL;
CREATE INDEX queue_about ON queue (about) WHERE about IS NOT NULL;
CREATE INDEX queue_in_line ON queue (run, place, id) WHERE run IS NOT NULL AND NOT dead;
CREATE UNIQUE INDEX queue_first_in_line ON queue (run)
    WHERE run IS NOT NULL AND NOT dead AND free_at < 9223372036854775807;

CREATE TABLE tokens (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX tokens_by_id ON tokens (tenant, id);
CREATE UNIQUE INDEX tokens_by_hash ON tokens (hash);
CREATE INDEX tokens_by_principal ON tokens (tenant, principal);

-- Large content, once per tenant. `crc` is the CRC-32C of the data.
CREATE TABLE blobs (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL,
    length BIGINT NOT NULL,
    crc BIGINT NOT NULL,
    data BYTEA NOT NULL
);
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX blobs_by_hash ON blobs (tenant, hash, length);

-- Blobs that an opening of the store has stored for a frame that is still to come: a removal leaves them. One that is old was given up.
CREATE TABLE blob_waits (
    blob BIGINT NOT NULL,
    opening BIGINT NOT NULL,
    since TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (blob, opening)
);

-- Which runs' frames name a blob; `run` is zero for a frame of no run.
CREATE TABLE blob_refs (
    thread BIGINT NOT NULL,
    run BIGINT NOT NULL,
    blob BIGINT NOT NULL,
    is_text BOOLEAN NOT NULL,
    PRIMARY KEY (thread, run, blob, is_text)
);
CREATE INDEX blob_refs_by_blob ON blob_refs (blob);

-- Top-level scalars of metadata. `hash` stands for the value; the row itself is compared before it is shown.
-- Kind 1 is of threads, kind 2 of runs. Kind 3 names the agents of threads, with hash zero.
CREATE TABLE search (
    tenant TEXT COLLATE "C" NOT NULL,
    kind SMALLINT NOT NULL,
    name BYTEA NOT NULL,
    hash BIGINT NOT NULL,
    id BIGINT NOT NULL,
    PRIMARY KEY (tenant, kind, name, hash, id)
);
CREATE INDEX search_by_row ON search (kind, id);

-- Configured instances of agents.
CREATE TABLE configurations (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX configurations_by_id ON configurations (tenant, id);
CREATE INDEX configurations_by_agent ON configurations (tenant, agent, key);
CREATE INDEX configurations_by_expiry ON configurations (expires_at) WHERE expires_at IS NOT NULL;
