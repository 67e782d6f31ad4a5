use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::port::ReadOriginal;

#[derive(Clone, Debug)]
pub struct Options {
    /// How durable an append is when it returns. `memory:` ignores it.
    pub durability: Durability,
    /// Reads typed bodies from the original bytes of stored events.
    pub reader: Arc<dyn ReadOriginal>,
    /// The most bytes of committed frames in memory for attached readers, for all threads together.
    pub tail_cache_bytes: usize,
    /// How many connections read at once, at least 1.
    pub readers: usize,
    /// The page cache of the database, in bytes: one half for the writer, the other shared by the readers.
    pub page_cache_bytes: usize,
    /// The size of the reserve file in bytes. It is released when the disk is full, so that runs can still be ended.
    pub reserve_bytes: u64,
    /// The largest size of the database file, in bytes. Reaching it counts as a full disk. Its last `reserve_bytes` serve as the reserve.
    pub max_bytes: Option<u64>,
    /// The most changes that wait for the writer.
    pub write_queue: usize,
    /// The most bytes of changes that wait for the writer.
    pub write_queue_bytes: usize,
    /// The longest wait of opening while a long write-ahead log of the last life is moved into the database. After it the store opens and moves the rest in the background.
    pub start_wait: Duration,
    /// PostgreSQL only: the password, if the URL holds none.
    pub password: Option<Password>,
    /// PostgreSQL only: the longest wait for a connection.
    pub connect_wait: Duration,
    /// PostgreSQL only: how long a change is retried while the database cannot be reached. The retry checks whether an earlier try was stored; it never guesses.
    pub retry_for: Duration,
    /// PostgreSQL only: where large content is stored. `None`: in the database.
    pub bucket: Option<BucketOptions>,
    /// PostgreSQL only: the settings of this process as one of several nodes. `None` owns threads without a sign of life: for tools and tests.
    pub node: Option<NodeOptions>,
    /// `memory:` only: the most runs that are kept. Beyond that, the oldest finished ones are removed.
    pub memory_runs: usize,
    /// `memory:` only: the most bytes that are kept. Beyond that, the oldest finished runs are removed.
    pub memory_bytes: usize,
}

/// A bucket for large content, in a store with the Amazon S3 protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketOptions {
    /// `https://HOST:PORT/BUCKET`, or `s3://BUCKET` for Amazon S3.
    pub url: String,
    pub region: String,
    /// The id of the access key and its secret. `None` for both: they are found in the same way as by Amazon's programs.
    pub key_id: Option<String>,
    pub secret: Option<Password>,
    /// Content of at least this size goes there, in bytes.
    pub min_bytes: u64,
}

/// A process among those that share a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// Its name, unique among live nodes.
    pub name: String,
    /// The web address at which the other nodes reach it.
    pub address: String,
    /// How often it gives a sign of life.
    pub heartbeat: Duration,
    /// After this long without a sign of life it counts as dead. Time in which no node reaches the database does not count.
    pub dead_after: Duration,
    /// How often it checks for changes of others that no message announced.
    pub poll: Duration,
    /// The NATS server over which nodes publish changes. `None`: they only poll.
    pub news: Option<String>,
}

/// A password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// The failures that an append survives once it has returned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// A power loss: the log was synchronised to the disk.
    #[default]
    Fsync,
    /// The sudden end of the process. A power loss may take the last moments, in order, and damages nothing.
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

    /// How long a sign of life may take before it is repeated on another connection. Two fit into the time after which the node counts as dead.
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
