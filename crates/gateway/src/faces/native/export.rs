//! Exports a whole thread as a stream of lines.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::event::{InterruptEvent, MessageEvent, ToolEvent};
use trilogue_domain::{
    Answer, Body, CheckpointKey, Code, Content, Part, Resolution, RunId, RunKey, Scope,
};
use trilogue_mapping::native::{self as mapping, hex};
use trilogue_runtime::Runtime;
use trilogue_store::Read;
use trilogue_store::rows::{InterruptFilter, Page, RunFilter, ThreadRow};

use super::{NativeCall, NativeRoute, rows, thread};
use crate::core::audit::AuditEvent;
use crate::http::body::ReplyBody;
use crate::http::reply::Reply;
use crate::route::{ResponseContent, RouteResponse};
use crate::stream::log_reader::LogReader;

/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// How many checkpoints are read at once: each can hold a state.
const CHECKPOINTS_READ: usize = 32;

pub(crate) const ROUTES: &[NativeRoute] = &[NativeRoute::base(|call| Box::pin(export(call)))
    .path("/api/v1/threads/{thread_id}/export")
    .describe(
        "export_thread",
        "Everything of a thread, one object a line: `thread`, `run`, `interrupt`, \
             `checkpoint`, `event`, `blob`, and `end` as the last line of a whole export",
    )
    .answers(&[RouteResponse {
        status: 200,
        about: "The lines.",
        content: ResponseContent::Other("application/x-ndjson"),
    }])
    .errors(&[Code::ThreadNotFound])];

struct Export {
    read: Arc<dyn Read>,
    runtime: Runtime,
    reader: trilogue_domain::PrincipalId,
    scope: Scope,
    thread: ThreadRow,
    stage: Stage,
    runs: HashMap<RunKey, RunId>,
    blobs: HashSet<[u8; 32]>,
    ready: VecDeque<Vec<u8>>,
    events: u64,
}

enum Stage {
    Runs(Option<i64>),
    Interrupts(Option<i64>),
    /// From this checkpoint on; `None` is the head.
    Checkpoints(Option<CheckpointKey>),
    Events(u64),
    End,
    Done,
}

async fn export(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    call.audit(AuditEvent::ThreadExported, row.id.as_str(), "");
    let mut export = Export {
        read: Arc::clone(&call.state.read),
        runtime: call.state.runtime.clone(),
        reader: call.principal().id.clone(),
        scope: Scope::of_tenant(&row.tenant),
        thread: row,
        stage: Stage::Runs(None),
        runs: HashMap::new(),
        blobs: HashSet::new(),
        ready: VecDeque::new(),
        events: 0,
    };
    export.line(&json!({ "thread": rows::thread(&export.thread) }));
    Ok(Reply::new(StatusCode::OK, ReplyBody::pieces(pieces(export)))
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson")))
}

fn pieces(export: Export) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    futures_util::stream::unfold(export, |mut export| async move {
        loop {
            if let Some(line) = export.ready.pop_front() {
                return Some((Ok(Bytes::from(line)), export));
            }
            if matches!(export.stage, Stage::Done) {
                return None;
            }
            if let Err(error) = export.step().await {
                tracing::warn!(error = %error, thread = %export.thread.id, "an export broke off");
                export.stage = Stage::Done;
                // An aborted body tells the client that the export is incomplete.
                return Some((Err(std::io::Error::other(error)), export));
            }
        }
    })
}

// === impl Export ===

impl Export {
    fn line(&mut self, value: &impl serde::Serialize) {
        let mut line = serde_json::to_vec(value).unwrap_or_default();
        line.push(b'\n');
        self.ready.push_back(line);
    }

    async fn step(&mut self) -> Result<()> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Runs(after) => self.runs(after).await?,
            Stage::Interrupts(after) => self.interrupts(after).await?,
            Stage::Checkpoints(from) => self.checkpoints(from).await?,
            Stage::Events(after) => self.events(after).await?,
            Stage::End => {
                let events = self.events;
                self.line(&json!({ "end": { "events": events } }));
                Stage::Done
            }
            Stage::Done => Stage::Done,
        };
        Ok(())
    }

    async fn runs(&mut self, after: Option<i64>) -> Result<Stage> {
        let filter = RunFilter { thread: Some(self.thread.id.clone()), ..RunFilter::default() };
        let page = Page { after, ..Page::default() };
        let listing = self.read.runs(&self.scope, &filter, &page).await?;
        for row in &listing.rows {
            self.runs.insert(row.key, row.id.clone());
            self.line(&json!({ "run": rows::run(row) }));
        }
        Ok(listing.next.map_or(Stage::Interrupts(None), |next| Stage::Runs(Some(next))))
    }

    async fn interrupts(&mut self, after: Option<i64>) -> Result<Stage> {
        let thread = Some(self.thread.id.clone());
        let filter = InterruptFilter { thread, ..InterruptFilter::default() };
        let page = Page { after, ..Page::default() };
        let listing = self.read.interrupts(&self.scope, &filter, &page).await?;
        for row in &listing.rows {
            self.runtime.record_shown_question(&self.reader, &row.run_id, &row.interrupt.id);
            self.line(&json!({ "interrupt": rows::interrupt(row) }));
        }
        Ok(listing.next.map_or(Stage::Checkpoints(None), |next| Stage::Interrupts(Some(next))))
    }

    async fn checkpoints(&mut self, from: Option<CheckpointKey>) -> Result<Stage> {
        let from = from.or(self.thread.head);
        if from.is_none() {
            return Ok(Stage::Events(0));
        }
        // Read one more: its id is the parent of the last.
        let most = CHECKPOINTS_READ + 1;
        let path = self.read.path(&self.scope, &self.thread.id, from, most).await?;
        for (place, row) in path.iter().take(CHECKPOINTS_READ).enumerate() {
            let parent = path.get(place + 1).map(|parent| &parent.id);
            let run = row.run.and_then(|key| self.runs.get(&key));
            self.line(&json!({ "checkpoint": rows::checkpoint(row, parent, run) }));
        }
        let next = path.get(CHECKPOINTS_READ).map(|row| row.key);
        Ok(next.map_or(Stage::Events(0), |next| Stage::Checkpoints(Some(next))))
    }

    async fn events(&mut self, after: u64) -> Result<Stage> {
        let log = LogReader::new(self.read.as_ref(), self.thread.key, None).after(after);
        let Some(page) = log.pages_of(READ_BYTES).next().await? else { return Ok(Stage::End) };
        let mut last = after;
        for frame in &page.frames {
            let run = frame.run().and_then(|key| self.runs.get(&key)).cloned();
            let run = run.as_ref().map(RunId::as_str);
            for event in page.events_of(frame)? {
                let wire = mapping::event::event(event, event.number, run, &self.thread.id);
                self.line(&json!({ "event": wire }));
                self.events += 1;
                last = event.number;
                for blob in blobs(&event.body) {
                    self.blob(blob).await?;
                }
            }
        }
        Ok(Stage::Events(last))
    }

    async fn blob(&mut self, blob: &BlobRef) -> Result<()> {
        if !self.blobs.insert(blob.hash) {
            return Ok(());
        }
        if let Some(bytes) = self.read.blob(self.thread.key, blob).await? {
            let content = STANDARD.encode(&bytes);
            let sha256 = hex(&blob.hash);
            let is_text = blob.is_text;
            self.line(&json!({ "blob": { "sha256": sha256, "is_text": is_text, "content": content, "content_encoding": "base64" } }));
        }
        Ok(())
    }
}

fn blobs(body: &Body) -> Vec<&BlobRef> {
    let parts: &[Part] = match body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_ref(part),
        Body::Tool(ToolEvent::Updated { content, .. }) => content,
        Body::Interrupt(InterruptEvent::Raised(interrupt)) => &interrupt.prompt,
        Body::Interrupt(InterruptEvent::Resolved {
            resolution: Resolution::Answered { answer: Answer::Message(parts), .. },
            ..
        }) => parts,
        _ => &[],
    };
    let blobs = parts.iter().filter_map(|part| match &part.content {
        Content::Blob(blob) => Some(blob),
        _ => None,
    });
    blobs.collect()
}
