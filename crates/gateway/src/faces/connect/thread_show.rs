//! Threads and their states as this protocol shows them.

use bytes::Bytes;
use serde_json::{Map, Value};
use trilogue_domain::ThreadActivity;
use trilogue_domain::error::Result;
use trilogue_mapping::connect::{self as mapping, CheckpointFields, State, ThreadFields};
use trilogue_runtime::StateContent;
use trilogue_store::PathReader;
use trilogue_store::rows::{CheckpointRow, Page, RunFilter, ThreadRow};

use super::{ConnectCall, fold, request};
use crate::core::log_ref::LogRef;
use crate::stream::feed::run_id;

/// One thread, with its state.
pub(super) async fn thread(call: &ConnectCall, row: &ThreadRow) -> Result<Bytes> {
    let standings = call.state.read.activities(&call.scope(), &[row.key]).await?;
    let standing = standings.first().copied().unwrap_or(ThreadActivity::Idle);
    let state = shown_state(call, row).await?;
    Ok(Bytes::from(rendered(call, row, standing, state.as_ref())))
}

/// Threads, in their order. What they hold together is bounded: further ones are shown without their state, which the second value tells.
pub(super) async fn threads(call: &ConnectCall, rows: &[ThreadRow]) -> Result<(Bytes, bool)> {
    let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
    let standings = call.state.read.activities(&call.scope(), &keys).await?;
    let most = call.state.max_output_bytes;
    let (mut out, mut left_out) = (vec![b'['], false);
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let standing = standings.get(place).copied().unwrap_or(ThreadActivity::Idle);
        let state = if out.len() > most { None } else { shown_state(call, row).await? };
        left_out |= out.len() > most && row.head.is_some();
        out.extend(rendered(call, row, standing, state.as_ref()));
    }
    out.push(b']');
    Ok((Bytes::from(out), left_out))
}

/// States of a thread: those of the first `limit` checkpoints of a path, each of which the next one is the parent of.
pub(super) async fn states(
    call: &ConnectCall,
    thread: &ThreadRow,
    path: &[CheckpointRow],
    limit: usize,
) -> Result<Bytes> {
    if path.is_empty() || is_hidden(call, thread).await? {
        return Ok(Bytes::from_static(b"[]"));
    }
    let page = path.get(..limit).unwrap_or(path);
    let states = call.state.runtime.states(thread, page).await?;
    let links = fold::links(call, &thread.id);
    let mut out = vec![b'['];
    for (place, (checkpoint, state)) in page.iter().zip(&states).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let of = CheckpointFields {
            id: checkpoint.id.as_str(),
            state: as_shown(state),
            metadata: origin(call, thread, checkpoint, path.get(place + 1)).await?,
        };
        out.extend(mapping::thread_state(&of, &links));
    }
    out.push(b']');
    Ok(Bytes::from(out))
}

/// How a checkpoint came to be: a run left it, or a client has set it.
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

pub(super) fn bare(call: &ConnectCall, thread: &ThreadRow, state: &StateContent) -> Vec<u8> {
    mapping::state(as_shown(state), &fold::links(call, &thread.id))
}

fn as_shown(state: &StateContent) -> State<'_> {
    match state {
        StateContent::Value(value) => State::Value(value),
        StateContent::Messages(messages) => State::Messages(messages),
    }
}

async fn shown_state(call: &ConnectCall, row: &ThreadRow) -> Result<Option<StateContent>> {
    if row.head.is_none() || is_hidden(call, row).await? {
        return Ok(None);
    }
    call.state.runtime.state_at(row, None).await.map(Some)
}

fn rendered(
    call: &ConnectCall,
    row: &ThreadRow,
    standing: ThreadActivity,
    state: Option<&StateContent>,
) -> Vec<u8> {
    let of = ThreadFields {
        id: row.id.as_str(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        metadata: &row.metadata,
        standing,
        state: state.map(as_shown),
    };
    mapping::thread(&of, &fold::links(call, &row.id))
}

/// Whether the mount keeps states from its clients that nobody declares.
pub(super) fn hides(call: &ConnectCall) -> bool {
    request::is_as_documented(call)
}

/// Whether the mount keeps a thread's state from its clients: nobody declares it.
pub(super) async fn is_hidden(call: &ConnectCall, row: &ThreadRow) -> Result<bool> {
    if !hides(call) {
        return Ok(false);
    }
    let filter = RunFilter { thread: Some(row.id.clone()), ..RunFilter::default() };
    let newest = Page { limit: 1, ..Page::default() };
    let runs = call.state.read.runs(&call.scope(), &filter, &newest).await?;
    let Some(run) = runs.rows.first() else {
        // What only clients have set is theirs to see; not so what a run has left that is gone.
        let of_run = on_path(call, row, |checkpoint| checkpoint.run.is_some()).await?;
        return Ok(of_run.is_some());
    };
    let card = call.state.runtime.agent(&run.agent);
    Ok(!card.is_ok_and(|card| mapping::schemas(card).state_schema.is_some()))
}

/// The newest checkpoint on the path to a thread's head that fits.
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
