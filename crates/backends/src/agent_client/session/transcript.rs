//! Converts a turn's updates to events: assigns chunks to messages, and tracks open tool calls.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use trilogue_domain::event::{MessageEvent, Original, ToolEvent, ToolStatus};
use trilogue_domain::{Body, MessageId, Role, RunId};
use trilogue_mapping::agent_client::{
    SESSION_MESSAGE, SESSION_MESSAGE_CHUNK, body_of_update, has_content, logged_update,
    message_pieces, other_message, update_original,
};
use trilogue_wire::agent_client::{self as wire, splice};
use uuid::Uuid;

/// The most message ids that are remembered. The store knows the older ones.
const MAX_REMEMBERED: usize = 1_024;
/// The most open tool calls of a turn that are remembered.
const MAX_CALLS: usize = 4_096;
/// The most bytes of their ids. A call beyond these bounds is not ended if its turn breaks off.
const MAX_CALL_ID_BYTES: usize = 1024 * 1024;
/// The most messages of a turn that are remembered. If an older one continues, the store knows it.
const MAX_TURN_MESSAGES: usize = 4_096;
/// A longer id of the agent, in bytes, is remembered by its hash.
const MAX_ID_BYTES: usize = 256;
/// An update that no client is served, but that shows the agent's work.
const UNSERVED: &str = "state_update";

/// Message ids that are taken: the last ones of earlier turns, and those that the store knew.
#[derive(Debug, Default)]
pub(super) struct UsedIds {
    ids: HashSet<MessageId>,
    /// The oldest first.
    order: VecDeque<MessageId>,
}

#[derive(Debug)]
pub(super) struct TurnTranscript {
    run: RunId,
    role: Role,
    user: MessageId,
    ids: MessageIds,
    open: Option<OpenMessage>,
    messages: TurnMessages,
    thoughts: TurnMessages,
    /// Messages that the agent shows as the user's.
    user_messages: TurnMessages,
    /// Messages that another session sent to this one.
    received: TurnMessages,
    /// The last of its messages.
    last: Option<MessageId>,
    open_calls: OpenCalls,
}

/// The agent's messages of a turn, by the agent's own ids.
#[derive(Debug, Default)]
struct TurnMessages {
    by_id: HashMap<String, MessageId>,
    /// The oldest first.
    order: VecDeque<String>,
}

/// The ids of the open tool calls of a turn.
#[derive(Debug, Default)]
struct OpenCalls {
    ids: HashSet<String>,
    bytes: usize,
}

/// Assigns a message id to chunks without one.
#[derive(Debug)]
pub(super) struct MessageIds {
    assigns: bool,
    /// The kind of the last chunk, and its assigned id.
    assigned: Option<(ChunkKind, String)>,
    /// The run that the ids belong to, and how many it has: the next server assigns the same ids to the same chunks.
    run: Option<(RunId, u64)>,
}

#[derive(Debug)]
pub(super) struct OutsideUpdate {
    pub(super) params: String,
    /// The id of the agent's message, if it is a chunk of one.
    pub(super) message: Option<String>,
    /// Whether the message before it has ended.
    pub(super) ends: bool,
}

#[derive(Debug)]
struct OpenMessage {
    message: MessageId,
    /// Whether the id was assigned here. Such a message does not continue after other chunks.
    is_ours: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkKind {
    User,
    Agent,
    Thought,
}

#[derive(Debug, Default)]
pub(super) struct LoggedUpdate {
    pub(super) events: Vec<(Body, Option<Original>)>,
    /// This server's id of a message, and the agent's id for it.
    pub(super) alias: Option<(MessageId, MessageId)>,
}

// === impl LoggedUpdate ===

impl LoggedUpdate {
    /// An update that is one event without an original.
    pub(super) fn of(body: Body) -> Self {
        Self { events: vec![(body, None)], alias: None }
    }
}

// === impl TurnTranscript ===

impl TurnTranscript {
    pub(super) fn new(run: RunId, agent: &str, user: MessageId, assigns: bool) -> Self {
        Self {
            role: Role::NamedAgent(Arc::from(agent)),
            user,
            ids: MessageIds::of_run(&run, assigns),
            run,
            open: None,
            messages: TurnMessages::default(),
            thoughts: TurnMessages::default(),
            user_messages: TurnMessages::default(),
            received: TurnMessages::default(),
            last: None,
            open_calls: OpenCalls::default(),
        }
    }

    /// The agent's id of a message or thought that this update begins. The caller checks whether the store already knows it.
    pub(super) fn begun_message_id(
        &self,
        kind: &str,
        params: &str,
        used: &UsedIds,
    ) -> Option<MessageId> {
        let begun = match ChunkKind::of(kind) {
            Some(ChunkKind::Agent) => &self.messages,
            Some(ChunkKind::Thought) => &self.thoughts,
            None if is_session_message(kind) => &self.received,
            Some(ChunkKind::User) | None => return None,
        };
        let id = splice::get_text(params, &["update", "messageId"])
            .filter(|id| begun.get(id).is_none())?;
        let id = MessageId::parse(&id).ok()?;
        (id != self.user && !used.ids.contains(&id)).then_some(id)
    }

    /// Converts an update without its session id. `kind` is its [`update_kind`].
    pub(super) fn update(&mut self, kind: &str, params: String, used: &UsedIds) -> LoggedUpdate {
        let mut logged = LoggedUpdate::default();
        match ChunkKind::of(kind) {
            Some(chunk) => self.chunk(chunk, params, used, &mut logged),
            None => self.other(params, &mut logged),
        }
        logged
    }

    /// Converts a message that another session sent to this one: the input of the agent's work here. Each piece keeps the part of the update that it is made of.
    pub(super) fn session_message(
        &mut self,
        kind: &str,
        params: String,
        used: &UsedIds,
    ) -> LoggedUpdate {
        let mut logged = LoggedUpdate::default();
        let id = splice::get_text(&params, &["update", "messageId"]).map(Cow::into_owned);
        let Some(id) = id else { return LoggedUpdate::of(other_message(kind, &params)) };
        let known = self.received.get(&id).cloned();
        let replaces = kind == SESSION_MESSAGE && known.is_some();
        if replaces || (kind == SESSION_MESSAGE && !has_content(&params)) {
            // What was logged stays. The agent's update says what it became.
            return LoggedUpdate::of(other_message(kind, &params));
        }
        let message = known.unwrap_or_else(|| {
            let theirs = MessageId::parse(&id).ok();
            let is_free = |it: &MessageId| {
                let others = [&self.messages, &self.thoughts, &self.user_messages];
                !used.has(it) && others.iter().all(|begun| begun.get(it.as_str()).is_none())
            };
            let message = theirs.filter(is_free);
            let message =
                message.unwrap_or_else(|| derived_id(&self.run, &format!("session_message\n{id}")));
            self.received.insert(&id, message.clone());
            self.complete(&mut |body| logged.events.push((body, None)));
            let (message_id, role) = (message.clone(), Role::User);
            let started = MessageEvent::Started { message: message_id, role, times: None };
            logged.events.push((Body::Message(started), None));
            // What the agent does next answers it.
            self.user = message.clone();
            message
        });
        self.open = Some(OpenMessage { message: message.clone(), is_ours: false });
        for params in message_pieces(kind, params) {
            let mut body = body_of_update(&params);
            name_piece(&mut body, message.clone());
            logged.events.push((body, Some(update_original(params))));
        }
        logged
    }

    /// Whether tool calls of the turn are open.
    pub(super) fn has_open_calls(&self) -> bool {
        !self.open_calls.ids.is_empty()
    }

    /// Ends open messages and calls at the end of the turn. If the turn broke off, the open tool calls fail.
    pub(super) fn finish(&mut self, is_broken: bool, used: &mut UsedIds) -> Vec<Body> {
        let mut events = Vec::new();
        self.complete(&mut |body| events.push(body));
        if is_broken {
            let mut calls: Vec<_> = std::mem::take(&mut self.open_calls).ids.into_iter().collect();
            calls.sort_unstable();
            events.extend(calls.into_iter().map(|call| {
                Body::Tool(ToolEvent::Ended { call, status: ToolStatus::Failed, output: None })
            }));
        }
        for begun in [&mut self.messages, &mut self.thoughts, &mut self.received] {
            used.add(std::mem::take(begun).by_id.into_values());
        }
        used.add([self.user.clone()]);
        events
    }

    fn chunk(
        &mut self,
        kind: ChunkKind,
        params: String,
        used: &UsedIds,
        logged: &mut LoggedUpdate,
    ) {
        let (params, id, is_ours) = self.ids.assign(kind, params);
        let mut body = body_of_update(&params);
        if body == Body::Opaque && kind != ChunkKind::User {
            // An empty or unreadable chunk begins no message.
            return logged.events.push((body, Some(update_original(params))));
        }
        let (message, is_new) = self.name(kind, &id, used, logged);
        match kind {
            ChunkKind::Agent => self.open_message(&message, is_new, is_ours, logged),
            ChunkKind::User | ChunkKind::Thought => self.complete_ours(logged),
        }
        // Only the agent knows an id that the log cannot keep.
        let is_taken = message.as_str() != id && MessageId::parse(&id).is_ok();
        let renamed = match is_taken && self.ids.assigns {
            true => splice::put_message_id(&params, message.as_str()),
            false => None,
        };
        let params = renamed.unwrap_or(params);
        name_piece(&mut body, message);
        logged.events.push((body, Some(update_original(params))));
    }

    /// The id of the message or thought of a chunk, and whether it begins with this chunk. Ids are unique in a thread across messages and thoughts: a taken id is replaced.
    fn name(
        &mut self,
        kind: ChunkKind,
        id: &str,
        used: &UsedIds,
        logged: &mut LoggedUpdate,
    ) -> (MessageId, bool) {
        let begun = match kind {
            ChunkKind::User => [&self.user_messages, &self.messages, &self.thoughts],
            ChunkKind::Agent => [&self.messages, &self.user_messages, &self.thoughts],
            ChunkKind::Thought => [&self.thoughts, &self.user_messages, &self.messages],
        };
        let [own, others @ ..] = begun;
        if let Some(known) = own.get(id) {
            return (known.clone(), false);
        }
        let is_others =
            others.iter().any(|begun| begun.get(id).is_some_and(|it| it.as_str() == id));
        let theirs = MessageId::parse(id).ok();
        let is_free = |id: &MessageId| match kind {
            // The agent shows the user's own message.
            ChunkKind::User => !is_others,
            _ => !is_others && *id != self.user && !used.ids.contains(id),
        };
        let free = theirs.clone().filter(is_free);
        let message = free.unwrap_or_else(|| kind.derived_id(&self.run, id));
        // The log does not have messages of the user that the agent shows.
        if kind != ChunkKind::User
            && let Some(theirs) = theirs.filter(|theirs| *theirs != message)
        {
            logged.alias = Some((message.clone(), theirs));
        }
        let own = match kind {
            ChunkKind::User => &mut self.user_messages,
            ChunkKind::Agent => &mut self.messages,
            ChunkKind::Thought => &mut self.thoughts,
        };
        own.insert(id, message.clone());
        (message, true)
    }

    /// Opens the message of a chunk. If it is another message than the open one, ends that one first.
    fn open_message(
        &mut self,
        message: &MessageId,
        is_new: bool,
        is_ours: bool,
        logged: &mut LoggedUpdate,
    ) {
        if self.open.as_ref().is_some_and(|open| open.message == *message) {
            return;
        }
        self.complete(&mut |body| logged.events.push((body, None)));
        if is_new {
            let role = self.role.clone();
            let started = MessageEvent::Started { message: message.clone(), role, times: None };
            logged.events.push((Body::Message(started), None));
        }
        self.open = Some(OpenMessage { message: message.clone(), is_ours });
        self.last = Some(message.clone());
    }

    fn other(&mut self, params: String, logged: &mut LoggedUpdate) {
        for (mut body, original) in logged_update(params) {
            match &mut body {
                Body::Tool(ToolEvent::Started { call, message, .. }) => {
                    self.ids.end();
                    self.complete_ours(logged);
                    *message = Some(self.last.clone().unwrap_or_else(|| self.user.clone()));
                    self.open_calls.insert(call);
                }
                Body::Tool(ToolEvent::Ended { call, .. }) => {
                    self.open_calls.remove(call);
                }
                _ => {}
            }
            logged.events.push((body, Some(original)));
        }
    }

    /// Ends the open message if no chunk can be added to it any more.
    fn complete_ours(&mut self, logged: &mut LoggedUpdate) {
        if self.open.as_ref().is_some_and(|open| open.is_ours) {
            self.complete(&mut |body| logged.events.push((body, None)));
        }
    }

    fn complete(&mut self, to: &mut impl FnMut(Body)) {
        if let Some(open) = self.open.take() {
            to(Body::Message(MessageEvent::Completed { message: open.message }));
        }
    }
}

// === impl TurnMessages ===

impl TurnMessages {
    fn get(&self, id: &str) -> Option<&MessageId> {
        self.by_id.get(&*Self::key(id))
    }

    /// Remembers a message. The oldest is forgotten if there are too many.
    fn insert(&mut self, id: &str, message: MessageId) {
        let key = Self::key(id).into_owned();
        self.order.push_back(key.clone());
        self.by_id.insert(key, message);
        if self.order.len() > MAX_TURN_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }

    fn key(id: &str) -> Cow<'_, str> {
        if id.len() <= MAX_ID_BYTES {
            return Cow::Borrowed(id);
        }
        // No unhashed id is as long as this one.
        Cow::Owned(format!(
            "{:0>1$}",
            Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes()),
            MAX_ID_BYTES + 1
        ))
    }
}

// === impl OpenCalls ===

impl OpenCalls {
    fn insert(&mut self, call: &str) {
        let has_room = self.ids.len() < MAX_CALLS && self.bytes + call.len() <= MAX_CALL_ID_BYTES;
        if has_room && self.ids.insert(call.to_owned()) {
            self.bytes += call.len();
        }
    }

    fn remove(&mut self, call: &str) {
        if self.ids.remove(call) {
            self.bytes -= call.len();
        }
    }
}

// === impl MessageIds ===

impl MessageIds {
    pub(super) fn new(assigns: bool) -> Self {
        Self { assigns, assigned: None, run: None }
    }

    fn of_run(run: &RunId, assigns: bool) -> Self {
        Self { run: Some((run.clone(), 0)), ..Self::new(assigns) }
    }

    /// Gives an id to a chunk that comes outside of a turn.
    pub(super) fn outside_turn(&mut self, kind: &str, params: String) -> OutsideUpdate {
        let Some(chunk) = ChunkKind::of(kind) else {
            let ends = kind == "tool_call";
            if ends {
                self.end();
            }
            return OutsideUpdate { params, message: None, ends };
        };
        let (params, id, _) = self.assign(chunk, params);
        let is_agent = chunk == ChunkKind::Agent;
        OutsideUpdate { params, message: is_agent.then_some(id), ends: !is_agent }
    }

    /// The next chunk without an id begins a new message.
    pub(super) fn end(&mut self) {
        self.assigned = None;
    }

    /// The chunk with its id, the id, and whether it was assigned here.
    fn assign(&mut self, kind: ChunkKind, params: String) -> (String, String, bool) {
        let given =
            splice::message_id(&params).filter(|id| !id.is_empty()).map(|id| id.into_owned());
        if let Some(given) = given {
            self.assigned = None;
            return (params, given, false);
        }
        let id = match self.assigned.take() {
            Some((last, id)) if last == kind => id,
            _ => self.new_id(),
        };
        self.assigned = Some((kind, id.clone()));
        let spliced = if self.assigns { splice::put_message_id(&params, &id) } else { None };
        (spliced.unwrap_or(params), id, true)
    }

    fn new_id(&mut self) -> String {
        let Some((run, count)) = &mut self.run else { return Uuid::new_v4().to_string() };
        *count += 1;
        derived_id(run, &format!("assigned\n{count}")).as_str().to_owned()
    }
}

// === impl ChunkKind ===

impl ChunkKind {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "user_message_chunk" => Self::User,
            "agent_message_chunk" => Self::Agent,
            "agent_thought_chunk" => Self::Thought,
            _ => return None,
        })
    }

    /// An id for a message of this kind whose own id is taken or cannot be kept.
    fn derived_id(self, run: &RunId, id: &str) -> MessageId {
        match self {
            Self::Agent => derived_id(run, id),
            Self::User => derived_id(run, &format!("user_message\n{id}")),
            Self::Thought => derived_thought_id(run, id),
        }
    }
}

// === impl UsedIds ===

impl UsedIds {
    pub(super) fn has(&self, id: &MessageId) -> bool {
        self.ids.contains(id)
    }

    pub(super) fn add(&mut self, ids: impl IntoIterator<Item = MessageId>) {
        for id in ids {
            if self.ids.insert(id.clone()) {
                self.order.push_back(id);
            }
            if self.order.len() > MAX_REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.ids.remove(&oldest);
            }
        }
    }
}

/// Names the message or thought that an event is a piece of.
pub(super) fn name_piece(body: &mut Body, id: MessageId) {
    match body {
        Body::Message(MessageEvent::Delta { message, .. } | MessageEvent::Part { message, .. }) => {
            *message = id
        }
        Body::Message(MessageEvent::Thought { message, .. }) => *message = Some(id),
        _ => {}
    }
}

/// The kind of an update; empty if it is unknown.
pub(super) fn update_kind(params: &str) -> &'static str {
    let kind = splice::get_text(params, &["update", "sessionUpdate"]);
    let Some(kind) = kind else { return "" };
    let served = wire::update_kind(&kind).map(|known| known.name);
    served.or_else(|| (kind == UNSERVED).then_some(UNSERVED)).unwrap_or_default()
}

/// Whether an update is about a message between sessions.
pub(super) fn is_session_message(kind: &str) -> bool {
    matches!(kind, SESSION_MESSAGE | SESSION_MESSAGE_CHUNK)
}

/// An id for a thought whose own id is taken, or cannot be kept.
pub(super) fn derived_thought_id(run: &RunId, id: &str) -> MessageId {
    derived_id(run, &format!("thought\n{id}"))
}

/// An id for a message whose own id is taken, or cannot be kept.
pub(super) fn derived_id(run: &RunId, id: &str) -> MessageId {
    let space = Uuid::new_v5(&Uuid::NAMESPACE_OID, run.as_str().as_bytes());
    MessageId::from_uuid(Uuid::new_v5(&space, id.as_bytes()))
}

#[cfg(test)]
mod tests;
