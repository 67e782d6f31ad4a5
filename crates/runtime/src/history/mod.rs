//! Reads a thread's history: the path to a checkpoint, its messages and its state.

mod reader;
mod reference;
mod references;
pub(crate) mod states;

use std::sync::Arc;

use trilogue_domain::content::Content;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent, RunEvent, StateEvent, TURN_RESULT};
use trilogue_domain::{
    AgentName, CheckpointKey, Code, Error, Event, Json, Message, MessageId, Part, Reference, Role,
    RunId, RunKey, Scope, ThreadId, ThreadKey, Transcript, limits,
};
use trilogue_store::rows::{CheckpointRow, MessageRow, RunRow, ThreadRow};
use trilogue_store::{PathReader, Range, Store};

use crate::external_ports::ExternalPorts;
use trilogue_domain::Input;

pub(crate) use reader::MessageReader;
pub use reader::{ConversationReader, NewestMessages, StateReader};
use reference::FoundReferences;
pub(crate) use references::{Path, RunReferences};
pub use references::{ReferenceReader, StateAt};

const READ_BYTES: usize = 1024 * 1024;

/// The store, the scope and the thread that are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistorySource<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) external: &'a ExternalPorts,
    pub(crate) scope: &'a Scope,
}

/// A run's messages, with each logged result as a message of its own.
#[derive(Debug, Default)]
struct RunTranscript {
    transcript: Transcript,
    run: Option<(RunId, AgentName)>,
    begun: usize,
    /// The results, each with the number of messages before it.
    results: Vec<(usize, RunId, Message)>,
}

/// Returns the messages on the path to `base`, oldest first. References are followed and large content is inlined.
pub(crate) async fn messages(
    source: HistorySource<'_>,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
) -> Result<Vec<Message>> {
    MessageReader::open(source, thread, base, None).await?.rest(source).await
}

/// Returns the newest messages on the path after `told` up to `base` that have at most `max_bytes` together.
pub(crate) async fn newest_messages(
    source: HistorySource<'_>,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
    told: Option<CheckpointKey>,
    max_bytes: usize,
) -> Result<NewestMessages> {
    MessageReader::open(source, thread, base, told).await?.newest(source, max_bytes).await
}

/// Returns what one checkpoint adds to the history: entries from a client, then its run's messages. Large content is not inlined.
async fn said_at(
    store: &dyn Store,
    thread: ThreadKey,
    run: Option<RunKey>,
    entries: &[Reference],
    brought: &FoundReferences,
) -> Result<Vec<Message>> {
    let mut messages: Vec<_> =
        entries.iter().filter_map(|entry| brought.get(entry).cloned()).collect();
    if let Some(run) = run {
        let said = of_run(store, thread, None, run).await?;
        messages.extend(said.into_iter().map(|(_, message)| message));
    }
    Ok(messages)
}

/// Returns the entries that a client added with a checkpoint of this thread.
fn client_entries(
    checkpoint: &CheckpointRow,
    thread: &ThreadId,
) -> impl Iterator<Item = Reference> {
    let entries = checkpoint.client_history.iter().flat_map(|given| &given.entries);
    entries.map(|entry| entry.in_thread(thread))
}

/// Returns the newest state on the path to `base`.
pub(crate) async fn values(
    source: HistorySource<'_>,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
) -> Result<Option<Json>> {
    if base.is_none() {
        return Ok(None);
    }
    let mut path = PathReader::new(source.store, source.scope, thread, base);
    while let Some(checkpoint) = path.next().await? {
        if checkpoint.value.is_some() {
            return Ok(checkpoint.value);
        }
        if let Some(address) = checkpoint.client_history.and_then(|given| given.state) {
            return reference::read_state(source.external, &address).await.map(Some);
        }
    }
    Ok(None)
}

/// Returns the newest state at a thread's head that was set in this store; `None` if the state is elsewhere or derived from messages.
pub(crate) async fn set_value(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    head: Option<CheckpointKey>,
) -> Result<Option<Json>> {
    let Some(head) = head else { return Ok(None) };
    let mut path = PathReader::new(store, scope, thread, Some(head));
    while let Some(row) = path.next().await? {
        let is_elsewhere = row.client_history.as_ref().is_some_and(|given| given.state.is_some());
        if row.value.is_some() || is_elsewhere {
            return Ok(row.value);
        }
    }
    Ok(None)
}

pub(crate) async fn input(store: &dyn Store, run: &RunRow) -> Result<Input> {
    let scope = Scope { tenant: run.tenant.clone(), owner: None };
    let row = thread_row(store, &scope, &run.thread_id).await?;
    let mut transcript = Transcript::default();
    let (mut value, mut begun) = (None, false);
    each_event(store, row.key, run.key, |event| {
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
    inline(store, row.key, &mut messages).await?;
    Ok(Input::Messages(messages))
}

/// Returns the state that a run last set, from its log.
pub(crate) async fn values_of(store: &dyn Store, run: &RunRow) -> Result<Option<Json>> {
    let scope = Scope { tenant: run.tenant.clone(), owner: None };
    let row = thread_row(store, &scope, &run.thread_id).await?;
    let mut latest = None;
    each_event(store, row.key, run.key, |event| {
        if let Body::State(StateEvent::Values(values)) = &event.body {
            latest = Some(values.clone());
        }
    })
    .await?;
    Ok(latest)
}

/// What the log of a run without a task says about its end.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// The messages and thoughts that have begun and are not complete, in order.
    pub(crate) open: Vec<MessageRow>,
    /// Whether the agent had answered, so that only late output was missing.
    pub(crate) is_answered: bool,
}

/// Reads from a run's log what its end depends on.
pub(crate) async fn unfinished(
    store: &dyn Store,
    thread: &ThreadRow,
    run: RunKey,
) -> Result<Unfinished> {
    let mut is_answered = false;
    let begun = |message: &MessageId, role: &Role, event: &Event| MessageRow {
        id: message.clone(),
        tenant: thread.tenant.clone(),
        thread: thread.key,
        run,
        role: role.clone(),
        position: event.number,
        alias: None,
    };
    let mut open: Vec<MessageRow> = Vec::new();
    each_event(store, thread.key, run, |event| match &event.body {
        // The rows of other messages were written when they began.
        Body::Message(MessageEvent::Started { message, role, .. })
            if open.len() < limits::MAX_OPEN_MESSAGES =>
        {
            open.push(begun(message, role, event));
        }
        Body::Message(MessageEvent::Thought { message: Some(message), .. })
            if open.len() < limits::MAX_OPEN_MESSAGES
                && open.iter().all(|row| row.id != *message) =>
        {
            open.push(begun(message, &Role::Agent, event));
        }
        Body::Message(MessageEvent::Completed { message }) => {
            open.retain(|row| row.id != *message);
        }
        Body::State(StateEvent::Custom { kind, .. }) => is_answered |= kind == TURN_RESULT,
        _ => {}
    })
    .await?;
    for row in &mut open {
        // A message with a reported alias already has its row.
        let known = store.message_in(thread.key, &row.id).await?;
        row.alias = known.filter(|known| known.id == row.id).and_then(|known| known.alias);
    }
    Ok(Unfinished { open, is_answered })
}

/// Returns the run number of the last piece of a thought; `None` if the id names a message.
pub(crate) async fn end_of_thought(
    store: &dyn Store,
    thread: ThreadKey,
    run: RunKey,
    id: &MessageId,
) -> Result<Option<u64>> {
    let mut last = None;
    each_event(store, thread, run, |event| {
        if let Body::Message(MessageEvent::Thought { message: Some(message), .. }) = &event.body
            && message == id
        {
            last = Some(event.run_number);
        }
    })
    .await?;
    Ok(last)
}

/// Calls `visit` with every event of a run, in order.
pub(crate) async fn each_event(
    store: &dyn Store,
    thread: ThreadKey,
    run: RunKey,
    mut visit: impl FnMut(&Event) + Send,
) -> Result<()> {
    let mut after = 0;
    loop {
        let range = Range { run: Some(run), after, max_bytes: READ_BYTES };
        let frames = store.frames(thread, range).await?;
        let Some(last) = frames.last() else { return Ok(()) };
        let reached = last.last_run();
        let mut has_ended = false;
        for frame in &frames {
            for event in frame.events()?.iter().filter(|event| event.run_number > after) {
                visit(event);
                has_ended |= event.body.is_run_end();
            }
        }
        // No event follows the end of a run: another read would cost as much as this one.
        if has_ended || reached <= after {
            return Ok(());
        }
        after = reached;
    }
}

/// Returns the path to `base`, newest first and without values; empty without a base.
pub(crate) async fn path(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    base: Option<CheckpointKey>,
) -> Result<Vec<CheckpointRow>> {
    let mut path = Vec::new();
    let mut links = PathReader::new(store, scope, thread, base);
    while base.is_some()
        && let Some(link) = links.next().await?
    {
        path.push(CheckpointRow { value: None, ..link });
    }
    Ok(path)
}

/// Returns the checkpoint of a run on the path to `head`, with its value.
pub(crate) async fn checkpoint_of_run(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    head: Option<CheckpointKey>,
    run: &RunRow,
) -> Result<Option<CheckpointRow>> {
    if head.is_none() {
        return Ok(None);
    }
    let mut links = PathReader::new(store, scope, thread, head);
    // Everything before the run's base is older than the run.
    while let Some(link) = links.next().await?.filter(|link| Some(link.key) != run.base) {
        if link.run == Some(run.key) {
            return store.checkpoint_by_key(link.key).await;
        }
    }
    Ok(None)
}

/// Returns a run's messages, each with the reference to it, in the order in which they began. Large content is not inlined.
async fn of_run(
    store: &dyn Store,
    thread: ThreadKey,
    id: Option<&ThreadId>,
    run: RunKey,
) -> Result<Vec<(Reference, Message)>> {
    let mut said = RunTranscript::default();
    each_event(store, thread, run, |event| said.push(event)).await?;
    Ok(said.into_messages(id))
}

/// Returns a run's value as a message of its agent, with the run's id: a run has one value.
fn result_message(run: &RunId, agent: &AgentName, value: &Json, event: &Event) -> Option<Message> {
    Some(Message {
        id: MessageId::parse(run.as_str()).ok()?,
        role: Role::NamedAgent(Arc::from(agent.as_str())),
        parts: vec![Part::json(value)],
        created_at: Some(event.at),
        completed_at: Some(event.at),
    })
}

async fn thread_row(store: &dyn Store, scope: &Scope, thread: &ThreadId) -> Result<ThreadRow> {
    store
        .thread(scope, thread)
        .await?
        .ok_or_else(|| Error::new(Code::ThreadNotFound, format!("thread '{thread}' not found")))
}

/// Replaces blob references by their content, because an agent gets content.
pub(crate) async fn inline(
    store: &dyn Store,
    thread: ThreadKey,
    messages: &mut [Message],
) -> Result<()> {
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

// === impl RunTranscript ===

impl RunTranscript {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::Run(RunEvent::Created { run, agent, .. }) => {
                self.run = Some((run.clone(), agent.clone()));
            }
            Body::Run(RunEvent::Result(value)) => {
                if let Some((run, agent)) = &self.run
                    && let Some(message) = result_message(run, agent, value, event)
                {
                    self.results.push((self.begun, run.clone(), message));
                }
            }
            Body::Message(MessageEvent::Started { .. }) => self.begun += 1,
            _ => {}
        }
        self.transcript.push(event);
    }

    fn into_messages(self, thread: Option<&ThreadId>) -> Vec<(Reference, Message)> {
        let messages = self.transcript.into_messages().into_iter();
        let reference = |message: &Message| Reference::Message {
            thread: thread.cloned(),
            id: message.id.clone(),
        };
        let mut said: Vec<_> = messages.map(|one| (reference(&one), one)).collect();
        // From the last to the first, so that earlier positions stay valid.
        for (place, run, message) in self.results.into_iter().rev() {
            said.insert(place.min(said.len()), (Reference::Result(run), message));
        }
        said
    }
}
