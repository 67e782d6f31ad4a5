use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::port::ReadOriginal;

#[derive(Clone, Debug)]
pub struct Options {
    /// How durable an append is when it returns. `memory:` ignores it.
    pub durability: Durability,
    /// Reads typed bodies from the originals of stored events.
    pub reader: Arc<dyn ReadOriginal>,
    /// The most bytes of committed frames that are kept in memory for attached readers, all threads together.
    pub tail_cache_bytes: usize,
    /// How many connections read at once, at least 1.
    pub readers: usize,
    /// The page cache of the database, in bytes: one half for the writer, the other shared by the readers.
    pub page_cache_bytes: usize,
    /// The size of the file that is given up when the disk is full, in bytes: the room in which runs can still be ended.
    pub reserve_bytes: u64,
    /// The largest size of the database file, in bytes; reaching it is a full disk. The last `reserve_bytes` of it serve as the reserve.
    pub max_bytes: Option<u64>,
    /// The most changes that wait for the writer.
    pub write_queue: usize,
    /// The most bytes of changes that wait for the writer.
    pub write_queue_bytes: usize,
    /// The longest that opening waits until a long write-ahead log of the last life was moved into the database. Then the store opens and moves the rest beside its first work.
    pub start_wait: Duration,
    /// PostgreSQL only: the password, where the URL holds none.
    pub password: Option<Password>,
    /// PostgreSQL only: the longest wait for a connection.
    pub connect_wait: Duration,
    /// PostgreSQL only: how long a change is tried again while the database cannot be reached. Whether it was stored by an earlier try is found out, never guessed.
    pub retry_for: Duration,
    /// PostgreSQL only: where large content goes. `None`: into the database.
    pub bucket: Option<BucketOptions>,
    /// PostgreSQL only: this process as a node beside others. `None` owns threads without a sign of life: for tools and tests.
    pub node: Option<NodeOptions>,
    /// `memory:` only: the most runs that are kept; then the oldest finished ones go.
    pub memory_runs: usize,
    /// `memory:` only: the most bytes that are kept; then the oldest finished runs go.
    pub memory_bytes: usize,
}

/// A bucket for large content, in a store that speaks the protocol of Amazon S3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketOptions {
    /// `https://HOST:PORT/BUCKET`, or `s3://BUCKET` for Amazon's own.
    pub url: String,
    pub region: String,
    /// The id of the access key and its secret. `None` for both: they are found as Amazon's own programs find them.
    pub key_id: Option<String>,
    pub secret: Option<Password>,
    /// Content of at least this size goes there, in bytes.
    pub min_bytes: u64,
}

/// A process among those that share a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// Its name; two live nodes cannot have the same.
    pub name: String,
    /// Where the other nodes reach it: a web address.
    pub address: String,
    /// How often it gives a sign of life.
    pub heartbeat: Duration,
    /// After this long without a sign of life it counts as dead. Time in which no node reaches the database does not count.
    pub dead_after: Duration,
    /// How often it looks for changes that others have made and nobody has told of.
    pub poll: Duration,
    /// The NATS server by which nodes tell each other of changes. `None`: they look only.
    pub news: Option<String>,
}

/// A password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// What an append has survived when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// A power loss: the log was synchronised to the disk.
    #[default]
    Fsync,
    /// The end of the process, however sudden. A power loss may take the last moments, in order, and damages nothing.
    Buffered,
}

// === impl Options ===

impl Options {
    #[must_use]
    pub fn new(reader: Arc<dyn ReadOriginal>) -> Self {
        Self {
            durability: Durability::default(),
            reader,
            tail_cache_bytes: 64 * 1024 * 1024,
            readers: 4,
            page_cache_bytes: 8 * 1024 * 1024,
            reserve_bytes: 16 * 1024 * 1024,
            max_bytes: None,
            write_queue: 1_024,
            write_queue_bytes: 64 * 1024 * 1024,
            start_wait: Duration::from_secs(30),
            password: None,
            connect_wait: Duration::from_secs(5),
            retry_for: Duration::from_secs(30),
            bucket: None,
            node: None,
            memory_runs: 10_000,
            memory_bytes: 64 * 1024 * 1024,
        }
    }
}

// === impl BucketOptions ===

impl BucketOptions {
    #[must_use]
    pub fn new(url: String) -> Self {
        Self {
            url,
            region: "us-east-1".to_owned(),
            key_id: None,
            secret: None,
            min_bytes: 1024 * 1024,
        }
    }
}

// === impl NodeOptions ===

impl NodeOptions {
    #[must_use]
    pub fn new(name: String, address: String) -> Self {
        Self {
            name,
            address,
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(4),
            poll: Duration::from_secs(1),
            news: None,
        }
    }

    /// How long a sign of life may take before it is given on another connection. Two fit into the time after which the node counts as dead.
    pub(crate) fn sign_limit(&self) -> Duration {
        self.dead_after / 2
    }
}

// === impl Password ===

impl Password {
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

// === impl Durability ===

impl Durability {
    /// The name in settings, in `status` and in the header `Trilogue-Durability`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Buffered => "buffered",
        }
    }

    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Fsync, Self::Buffered].into_iter().find(|one| one.as_str() == text)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
