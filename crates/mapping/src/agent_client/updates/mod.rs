//! The fold of a thread's log into the updates that clients get.

mod call;
mod chunk;

use std::borrow::Cow;

use trilogue_domain::content::{BlobRef, PartMetadata};
use trilogue_domain::event::{Event, MessageEvent, RunEvent, StateEvent, ThreadEvent};
use trilogue_domain::thread::TITLE_MEMBER;
use trilogue_domain::{Body, Content, Json, MessageId, Part, RunKey, ThreadId};
use trilogue_wire::agent_client::splice::{self, get_text};
use trilogue_wire::agent_client::{Rules, SessionUpdate, read_checked};

use self::call::OpenCall;
use self::chunk::{Chunk, member};
use super::block::{Extension, quoted, text_block};
use super::original::OWN;
use super::prompt::in_words;
use super::relay::{SESSION_UPDATE, derived, gate_of};
use super::{Gate, IdFormat, Relay, UPDATE};
use crate::shape::is_json;

/// The most bytes that are put into an update where they are stored apart; what is larger becomes a link. In base64 they still fit a line of the usual limit.
const MAX_INLINE_BYTES: u64 = 8 * 1024 * 1024;
/// Likewise of text: no more than one message may have.
const MAX_INLINE_TEXT_BYTES: u64 = MAX_MESSAGE_BYTES as u64;
/// The most that one update may have, in bytes: it fits a line of the usual limit.
const MAX_MESSAGE_BYTES: usize = 15 * 1024 * 1024;

/// The event that says that a hosted agent does not remember its session.
const RESTARTED: &str = "session_restarted";
/// The same in words.
const FORGOT: &str = "The agent does not remember this session";
/// What was done about it.
const TOLD_AGAIN: &str = "It has begun another one, and is told again what was said before.";

/// A notification for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The method: `session/update` as a rule.
    pub method: Cow<'static, str>,
    /// The whole params object, `sessionId` set; empty where a notification has no params.
    pub params: Vec<u8>,
    /// Whom it is for.
    pub gate: Gate,
}

/// A thread's log as updates, up to the last event that was pushed.
///
/// The ids of thoughts and tool calls follow from the events before: a reader that begins in the middle pushes those of the open run first and lets their updates go by.
#[derive(Clone, Debug)]
pub struct Updates {
    relay: Relay,
    extension: Extension,
    /// The messages of users that are not complete.
    asked: Vec<MessageId>,
    /// The thoughts that may go on: the run, and the number of the first event.
    thoughts: Vec<(Option<RunKey>, u64)>,
    /// The tool calls that have not ended.
    calls: Vec<OpenCall>,
    title: Option<String>,
}

/// An event with the id of its run: a place where updates begin.
#[derive(Clone, Copy, Debug)]
struct EventPosition<'a> {
    number: u64,
    run: Option<RunKey>,
    /// What ids are derived in: the run's id, or the thread's.
    within: &'a str,
}

// === impl Updates ===

impl Updates {
    /// A thread before its first event.
    #[must_use]
    pub fn new(thread: &ThreadId) -> Self {
        Self::with_ids(thread, IdFormat::Any)
    }

    /// The same, showing message ids in this format.
    #[must_use]
    pub fn with_ids(thread: &ThreadId, ids: IdFormat) -> Self {
        Self {
            relay: Relay::new(thread, ids),
            extension: Extension::Off,
            asked: Vec::new(),
            thoughts: Vec::new(),
            calls: Vec::new(),
            title: None,
        }
    }

    /// The same, for clients that take what blocks have no word for under `_meta`, or do not.
    #[must_use]
    pub fn with_extension(mut self, extension: Extension) -> Self {
        self.extension = extension;
        self
    }

    /// Gives originals on as they are, without reading them.
    #[must_use]
    pub fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Whether this content should be put into its part before the event is pushed.
    #[must_use]
    pub fn wants(&self, blob: &BlobRef) -> bool {
        blob.length <= if blob.is_text { MAX_INLINE_TEXT_BYTES } else { MAX_INLINE_BYTES }
    }

    /// Adds the updates that the next event makes. `run_id` is the id of the event's run.
    pub fn push(&mut self, event: &Event, run_id: Option<&str>, out: &mut Vec<Update>) {
        if let Some(original) = &event.original {
            self.end_thought(event);
            if matches!(event.body, Body::Tool(_)) && *original.dialect == *UPDATE {
                self.heard_call(event.run, &original.bytes);
            }
            let mut params = Vec::with_capacity(original.bytes.len() + 64);
            let relayed = self.relay.push_into(&original.dialect, &original.bytes, &mut params);
            if let Some(relayed) = relayed {
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
            // An interrupt is asked for by a request, and nothing of the others is the client's.
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
                let id = derived(place.within, "result").hyphenated().to_string();
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
            MessageEvent::Thought { text } => {
                let id = self.thought_id(place);
                self.text(Chunk::Thought, &id, text, out);
                return;
            }
            MessageEvent::Started { message, role, .. } if role.is_user() => {
                self.asked.push(message.clone());
            }
            MessageEvent::Started { .. } => {}
            MessageEvent::Delta { message, text } => {
                self.text(self.side(message), message.as_str(), text, out);
            }
            MessageEvent::Part { message, part } => self.part(message, part, place, out),
            MessageEvent::Completed { message } => self.asked.retain(|asked| asked != message),
        }
        self.thoughts.retain(|(run, _)| *run != place.run);
    }

    /// A part as chunks; what it means beyond its content stands in updates of its own.
    fn part(
        &mut self,
        message: &MessageId,
        part: &Part,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        let side = self.side(message);
        if let Some(PartMetadata::Trajectory(step)) = &part.metadata
            && self.extension == Extension::Off
        {
            self.step(step, place, out);
        }
        let is_off = self.extension == Extension::Off;
        match &part.content {
            Content::Text(text) if is_plain(part) && (is_off || *part == Part::text(&**text)) => {
                self.text(side, message.as_str(), text, out);
            }
            _ => self.block(side, message.as_str(), part, out),
        }
        let is_cited = matches!(&part.metadata, Some(PartMetadata::Citation(_)));
        if is_cited && is_off && part.content != Content::Empty {
            // The link stands behind the text that it is about.
            let link = Part { content: Content::Empty, name: None, extra: None, ..part.clone() };
            self.block(side, message.as_str(), &link, out);
        }
    }

    fn state_event(&mut self, event: &StateEvent, place: EventPosition<'_>, out: &mut Vec<Update>) {
        match event {
            StateEvent::Plan(entries) => {
                let mut update = String::from("{\"sessionUpdate\":\"plan\",\"entries\":[");
                for (place, entry) in entries.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    let status = match entry.status.as_str() {
                        status @ ("in_progress" | "completed") => status,
                        _ => "pending",
                    };
                    update.push_str(comma);
                    update.push_str("{\"content\":");
                    update.push_str(&quoted(&entry.content));
                    update.push_str(",\"priority\":\"medium\",\"status\":\"");
                    update.push_str(status);
                    update.push_str("\"}");
                }
                update.push(']');
                self.update(&update, Gate::Always, out);
            }
            StateEvent::Custom { kind, data } if OWN.contains(&kind.as_str()) => {
                self.own(kind, data, out);
            }
            StateEvent::Custom { kind, data } if kind == RESTARTED => {
                self.restarted(data, place, out);
            }
            // The protocol has no word for state.
            StateEvent::Custom { .. } | StateEvent::Values(_) | StateEvent::Output(_) => {}
        }
    }

    /// The agent does not remember the session: a notice, and a message of its own for clients that show none.
    fn restarted(&mut self, data: &Json, place: EventPosition<'_>, out: &mut Vec<Update>) {
        let Some(reason) = get_text(data.as_str(), &["reason"]) else { return };
        let mut update = String::from("{\"sessionUpdate\":\"notice\",\"severity\":\"warning\"");
        member(&mut update, "title", &quoted(FORGOT));
        let description = format!("{}{TOLD_AGAIN}", sentence(&reason));
        member(&mut update, "description", &quoted(&description));
        self.update(&update, Gate::Notices, out);
        let id = derived(place.within, &format!("restarted {}", place.number));
        let text = format!("{FORGOT}. {description}");
        let first = out.len();
        self.chunk(Chunk::Agent, &id.hyphenated().to_string(), &text_block(&text), out);
        for update in out.iter_mut().skip(first) {
            update.gate = Gate::NoNotices;
        }
    }

    /// An agent's own update that is called as one of the protocol's, and is one.
    fn own(&self, kind: &str, data: &Json, out: &mut Vec<Update>) {
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
        let title = get_text(metadata.as_str(), &[TITLE_MEMBER]).map(Cow::into_owned);
        if title == self.title {
            return;
        }
        let mut update = String::from("{\"sessionUpdate\":\"session_info_update\"");
        member(&mut update, "title", &title.as_deref().map_or_else(|| "null".to_owned(), quoted));
        self.title = title;
        self.update(&update, Gate::Always, out);
    }

    fn side(&self, message: &MessageId) -> Chunk {
        if self.asked.contains(message) { Chunk::User } else { Chunk::Agent }
    }

    /// The id of the thought that this event goes on with or begins.
    fn thought_id(&mut self, place: EventPosition<'_>) -> String {
        let known = self.thoughts.iter().find(|(run, _)| *run == place.run);
        let first = known.map(|(_, first)| *first).unwrap_or_else(|| {
            self.thoughts.push((place.run, place.number));
            place.number
        });
        derived(place.within, &first.to_string()).hyphenated().to_string()
    }

    /// A thought ends where anything else of its run is said or done.
    fn end_thought(&mut self, event: &Event) {
        if !self.thoughts.is_empty() && event.run.is_some() {
            self.thoughts.retain(|(run, _)| *run != event.run);
        }
    }
}

/// The message id of an input that is a value and no message.
#[must_use]
pub fn input_id(run_id: &str) -> MessageId {
    MessageId::from_uuid(derived(run_id, "input"))
}

/// Text that a chunk shows with nothing lost: pieces of it join.
fn is_plain(part: &Part) -> bool {
    let is_said =
        part.metadata.is_none() || matches!(part.metadata, Some(PartMetadata::Citation(_)));
    part.name.is_none() && part.extra.is_none() && is_said && !is_json(&part.content_type)
}

/// A reason as a sentence, with a space behind it.
fn sentence(reason: &str) -> String {
    let mut letters = reason.trim().trim_end_matches('.').chars();
    match letters.next() {
        Some(first) => format!("{}{}. ", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

// === impl Update ===

impl Update {
    /// Whether clients can be expected to take it in one line. Where content was put in that is stored apart, its event makes smaller updates without it.
    #[must_use]
    pub fn fits_a_line(&self) -> bool {
        self.params.len() <= MAX_MESSAGE_BYTES
    }

    /// Adds the whole notification as a line, newline included.
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
