//! Appends of many producers, compared with the same frames as rows in bare SQLite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use trilogue_domain::event::MessageEvent;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{
    Body, Content, MessageId, Part, PrincipalId, RunKey, TenantId, ThreadId, ThreadKey,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Batch, Change, Draft, Frame, Store};

use crate::disk;
use crate::report::{self, Report, median};

/// How many producers append, each to a thread of its own.
pub(crate) const PRODUCERS: usize = 64;
/// How many frames each appends.
const FRAMES: u64 = 250;
/// How many events a frame has.
const EVENTS: u64 = 8;
/// Bytes of text in each event.
const TEXT: usize = 64;
/// The least rate, as a share of bare SQLite's.
const SHARE: f64 = 0.8;
/// The most frames in one commit of the peer.
const GROUP: usize = 1_024;

/// One producer's thread and its frames, made before the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) thread: ThreadKey,
    pub(crate) frames: Vec<Arc<Frame>>,
}

/// A frame on its way to the peer's writer.
struct Insert {
    thread: i64,
    first: i64,
    data: Bytes,
    done: oneshot::Sender<()>,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut size = 0;
    for _ in 0..report.runs {
        let dir = tempfile::tempdir_in(report::folder())?;
        let url = format!("sqlite:{}", dir.path().join("ours.db").display());
        let store = trilogue_store::open(&url, options()).await?;
        let work = prepare(store.as_ref()).await?;
        size = work
            .first()
            .and_then(|work| work.frames.first())
            .map_or(0, |frame| frame.bytes().len());
        let them = rate(bare(&dir.path().join("theirs.db"), &work).await?);
        let us = rate(append(&store, &work).await?);
        store.close().await?;
        ours.push(us);
        theirs.push(them);
        ratios.push(us / them);
    }
    disk::measure(report, size)?;
    let what = format!("bare SQLite, frames of {size} bytes a second, {PRODUCERS} producers");
    report.line(&what, &format!("{:.0}", median(theirs)));
    report.line("the store, the same frames a second", &format!("{:.0}", median(ours)));
    let ratio = median(ratios);
    report.target(
        "the store's share of bare SQLite",
        &format!("{ratio:.2}"),
        ratio >= SHARE,
        ">= 0.80",
    );
    Ok(())
}

/// The store's settings: its defaults.
pub(crate) fn options() -> trilogue_store::Options {
    trilogue_store::Options::new(Arc::new(NoOriginals))
}

pub(crate) fn rate(elapsed: Duration) -> f64 {
    (PRODUCERS as u64 * FRAMES) as f64 / elapsed.as_secs_f64()
}

/// Makes the threads, and the frames that will be appended to them.
pub(crate) async fn prepare(store: &dyn Store) -> Result<Vec<Work>> {
    let now = SystemClock.now();
    let mut all = Vec::new();
    for index in 0..PRODUCERS {
        let thread = store.next_thread_key();
        let row = ThreadRow {
            owner_node: "bench".to_owned(),
            ..ThreadRow::new(
                thread,
                ThreadId::generate(),
                TenantId::parse("bench")?,
                PrincipalId::parse("bench")?,
                now,
            )
        };
        let changes = vec![Change::Thread(row)];
        store.append(batch(thread, 0, Vec::new(), changes)).await?;
        let run = store.next_run_key();
        let frames = (0..FRAMES).map(|number| frame(thread, run, number * EVENTS + 1));
        let frames = frames.collect::<Result<_>>().with_context(|| format!("producer {index}"))?;
        all.push(Work { thread, frames });
    }
    Ok(all)
}

fn frame(thread: ThreadKey, run: RunKey, first: u64) -> Result<Arc<Frame>> {
    let mut draft = Draft::default();
    let message = MessageId::generate();
    for _ in 0..EVENTS {
        let part = Part {
            content_type: Arc::from("text/plain"),
            content: Content::Text(Arc::from("x".repeat(TEXT))),
            name: None,
            metadata: None,
            extra: None,
        };
        let body = Body::Message(MessageEvent::Part { message: message.clone(), part });
        draft.push(SystemClock.now(), &body, None)?;
    }
    let reader: Arc<dyn trilogue_domain::port::ReadOriginal> = Arc::new(NoOriginals);
    let frames = draft.seal(thread, Some(run), first, first, &reader);
    frames.into_iter().next().context("a draft of some events is a frame")
}

pub(crate) fn batch(
    thread: ThreadKey,
    last: u64,
    frames: Vec<Arc<Frame>>,
    changes: Vec<Change>,
) -> Batch {
    Batch {
        thread,
        epoch: 1,
        expected_last: last,
        frames,
        changes,
        blobs: Vec::new(),
        vital: false,
    }
}

/// Every producer appends its frames, one after the other.
pub(crate) async fn append(store: &Arc<dyn Store>, work: &[Work]) -> Result<Duration> {
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for Work { thread, frames } in work.iter().cloned() {
        let store = Arc::clone(store);
        tasks.push(tokio::spawn(async move {
            for frame in frames {
                let last = frame.first() - 1;
                store.append(batch(thread, last, vec![frame], Vec::new())).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(begun.elapsed())
}

/// Writes the same frames to bare SQLite: one writer thread commits all frames that have arrived.
async fn bare(path: &std::path::Path, work: &[Work]) -> Result<Duration> {
    let connection = disk::open(path)?;
    let (sender, mut inbox) = mpsc::channel::<Insert>(GROUP);
    let writer = std::thread::spawn(move || -> Result<()> {
        let mut group = Vec::with_capacity(GROUP);
        while inbox.blocking_recv_many(&mut group, GROUP) > 0 {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            for insert in &group {
                disk::insert(&connection, insert.thread, insert.first, &insert.data)?;
            }
            connection.execute_batch("COMMIT")?;
            for insert in group.drain(..) {
                // A producer that is gone needs no answer.
                let _ = insert.done.send(());
            }
        }
        Ok(())
    });
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for (index, Work { frames, .. }) in work.iter().cloned().enumerate() {
        let sender = sender.clone();
        tasks.push(tokio::spawn(async move {
            for frame in frames {
                let (done, committed) = oneshot::channel();
                let (thread, first) = (i64::try_from(index)?, i64::try_from(frame.first())?);
                let data = frame.bytes().clone();
                sender.send(Insert { thread, first, data, done }).await?;
                committed.await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let elapsed = begun.elapsed();
    drop(sender);
    writer.join().map_err(|_| anyhow::anyhow!("the peer's writer panicked"))??;
    Ok(elapsed)
}
