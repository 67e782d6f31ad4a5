//! Tracks the open tool calls of a session, because a request for permission omits the members that have not changed.
//!
//! # Invariants
//! - Each member of a call has its newest value. `tool_call` begins the call again, with all its members.
//! - Nothing is forgotten silently. A request is known in part only if it omits a member that permission rules use and whose value was too large to keep, may have been in a line that could not be read, or is from an earlier call with the same id.

use std::borrow::Cow;
use std::collections::HashMap;

use trilogue_wire::agent_client::splice::{self, decode, get};

use super::permission_completion::complete_permission;

const MAX_CALLS: usize = 4_096;
const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// The most memory for all calls, in bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The members that permission rules and people use.
const MEMBERS: [&str; 6] = ["kind", "name", "locations", "content", "rawInput", "title"];
/// How many of them permission rules use.
const RULED: usize = 5;

/// The tool calls of a session that have not ended, and those that ended in this turn.
#[derive(Debug, Default)]
pub struct ToolCalls {
    calls: HashMap<String, ToolCall>,
    /// The length of all ids and values, in bytes.
    bytes: usize,
    /// How many of them the agent has begun and not ended, without those of a replayed history.
    open: usize,
    turn: u64,
    /// Whether a call that ended in this turn may have been forgotten.
    has_forgotten_ended: bool,
    /// Whether there may be open calls that are not in `calls`.
    may_have_unknown: bool,
}

#[derive(Debug, Default)]
struct ToolCall {
    members: [Member; MEMBERS.len()],
    turn: u64,
    has_ended: bool,
    /// The turn in which the agent began it. `None` if it is from a replayed history, or has failed with its turn.
    begun_in: Option<u64>,
}

#[derive(Clone, Debug, Default)]
enum Member {
    #[default]
    Unset,
    Current(Box<str>),
    /// Its JSON, which an unreadable update may have changed.
    Stale(Box<str>),
    /// It was too large to keep, or could not be read.
    Forgotten,
}

/// The known state of a call at a permission request.
#[derive(Debug, Default)]
pub struct KnownCall {
    members: Vec<(&'static str, Box<str>)>,
    is_partial: bool,
}

/// The members of a call in one message, as JSON.
#[derive(Default)]
struct CallFields<'a> {
    id: Option<&'a str>,
    status: Option<&'a str>,
    values: [Option<&'a str>; MEMBERS.len()],
}

// === impl ToolCalls ===

impl ToolCalls {
    /// Applies an update. `kind` is its `sessionUpdate`.
    pub fn update(&mut self, kind: &str, params: &str) {
        let begins = match kind {
            "tool_call" => true,
            "tool_call_update" => false,
            _ => return,
        };
        if let Some(update) = get(params, &["update"]) {
            self.keep(&CallFields::of(update), begins);
        }
    }

    /// Applies an update of a replayed history. Its values are outdated; only whether the call has ended counts.
    pub fn replay(&mut self, kind: &str, params: &str) {
        if !matches!(kind, "tool_call" | "tool_call_update") {
            return;
        }
        let fields = get(params, &["update"]).map(CallFields::of).unwrap_or_default();
        let Some(id) = fields.id.and_then(decode) else { return };
        drop(self.take(&id));
        if fields.ends() != Some(true) {
            self.put(&id, ToolCall::unknown(self.turn));
        }
    }

    /// Whether there are calls that the agent has begun and not ended. Those of a replayed history do not count.
    pub fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Marks all calls as possibly changed, because an update could not be read.
    pub fn mark_all_stale(&mut self) {
        self.calls.values_mut().for_each(ToolCall::make_stale);
        self.may_have_unknown = true;
    }

    /// Returns the known state of the call of a permission request. The values of the request are kept.
    pub fn permission(&mut self, params: &str) -> KnownCall {
        let mut known = KnownCall { members: Vec::new(), is_partial: true };
        let Some(call) = get(params, &["toolCall"]) else { return known };
        let fields = CallFields::of(call);
        let Some(id) = fields.id.and_then(decode) else { return known };
        let omits = (0..RULED).any(|at| fields.omits(at));
        known.is_partial = fields.has_unreadable();
        match self.calls.get(&*id) {
            None => {
                known.is_partial |= omits && (self.has_forgotten_ended || self.may_have_unknown)
            }
            Some(call) => {
                // The id of an ended call is now used for another call.
                known.is_partial |= omits && call.has_ended;
                for (at, member) in call.members.iter().enumerate() {
                    let (Some(name), true) = (MEMBERS.get(at), fields.omits(at)) else {
                        continue;
                    };
                    known.is_partial |= at < RULED && member.is_doubtful();
                    if let Member::Current(value) | Member::Stale(value) = member {
                        known.members.push((name, value.clone()));
                    }
                }
            }
        }
        self.keep(&fields, false);
        known
    }

    /// Ends a turn. If it broke off, the calls that it began are not open any more. The agent may still ask for them, or use their ids for others, so what is
    /// known of them stays, in doubt.
    pub fn end_turn(&mut self, is_broken: bool) {
        self.retain(|call| !call.has_ended);
        if is_broken {
            let begun = self.calls.values_mut().filter(|call| call.begun_in == Some(self.turn));
            self.open -= begun.map(ToolCall::fail).count();
        }
        self.turn += 1;
        self.has_forgotten_ended = false;
    }

    fn keep(&mut self, fields: &CallFields<'_>, begins: bool) {
        let Some(id) = fields.id.and_then(decode) else { return };
        let known = self.take(&id).filter(|_| !begins);
        let mut call = match known {
            Some(call) => call,
            None if begins || !(self.has_forgotten_ended || self.may_have_unknown) => {
                ToolCall::default()
            }
            None => ToolCall::unknown(self.turn),
        };
        if call.has_ended {
            call.make_stale();
        }
        call.turn = self.turn;
        call.begun_in = begins.then_some(self.turn).or(call.begun_in);
        call.has_ended = fields.ends().unwrap_or(call.has_ended);
        for (at, value) in fields.values.iter().enumerate() {
            let (false, Some(value)) = (fields.omits(at), value) else { continue };
            call.set(at, Member::Forgotten);
            if is_readable(at, value)
                && value.len() <= MAX_VALUE_BYTES
                && self.has_room(id.len() + call.bytes() + value.len())
            {
                call.set(at, Member::Current((*value).into()));
            }
        }
        self.put(&id, call);
    }

    fn take(&mut self, id: &str) -> Option<ToolCall> {
        let call = self.calls.remove(id)?;
        self.bytes -= id.len() + call.bytes();
        self.open -= usize::from(call.is_open());
        Some(call)
    }

    /// Adds a missing call. Without room, forgets the call and records the loss.
    fn put(&mut self, id: &str, call: ToolCall) {
        let bytes = id.len() + call.bytes();
        if self.calls.len() >= MAX_CALLS {
            self.make_room();
        }
        if self.calls.len() >= MAX_CALLS || !self.has_room(bytes) {
            self.has_forgotten_ended = true;
            self.may_have_unknown |= !call.has_ended;
            return;
        }
        self.bytes += bytes;
        self.open += usize::from(call.is_open());
        self.calls.insert(id.to_owned(), call);
    }

    /// Makes room for this many bytes. Returns whether there is enough.
    fn has_room(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes > MAX_BYTES {
            self.make_room();
        }
        self.bytes + bytes <= MAX_BYTES
    }

    /// Forgets the calls that a request is least likely to be about: those that have ended or were not updated in this turn.
    fn make_room(&mut self) {
        let (before, turn) = (self.calls.len(), self.turn);
        let mut may_have_unknown = self.may_have_unknown;
        self.retain(|call| {
            let stays = !call.has_ended && call.turn == turn;
            may_have_unknown |= !stays && !call.has_ended;
            stays
        });
        self.may_have_unknown = may_have_unknown;
        self.has_forgotten_ended |= self.calls.len() < before;
    }

    fn retain(&mut self, mut stays: impl FnMut(&ToolCall) -> bool) {
        let (bytes, open) = (&mut self.bytes, &mut self.open);
        self.calls.retain(|id, call| {
            let stays = stays(call);
            if !stays {
                *bytes -= id.len() + call.bytes();
                *open -= usize::from(call.is_open());
            }
            stays
        });
    }
}

// === impl ToolCall ===

impl ToolCall {
    fn unknown(turn: u64) -> Self {
        let members = std::array::from_fn(|_| Member::Forgotten);
        Self { members, turn, has_ended: false, begun_in: None }
    }

    fn is_open(&self) -> bool {
        self.begun_in.is_some() && !self.has_ended
    }

    fn bytes(&self) -> usize {
        self.members.iter().map(Member::bytes).sum()
    }

    fn set(&mut self, at: usize, now: Member) {
        if let Some(member) = self.members.get_mut(at) {
            *member = now;
        }
    }

    fn fail(&mut self) {
        self.begun_in = None;
        self.make_stale();
    }

    fn make_stale(&mut self) {
        for member in &mut self.members {
            *member = match std::mem::take(member) {
                Member::Current(value) | Member::Stale(value) => Member::Stale(value),
                Member::Unset | Member::Forgotten => Member::Forgotten,
            };
        }
    }
}

// === impl Member ===

impl Member {
    fn bytes(&self) -> usize {
        match self {
            Self::Current(value) | Self::Stale(value) => value.len(),
            Self::Unset | Self::Forgotten => 0,
        }
    }

    fn is_doubtful(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Forgotten)
    }
}

// === impl KnownCall ===

impl KnownCall {
    /// Whether a member that rules use may be missing. No rule may allow such a request.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns the request with the members that it omits.
    pub fn complete<'a>(&'a self, request: &'a str) -> Cow<'a, str> {
        complete_permission(request, self.members.iter().map(|(name, value)| (*name, &**value)))
    }
}

// === impl CallFields ===

impl<'a> CallFields<'a> {
    fn of(call: &'a str) -> Self {
        let mut fields = Self::default();
        for member in splice::members(call) {
            match &*member.key {
                "toolCallId" => fields.id = Some(member.value),
                "status" => fields.status = Some(member.value),
                key => {
                    let at = MEMBERS.iter().position(|name| *name == key);
                    let value = at.and_then(|at| fields.values.get_mut(at));
                    if let Some(value) = value {
                        *value = Some(member.value);
                    }
                }
            }
        }
        fields
    }

    /// Returns whether the call has ended, or `None` without a status.
    fn ends(&self) -> Option<bool> {
        let status = self.status.and_then(decode)?;
        Some(matches!(&*status, "completed" | "failed"))
    }

    fn omits(&self, at: usize) -> bool {
        self.values.get(at).is_none_or(|value| value.is_none_or(|value| value == "null"))
    }

    /// Whether a member that rules use has an unexpected kind of value: it is unknown whether that changes the call.
    fn has_unreadable(&self) -> bool {
        let mut ruled = self.values.iter().enumerate().take(RULED);
        ruled.any(|(at, value)| {
            !self.omits(at) && value.is_some_and(|value| !is_readable(at, value))
        })
    }
}

/// Whether a value has the kind of its member. Other values change nothing.
fn is_readable(at: usize, value: &str) -> bool {
    match MEMBERS.get(at) {
        Some(&("locations" | "content")) => value.starts_with('['),
        Some(&"rawInput") => value != "null",
        _ => value.starts_with('"'),
    }
}

#[cfg(test)]
mod tests;
