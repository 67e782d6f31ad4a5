//! Creates, shows, changes, copies and removes threads.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointId, Code, Error, Json, Right, ThreadId};
use trilogue_mapping::native::{escape_for_message, read_json};
use trilogue_runtime::{NewThread, StateContent, ThreadPatch};
use trilogue_store::rows::{CheckpointRow, ThreadRow};
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, fault, look_up, request, thread_show};
use crate::core::audit::AuditEvent;
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, no_content, of};

const THREAD: ConnectRoute = BASE
    .at("/threads/{thread_id}", |call| Box::pin(get(call)))
    .access(Access::Agent(Right::Read))
    .describe("connect_get_thread", "One thread, with its state")
    .answers(&[json_response(200, "The thread.", of::<wire::Thread>)])
    .errors(&[Code::ThreadNotFound]);

const CHANGE: ConnectRoute = THREAD.access(Access::Agent(Right::Run));

pub(crate) const ROUTES: &[ConnectRoute] = &[
    CHANGE
        .post("/threads", |call| Box::pin(create(call)))
        .describe("connect_create_thread", "Create a thread")
        .request(of::<wire::ThreadCreate>)
        .errors(&[Code::AlreadyExists, Code::InvalidId]),
    THREAD,
    CHANGE
        .verb(Verb::Patch)
        .handler(|call| Box::pin(patch(call)))
        .describe(
            "connect_patch_thread",
            "Merge into a thread's metadata, or set its state as a new checkpoint",
        )
        .request(of::<wire::ThreadPatch>)
        .errors(&[
            Code::ThreadNotFound,
            Code::CheckpointNotFound,
            Code::ThreadBusy,
            Code::StateInvalid,
            Code::AgentMemoryNotRewindable,
        ]),
    CHANGE
        .verb(Verb::Delete)
        .handler(|call| Box::pin(delete(call)))
        .for_people()
        .describe(
            "connect_delete_thread",
            "Remove a thread with everything of it; refused while a run is pending",
        )
        .answers(&[no_content("It is gone.")])
        .errors(&[Code::ThreadNotFound, Code::ThreadBusy]),
    CHANGE
        .post("/threads/{thread_id}/copy", |call| Box::pin(copy(call)))
        .describe("connect_copy_thread", "Copy a thread with its metadata, state and checkpoints")
        .answers(&[json_response(200, "The copy.", of::<wire::Thread>)]),
];

async fn create(call: ConnectCall) -> Result<Reply> {
    let body: wire::ThreadCreate = request::body_or_empty(&call)?;
    let id = body.thread_id.as_deref().map(ThreadId::parse).transpose()?;
    let known = id.clone();
    let new = NewThread { id, metadata: request::metadata(body.metadata)?, ..NewThread::default() };
    let has_settings = call.check_thread_metadata(new.metadata.as_ref()).await?;
    let row = match call.state.runtime.create_thread(call.principal(), new).await {
        Ok(row) => {
            call.audit_editor_settings(has_settings, &row.id);
            row
        }
        Err(error) if error.code() == Code::AlreadyExists => {
            let existing = match (body.if_exists, known) {
                (Some(wire::IfExists::DoNothing), Some(id)) => {
                    call.state.read.named_thread(&call.scope(), &id).await?
                }
                _ => None,
            };
            match existing.filter(|row| !row.ephemeral) {
                Some(row) => row,
                // If another caller or a run has the thread, this caller only learns that the id is taken.
                None => return Ok(fault::respond_as("thread_exists", &call, &error)),
            }
        }
        Err(error) => return Err(error),
    };
    whole(&call, &row).await
}

async fn get(call: ConnectCall) -> Result<Reply> {
    let row = look_up::thread(&call).await?;
    whole(&call, &row).await
}

async fn whole(call: &ConnectCall, row: &ThreadRow) -> Result<Reply> {
    thread_show::thread(call, row).await
}

async fn patch(call: ConnectCall) -> Result<Reply> {
    let body: wire::ThreadPatch = request::body_or_empty(&call)?;
    let row = look_up::thread(&call).await?;
    let metadata = request::metadata(body.metadata)?;
    let has_settings = call.check_thread_metadata(metadata.as_ref()).await?;
    let values = body.values.map(read_json).transpose()?;
    let messages = body.messages;
    let sets = values.is_some() || messages.is_some();
    if sets && thread_show::is_hidden(&call, &row).await? {
        return Err(hidden_state_error());
    }
    // If only metadata changes, the checkpoint has no meaning.
    let branches = values.is_some() || messages.is_some() || metadata.is_none();
    let from = match body.checkpoint.filter(|_| branches) {
        Some(checkpoint) => Some(self::checkpoint(&call, &row, &checkpoint.checkpoint_id).await?),
        None => None,
    };
    let values = match messages {
        None => values,
        Some(messages) => {
            match with_messages(&call, &row, from.as_ref(), values, messages).await? {
                Some(values) => Some(values),
                None => {
                    return Ok(fault::respond_as("messages_not_supported", &call, &no_messages()));
                }
            }
        }
    };
    if metadata.is_none() && values.is_none() && from.is_none() {
        return whole(&call, &row).await;
    }
    let if_idle = values.is_some() || from.is_some();
    let from = from.map(|row| row.id);
    let only_where_set = true;
    let patch =
        ThreadPatch { metadata, values, from, if_idle, only_where_set, ..ThreadPatch::default() };
    let row = call.state.runtime.patch_thread(call.principal(), &row.id, patch).await?;
    call.audit_editor_settings(has_settings, &row.id);
    whole(&call, &row).await
}

/// Returns a checkpoint of a thread.
/// Errors: `checkpoint_not_found`.
pub(super) async fn checkpoint(
    call: &ConnectCall,
    thread: &ThreadRow,
    id: &str,
) -> Result<CheckpointRow> {
    let missing = || {
        let message = format!(
            "checkpoint '{}' not found in the thread '{}'",
            escape_for_message(id),
            thread.id
        );
        Error::new(Code::CheckpointNotFound, message)
    };
    let key = CheckpointId::parse(id).map_err(|_| missing())?;
    let found = call.state.read.checkpoint(&call.scope(), &thread.id, &key).await?;
    found.ok_or_else(missing)
}

/// Returns the state with these messages instead of its own, or `None` if it has none.
async fn with_messages(
    call: &ConnectCall,
    thread: &ThreadRow,
    from: Option<&CheckpointRow>,
    values: Option<Json>,
    messages: Vec<wire::Message>,
) -> Result<Option<Json>> {
    let state = match values {
        Some(values) => values,
        None => {
            let at = from.map(|row| row.key);
            match call.state.runtime.state_at(thread, at).await? {
                StateContent::Value(value) => value,
                StateContent::Messages(_) => return Ok(None),
            }
        }
    };
    let has_messages = state.to_value().get("messages").is_some_and(serde_json::Value::is_array);
    if !has_messages {
        return Ok(None);
    }
    let patch = Json::from_value(&serde_json::json!({ "messages": messages }));
    Ok(Some(state.merged(&patch)))
}

fn no_messages() -> Error {
    Error::new(Code::StateInvalid, "the thread's state has no 'messages' that could be set")
        .hint("set the state as a whole: 'values'")
}

/// Returns the error for a hidden state. It cannot be replaced either, because a successful check would reveal its contents.
fn hidden_state_error() -> Error {
    Error::new(Code::InvalidRequest, "the thread's state is not shown here, and cannot be set")
        .hint("the agent declares no state; its metadata can be changed")
}

async fn delete(call: ConnectCall) -> Result<Reply> {
    let (id, owner) = match look_up::thread(&call).await {
        Ok(row) => (row.id, Some(row.owner)),
        // A damaged thread cannot be read but can be erased.
        Err(error) if error.code() == Code::ThreadQuarantined => (call.thread_id()?, None),
        Err(error) => return Err(error),
    };
    call.require_removal_of(owner.as_ref()).await?;
    match call.state.runtime.erase_idle_thread(call.principal(), &id).await {
        Ok(()) => {
            call.audit(AuditEvent::ThreadErased, id.as_str(), "");
            Ok(Reply::no_content())
        }
        // The protocol has no conflict status here.
        Err(error) if error.code() == Code::ThreadBusy => {
            Ok(fault::respond_with(StatusCode::UNPROCESSABLE_ENTITY, &call, &error))
        }
        Err(error) => Err(error),
    }
}

async fn copy(call: ConnectCall) -> Result<Reply> {
    let row = look_up::thread(&call).await?;
    let runtime = &call.state.runtime;
    let copy = runtime.copy_thread(call.principal(), &row.id, NewThread::default()).await?;
    whole(&call, &copy).await
}
