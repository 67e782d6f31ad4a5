//! Opening the database: schema, keys, sweep, writers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use trilogue_domain::error::{Code, Error, Result};

use super::acknowledged::AcknowledgedLogs;
use super::bucket::Bucket;
use super::connection::{Address, GROUP_WRITERS, Pools};
use super::database::{Database, KeyBlock};
use super::disk_space::{self, DiskSpace};
use super::error::{PostgresError, Remedy};
use super::group_writer::GroupWriter;
use super::liveness;
use super::news::{self, News};
use super::node::{self, Node};
use super::outage::Outage;
use super::{PostgresStore, blob, row, schema};
use crate::core::batch::queue_permits;
use crate::core::health::Health;
use crate::core::queue::QueueSignal;
use crate::core::tail::{SharedReads, Tails};
use crate::news::MAX_HEARD;
use crate::options::Options;

/// How long an opening waits before it checks again whether the server has started.
const START_PAUSE: Duration = Duration::from_millis(250);

impl PostgresStore {
    /// Opens the store in the database of a URL, and creates its tables if they do not exist. Fails as [`crate::open()`].
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        Self::open_with(url, options, schema::MIGRATIONS).await
    }

    /// As [`Self::open`], with only these migrations.
    pub(super) async fn open_with(
        url: &str,
        options: Options,
        migrations: &[&str],
    ) -> Result<Self> {
        let address = Address::parse(url)?;
        let shown = address.redacted_url();
        let Pools { pool, sign_pool, sessions } = address.into_pools(&options)?;
        let mut database = Database {
            pool,
            sign_pool,
            sessions,
            acknowledged: AcknowledgedLogs::default(),
            id: String::new(),
            bucket: options.bucket.as_ref().map(|it| Bucket::new(it, &options)).transpose()?,
            objects_fell_due: Notify::new(),
            reader: Arc::clone(&options.reader),
            durability: options.durability,
            health: Health::new(Path::new(&shown)),
            outage: Outage::default(),
            disk_space: DiskSpace::default(),
            tails: Arc::new(Tails::new(options.tail_cache_bytes)),
            keys: KeyBlock::new(0),
            offered: QueueSignal::default(),
            room: Arc::new(Semaphore::new(queue_permits(options.write_queue_bytes))),
            node: options.node.clone().map(Node::new),
            news: None,
            peer_news: broadcast::Sender::new(MAX_HEARD),
            clock: Arc::default(),
            retry_for: options.retry_for,
            is_opening: AtomicBool::new(true),
            commits: AtomicU64::new(0),
            frames: AtomicU64::new(0),
        };
        let opening =
            begin_when_up(&database, migrations).await.map_err(|fail| database.settle(fail))?;
        database.keys = KeyBlock::new(opening);
        database.id = store_id(&database).await.map_err(|fail| database.settle(fail))?;
        if let Some(bucket) = &database.bucket {
            look_at(bucket, &database.id).await?;
        }
        let told = match options.node.as_ref().and_then(|node| node.news.as_deref()) {
            Some(url) => {
                let (news, connection) =
                    News::connect(url, &database.id, &database.tails, &database.peer_news).await?;
                database.news = Some(news);
                Some(connection)
            }
            None => None,
        };
        news::keys::renew(&database).await.map_err(|fail| database.settle(fail))?;
        database.is_opening.store(false, Ordering::Relaxed);
        let database = Arc::new(database);
        let (mut writers, mut tasks) = (Vec::new(), JoinSet::new());
        for _ in 0..GROUP_WRITERS {
            let (sender, inbox) = mpsc::channel(options.write_queue.max(1));
            tasks.spawn(GroupWriter::new(Arc::clone(&database), inbox).run());
            writers.push(sender);
        }
        let mut upkeep = JoinSet::new();
        upkeep.spawn(liveness::live(Arc::clone(&database)));
        upkeep.spawn(node::watch(Arc::clone(&database)));
        upkeep.spawn(disk_space::watch(Arc::clone(&database)));
        upkeep.spawn(blob::sweep_bucket(Arc::clone(&database)));
        if let Some(told) = told {
            let (reader, clock) = (Arc::clone(&database.reader), Arc::clone(&database.clock));
            upkeep.spawn(told.run(database.keys.opening, reader, clock));
            upkeep.spawn(news::keys::watch(Arc::clone(&database)));
        }
        Ok(Self {
            upkeep: Mutex::new(upkeep),
            database,
            writers: Mutex::new(writers),
            tasks: Mutex::new(tasks),
            flights: SharedReads::new(),
        })
    }
}

/// Fails if the bucket refuses. A bucket that cannot be reached does not stop the start: only large content needs it.
async fn look_at(bucket: &Bucket, store: &str) -> Result<()> {
    match bucket.probe(store).await {
        Err(error) if error.code() == Code::StoreUnavailable => {
            tracing::warn!(%error, "large content can be neither stored nor read until the bucket is back");
            Ok(())
        }
        probed => probed,
    }
}

/// The unique id of this store.
async fn store_id(database: &Database) -> Result<String, PostgresError> {
    let conn = database.connect().await?;
    let found = row::query(&conn, "SELECT id FROM store", &[]).await?;
    Ok(found.first().map_or_else(String::new, |row| row.get(0)))
}

/// Checks a URL without connecting. Fails with `invalid_request`.
pub(crate) fn check_url(url: &str) -> Result<()> {
    Address::parse(url).map(drop)
}

/// A URL without its secrets.
pub(crate) fn redacted_url(url: &str) -> String {
    Address::parse(url)
        .map_or_else(|_| "postgres:(not valid)".to_owned(), |address| address.redacted_url())
}

/// Whether a URL requests an unencrypted connection to another machine.
pub(crate) fn is_unencrypted(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| address.is_unencrypted())
}

/// As [`begin`], but waits while the server starts or recovers.
async fn begin_when_up(database: &Database, migrations: &[&str]) -> Result<i64, PostgresError> {
    let give_up = Instant::now() + database.retry_for;
    loop {
        match begin(database, migrations).await {
            Err(PostgresError::Sql(error))
                if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW)
                    && Instant::now() < give_up =>
            {
                tracing::warn!(store = %database.health.path().display(), "the database starts; waiting for it");
                tokio::time::sleep(START_PAUSE).await;
            }
            // A long transaction of another node holds a lock that a migration needs.
            Err(fail) if fail.remedy() == Remedy::Retry && Instant::now() < give_up => {}
            begun => return begun,
        }
    }
}

/// Migrates and sweeps, and returns the number of this opening.
async fn begin(database: &Database, migrations: &[&str]) -> Result<i64, PostgresError> {
    let mut conn = database.connect().await?;
    schema::migrate(&mut conn, migrations).await?;
    database.clock.look(&conn).await?;
    let swept = blob::sweep(&conn).await?;
    if swept > 0 {
        tracing::info!(swept, "removed content that no frame names");
    }
    let opening: i64 = row::query(&conn, "SELECT nextval('openings')", &[])
        .await?
        .first()
        .map_or(0, |row| row.get(0));
    if !(1..=KeyBlock::MAX_OPENING).contains(&opening) {
        let message = format!("the store was opened {opening} times, and its keys are used up");
        return Err(Error::new(Code::StoreReadOnly, message)
            .hint("begin with a new database: name it in [store] url")
            .into());
    }
    if let Some(node) = &database.node {
        node.register(&conn, opening).await?;
    }
    Ok(opening)
}
