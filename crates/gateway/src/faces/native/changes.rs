//! Streams changes of the lists that a caller sees.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Scope};
use trilogue_mapping::native::run as mapped_run;
use trilogue_runtime::RowNews;
use trilogue_store::{ChangedRow, RowChange};
use trilogue_wire::native::{ListChange, ListChangeKind};
use trilogue_wire::sse;

use super::view::NativeView;
use super::{NativeCall, NativeRoute};
use crate::faces::common::negotiation::wants_stream;
use crate::http::reply::Reply;
use crate::route::{ResponseContent, RouteResponse};
use crate::stream::view::View;
use crate::stream::{OpenStream, StreamSource, stopping, stream_reply};

/// The event for a client that fell behind.
const MISSED: &[u8] = b"event: missed\ndata: {}\n\n";

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(watch(call)))
    .path("/api/v1/changes")
    .describe(
        "watch_changes",
        "Which threads, runs and interrupts of the caller change, as it happens, from now on",
    )
    .answers(&[RouteResponse {
        status: 200,
        about: "Server-sent events without ids: `data` is a `ListChange`. The named event `missed` says that some were left out: read the lists again. `error` carries a `Problem`.",
        content: ResponseContent::Other("text/event-stream"),
    }]);

pub(crate) const ROUTES: &[NativeRoute] = &[BASE];

struct ChangeReader {
    open: OpenStream,
    changes: Receiver<RowNews>,
    scope: Scope,
    done: bool,
}

async fn watch(call: NativeCall) -> Result<Reply> {
    if !wants_stream(&call) {
        return Err(Error::new(Code::InvalidRequest, "changes come as a stream only")
            .hint("send 'Accept: text/event-stream'"));
    }
    let open = OpenStream::begin(&call.state.streams, &call.caller, Duration::MAX)?;
    let changes = call.state.runtime.watch_rows();
    let reader = ChangeReader { open, changes, scope: call.scope(), done: false };
    Ok(stream_reply(HeaderValue::from_static("text/event-stream"), reader))
}

// === impl ChangeReader ===

impl StreamSource for ChangeReader {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.done {
            if let Err(error) = self.open.check().await {
                return Some(self.end_with(&error));
            }
            let lifecycle = Arc::clone(&self.open.streams.lifecycle);
            let piece = tokio::select! {
                changes = self.changes.recv() => match changes {
                    Ok(RowNews::Changed(changes)) => self.render_visible(&changes),
                    Ok(RowNews::Missed) | Err(RecvError::Lagged(_)) => Bytes::from_static(MISSED),
                    Err(RecvError::Closed) => self.end_with(&stopping()),
                },
                () = lifecycle.streams_ended() => self.end_with(&stopping()),
                () = self.open.next_tick() => match self.open.tick().await {
                    Ok(true) => NativeView.heartbeat(),
                    Ok(false) => Bytes::new(),
                    Err(error) => self.end_with(&error),
                },
            };
            if !piece.is_empty() {
                return Some(piece);
            }
        }
        None
    }

    fn open(&mut self) -> &mut OpenStream {
        &mut self.open
    }
}

impl ChangeReader {
    /// Renders the changes that the caller can see.
    fn render_visible(&self, changes: &[RowChange]) -> Bytes {
        let mut bytes = Vec::new();
        for change in changes {
            if self.scope.can_see(&change.tenant, &change.principal) {
                let data = serde_json::to_vec(&to_list_change(change)).unwrap_or_default();
                sse::encode(&mut bytes, None, None, &data);
            }
        }
        Bytes::from(bytes)
    }

    fn end_with(&mut self, error: &Error) -> Bytes {
        self.done = true;
        NativeView.error(error).into()
    }
}

fn to_list_change(change: &RowChange) -> ListChange {
    let mut told = ListChange {
        kind: ListChangeKind::Thread,
        thread_id: change.thread.as_str().to_owned(),
        run_id: None,
        agent: None,
        status: None,
        interrupt_id: None,
        pending: None,
    };
    match &change.row {
        ChangedRow::Thread => {}
        ChangedRow::NoThread => told.kind = ListChangeKind::ThreadRemoved,
        ChangedRow::Run { id, agent, status } => {
            told.kind = ListChangeKind::Run;
            told.run_id = Some(id.as_str().to_owned());
            told.agent = Some(agent.as_str().to_owned());
            told.status = Some(mapped_run::status(*status));
        }
        ChangedRow::Interrupt { id, run, is_pending } => {
            told.kind = ListChangeKind::Interrupt;
            told.run_id = Some(run.as_str().to_owned());
            told.interrupt_id = Some(id.as_str().to_owned());
            told.pending = Some(*is_pending);
        }
    }
    told
}
