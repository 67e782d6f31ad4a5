//! A store in a separate folder, and data for it.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::oneshot;
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::MessageEvent;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Body, Json, RunKey, Scope, TenantId, ThreadKey};

use crate::fixtures::{self, START};
use crate::options::Options;
use crate::port::{Append, Batch, Change, Range, Read};
use crate::record::{Draft, Frame, NoOriginals};
use crate::rows::{RunRow, ThreadRow};
use crate::sqlite::file::sibling_path;
use crate::sqlite::job::{WorkKind, WriteContext};
use crate::sqlite::{RestoreOptions, SqliteStore};

/// A sequence of pseudo-random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// Replaces a store, without the tokens of the backup.
pub(super) const OVERWRITE: RestoreOptions =
    RestoreOptions { overwrite: true, with_tokens: false, with_runs: true };

pub(super) struct Folder {
    pub(super) path: PathBuf,
    _folder: TempDir,
}

impl Folder {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { path: folder.path().join("store.db"), _folder: folder }
    }

    pub(super) async fn open(&self) -> SqliteStore {
        self.open_with(|_| {}).await
    }

    pub(super) async fn open_with(&self, change: impl FnOnce(&mut Options)) -> SqliteStore {
        let mut options = options();
        change(&mut options);
        SqliteStore::open(self.path.clone(), options).await.unwrap()
    }

    /// A second connection, for changes to the file that the engine would never make.
    pub(super) fn raw(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

pub(super) fn options() -> Options {
    Options { reserve_bytes: 64 * 1024, ..Options::new(Arc::new(NoOriginals)) }
}

pub(super) fn reader() -> Arc<dyn ReadOriginal> {
    Arc::new(NoOriginals)
}

pub(super) fn tenant() -> TenantId {
    fixtures::tenant("tenant")
}

pub(super) fn scope() -> Scope {
    Scope { tenant: tenant(), owner: None }
}

/// All thread rows have the same length.
pub(super) fn thread_row(key: ThreadKey) -> ThreadRow {
    ThreadRow {
        metadata: Json::parse(format!(r#"{{"colour":"blue","key":{key}}}"#)).unwrap(),
        ..fixtures::thread_row(key, "tenant", &format!("thread-{key}"))
    }
}

/// All run rows have the same length.
pub(super) fn run_row(thread: ThreadKey, key: RunKey) -> RunRow {
    RunRow {
        metadata: Json::parse(format!(r#"{{"number":{key}}}"#)).unwrap(),
        saved: Some(Json::parse(r#"{"state":"what the agent left"}"#).unwrap()),
        ..fixtures::run_row(&thread_row(thread), key, &format!("run-{key}"))
    }
}

pub(super) fn frames(
    thread: ThreadKey,
    run: Option<RunKey>,
    first: u64,
    first_run: u64,
    texts: &[&str],
) -> Vec<Arc<Frame>> {
    let mut draft = Draft::default();
    for text in texts {
        let body = Body::Message(MessageEvent::Thought { message: None, text: Arc::from(*text) });
        draft.push(START, &body, None).unwrap();
    }
    draft.seal(thread, run, first, first_run, &reader())
}

/// A frame of one part that names a blob.
pub(super) fn naming(
    thread: ThreadKey,
    run: Option<RunKey>,
    first: u64,
    first_run: u64,
    blob: &BlobRef,
) -> Vec<Arc<Frame>> {
    let content = trilogue_domain::Content::Blob(blob.clone());
    let body = Body::Message(MessageEvent::Part {
        message: fixtures::message_id("message"),
        part: trilogue_domain::Part::new("text/plain", content),
    });
    let mut draft = Draft::default();
    draft.push(START, &body, None).unwrap();
    draft.seal(thread, run, first, first_run, &reader())
}

pub(super) fn batch(thread: ThreadKey, expected_last: u64) -> Batch {
    Batch {
        thread,
        epoch: 1,
        expected_last,
        frames: Vec::new(),
        changes: Vec::new(),
        blobs: Vec::new(),
        vital: false,
    }
}

/// A new thread, as its first batch.
pub(super) fn creation(thread: ThreadKey) -> Batch {
    Batch { changes: vec![Change::Thread(thread_row(thread))], ..batch(thread, 0) }
}

/// Creates a thread with `count` frames of a run.
pub(super) async fn thread_with_run(store: &SqliteStore, count: u64) -> (ThreadRow, RunKey) {
    let (thread, run) = (store.next_thread_key(), store.next_run_key());
    store.append(creation(thread)).await.unwrap();
    let mut first = batch(thread, 0);
    first.changes.push(Change::Run(Box::new(run_row(thread, run))));
    store.append(first).await.unwrap();
    for number in 1..=count {
        let text = format!("thought {number} of thread {thread}");
        let frames = frames(thread, Some(run), number, number, &[&text]);
        store.append(Batch { frames, ..batch(thread, number - 1) }).await.unwrap();
    }
    (thread_row(thread), run)
}

pub(super) fn everything() -> Range {
    Range { run: None, after: 0, max_bytes: usize::MAX }
}

pub(super) async fn numbers(store: &SqliteStore, thread: &ThreadRow) -> Vec<u64> {
    let frames = store.frames(thread.key, everything()).await.unwrap();
    frames.iter().flat_map(|frame| frame.first()..=frame.last()).collect()
}

/// Holds the writer in a transaction until the returned value is used or dropped.
pub(super) async fn hold_writer(
    store: &Arc<SqliteStore>,
    kind: WorkKind,
) -> std::sync::mpsc::Sender<()> {
    let (release, is_held) = queue_hold(store, kind);
    is_held.await.unwrap();
    release
}

/// Holds the writer when it reaches this job; the receiver reports that.
pub(super) fn queue_hold(
    store: &Arc<SqliteStore>,
    kind: WorkKind,
) -> (std::sync::mpsc::Sender<()>, oneshot::Receiver<()>) {
    let (begun, is_held) = oneshot::channel();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let mut begun = Some(begun);
    let hold = move |_: &mut WriteContext<'_>| {
        begun.take().into_iter().for_each(|begun| begun.send(()).unwrap());
        let _ = held.recv();
        Ok(())
    };
    let store = Arc::clone(store);
    tokio::spawn(async move { store.write(kind, hold).await });
    (release, is_held)
}

/// Work that shares its transaction with no other job.
pub(super) const ALONE: WorkKind = WorkKind { is_alone: true, ..WorkKind::USUAL };

/// The files after a sudden end of the process: the database and its log, as the system's cache has them.
pub(super) fn killed(folder: &Folder) -> Folder {
    let next = Folder::new();
    for suffix in ["", "-wal", ".commits"] {
        if !sibling_path(&folder.path, suffix).exists() {
            continue;
        }
        std::fs::copy(sibling_path(&folder.path, suffix), sibling_path(&next.path, suffix))
            .unwrap();
    }
    next
}
