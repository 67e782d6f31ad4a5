//! Reading what was said: the path to a checkpoint, its messages and its state.

use std::sync::Arc;

use trilogue_domain::content::Content;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, RunEvent, StateEvent};
use trilogue_domain::{
    CheckpointKey, Code, Error, Event, Json, Message, RunKey, Scope, ThreadId, Transcript,
};
use trilogue_store::rows::{CheckpointRow, RunRow, ThreadRow};
use trilogue_store::{Range, Store};

use crate::backend::Input;

/// The most checkpoints of a path that are read.
pub(crate) const MAX_PATH: usize = 10_000;
/// How much of a run's log is read at once, in bytes.
const READ_BYTES: usize = 1024 * 1024;

/// The messages on the path to `base`, oldest first. Large content is inlined.
pub(crate) async fn messages(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
) -> Result<Vec<Message>> {
    messages_after(store, scope, thread, base, None).await
}

/// The messages on the path from behind `told` to `base`, oldest first.
pub(crate) async fn messages_after(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
    told: Option<CheckpointKey>,
) -> Result<Vec<Message>> {
    let mut path = path(store, scope, thread, base).await?;
    if let Some(place) = path.iter().position(|checkpoint| Some(checkpoint.key) == told) {
        path.truncate(place);
    }
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let row = thread_row(store, scope, thread).await?;
    let mut messages = Vec::new();
    for run in path.iter().rev().filter_map(|checkpoint| checkpoint.run) {
        let mut transcript = Transcript::default();
        each_event(store, &row, run, |event| transcript.push(event)).await?;
        messages.extend(transcript.into_messages());
    }
    inline(store, &row, &mut messages).await?;
    Ok(messages)
}

/// The newest state on the path to `base`.
pub(crate) async fn values(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
) -> Result<Option<Json>> {
    let path = path(store, scope, thread, base).await?;
    Ok(path.into_iter().find_map(|checkpoint| checkpoint.value))
}

/// What a run was given, as its log has it.
pub(crate) async fn input(store: &dyn Store, run: &RunRow) -> Result<Input> {
    let scope = Scope { tenant: run.tenant.clone(), owner: None };
    let row = thread_row(store, &scope, &run.thread_id).await?;
    let mut transcript = Transcript::default();
    let (mut value, mut begun) = (None, false);
    each_event(store, &row, run.key, |event| {
        match &event.body {
            Body::Run(RunEvent::Created { input, .. }) => value.clone_from(input),
            Body::Run(RunEvent::Started) => begun = true,
            _ => {}
        }
        if !begun {
            transcript.push(event);
        }
    })
    .await?;
    if let Some(value) = value {
        return Ok(Input::Value(value));
    }
    let mut messages = transcript.into_messages();
    inline(store, &row, &mut messages).await?;
    Ok(Input::Messages(messages))
}

/// The state that a run set last, as its log has it.
pub(crate) async fn values_of(store: &dyn Store, run: &RunRow) -> Result<Option<Json>> {
    let scope = Scope { tenant: run.tenant.clone(), owner: None };
    let row = thread_row(store, &scope, &run.thread_id).await?;
    let mut latest = None;
    each_event(store, &row, run.key, |event| {
        if let Body::State(StateEvent::Values(values)) = &event.body {
            latest = Some(values.clone());
        }
    })
    .await?;
    Ok(latest)
}

/// Calls `visit` with every event of a run, in order.
pub(crate) async fn each_event(
    store: &dyn Store,
    thread: &ThreadRow,
    run: RunKey,
    mut visit: impl FnMut(&Event) + Send,
) -> Result<()> {
    let mut after = 0;
    loop {
        let range = Range { run: Some(run), after, max_bytes: READ_BYTES };
        let frames = store.frames(thread, range).await?;
        let Some(last) = frames.last() else { return Ok(()) };
        let reached = last.last_run();
        for frame in &frames {
            for event in frame.events()?.iter().filter(|event| event.run_number > after) {
                visit(event);
            }
        }
        if reached <= after {
            return Ok(());
        }
        after = reached;
    }
}

/// The path to `base`, newest first; empty without a base.
pub(crate) async fn path(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
) -> Result<Vec<CheckpointRow>> {
    if base.is_none() {
        return Ok(Vec::new());
    }
    store.path(scope, thread, base, MAX_PATH).await
}

async fn thread_row(store: &dyn Store, scope: &Scope, thread: &ThreadId) -> Result<ThreadRow> {
    store
        .thread(scope, thread)
        .await?
        .ok_or_else(|| Error::new(Code::ThreadNotFound, format!("there is no thread '{thread}'")))
}

/// Puts stored content back into the parts that name it: an agent gets content, not references.
async fn inline(store: &dyn Store, thread: &ThreadRow, messages: &mut [Message]) -> Result<()> {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        let Content::Blob(blob) = &part.content else { continue };
        let Some(bytes) = store.blob(thread, blob).await? else { continue };
        part.content = match std::str::from_utf8(&bytes) {
            Ok(text) if blob.is_text => Content::Text(Arc::from(text)),
            _ => Content::Bytes(bytes),
        };
    }
    Ok(())
}
