//! Stores to test, and threads to write to.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tempfile::TempDir;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Result};
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{
    CheckpointKey, Json, Outcome, RunKey, RunStatus, Scope, ThreadKey, Timestamp,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{
    CheckpointRow, IdempotencyRow, InterruptRow, MessageRow, Page, QueueItem, QueueKind, RunRow,
    ThreadRow,
};
use trilogue_store::{
    Batch, BucketOptions, Change, Draft, Durability, Frame, Options, Password, Range, Store, open,
};

use crate::rows;
pub(crate) use crate::rows::{agent, principal, run_id, thread_id};
pub(crate) use crate::services::{postgres_url, service};

pub(crate) const NODE: &str = "node";

/// Runs each case on every engine.
macro_rules! contract {
    (with bucket: $($case:ident),+ $(,)?) => {
        crate::harness::contract!($($case),+);
        crate::harness::contract!(@on bucket: $($case),+);
    };
    (@on $engine:ident: $($case:ident),+) => {
        mod $engine {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::harness::World::$engine().await).await;
            })+
        }
    };
    ($($case:ident),+ $(,)?) => {
        crate::harness::contract!(@on memory: $($case),+);
        crate::harness::contract!(@on sqlite: $($case),+);
        crate::harness::contract!(@on postgres: $($case),+);
    };
}
pub(crate) use contract;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    folder: Option<TempDir>,
    /// The URL of a store in PostgreSQL, if it is one.
    database: Option<String>,
    /// The bucket of the store's large content.
    pub(crate) bucket: Option<BucketOptions>,
}

/// A thread to write to, with the numbers that a writer tracks.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) row: ThreadRow,
    pub(crate) last: u64,
    runs: HashMap<RunKey, u64>,
}

#[derive(Debug)]
pub(crate) struct Step<'a> {
    log: &'a mut Log,
    last: u64,
    runs: HashMap<RunKey, u64>,
    pub(crate) batch: Batch,
}

// === impl World ===

impl World {
    pub(crate) async fn memory() -> Self {
        Self::of(open("memory:", options()).await.unwrap())
    }

    /// Wraps a store in memory.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        Self { store, folder: None, database: None, bucket: None }
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let store = open(&url, options()).await.unwrap();
        Self { folder: Some(folder), ..Self::of(store) }
    }

    /// A store in a separate schema.
    pub(crate) async fn postgres() -> Self {
        Self::in_database(postgres_url().await).await
    }

    pub(crate) async fn in_database(url: String) -> Self {
        let store = open(&url, options()).await.unwrap();
        Self { database: Some(url), ..Self::of(store) }
    }

    /// A store in a separate schema and bucket. All content is stored in the bucket.
    pub(crate) async fn bucket() -> Self {
        Self::in_bucket(postgres_url().await, bucket_options().await).await
    }

    pub(crate) async fn in_bucket(url: String, bucket: BucketOptions) -> Self {
        let options = Options { bucket: Some(bucket.clone()), ..options() };
        let store = open(&url, options).await.unwrap();
        Self { database: Some(url), bucket: Some(bucket), ..Self::of(store) }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.as_ref().expect("the engine has a file").path().join("store.db")
    }

    pub(crate) fn is_in_database(&self) -> bool {
        self.database.is_some()
    }

    pub(crate) fn url(&self) -> String {
        match &self.database {
            Some(url) => url.clone(),
            None => format!("sqlite:{}", self.file().display()),
        }
    }

    pub(crate) async fn reopen(self) -> Self {
        self.store.close().await.unwrap();
        let (url, Self { store, folder, database, bucket }) = (self.url(), self);
        drop(store);
        let options = Options { bucket: bucket.clone(), ..options() };
        Self { store: open(&url, options).await.unwrap(), folder, database, bucket }
    }

    /// A new thread of `alice` in the tenant `default`.
    pub(crate) async fn thread(&self, id: &str) -> Log {
        self.thread_of(&alice(), id).await
    }

    pub(crate) async fn thread_of(&self, scope: &Scope, id: &str) -> Log {
        let row = thread_row(self.store.next_thread_key(), scope, id);
        self.create(row).await.unwrap()
    }

    pub(crate) async fn create(&self, row: ThreadRow) -> Result<Log> {
        let mut log = Log::of(Arc::clone(&self.store), row);
        let change = Change::Thread(log.row.clone());
        log.step().change(change).commit().await?;
        Ok(log)
    }

    pub(crate) async fn thread_with_ended_run(&self, thread: &str, run: &str) -> (Log, RunRow) {
        let mut log = self.thread(thread).await;
        let row = log.start(run).await;
        let row = log.end(row).await;
        (log, row)
    }
}

// === impl Log ===

impl Log {
    /// A thread that is not stored yet.
    pub(crate) fn of(store: Arc<dyn Store>, row: ThreadRow) -> Self {
        Self { store, row, last: 0, runs: HashMap::new() }
    }

    /// Appends only these changes.
    pub(crate) async fn write(&mut self, changes: impl IntoIterator<Item = Change>) {
        let mut step = self.step();
        step.batch.changes.extend(changes);
        step.commit().await.unwrap();
    }

    pub(crate) fn step(&mut self) -> Step<'_> {
        let batch = Batch {
            thread: self.row.key,
            epoch: self.row.epoch,
            expected_last: self.last,
            frames: Vec::new(),
            changes: Vec::new(),
            blobs: Vec::new(),
            vital: false,
        };
        Step { last: self.last, runs: self.runs.clone(), batch, log: self }
    }

    pub(crate) async fn start(&mut self, id: &str) -> RunRow {
        let row = self.run_row(id);
        let change = Change::Run(Box::new(row.clone()));
        self.step().say(Some(row.key), &["begin"]).change(change).commit().await.unwrap();
        row
    }

    pub(crate) async fn end(&mut self, mut row: RunRow) -> RunRow {
        row.status = RunStatus::Completed;
        row.outcome = Some(Outcome::Completed);
        row.ended_at = Some(now());
        let change = Change::Run(Box::new(row.clone()));
        self.step().say(Some(row.key), &["end"]).change(change).commit().await.unwrap();
        row
    }

    pub(crate) fn run_row(&self, id: &str) -> RunRow {
        let row = rows::run_row(&self.row, self.store.next_run_key(), id);
        RunRow { created_at: now(), started_at: Some(now()), ..row }
    }

    pub(crate) fn checkpoint(&self, id: &str, parent: Option<CheckpointKey>) -> CheckpointRow {
        let row = rows::checkpoint_row(self.row.key, self.store.next_checkpoint_key(), id);
        CheckpointRow { parent, position: self.last, created_at: now(), ..row }
    }

    pub(crate) fn message(&self, id: &str, run: RunKey) -> MessageRow {
        MessageRow { position: self.last, ..rows::message_row(&self.row, run, id) }
    }

    pub(crate) fn interrupt(&self, id: &str, run: &RunRow) -> InterruptRow {
        InterruptRow { raised_at: now(), ..rows::interrupt_row(run, id) }
    }

    pub(crate) fn idempotency(&self, text: &str, run: &RunRow) -> IdempotencyRow {
        IdempotencyRow { created_at: now(), ..rows::idempotency_row(run, text) }
    }

    pub(crate) fn item(&self, kind: QueueKind, key: &str, due: i64) -> QueueItem {
        rows::queue_item(&self.row, kind, key, at(due))
    }

    pub(crate) async fn read(&self) -> Vec<(u64, String)> {
        read(&*self.store, &self.row, None).await
    }

    pub(crate) async fn frames(&self, after: u64, max_bytes: usize) -> Vec<Arc<Frame>> {
        self.store.frames(self.row.key, Range { run: None, after, max_bytes }).await.unwrap()
    }
}

// === impl Step ===

impl Step<'_> {
    /// Adds one frame with one event for each text.
    pub(crate) fn say(mut self, run: Option<RunKey>, texts: &[&str]) -> Self {
        let first_run = run.map_or(0, |run| self.runs.get(&run).copied().unwrap_or(0) + 1);
        let mut draft = Draft::default();
        for text in texts {
            draft.push(now(), &thought(text), None).unwrap();
        }
        let frames = draft.seal(self.batch.thread, run, self.last + 1, first_run, &reader());
        for frame in frames {
            self.last = frame.last();
            if let Some(run) = run {
                self.runs.insert(run, frame.last_run());
            }
            self.batch.frames.push(frame);
        }
        self
    }

    pub(crate) fn change(mut self, change: Change) -> Self {
        self.batch.changes.push(change);
        self
    }

    pub(crate) fn run(self, row: &RunRow) -> Self {
        self.change(Change::Run(Box::new(row.clone())))
    }

    pub(crate) fn blob(mut self, blob: &BlobRef) -> Self {
        self.batch.blobs.push(blob.clone());
        self
    }

    pub(crate) async fn commit(self) -> Result<()> {
        let Self { log, last, runs, batch } = self;
        log.store.append(batch).await?;
        (log.last, log.runs) = (last, runs);
        Ok(())
    }
}

/// A new bucket in the tests' private object store, for content of every size.
pub(crate) async fn bucket_options() -> BucketOptions {
    static COUNT: AtomicI64 = AtomicI64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let url = format!("{}/test-{}-{nanos}-{number}", service("TRILOGUE_S3"), std::process::id());
    http().put(&url).send().await.unwrap().error_for_status().unwrap();
    BucketOptions {
        key_id: Some("key".to_owned()),
        secret: Some(Password::new("secret".to_owned())),
        min_bytes: 1,
        ..BucketOptions::new(url)
    }
}

pub(crate) fn http() -> reqwest::Client {
    // Only the first installation succeeds.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::new()
}

/// A time later than all that this function returned before.
pub(crate) fn now() -> Timestamp {
    static LAST: AtomicI64 = AtomicI64::new(1_800_000_000_000_000);
    at(LAST.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(crate) fn options() -> Options {
    Options { durability: Durability::Buffered, reserve_bytes: 0, ..Options::new(reader()) }
}

pub(crate) fn reader() -> Arc<dyn ReadOriginal> {
    Arc::new(NoOriginals)
}

pub(crate) fn thread_row(key: ThreadKey, scope: &Scope, id: &str) -> ThreadRow {
    let row = rows::thread_row(key, scope.tenant.as_str(), id);
    let owner = scope.owner.clone().unwrap_or_else(|| principal("alice"));
    ThreadRow { owner, created_at: now(), updated_at: now(), ..row }
}

pub(crate) fn thought(text: &str) -> Body {
    Body::Message(MessageEvent::Thought { message: None, text: text.into() })
}

/// All events of a log, or of a run of it, read in small pieces: number and text.
pub(crate) async fn read(
    store: &dyn Store,
    thread: &ThreadRow,
    run: Option<RunKey>,
) -> Vec<(u64, String)> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let frames = store.frames(thread.key, Range { run, after, max_bytes: 64 }).await.unwrap();
        if frames.is_empty() {
            return events;
        }
        for event in frames.iter().flat_map(|frame| frame.events().unwrap()) {
            let number = if run.is_some() { event.run_number } else { event.number };
            assert!(number > after, "numbers grow: {number} after {after}");
            after = number;
            let Body::Message(MessageEvent::Thought { text, .. }) = &event.body else {
                panic!("nothing else was written: {event:?}");
            };
            events.push((number, text.to_string()));
        }
    }
}

pub(crate) fn tenant_scope(tenant: &str) -> Scope {
    Scope { tenant: rows::tenant(tenant), owner: None }
}

pub(crate) fn own_scope(tenant: &str, owner: &str) -> Scope {
    Scope { owner: Some(principal(owner)), ..tenant_scope(tenant) }
}

/// A scope on the whole tenant `default`.
pub(crate) fn alice() -> Scope {
    tenant_scope("default")
}

pub(crate) fn json(value: &serde_json::Value) -> Json {
    Json::from_value(value)
}

pub(crate) fn page(limit: usize, after: Option<i64>) -> Page {
    Page { limit, after, skip: 0 }
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code()
}
