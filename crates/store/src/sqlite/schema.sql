-- Integer keys grow with creation, so descending keys are "newest first".
-- A `body` is the whole row in the versioned form with its checksum; the columns beside it are what is searched by, and are checked against it on every read.

-- `searched` is the checksum of the metadata that a row's search rows were made from, zero before there are any: they are rewritten only when it changes.

CREATE TABLE threads (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    owner_node TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL,
    searched INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX threads_by_id ON threads (tenant, id);
CREATE INDEX threads_by_owner ON threads (tenant, owner) WHERE ephemeral = 0;
CREATE INDEX threads_by_tenant ON threads (tenant) WHERE ephemeral = 0;

CREATE TABLE frames (
    id INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    run INTEGER,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first_run INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX frames_by_thread ON frames (thread, first);
CREATE INDEX frames_by_run ON frames (run, first_run) WHERE run IS NOT NULL;

-- Thread numbers whose run was removed: a hole anywhere else in a log is damage.
CREATE TABLE gaps (
    thread INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (thread, first)
) STRICT, WITHOUT ROWID;

-- The largest keys that were removed, so that they are never given again.
CREATE TABLE removed_keys (
    kind TEXT PRIMARY KEY,
    key INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Frames that were removed and are deleted in parts: those of a run, or of the whole thread where `run` is zero. Nobody reads them any more.
CREATE TABLE removals (
    thread INTEGER NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (thread, run)
) STRICT, WITHOUT ROWID;

-- Blobs that lost their last name and are deleted one by one, unless they were named again.
CREATE TABLE unnamed_blobs (
    blob INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    thread INTEGER NOT NULL,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    status TEXT NOT NULL,
    ended_at INTEGER,
    stateless INTEGER NOT NULL,
    searched INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX runs_by_id ON runs (tenant, id);
CREATE INDEX runs_by_thread ON runs (thread);
CREATE INDEX runs_by_agent ON runs (tenant, agent);
CREATE INDEX runs_by_principal ON runs (tenant, principal);
CREATE INDEX runs_by_status ON runs (tenant, status);
CREATE INDEX runs_open ON runs (thread) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_stateless ON runs (ended_at) WHERE stateless = 1 AND ended_at IS NOT NULL;

-- A message's id is unique in its thread; another thread may hold the same one. `alias` is another id, by which the message's agent knows it.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    thread INTEGER NOT NULL,
    run INTEGER NOT NULL,
    alias TEXT,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX messages_by_id ON messages (tenant, id);
CREATE UNIQUE INDEX messages_by_thread ON messages (thread, id);
CREATE INDEX messages_by_alias ON messages (thread, alias) WHERE alias IS NOT NULL;
CREATE INDEX messages_by_run ON messages (thread, run);

CREATE TABLE checkpoints (
    key INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    id TEXT NOT NULL,
    parent INTEGER,
    run INTEGER,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (thread, id);
CREATE INDEX checkpoints_by_run ON checkpoints (run) WHERE run IS NOT NULL;

CREATE TABLE interrupts (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    thread INTEGER NOT NULL,
    run INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX interrupts_by_id ON interrupts (tenant, id);
CREATE INDEX interrupts_by_run ON interrupts (thread, run);
CREATE INDEX interrupts_by_principal ON interrupts (tenant, principal);
CREATE INDEX interrupts_pending ON interrupts (tenant) WHERE pending = 1;

CREATE TABLE bindings (
    key INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    agent TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX bindings_by_agent ON bindings (thread, agent);

CREATE TABLE idempotency (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    text TEXT NOT NULL,
    thread INTEGER NOT NULL,
    run TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX idempotency_by_key ON idempotency (tenant, principal, agent, text);
CREATE INDEX idempotency_by_run ON idempotency (thread, run);
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- `free_at` is when an item can be claimed: when it falls due, and while it is held when its lease ends.
-- Items of one run with a place stand in line: only the first is free, and the others' `free_at` is the largest integer.
-- `held` says whether a worker has claimed an item and not given it back.
-- `about` is the run that an item's reference names.
-- `next` is what was offered under an item's key while a worker held the item; it takes its place when the worker is done.
CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    tenant TEXT NOT NULL,
    thread INTEGER,
    due INTEGER NOT NULL,
    free_at INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    error TEXT NOT NULL,
    about INTEGER,
    run INTEGER,
    place INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    next BLOB
) STRICT;
CREATE UNIQUE INDEX queue_by_key ON queue (kind, tenant, key);
CREATE INDEX queue_claimable ON queue (kind, free_at) WHERE dead = 0;
CREATE INDEX queue_dead ON queue (tenant) WHERE dead = 1;
CREATE INDEX queue_by_thread ON queue (thread, key) WHERE thread IS NOT NULL;
CREATE INDEX queue_about ON queue (about) WHERE about IS NOT NULL;
CREATE INDEX queue_in_line ON queue (run, place, id) WHERE run IS NOT NULL AND dead = 0;
CREATE UNIQUE INDEX queue_first_in_line ON queue (run)
    WHERE run IS NOT NULL AND dead = 0 AND free_at < 9223372036854775807;

CREATE TABLE tokens (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    hash BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX tokens_by_id ON tokens (tenant, id);
CREATE UNIQUE INDEX tokens_by_hash ON tokens (hash);
CREATE INDEX tokens_by_principal ON tokens (tenant, principal);

-- Large content, once per tenant. `crc` is the CRC-32C of the data.
CREATE TABLE blobs (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    hash BLOB NOT NULL,
    length INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blobs_by_hash ON blobs (tenant, hash, length);

-- Which runs' frames name a blob; `run` is zero for a frame of no run.
CREATE TABLE blob_refs (
    thread INTEGER NOT NULL,
    run INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    is_text INTEGER NOT NULL,
    PRIMARY KEY (thread, run, blob, is_text)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_refs_by_blob ON blob_refs (blob);

-- Top-level scalars of metadata. `hash` stands for the value; the row itself is compared before it is shown.
CREATE TABLE search (
    tenant TEXT NOT NULL,
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    hash INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name, hash, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX search_by_row ON search (kind, id);

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
