//! Renders threads and their states for this protocol.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value};
use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, Json, Right, ThreadActivity, limits};
use trilogue_mapping::connect::{self as mapping, CheckpointFields, State, Template, ThreadFields};
use trilogue_runtime::{StateContent, StateReader};
use trilogue_store::PathReader;
use trilogue_store::rows::{CheckpointRow, Page, RunFilter, ThreadRow};

use super::state_pieces::StatePieces;
use super::{ConnectCall, fold, request};
use crate::core::log_ref::LogRef;
use crate::faces::common::path::PathPage;
use crate::http::reply::{NEXT, Reply};
use crate::stream::feed::run_id;

/// A larger state, in bytes, is sent message by message.
const WHOLE_STATE_BYTES: usize = 512 * 1024;
/// The largest state that a list of threads shows, in bytes.
const LISTED_STATE_BYTES: usize = 256 * 1024;
/// A page of history ends before its states exceed this many bytes; their messages are sent twice.
const HISTORY_BYTES: usize = limits::MAX_PAGE_BYTES / 2;

/// A page of threads as JSON.
#[derive(Debug)]
pub(super) struct ThreadPage {
    pub(super) json: Bytes,
    /// Whether a thread is shown without its state because of its size.
    pub(super) has_left_out: bool,
}

/// Returns one thread with its state, or to callers that may not read, without its state and metadata.
pub(super) async fn thread(call: &ConnectCall, row: &ThreadRow) -> Result<Reply> {
    let activities = call.state.read.activities(&call.scope(), &[row.key]).await?;
    let activity = activities.first().copied().unwrap_or(ThreadActivity::Idle);
    if !call.principal().rights.has(Right::Read) {
        let row = ThreadRow { metadata: Json::empty_object(), ..row.clone() };
        return Ok(whole(rendered(call, &row, activity, None)));
    }
    if row.head.is_none() || is_hidden(call, row).await? {
        return Ok(whole(rendered(call, row, activity, None)));
    }
    state_reply(call, row, row.head, |state| rendered(call, row, activity, Some(state))).await
}

/// Returns threads in order. Omits large states, and states that do not fit into the page.
pub(super) async fn threads(call: &ConnectCall, rows: &[ThreadRow]) -> Result<ThreadPage> {
    let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
    let activities = call.state.read.activities(&call.scope(), &keys).await?;
    let (mut out, mut has_left_out) = (vec![b'['], false);
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let activity = activities.get(place).copied().unwrap_or(ThreadActivity::Idle);
        let state = if row.head.is_none() || is_hidden(call, row).await? {
            None
        } else {
            let room = limits::MAX_PAGE_BYTES.saturating_sub(out.len()).min(LISTED_STATE_BYTES);
            let state = call.state.runtime.state_within(row, None, room).await?;
            has_left_out |= state.is_none();
            state
        };
        let state = state.as_ref().map(as_shown);
        out.extend(rendered(call, row, activity, state).into_json());
    }
    out.push(b']');
    Ok(ThreadPage { json: Bytes::from(out), has_left_out })
}

/// Returns a thread's states at the checkpoints of a page: at least one, at most as many as fit into a response.
pub(super) async fn states(
    call: &ConnectCall,
    thread: &ThreadRow,
    page: &PathPage,
) -> Result<Reply> {
    let PathPage { rows, next } = page;
    let Some(first) = rows.first() else { return Ok(whole_array()) };
    if is_hidden(call, thread).await? {
        return Ok(whole_array());
    }
    let states = call.state.runtime.states(thread, rows, HISTORY_BYTES).await?;
    let parent = |place: usize| rows.get(place + 1).or(next.as_ref());
    let links = fold::links(call, &thread.id);
    let count = states.len().max(1);
    let reply = if states.is_empty() {
        let metadata = origin(call, thread, first, parent(0)).await?;
        let shown = |state: State<'_>| {
            let metadata = metadata.clone();
            let of = CheckpointFields { id: first.id.as_str(), state, metadata };
            mapping::thread_state(&of, &links).in_array()
        };
        state_reply(call, thread, Some(first.key), shown).await?
    } else {
        let mut out = vec![b'['];
        for (place, (checkpoint, state)) in rows.iter().zip(&states).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            let metadata = origin(call, thread, checkpoint, parent(place)).await?;
            let state = as_shown(state);
            let of = CheckpointFields { id: checkpoint.id.as_str(), state, metadata };
            out.extend(mapping::thread_state(&of, &links).into_json());
        }
        out.push(b']');
        Reply::json_bytes(StatusCode::OK, out)
    };
    Ok(match (parent(count - 1), rows.get(count - 1)) {
        (Some(_), Some(last)) => reply.header_text(NEXT, last.id.as_str()),
        _ => reply,
    })
}

fn whole(template: Template) -> Reply {
    Reply::json_bytes(StatusCode::OK, template.into_json())
}

fn whole_array() -> Reply {
    Reply::json_bytes(StatusCode::OK, &b"[]"[..])
}

/// Returns a checkpoint's state in this JSON: whole, or message by message if it is large.
async fn state_reply(
    call: &ConnectCall,
    thread: &ThreadRow,
    at: Option<CheckpointKey>,
    show: impl Fn(State<'_>) -> Template,
) -> Result<Reply> {
    let runtime = &call.state.runtime;
    if let Some(state) = runtime.state_within(thread, at, WHOLE_STATE_BYTES).await? {
        return Ok(whole(show(as_shown(&state))));
    }
    if let StateReader::Value(value) = runtime.read_state(thread, at).await? {
        return Ok(whole(show(State::Value(&value))));
    }
    let links = fold::links(call, &thread.id);
    let parts = show(State::Pieces).parts();
    let pieces = StatePieces::new(runtime.clone(), thread.clone(), at, links, parts);
    Reply::json_pieces(StatusCode::OK, pieces.into_stream()).await
}

/// Returns the origin of a checkpoint: a run created it, or a client has set it.
async fn origin(
    call: &ConnectCall,
    thread: &ThreadRow,
    checkpoint: &CheckpointRow,
    parent: Option<&CheckpointRow>,
) -> Result<Value> {
    let run = match checkpoint.run {
        Some(key) => run_id(&call.state.read, &LogRef::from(thread), key).await?,
        None => None,
    };
    let source = if checkpoint.run.is_some() { "run" } else { "update" };
    let mut members = Map::new();
    let mut set = |key: &str, text: String| drop(members.insert(key.to_owned(), text.into()));
    set("source", source.to_owned());
    if let Some(run) = run {
        set("run_id", run.as_str().to_owned());
    }
    if let Some(parent) = parent {
        set("parent_checkpoint_id", parent.id.as_str().to_owned());
    }
    set("created_at", checkpoint.created_at.to_string());
    Ok(Value::Object(members))
}

/// Returns a state alone.
pub(super) async fn bare(
    call: &ConnectCall,
    thread: &ThreadRow,
    at: CheckpointKey,
) -> Result<Reply> {
    let links = fold::links(call, &thread.id);
    state_reply(call, thread, Some(at), |state| mapping::state(state, &links)).await
}

fn as_shown(state: &StateContent) -> State<'_> {
    match state {
        StateContent::Value(value) => State::Value(value),
        StateContent::Messages(messages) => State::Messages(messages),
    }
}

fn rendered(
    call: &ConnectCall,
    row: &ThreadRow,
    standing: ThreadActivity,
    state: Option<State<'_>>,
) -> Template {
    let of = ThreadFields {
        id: row.id.as_str(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        metadata: &row.metadata,
        standing,
        state,
    };
    mapping::thread(&of, &fold::links(call, &row.id))
}

/// Whether the mount hides undeclared states from its clients.
pub(super) fn hides(call: &ConnectCall) -> bool {
    request::is_as_documented(call)
}

/// Whether the mount hides this thread's state because no agent declares it.
pub(super) async fn is_hidden(call: &ConnectCall, row: &ThreadRow) -> Result<bool> {
    if !hides(call) {
        return Ok(false);
    }
    let filter = RunFilter { thread: Some(row.id.clone()), ..RunFilter::default() };
    let newest = Page { limit: 1, ..Page::default() };
    let runs = call.state.read.runs(&call.scope(), &filter, &newest).await?;
    let Some(run) = runs.rows.first() else {
        // A state that only clients have set is visible to them; a state of a removed run is not.
        let of_run = on_path(call, row, |checkpoint| checkpoint.run.is_some()).await?;
        return Ok(of_run.is_some());
    };
    let card = call.state.runtime.agent(&run.agent);
    Ok(!card.is_ok_and(|card| mapping::schemas(card).state_schema.is_some()))
}

/// Returns the newest checkpoint on the path to a thread's head that matches.
pub(super) async fn on_path(
    call: &ConnectCall,
    row: &ThreadRow,
    fits: impl Fn(&CheckpointRow) -> bool,
) -> Result<Option<CheckpointRow>> {
    if row.head.is_none() {
        return Ok(None);
    }
    let scope = call.scope();
    let mut path = PathReader::new(call.state.read.as_ref(), &scope, &row.id, row.head);
    while let Some(checkpoint) = path.next().await? {
        if fits(&checkpoint) {
            return Ok(Some(checkpoint));
        }
    }
    Ok(None)
}
