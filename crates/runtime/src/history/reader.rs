//! Reads the messages on a path one by one, so that memory holds one run's messages and not the conversation.

use std::collections::VecDeque;
use std::sync::Arc;

use trilogue_domain::content::{Content, PartMetadata};
use trilogue_domain::error::Result;
use trilogue_domain::{
    CheckpointKey, Json, Message, Reference, RunKey, Scope, ThreadId, ThreadKey,
};
use trilogue_store::{PathReader, Store};

use super::reference::{self, FoundReferences};
use super::{HistorySource, client_entries, inline, said_at};
use crate::external_ports::ExternalPorts;
use crate::request::StateContent;

/// The overhead of a message or a part in addition to its content, in bytes of JSON and of memory.
const ITEM_BYTES: usize = 192;

/// A state that is read piece by piece.
#[derive(Debug)]
pub enum StateReader {
    Value(Json),
    Messages(ConversationReader),
}

/// The messages on a path, oldest first.
#[derive(Debug)]
pub struct ConversationReader {
    store: Arc<dyn Store>,
    external: Arc<ExternalPorts>,
    scope: Scope,
    messages: MessageReader,
}

/// The messages on a path, oldest first. Memory holds client entries, and the messages of one run without their large content.
#[derive(Debug, Default)]
pub(crate) struct MessageReader {
    /// The checkpoints that are still to be read, newest first.
    path: Vec<SpokenStep>,
    brought: FoundReferences,
    ready: VecDeque<(ThreadKey, Message)>,
}

/// The newest messages on a path that fit into a limit, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewestMessages {
    pub messages: Vec<Message>,
    /// Whether older messages did not fit.
    pub is_cut: bool,
}

/// The messages that one checkpoint adds.
#[derive(Debug)]
struct SpokenStep {
    thread: ThreadKey,
    run: Option<RunKey>,
    /// The client's entries, which precede the run's messages.
    entries: Vec<Reference>,
}

/// Returns the bytes of a message, as an estimate for JSON and for memory. Content in blobs does not count.
pub(crate) fn weight(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| {
        let content = match &part.content {
            Content::Empty | Content::Blob(_) => 0,
            Content::Text(text) | Content::Url(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
        };
        let other = match &part.metadata {
            Some(PartMetadata::Other(other)) => other.as_bytes().len(),
            _ => 0,
        };
        ITEM_BYTES + content + other + part.extra.as_ref().map_or(0, |extra| extra.as_bytes().len())
    });
    ITEM_BYTES + parts.sum::<usize>()
}

/// Returns the bytes of a message like [`weight`], with its large content inlined.
fn inlined_weight(message: &Message) -> usize {
    let stored = message.parts.iter().map(|part| match &part.content {
        Content::Blob(blob) => usize::try_from(blob.length).unwrap_or(usize::MAX),
        _ => 0,
    });
    stored.fold(weight(message), usize::saturating_add)
}

// === impl ConversationReader ===

impl ConversationReader {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        external: Arc<ExternalPorts>,
        scope: Scope,
        messages: MessageReader,
    ) -> Self {
        Self { store, external, scope, messages }
    }

    /// Returns the next message, or `None` after the last. Large content is inlined. Fails if the store cannot be read.
    pub async fn next(&mut self) -> Result<Option<Message>> {
        let Self { store, external, scope, messages } = self;
        messages.next(HistorySource { store: store.as_ref(), external, scope }).await
    }
}

// === impl MessageReader ===

impl MessageReader {
    /// Opens the path after `told` up to `base`. Fails if the store or the client entries cannot be read.
    pub(super) async fn open(
        source: HistorySource<'_>,
        thread: &ThreadId,
        base: Option<CheckpointKey>,
        told: Option<CheckpointKey>,
    ) -> Result<Self> {
        let mut path = Vec::new();
        let mut links = PathReader::new(source.store, source.scope, thread, base);
        while base.is_some()
            && let Some(link) = links.next().await?
        {
            if Some(link.key) == told {
                break;
            }
            let entries: Vec<_> = client_entries(&link, thread).collect();
            if link.run.is_some() || !entries.is_empty() {
                path.push(SpokenStep { thread: link.thread, run: link.run, entries });
            }
        }
        let entries = path.iter().rev().flat_map(|step| &step.entries).cloned();
        let brought = reference::read(source, entries).await?;
        Ok(Self { path, brought, ready: VecDeque::new() })
    }

    /// Returns the next message, or `None` after the last. Large content is inlined.
    pub(crate) async fn next(&mut self, source: HistorySource<'_>) -> Result<Option<Message>> {
        loop {
            if let Some((thread, mut message)) = self.ready.pop_front() {
                inline(source.store, thread, std::slice::from_mut(&mut message)).await?;
                return Ok(Some(message));
            }
            let Some(SpokenStep { thread, run, entries }) = self.path.pop() else {
                return Ok(None);
            };
            let said = said_at(source.store, thread, run, &entries, &self.brought).await?;
            self.ready.extend(said.into_iter().map(|message| (thread, message)));
        }
    }

    /// Returns all remaining messages.
    pub(crate) async fn rest(mut self, source: HistorySource<'_>) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        while let Some(message) = self.next(source).await? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// Returns the newest messages that have at most `max_bytes` together. Reads from the end of the path, so that memory holds
    /// these and the messages of one run.
    pub(crate) async fn newest(
        self,
        source: HistorySource<'_>,
        max_bytes: usize,
    ) -> Result<NewestMessages> {
        let Self { path, brought, .. } = self;
        let (mut messages, mut room) = (VecDeque::new(), max_bytes);
        for SpokenStep { thread, run, entries } in path {
            let said = said_at(source.store, thread, run, &entries, &brought).await?;
            for mut message in said.into_iter().rev() {
                let Some(rest) = room.checked_sub(inlined_weight(&message)) else {
                    return Ok(NewestMessages { messages: messages.into(), is_cut: true });
                };
                room = rest;
                inline(source.store, thread, std::slice::from_mut(&mut message)).await?;
                messages.push_front(message);
            }
        }
        Ok(NewestMessages { messages: messages.into(), is_cut: false })
    }

    /// Returns all remaining messages with their weight; `None` if that is more than `max_bytes`.
    pub(crate) async fn within(
        mut self,
        source: HistorySource<'_>,
        max_bytes: usize,
    ) -> Result<Option<(Vec<Message>, usize)>> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while let Some(message) = self.next(source).await? {
            bytes += weight(&message);
            if bytes > max_bytes {
                return Ok(None);
            }
            messages.push(message);
        }
        Ok(Some((messages, bytes)))
    }
}

// === impl StateContent ===

impl StateContent {
    /// Returns its bytes, as an estimate for JSON and for memory.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Value(value) => value.as_bytes().len(),
            Self::Messages(messages) => messages.iter().map(weight).sum(),
        }
    }
}
