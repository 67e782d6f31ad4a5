//! Folds a thread's log into the updates for clients.

mod call;
mod chunk;
mod plan;

use std::borrow::Cow;

use serde_json::json;
use trilogue_domain::content::{BlobRef, PartMetadata};
use trilogue_domain::event::{Event, MessageEvent, RunEvent, StateEvent, ThreadEvent};
use trilogue_domain::thread::TITLE_MEMBER;
use trilogue_domain::{Body, Content, Json, MessageId, Part, PrincipalId, RunKey, ThreadId, safe};
use trilogue_wire::agent_client::splice::{self, get_text};
use trilogue_wire::agent_client::{Rules, SessionUpdate, read_checked};

use self::call::OpenCall;
pub use self::call::shown_call;
use self::chunk::{Chunk, member};
use self::plan::PlanList;
use super::block::{Extension, citation_block, quoted, text_block};
use super::original::OWN;
use super::oversize::{LINE_TOO_LONG, UPDATE_TOO_LARGE};
use super::prompt::in_words;
use super::relay::{SESSION_UPDATE, derive_uuid, gate_of};
use super::{EXTENSION, Gate, IdFormat, Relay, UPDATE};
use crate::shape::is_json;

/// The most stored content that is inlined in an update, in bytes; larger content becomes a link. In base64 it still fits a line of the usual limit.
const MAX_INLINE_BYTES: u64 = 8 * 1024 * 1024;
/// The same limit for text: at most one whole message.
const MAX_INLINE_TEXT_BYTES: u64 = MAX_MESSAGE_BYTES as u64;
/// The most bytes of one update: it fits a line of the usual limit.
const MAX_MESSAGE_BYTES: usize = 15 * 1024 * 1024;

/// The event for a hosted agent that does not remember its session.
const RESTARTED: &str = "session_restarted";
/// The text for a part of the agent's output that was too large.
const LEFT_OUT: &str = "Part of what the agent sent is missing";
const FORGOT: &str = "The agent does not remember this session";
const TOLD_AGAIN: &str = "It has begun another one, and is told again what was said before.";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Usually `session/update`.
    pub method: Cow<'static, str>,
    /// The whole params object with its `sessionId`; empty if a notification has no params.
    pub params: Vec<u8>,
    pub gate: Gate,
}

/// Renders a thread's log as updates, up to the last pushed event.
///
/// The ids of thoughts and tool calls depend on earlier events: a reader that begins in the middle first pushes those of the open run and drops their updates.
#[derive(Clone, Debug)]
pub struct Updates {
    relay: Relay,
    extension: Extension,
    /// The incomplete messages of users.
    user_messages: Vec<MessageId>,
    /// Open thoughts: the run, and the number of the first event.
    thoughts: Vec<(Option<RunKey>, u64)>,
    calls: Vec<OpenCall>,
    plans: PlanList,
    title: Option<String>,
    /// The `_meta` of the user's messages, as JSON.
    turn_origin: Option<String>,
    /// The thread of the agent that the next tool call calls.
    called: Option<ThreadId>,
}

/// An event with the id of its run, from which updates get their ids.
#[derive(Clone, Copy, Debug)]
struct EventPosition<'a> {
    number: u64,
    run: Option<RunKey>,
    /// The namespace of derived ids: the run's id, or the thread's.
    within: &'a str,
}

// === impl Updates ===

impl Updates {
    pub fn new(thread: &ThreadId) -> Self {
        Self::with_ids(thread, IdFormat::Any)
    }

    /// Like [`Self::new`], with message ids in this format.
    pub fn with_ids(thread: &ThreadId, ids: IdFormat) -> Self {
        Self {
            relay: Relay::new(thread, ids),
            extension: Extension::Off,
            user_messages: Vec::new(),
            thoughts: Vec::new(),
            calls: Vec::new(),
            plans: PlanList::default(),
            title: None,
            turn_origin: None,
            called: None,
        }
    }

    /// Sets whether blocks carry the rest of a part under `_meta`.
    #[must_use]
    pub fn with_extension(mut self, extension: Extension) -> Self {
        self.extension = extension;
        self
    }

    /// Makes later messages of users name the origin of their turn: the principal, and the client by its own name. `None` ends that.
    pub fn set_turn_origin(&mut self, origin: Option<(&PrincipalId, Option<&str>)>) {
        self.turn_origin = origin.map(|(principal, client)| {
            let mut begun = json!({ "created_by": principal.as_str() });
            if let Some(client) = client {
                begun["client"] = client.into();
            }
            json!({ EXTENSION: begun }).to_string()
        });
    }

    /// Makes the next tool call refer to the session of the agent that it calls, for clients that show sub-agents.
    pub fn set_called_agent(&mut self, thread: Option<ThreadId>) {
        self.called = thread;
    }

    /// Sets the title that a client has given the thread, for a reader that begins in the middle of the log.
    pub fn know_title(&mut self, metadata: &Json) {
        self.title = own_title(metadata);
    }

    /// Whether a client has set the title of the thread.
    pub fn has_own_title(&self) -> bool {
        self.title.is_some()
    }

    pub fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Whether this blob should be inlined in its part before the event is pushed.
    pub fn can_inline(&self, blob: &BlobRef) -> bool {
        blob.length <= if blob.is_text { MAX_INLINE_TEXT_BYTES } else { MAX_INLINE_BYTES }
    }

    /// Adds the updates of the next event. `run_id` is the id of the event's run.
    pub fn push(&mut self, event: &Event, run_id: Option<&str>, out: &mut Vec<Update>) {
        if let Some(original) = &event.original {
            self.end_thought(event);
            if matches!(event.body, Body::Tool(_)) && *original.dialect == *UPDATE {
                self.record_relayed_call(event.run, &original.bytes);
            }
            let mut params = Vec::with_capacity(original.bytes.len() + 64);
            let relayed = self.relay.push_into(&original.dialect, &original.bytes, &mut params);
            if let Some(relayed) = relayed {
                if matches!(relayed.gate, Gate::Plan | Gate::PlanById) {
                    self.record_relayed_plan(&original.bytes);
                }
                let method = match relayed.method {
                    method if method == SESSION_UPDATE => Cow::Borrowed(SESSION_UPDATE),
                    method => Cow::Owned(method.into_owned()),
                };
                out.push(Update { method, params, gate: relayed.gate });
                return;
            }
            if super::is_dialect(&original.dialect) {
                return;
            }
        }
        let thread = self.relay.thread().clone();
        let within = run_id.unwrap_or_else(|| thread.as_str());
        let place = EventPosition { number: event.number, run: event.run, within };
        match &event.body {
            Body::Run(body) => self.run_event(body, place, out),
            Body::Message(body) => self.message_event(body, place, out),
            Body::Tool(body) => self.tool_event(body, place, out),
            Body::State(body) => self.state_event(body, place, out),
            Body::Thread(
                ThreadEvent::Created { metadata, .. } | ThreadEvent::Metadata(metadata),
            ) => {
                self.set_title(metadata, out);
            }
            // Interrupts are requests to clients; the others are invisible to clients.
            Body::Interrupt(_) | Body::Thread(_) | Body::Opaque => {}
        }
    }

    fn run_event(&mut self, event: &RunEvent, place: EventPosition<'_>, out: &mut Vec<Update>) {
        match event {
            RunEvent::Created { input: Some(value), .. } => {
                let id = input_id(place.within);
                self.chunk(Chunk::User, id.as_str(), &text_block(&in_words(value)), out);
            }
            RunEvent::Result(value) => {
                self.thoughts.retain(|(run, _)| *run != place.run);
                let id = derive_uuid(place.within, "result").hyphenated().to_string();
                self.chunk(Chunk::Agent, &id, &text_block(&in_words(value)), out);
            }
            RunEvent::Ended(outcome) => {
                self.thoughts.retain(|(run, _)| *run != place.run);
                self.end_calls(place.run, outcome, out);
            }
            RunEvent::Created { .. }
            | RunEvent::Started
            | RunEvent::Resumed
            | RunEvent::Cancelling { .. } => {}
        }
    }

    fn message_event(
        &mut self,
        event: &MessageEvent,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        match event {
            MessageEvent::Thought { message: Some(message), text } => {
                self.text(Chunk::Thought, message.as_str(), text, out);
            }
            MessageEvent::Thought { message: None, text } => {
                let id = self.thought_id(place);
                self.text(Chunk::Thought, &id, text, out);
                return;
            }
            MessageEvent::Started { message, role, .. } if role.is_user() => {
                self.user_messages.push(message.clone());
            }
            MessageEvent::Started { .. } => {}
            MessageEvent::Delta { message, text } => {
                self.text(self.chunk_kind(message), message.as_str(), text, out);
            }
            MessageEvent::Part { message, part } => self.part(message, part, place, out),
            MessageEvent::Completed { message } => {
                self.user_messages.retain(|asked| asked != message)
            }
        }
        self.thoughts.retain(|(run, _)| *run != place.run);
    }

    /// Renders a part as chunks; its metadata becomes separate updates.
    fn part(
        &mut self,
        message: &MessageId,
        part: &Part,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        let side = self.chunk_kind(message);
        if let Some(PartMetadata::Trajectory(step)) = &part.metadata
            && self.extension == Extension::Off
        {
            self.step(step, place, out);
        }
        let is_off = self.extension == Extension::Off;
        let cited = if is_off { citation_block(part) } else { None };
        match &part.content {
            Content::Empty if cited.is_some() => {}
            Content::Text(text) if is_plain(part) && (is_off || *part == Part::text(&**text)) => {
                self.text(side, message.as_str(), text, out);
            }
            _ => self.block(side, message.as_str(), part, out),
        }
        // The source follows the text that it refers to.
        if let Some(block) = cited {
            self.chunk(side, message.as_str(), &block, out);
        }
    }

    fn state_event(&mut self, event: &StateEvent, place: EventPosition<'_>, out: &mut Vec<Update>) {
        match event {
            StateEvent::Plan(_)
            | StateEvent::PlanUpdated { .. }
            | StateEvent::PlanRemoved { .. } => self.plan_event(event, out),
            StateEvent::Custom { kind, data } if OWN.contains(&kind.as_str()) => {
                self.push_custom_update(kind, data, out);
            }
            StateEvent::Custom { kind, data } if kind == RESTARTED => {
                self.push_restart_notice(data, place, out);
            }
            StateEvent::Custom { kind, data }
                if [LINE_TOO_LONG, UPDATE_TOO_LARGE].contains(&kind.as_str()) =>
            {
                self.push_omission_notice(kind, data, place, out);
            }
            // The client face shows sub-agents itself.
            StateEvent::Subagent(_) => {}
            // The protocol has no state.
            StateEvent::Custom { .. } | StateEvent::Values(_) | StateEvent::Output(_) => {}
        }
    }

    /// Adds a notice that the agent does not remember the session.
    fn push_restart_notice(
        &mut self,
        data: &Json,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        let Some(reason) = get_text(data.as_str(), &["reason"]) else { return };
        let description = format!("{}{TOLD_AGAIN}", sentence(&reason));
        self.warning("restarted", FORGOT, &description, place, out);
    }

    /// Adds a notice that part of the agent's output is missing because it was too large.
    fn push_omission_notice(
        &mut self,
        kind: &str,
        data: &Json,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        let data = data.to_value();
        let number = |name: &str| data.get(name).and_then(serde_json::Value::as_u64);
        let description = match (kind, number("limit"), number("bytes")) {
            (LINE_TOO_LONG, Some(limit), _) => {
                let method = data.get("method").and_then(serde_json::Value::as_str);
                let method = method
                    .map_or(String::new(), |name| format!(" of the method '{}'", safe::line(name)));
                format!(
                    "A message{method} was longer than {limit} bytes. An operator may raise `max_line` of the agent."
                )
            }
            (_, _, Some(bytes)) => {
                format!("An update of {bytes} bytes was larger than the log takes.")
            }
            _ => return,
        };
        self.warning("left out", LEFT_OUT, &description, place, out);
    }

    /// Adds a notice, and a separate message for clients without notices.
    fn warning(
        &mut self,
        name: &str,
        title: &str,
        description: &str,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        let mut update = String::from("{\"sessionUpdate\":\"notice\",\"severity\":\"warning\"");
        member(&mut update, "title", &quoted(title));
        member(&mut update, "description", &quoted(description));
        self.update(&update, Gate::Notices, out);
        let id = derive_uuid(place.within, &format!("{name} {}", place.number));
        let text = format!("{title}. {description}");
        let first = out.len();
        self.chunk(Chunk::Agent, &id.hyphenated().to_string(), &text_block(&text), out);
        for update in out.iter_mut().skip(first) {
            update.gate = Gate::NoNotices;
        }
    }

    /// Adds a custom event with the name and form of one of the protocol's updates.
    fn push_custom_update(&self, kind: &str, data: &Json, out: &mut Vec<Update>) {
        let update = splice::set_text(data.as_str(), &["sessionUpdate"], kind);
        let Some(mut update) = update else { return };
        let is_one = read_checked::<SessionUpdate>(&update, Rules::Strict).is_ok();
        if is_one && update.ends_with('}') {
            let gate = gate_of(&update);
            update.pop();
            self.update(&update, gate, out);
        }
    }

    fn set_title(&mut self, metadata: &Json, out: &mut Vec<Update>) {
        let title = own_title(metadata);
        if title == self.title {
            return;
        }
        let mut update = String::from("{\"sessionUpdate\":\"session_info_update\"");
        member(&mut update, "title", &title.as_deref().map_or_else(|| "null".to_owned(), quoted));
        self.title = title;
        self.update(&update, Gate::Always, out);
    }

    fn chunk_kind(&self, message: &MessageId) -> Chunk {
        if self.user_messages.contains(message) { Chunk::User } else { Chunk::Agent }
    }

    /// Returns the id of the thought that this event continues or begins.
    fn thought_id(&mut self, place: EventPosition<'_>) -> String {
        let known = self.thoughts.iter().find(|(run, _)| *run == place.run);
        let first = known.map(|(_, first)| *first).unwrap_or_else(|| {
            self.thoughts.push((place.run, place.number));
            place.number
        });
        derive_uuid(place.within, &first.to_string()).hyphenated().to_string()
    }

    /// Ends a thought at any other event of its run.
    fn end_thought(&mut self, event: &Event) {
        if !self.thoughts.is_empty() && event.run.is_some() {
            self.thoughts.retain(|(run, _)| *run != event.run);
        }
    }
}

/// Returns the message id of an input that is a value.
pub fn input_id(run_id: &str) -> MessageId {
    MessageId::from_uuid(derive_uuid(run_id, "input"))
}

/// Whether a chunk of text shows the whole part: such pieces join.
fn is_plain(part: &Part) -> bool {
    let is_said =
        part.metadata.is_none() || matches!(part.metadata, Some(PartMetadata::Citation(_)));
    part.name.is_none() && part.extra.is_none() && is_said && !is_json(&part.content_type)
}

/// Returns the title that a client has given a thread with this metadata.
fn own_title(metadata: &Json) -> Option<String> {
    get_text(metadata.as_str(), &[TITLE_MEMBER]).map(Cow::into_owned)
}

/// Returns a reason as a sentence, followed by a space.
fn sentence(reason: &str) -> String {
    let mut letters = reason.trim().trim_end_matches('.').chars();
    match letters.next() {
        Some(first) => format!("{}{}. ", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

// === impl Update ===

impl Update {
    /// Whether it fits a line of the usual limit. Otherwise its event must be rendered without the inlined content.
    pub fn fits_a_line(&self) -> bool {
        self.params.len() <= MAX_MESSAGE_BYTES
    }

    pub fn push_line_into(&self, out: &mut Vec<u8>) {
        out.reserve(self.params.len() + 64);
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
        out.extend_from_slice(quoted(&self.method).as_bytes());
        if !self.params.is_empty() {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(&self.params);
        }
        out.extend_from_slice(b"}\n");
    }
}
