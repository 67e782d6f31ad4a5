//! Sessions: references to what was said and to the state, and what lies behind the latter.

use std::fmt::Write as _;

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointId, Code, Error, Reference, ThreadId};
use trilogue_mapping::communication as mapping;
use trilogue_mapping::native::message::PATH_SEGMENT;
use trilogue_mapping::native::{read_sha256, shown};
use trilogue_runtime::StateAt;
use trilogue_wire::agent_communication::Session;

use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::http::reply::Reply;

const SESSION: CommunicationRoute = BASE
    .at("/sessions/{session_id}", |call| Box::pin(get(call)))
    .named("communication_get_session", "A session: the addresses of its messages and of its state")
    .errors(&[Code::InvalidId, Code::ThreadNotFound]);

pub(crate) const ROUTES: &[CommunicationRoute] = &[
    SESSION,
    SESSION.path("/session/{session_id}").named(
        "communication_get_session_alias",
        "The same under the path of the protocol's document",
    ),
    SESSION
        .at("/sessions/{session_id}/state/{checkpoint_id}", |call| Box::pin(state(call)))
        .named("communication_get_state", "A state of a session")
        .errors(&[Code::InvalidId, Code::ThreadNotFound, Code::NotFound]),
    SESSION
        .at("/sessions/{session_id}/blobs/{sha256}", |call| Box::pin(blob(call)))
        .named("communication_get_blob", "Large content that a part of this session links to")
        .errors(&[Code::InvalidId, Code::ThreadNotFound, Code::NotFound]),
];

async fn get(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_session().await?;
    let id = mapping::uuid_of(row.id.as_str());
    let path = call.state.runtime.path_references(&call.scope(), &row.id).await?;
    let base = call.state.place.base_for(&call);
    let history = path.entries.iter().map(|entry| address(&base, entry)).collect();
    let state = path.state.map(|state| match state {
        StateAt::Value { checkpoint } => state_address(&base, &row.id, &checkpoint),
        StateAt::Address(address) => address.to_string(),
    });
    Ok(Reply::ok(&Session { id, history, state }))
}

/// Where a message lies for a client.
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
        // Nothing fails to be written to a string.
        let _ = write!(address, "/{segment}");
    }
    address
}

fn state_address(base: &str, thread: &ThreadId, checkpoint: &CheckpointId) -> String {
    let thread = percent_encoding::utf8_percent_encode(thread.as_str(), PATH_SEGMENT);
    format!("{base}/sessions/{thread}/state/{checkpoint}")
}

async fn state(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_session().await?;
    let id = CheckpointId::from_uuid(call.uuid("checkpoint_id")?);
    let found = call.state.read.checkpoint(&call.scope(), &row.id, &id).await?;
    let value = found
        .and_then(|checkpoint| checkpoint.value)
        .ok_or_else(|| Error::new(Code::NotFound, format!("the session has no state '{id}'")))?;
    Ok(Reply::json_bytes(StatusCode::OK, value.as_bytes().clone()))
}

async fn blob(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_session().await?;
    let text = call.param("sha256");
    let missing =
        || Error::new(Code::NotFound, format!("the session has no content '{}'", shown(text)));
    let hash = read_sha256(text).ok_or_else(missing)?;
    let (blob, bytes) = call.state.read.blob_by_hash(row.key, &hash).await?.ok_or_else(missing)?;
    Ok(Reply::stored(blob.is_text, bytes))
}
