//! The database of a store: its connections, its known state, and the execution of look-ups and of changes outside of the group writers.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_postgres::error::SqlState;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::ReadOriginal;

use super::acknowledged::AcknowledgedLogs;
use super::bucket::Bucket;
use super::clock::DatabaseClock;
use super::connection::{Connection, READ_TIME};
use super::disk_space::DiskSpace;
use super::error::{PostgresError, Remedy, explain, is_conflict, takes_no_writes};
use super::news::{AppendNotice, LogRemoval, News};
use super::node::Node;
use super::outage::{Outage, Retries};
use super::primary_sessions::PrimarySessions;
use crate::core::health::Health;
use crate::core::queue::QueueSignal;
use crate::core::tail::Tails;
use crate::core::{closed_error, unexpected_error};
use crate::news::PeerNews;
use crate::options::Durability;
use crate::port::{Batch, Change};

/// How long the figures for an operator are retried while the database cannot be reached.
const FIGURES_PATIENCE: Duration = Duration::from_secs(2);
/// The most retries of a transaction after conflicts with others.
pub(super) const MAX_CONFLICTS: usize = 10;

#[derive(Debug)]
pub(super) struct Database {
    pub(super) pool: Pool,
    /// The connection for signs of life.
    pub(super) sign_pool: Pool,
    pub(super) sessions: Arc<PrimarySessions>,
    pub(super) acknowledged: AcknowledgedLogs,
    /// What this store and no other is known by.
    pub(super) id: String,
    /// The bucket for large content.
    pub(super) bucket: Option<Bucket>,
    /// Notified when content was removed here that the bucket has.
    pub(super) objects_fell_due: Notify,
    pub(super) reader: Arc<dyn ReadOriginal>,
    pub(super) durability: Durability,
    pub(super) health: Health,
    pub(super) outage: Outage,
    pub(super) disk_space: DiskSpace,
    pub(super) tails: Arc<Tails>,
    pub(super) keys: KeyBlock,
    pub(super) offered: QueueSignal,
    /// Space in the queues of the writers, in permits.
    pub(super) room: Arc<Semaphore>,
    /// This process as a node. `None` if it is not one.
    pub(super) node: Option<Node>,
    pub(super) news: Option<News>,
    /// Notes received from other nodes.
    pub(super) peer_news: broadcast::Sender<PeerNews>,
    pub(super) clock: Arc<DatabaseClock>,
    pub(super) retry_for: Duration,
    pub(super) is_opening: AtomicBool,
    pub(super) commits: AtomicU64,
    pub(super) frames: AtomicU64,
}

/// Counts the tries of a look-up or of a change.
struct Tries<'d> {
    database: &'d Database,
    conflicts: usize,
    retries: Retries<'d>,
}

/// The keys of one opening of the store: a block that no other opening uses.
#[derive(Debug)]
pub(super) struct KeyBlock {
    pub(super) opening: i64,
    pub(super) thread: AtomicI64,
    pub(super) run: AtomicI64,
    pub(super) checkpoint: AtomicI64,
    pub(super) stamp: AtomicI64,
}

/// A connection with an open transaction. If the transaction is not ended, dropping it closes the connection, because an open transaction must not return to the pool.
#[derive(Debug)]
pub(super) struct OpenTransaction(Option<Connection>);

/// A failed transaction. Before its commit, nothing is stored; during its commit, the result is unknown.
enum TransactionFailure {
    Before(PostgresError),
    AtCommit(PostgresError),
}

// === impl Database ===

impl Database {
    pub(super) async fn connect(&self) -> Result<Connection, PostgresError> {
        let conn = self.pool.get().await?;
        // Before any use: after a failover the server may lack acknowledged commits, and their threads must be closed.
        self.compare_logs(&conn).await?;
        Ok(conn)
    }

    pub(super) fn is_opening(&self) -> bool {
        self.is_opening.load(Ordering::Relaxed)
    }

    /// Runs a look-up. Retries while the database cannot be reached, for as long as changes are retried: running work must not end because of a short outage.
    pub(super) async fn read<T, F>(&self, look_up: impl Fn(Connection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        self.read_within(self.retry_for, look_up).await
    }

    /// As [`Self::read`], for figures that must soon show an operator that the database cannot be reached.
    pub(super) async fn read_figures<T, F>(&self, look_up: impl Fn(Connection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        self.read_within(FIGURES_PATIENCE.min(self.retry_for), look_up).await
    }

    async fn read_within<T, F>(
        &self,
        patience: Duration,
        look_up: impl Fn(Connection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        self.health.check_read()?;
        let mut tries = self.tries(patience);
        loop {
            let found = match self.connect().await {
                Ok(conn) => look_up(conn).await,
                Err(fail) => Err(fail),
            };
            match found {
                Ok(found) => return Ok(tries.end(found)),
                // A look-up changes nothing, so it may run again after any failure that can pass.
                Err(fail) => tries.again(fail).await?,
            }
        }
    }

    /// As [`Self::write`], for a change that must not run twice. If the connection breaks during the commit, the result is unknown, and the error reports that.
    pub(super) async fn write_once<T, F>(
        &self,
        change: impl Fn(Arc<OpenTransaction>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        self.health.check_write(true)?;
        let mut tries = self.tries(self.retry_for);
        loop {
            match self.transact_once(&change).await {
                Ok(value) => return Ok(tries.end(value)),
                // If the connection broke at the commit, the failure is `Uncertain`, which is never retried.
                Err(fail) => tries.again(fail).await?,
            }
        }
    }

    /// Runs a change in a separate transaction. Retries after a conflict with another transaction, and while the database cannot be reached.
    ///
    /// If the connection breaks during the commit, the change may have been stored. So the change must be one that may run twice.
    pub(super) async fn write<T, F>(&self, change: impl Fn(Arc<OpenTransaction>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        self.health.check_write(true)?;
        let mut tries = self.tries(self.retry_for);
        loop {
            match self.transact(&change).await {
                Ok(value) => return Ok(tries.end(value)),
                // Retry even after a failed commit, because the change may run twice.
                Err(TransactionFailure::Before(fail) | TransactionFailure::AtCommit(fail)) => {
                    tries.again(fail).await?;
                }
            }
        }
    }

    fn tries(&self, patience: Duration) -> Tries<'_> {
        Tries { database: self, conflicts: 0, retries: self.outage.retries(patience) }
    }

    /// Runs a change in a separate transaction. The failure says whether the connection broke during the commit or before it.
    pub(super) async fn transact_once<T, F>(
        &self,
        change: &impl Fn(Arc<OpenTransaction>) -> F,
    ) -> Result<T, PostgresError>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        self.transact(change).await.map_err(|unfinished| match unfinished {
            // The connection broke during the commit: the server may have stored the change.
            TransactionFailure::AtCommit(fail) if fail.remedy() == Remedy::Reconnect => {
                PostgresError::Uncertain(match &fail {
                    PostgresError::Sql(error) => explain(error),
                    PostgresError::Refused(error)
                    | PostgresError::Damaged(_, error)
                    | PostgresError::MissingObject(error) => error.to_string(),
                    PostgresError::Unreachable(why) | PostgresError::Uncertain(why) => why.clone(),
                    PostgresError::Closed => "the store is closed".to_owned(),
                })
            }
            TransactionFailure::Before(fail) | TransactionFailure::AtCommit(fail) => fail,
        })
    }

    async fn transact<T, F>(
        &self,
        change: &impl Fn(Arc<OpenTransaction>) -> F,
    ) -> Result<T, TransactionFailure>
    where
        F: Future<Output = Result<T, PostgresError>>,
    {
        let begin = async {
            // Guard the connection before BEGIN: if the caller is cancelled, it must not return to the pool.
            let transaction = Arc::new(OpenTransaction(Some(self.connect().await?)));
            transaction.batch_execute("BEGIN").await?;
            Ok::<_, PostgresError>(transaction)
        };
        let transaction = begin.await.map_err(TransactionFailure::Before)?;
        // If the caller is cancelled here, the dropped guard closes the connection, and the server rolls back.
        let value = change(Arc::clone(&transaction)).await;
        // Roll a failed change back at once, so that its locks are released.
        let end = if value.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = transaction.batch_execute(end).await;
        // Reuse the connection only if the end succeeded and the change kept no handle of it.
        if let (Ok(()), Some(mut transaction)) = (&ended, Arc::into_inner(transaction)) {
            // Taken out of the guard, the connection returns to the pool instead of being closed.
            drop(transaction.0.take());
        }
        // The change's own failure comes first: it is the cause, and a rollback that also fails adds nothing.
        let value = value.map_err(TransactionFailure::Before)?;
        ended.map_err(|error| TransactionFailure::AtCommit(error.into()))?;
        Ok(value)
    }

    /// Records a failure that affects the whole store, and returns the error for the caller.
    pub(super) fn settle(&self, fail: PostgresError) -> Error {
        let is_outage = fail.remedy() == Remedy::Reconnect;
        match fail {
            PostgresError::Refused(error) | PostgresError::MissingObject(error) => error,
            PostgresError::Damaged(thread, error) => {
                if let Some(thread) = thread {
                    self.health.quarantine.add(thread, error.message());
                }
                error
            }
            PostgresError::Closed => closed_error(),
            PostgresError::Uncertain(why) => {
                self.outage.begin(&why);
                let message = format!("the change may have been stored, or not: {why}");
                Error::new(Code::StoreUnavailable, message)
                    .hint("look whether it was before you send it again")
            }
            PostgresError::Unreachable(why) => self.unreachable(&why),
            PostgresError::Sql(error) if takes_no_writes(&error) && self.is_opening() => {
                self.read_only(&explain(&error))
            }
            PostgresError::Sql(error) if is_outage => {
                // The server was the primary: look-ups there would miss what is new.
                if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                    self.sessions.end_all();
                }
                self.unreachable(&explain(&error))
            }
            PostgresError::Sql(error) => self.settle_sql(&error),
        }
    }

    pub(super) fn unreachable(&self, why: &str) -> Error {
        let why = self.sessions.refusal().unwrap_or_else(|| why.to_owned());
        self.outage.begin(&why);
        self.unavailable(&why)
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        let store = self.health.path().display();
        Error::new(Code::StoreUnavailable, format!("the store '{store}' cannot be reached: {why}"))
            .hint("check that the database runs and can be reached; the server continues by itself when it is back")
    }

    pub(super) fn read_only(&self, why: &str) -> Error {
        let store = self.health.path().display();
        let message = format!("the database of the store '{store}' takes no writes: {why}");
        Error::new(Code::StoreReadOnly, message)
            .hint("name the primary server in [store] url, not a replica")
    }

    pub(super) fn settle_sql(&self, error: &tokio_postgres::Error) -> Error {
        let store = self.health.path().display();
        let text = explain(error);
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => {
                self.disk_space.note_full();
                self.disk_full()
            }
            Some(code) if *code == SqlState::QUERY_CANCELED => Error::new(
                Code::FilterTooBroad,
                format!("the look-up took longer than {} s", READ_TIME.as_secs()),
            )
            .hint("add a condition that fewer rows fulfil"),
            Some(code) if *code == SqlState::UNIQUE_VIOLATION => {
                Error::new(Code::AlreadyExists, "another row has an id of the change")
            }
            Some(code) if is_conflict(code) => Error::new(
                Code::StoreUnavailable,
                format!("other changes were in the way {MAX_CONFLICTS} times: {text}"),
            )
            .hint("send the request again; nothing of it was stored"),
            Some(code) if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) => {
                Error::new(Code::StoreCorrupt, format!("the store '{store}' is damaged: {text}"))
                    .hint("restore the database from its backup")
            }
            _ if self.is_opening() => {
                Error::new(
                    Code::InvalidRequest,
                    format!("the store '{store}' cannot be opened: {text}"),
                )
                .hint("check user, password, database and rights: the user needs to create tables in its schema")
            }
            _ => {
                tracing::error!(store = %store, error = text, "a statement failed");
                unexpected_error()
            }
        }
    }

    /// Announces durable batches to the other nodes, each with the mark that its head has now.
    pub(super) fn announce<'b>(&self, batches: impl Iterator<Item = (&'b Batch, i64)>) {
        let Some(news) = &self.news else { return };
        let told = batches.filter_map(|(batch, stamp)| {
            let removal = removal(batch);
            (removal.is_some() || !batch.frames.is_empty()).then(|| AppendNotice {
                thread: batch.thread,
                last: batch.last(),
                stamp,
                removal,
                frames: batch.frames.clone(),
            })
        });
        news.publish_appends(told.collect());
    }

    /// Announces removed threads to the other nodes.
    fn announce_gone(&self, threads: &[ThreadKey]) {
        let Some(news) = &self.news else { return };
        let told = threads.iter().map(|thread| AppendNotice {
            thread: *thread,
            last: 0,
            stamp: 0,
            removal: Some(LogRemoval::Thread),
            frames: Vec::new(),
        });
        news.publish_appends(told.collect());
    }

    /// Keeps durable frames for readers, and wakes the readers.
    pub(super) fn publish(&self, batch: &Batch) {
        let last = batch.last();
        if batch.changes.iter().any(|change| matches!(change, Change::RemoveRun(_))) {
            // Readers never see frames of a batch that also removed their run.
            self.tails.forget_frames(batch.thread, last);
            self.objects_fell_due.notify_one();
        } else if !batch.frames.is_empty() {
            self.tails.publish_commit(batch.thread, last, &batch.frames);
        }
        for change in &batch.changes {
            match change {
                Change::Offer(_) => self.offered.wake(),
                Change::RemoveThread => self.forget(batch.thread),
                _ => {}
            }
        }
    }

    /// Forgets removed threads, here and on the other nodes.
    pub(super) fn forget_all(&self, threads: &[ThreadKey]) {
        threads.iter().for_each(|thread| self.forget(*thread));
        self.announce_gone(threads);
    }

    /// Forgets a removed thread.
    pub(super) fn forget(&self, thread: ThreadKey) {
        // Otherwise a comparison after a failover would report the removed thread as missing.
        self.acknowledged.forget(thread);
        self.objects_fell_due.notify_one();
        self.tails.remove_thread(thread);
        self.health.quarantine.remove(thread);
    }
}

fn removal(batch: &Batch) -> Option<LogRemoval> {
    let of = |change: &Change| match change {
        Change::RemoveThread => Some(LogRemoval::Thread),
        Change::RemoveRun(_) => Some(LogRemoval::Run),
        _ => None,
    };
    batch.changes.iter().filter_map(of).max()
}

// === impl Tries ===

impl Tries<'_> {
    fn end<T>(&self, value: T) -> T {
        self.database.outage.end();
        value
    }

    /// Waits until a failed try may be repeated. Fails if a repeat cannot help, or if the time for tries is over.
    async fn again(&mut self, fail: PostgresError) -> Result<()> {
        let remedy = fail.remedy();
        // Settle first: it records the outage, which the wait below depends on.
        let error = self.database.settle(fail);
        let may_try = match remedy {
            Remedy::Retry => {
                self.conflicts += 1;
                self.conflicts <= MAX_CONFLICTS
            }
            // Tries during an outage are bounded by time, those after conflicts by number.
            Remedy::Reconnect => self.retries.wait().await,
            Remedy::Refuse | Remedy::Fail => false,
        };
        if may_try { Ok(()) } else { Err(error) }
    }
}

// === impl OpenTransaction ===

impl Deref for OpenTransaction {
    type Target = Connection;

    #[expect(
        clippy::expect_used,
        reason = "it is taken when the transaction has ended, by its last owner"
    )]
    fn deref(&self) -> &Connection {
        self.0.as_ref().expect("the transaction is open")
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if let Some(conn) = self.0.take() {
            // Closing the connection makes the server roll the transaction back.
            drop(Connection::take(conn));
        }
    }
}

// === impl KeyBlock ===

impl KeyBlock {
    /// Bits of a key that count keys within one opening.
    const BITS: u32 = 40;
    /// The last opening whose keys are positive.
    pub(super) const MAX_OPENING: i64 = i64::MAX >> Self::BITS;

    pub(super) fn new(opening: i64) -> Self {
        let counter = || AtomicI64::new((opening << Self::BITS) + 1);
        Self { opening, thread: counter(), run: counter(), checkpoint: counter(), stamp: counter() }
    }

    /// The opening that gave a key. Zero for a key of another engine.
    pub(super) fn opening_of(key: i64) -> i64 {
        key >> Self::BITS
    }

    pub(super) fn next(counter: &AtomicI64) -> i64 {
        // Relaxed is enough: one counter alone gives unique and growing keys.
        counter.fetch_add(1, Ordering::Relaxed)
    }
}
