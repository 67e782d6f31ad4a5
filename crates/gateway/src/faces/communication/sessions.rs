//! Sessions: references to messages and to the state, and the content of the state.

use std::fmt::Write as _;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::StatusCode;
use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointId, Code, Error, Reference, ThreadId};
use trilogue_mapping::communication as mapping;
use trilogue_mapping::native::message::PATH_SEGMENT;
use trilogue_mapping::native::{escape_for_message, read_sha256};
use trilogue_runtime::{ReferenceReader, StateAt};
use trilogue_wire::agent_communication::splice;

use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::http::reply::Reply;

/// Streams the addresses of a session's messages: memory holds those of one run.
struct HistoryPieces {
    references: ReferenceReader,
    base: String,
    has_written: bool,
}

const SESSION: CommunicationRoute = BASE
    .at("/sessions/{session_id}", |call| Box::pin(get(call)))
    .describe(
        "communication_get_session",
        "A session: the addresses of its messages and of its state",
    )
    .errors(&[Code::InvalidId, Code::ThreadNotFound]);

pub(crate) const ROUTES: &[CommunicationRoute] = &[
    SESSION,
    SESSION.path("/session/{session_id}").describe(
        "communication_get_session_alias",
        "The same under the path of the protocol's document",
    ),
    SESSION
        .at("/sessions/{session_id}/state/{checkpoint_id}", |call| Box::pin(state(call)))
        .describe("communication_get_state", "A state of a session")
        .errors(&[Code::InvalidId, Code::ThreadNotFound, Code::NotFound]),
    SESSION
        .at("/sessions/{session_id}/blobs/{sha256}", |call| Box::pin(blob(call)))
        .describe("communication_get_blob", "Large content that a part of this session links to")
        .errors(&[Code::InvalidId, Code::ThreadNotFound, Code::NotFound]),
];

async fn get(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_session().await?;
    let id = mapping::uuid_of(row.id.as_str());
    let references = call.state.runtime.references(&call.scope(), &row.id).await?;
    let base = call.state.place.base_for(&call);
    let state = references.state().map(|state| match state {
        StateAt::Value { checkpoint } => state_address(&base, &row.id, checkpoint),
        StateAt::Address(address) => address.to_string(),
    });
    let (before, behind) = splice::session(id, state.as_deref());
    let history = HistoryPieces { references, base, has_written: false }.into_stream();
    let pieces = stream::iter([Ok(Bytes::from(before))])
        .chain(history)
        .chain(stream::iter([Ok(Bytes::from(behind))]));
    Reply::json_pieces(StatusCode::OK, pieces).await
}

/// Returns the address of a message.
fn address(base: &str, reference: &Reference) -> String {
    let (thread, id) = match reference {
        Reference::Message { thread, id } => (thread.as_ref(), id.as_str()),
        Reference::Result(run) => (None, run.as_str()),
        Reference::Address(address) => return address.to_string(),
    };
    let mut address = String::with_capacity(base.len() + 96);
    address.push_str(base);
    address.push_str("/resources");
    for segment in thread.map(ThreadId::as_str).into_iter().chain([id]) {
        let segment = percent_encoding::utf8_percent_encode(segment, PATH_SEGMENT);
        // Writing to a string cannot fail.
        let _ = write!(address, "/{segment}");
    }
    address
}

// === impl HistoryPieces ===

impl HistoryPieces {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send {
        stream::try_unfold(self, |mut pieces| async move {
            let Some(references) = pieces.references.next().await? else { return Ok(None) };
            Ok(Some((pieces.write(&references), pieces)))
        })
    }

    fn write(&mut self, references: &[Reference]) -> Bytes {
        let mut out = Vec::with_capacity(references.len() * (self.base.len() + 64));
        for reference in references {
            if self.has_written {
                out.push(b',');
            }
            self.has_written = true;
            out.extend(Value::from(address(&self.base, reference)).to_string().into_bytes());
        }
        Bytes::from(out)
    }
}

fn state_address(base: &str, thread: &ThreadId, checkpoint: &CheckpointId) -> String {
    let thread = percent_encoding::utf8_percent_encode(thread.as_str(), PATH_SEGMENT);
    format!("{base}/sessions/{thread}/state/{checkpoint}")
}

async fn state(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_session().await?;
    let id = CheckpointId::from_uuid(call.uuid("checkpoint_id")?);
    let found = call.state.read.checkpoint(&call.scope(), &row.id, &id).await?;
    let value = found.and_then(|checkpoint| checkpoint.value).ok_or_else(|| {
        Error::new(Code::NotFound, format!("state '{id}' not found in the session"))
    })?;
    Ok(Reply::json_bytes(StatusCode::OK, value.as_bytes().clone()))
}

async fn blob(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_session().await?;
    let text = call.param("sha256");
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("content '{}' not found in the session", escape_for_message(text)),
        )
    };
    let hash = read_sha256(text).ok_or_else(missing)?;
    let (blob, bytes) = call.state.read.blob_by_hash(row.key, &hash).await?.ok_or_else(missing)?;
    Ok(Reply::stored(blob.is_text, bytes))
}
