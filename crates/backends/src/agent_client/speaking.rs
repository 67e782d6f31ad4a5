//! What an agent says in a turn: which message each piece belongs to, and which tool calls are open.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use trilogue_domain::event::{MessageEvent, Original, ToolEvent, ToolStatus};
use trilogue_domain::{Body, MessageId, Role, RunId};
use trilogue_mapping::agent_client::body_of_update;
use trilogue_wire::agent_client::splice;
use uuid::Uuid;

use super::original;

/// The most ids of messages that are remembered, to tell when an agent uses one again. Older ones are known to the store.
const MAX_REMEMBERED: usize = 1_024;
/// The most tool calls of a turn that are followed.
const MAX_CALLS: usize = 4_096;
/// The updates that are known by their kind.
const KINDS: [&str; 14] = [
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
];

/// Ids of messages that are taken: the last ones of the session's earlier turns, and what the store was asked about.
#[derive(Debug, Default)]
pub(super) struct Used {
    ids: HashSet<MessageId>,
    /// The oldest first.
    order: VecDeque<MessageId>,
}

/// A turn at work.
#[derive(Debug)]
pub(super) struct Speaking {
    run: RunId,
    /// Who speaks.
    role: Role,
    /// What the user said.
    user: MessageId,
    pieces: Pieces,
    /// The message that is said.
    open: Option<Open>,
    /// The agent's messages of this turn, by the agent's own ids.
    known: HashMap<String, MessageId>,
    /// The last of them.
    last: Option<MessageId>,
    /// Tool calls that have not ended.
    calls: HashSet<String>,
}

/// Gives pieces without an id one.
#[derive(Debug)]
pub(super) struct Pieces {
    assigns: bool,
    /// What kind of piece came last, and the id that it was given.
    assigned: Option<(Kind, String)>,
}

/// What an agent says outside of a turn.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) params: String,
    /// The id of the message of the agent that it is a piece of.
    pub(super) message: Option<String>,
    /// Whether the message before it has ended.
    pub(super) ends: bool,
}

#[derive(Debug)]
struct Open {
    message: MessageId,
    /// Whether the id is ours: then the message cannot come back.
    is_ours: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    User,
    Agent,
    Thought,
}

/// What an update comes to.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What is logged, in order.
    pub(super) events: Vec<(Body, Option<Original>)>,
    /// An id that the agent has for a message of ours.
    pub(super) alias: Option<(MessageId, MessageId)>,
}

// === impl Speaking ===

impl Speaking {
    pub(super) fn new(run: RunId, agent: &str, user: MessageId, assigns: bool) -> Self {
        Self {
            run,
            role: Role::NamedAgent(Arc::from(agent)),
            user,
            pieces: Pieces::new(assigns),
            open: None,
            known: HashMap::new(),
            last: None,
            calls: HashSet::new(),
        }
    }

    /// The id of a message that this update begins, where the agent gives it one: somebody has to see whether it is free.
    pub(super) fn begins(&self, kind: &str, params: &str, used: &Used) -> Option<MessageId> {
        if Kind::of(kind) != Some(Kind::Agent) {
            return None;
        }
        let id = splice::message_id(params).filter(|id| !self.known.contains_key(&**id))?;
        let id = MessageId::parse(&id).ok()?;
        (id != self.user && !used.ids.contains(&id)).then_some(id)
    }

    /// Takes an update, whose session id was cut out.
    ///
    /// `kind` is the word for what it is.
    pub(super) fn hear(&mut self, kind: &str, params: String, used: &Used) -> Heard {
        let mut heard = Heard::default();
        match Kind::of(kind) {
            Some(piece) => self.piece(piece, params, used, &mut heard),
            None => self.other(params, &mut heard),
        }
        heard
    }

    /// Ends what is open, at the turn's end. Tool calls that have not ended have failed where the turn broke off.
    pub(super) fn finish(mut self, is_broken: bool, used: &mut Used) -> Vec<Body> {
        let mut events = Vec::new();
        self.complete(&mut |body| events.push(body));
        if is_broken {
            let mut calls: Vec<_> = self.calls.into_iter().collect();
            calls.sort_unstable();
            events.extend(calls.into_iter().map(|call| {
                Body::Tool(ToolEvent::Ended { call, status: ToolStatus::Failed, output: None })
            }));
        }
        used.add(self.known.into_values());
        used.add([self.user]);
        events
    }

    fn piece(&mut self, kind: Kind, params: String, used: &Used, heard: &mut Heard) {
        let (params, id, is_ours) = self.pieces.name(kind, params);
        if kind == Kind::Agent {
            let message = self.message(&id, is_ours, used, heard);
            // No two messages of a thread are told under one id. One that is no id to us is the agent's own business.
            let is_taken = message.as_str() != id && MessageId::parse(&id).is_ok();
            let renamed = match is_taken && self.pieces.assigns {
                true => splice::put_message_id(&params, message.as_str()),
                false => None,
            };
            let params = renamed.unwrap_or(params);
            let mut body = body_of_update(&params);
            if let Body::Message(
                MessageEvent::Delta { message: named, .. }
                | MessageEvent::Part { message: named, .. },
            ) = &mut body
            {
                *named = message;
            }
            heard.events.push((body, Some(original::of_update(params))));
            return;
        }
        self.complete_ours(heard);
        heard.events.push((body_of_update(&params), Some(original::of_update(params))));
    }

    /// The message of a piece; begins it, and ends the one before, where it is another.
    fn message(&mut self, id: &str, is_ours: bool, used: &Used, heard: &mut Heard) -> MessageId {
        let known = self.known.get(id).cloned();
        let is_new = known.is_none();
        let message = known.unwrap_or_else(|| {
            let theirs = MessageId::parse(id).ok();
            let free = theirs.clone().filter(|id| *id != self.user && !used.ids.contains(id));
            let message = free.unwrap_or_else(|| derived(&self.run, id));
            if let Some(theirs) = theirs.filter(|theirs| *theirs != message) {
                heard.alias = Some((message.clone(), theirs));
            }
            self.known.insert(id.to_owned(), message.clone());
            message
        });
        if self.open.as_ref().is_some_and(|open| open.message == message) {
            return message;
        }
        self.complete(&mut |body| heard.events.push((body, None)));
        if is_new {
            let role = self.role.clone();
            let started = MessageEvent::Started { message: message.clone(), role, times: None };
            heard.events.push((Body::Message(started), None));
        }
        self.open = Some(Open { message: message.clone(), is_ours });
        self.last = Some(message.clone());
        message
    }

    fn other(&mut self, params: String, heard: &mut Heard) {
        let mut body = body_of_update(&params);
        match &mut body {
            Body::Tool(ToolEvent::Started { call, message, .. }) => {
                self.pieces.end();
                self.complete_ours(heard);
                *message = Some(self.last.clone().unwrap_or_else(|| self.user.clone()));
                if !has_ended(&params) && self.calls.len() < MAX_CALLS {
                    self.calls.insert(call.clone());
                }
            }
            Body::Tool(ToolEvent::Ended { call, .. }) => {
                self.calls.remove(call);
            }
            _ => {}
        }
        heard.events.push((body, Some(original::of_update(params))));
    }

    /// Ends the open message where nothing can be added to it any more.
    fn complete_ours(&mut self, heard: &mut Heard) {
        if self.open.as_ref().is_some_and(|open| open.is_ours) {
            self.complete(&mut |body| heard.events.push((body, None)));
        }
    }

    fn complete(&mut self, to: &mut impl FnMut(Body)) {
        if let Some(open) = self.open.take() {
            to(Body::Message(MessageEvent::Completed { message: open.message }));
        }
    }
}

// === impl Pieces ===

impl Pieces {
    pub(super) fn new(assigns: bool) -> Self {
        Self { assigns, assigned: None }
    }

    /// Gives a piece that comes outside of a turn an id, where it needs one.
    pub(super) fn outside(&mut self, kind: &str, params: String) -> Outside {
        let Some(piece) = Kind::of(kind) else {
            let ends = kind == "tool_call";
            if ends {
                self.end();
            }
            return Outside { params, message: None, ends };
        };
        let (params, id, _) = self.name(piece, params);
        let is_said = piece == Kind::Agent;
        Outside { params, message: is_said.then_some(id), ends: !is_said }
    }

    /// What comes next without an id is of no message that was said before.
    pub(super) fn end(&mut self) {
        self.assigned = None;
    }

    /// The piece with its id in it, that id, and whether it is ours.
    fn name(&mut self, kind: Kind, params: String) -> (String, String, bool) {
        let given =
            splice::message_id(&params).filter(|id| !id.is_empty()).map(|id| id.into_owned());
        if let Some(given) = given {
            self.assigned = None;
            return (params, given, false);
        }
        let id = match self.assigned.take() {
            Some((last, id)) if last == kind => id,
            _ => Uuid::new_v4().to_string(),
        };
        self.assigned = Some((kind, id.clone()));
        let spliced = if self.assigns { splice::put_message_id(&params, &id) } else { None };
        (spliced.unwrap_or(params), id, true)
    }
}

// === impl Kind ===

impl Kind {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "user_message_chunk" => Self::User,
            "agent_message_chunk" => Self::Agent,
            "agent_thought_chunk" => Self::Thought,
            _ => return None,
        })
    }
}

// === impl Used ===

impl Used {
    /// Whether a message with this id is remembered.
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

/// The word for what an update is; empty where it is none of those that are known.
pub(super) fn kind_of(params: &str) -> &'static str {
    let kind = splice::get_text(params, &["update", "sessionUpdate"]);
    kind.and_then(|kind| KINDS.into_iter().find(|known| *known == kind)).unwrap_or_default()
}

/// Whether a tool call has ended when it is heard of first.
fn has_ended(params: &str) -> bool {
    let status = splice::get_text(params, &["update", "status"]);
    status.is_some_and(|status| matches!(&*status, "completed" | "failed"))
}

/// An id for a message whose own id is taken, or is none that we keep.
pub(super) fn derived(run: &RunId, id: &str) -> MessageId {
    let space = Uuid::new_v5(&Uuid::NAMESPACE_OID, run.as_str().as_bytes());
    MessageId::from_uuid(Uuid::new_v5(&space, id.as_bytes()))
}

#[cfg(test)]
mod tests;
