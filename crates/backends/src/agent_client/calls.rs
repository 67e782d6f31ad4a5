//! What an agent has said of its tool calls: a request for permission leaves out what has not changed since.
//!
//! # Invariants
//! - What is known of a call is what was said of it last, member by member; what begins it again says all of it anew.
//! - Nothing is forgotten or lost silently: where something that a rule looks at had no room, or may have been said in what nobody could read, or before the call ended, the request that leaves it out is known in part only.

use std::borrow::Cow;
use std::collections::HashMap;

use trilogue_mapping::agent_client::with_unsaid;
use trilogue_wire::agent_client::splice::{decode, get, members};

/// The most calls that are known at once.
const MAX_CALLS: usize = 4_096;
/// The longest value that is kept of a call, in bytes.
const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// The most that is kept of all calls together, in bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// What rules and people look at.
const MEMBERS: [&str; 6] = ["kind", "name", "locations", "content", "title", "rawInput"];
/// How many of them rules look at.
const RULED: usize = 4;

/// The calls of a session that have not ended, and those that ended in this turn.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: HashMap<String, Call>,
    /// How much is kept, ids included, in bytes.
    bytes: usize,
    turn: u64,
    /// Whether there are calls that ended in this turn and of which nothing is known any more.
    has_forgotten: bool,
    /// Whether there may be calls that have not ended and of which nothing is known.
    is_blind: bool,
}

#[derive(Debug, Default)]
struct Call {
    said: [Said; MEMBERS.len()],
    /// The turn in which it was heard of last.
    turn: u64,
    has_ended: bool,
}

/// A member of a call.
#[derive(Clone, Debug, Default)]
enum Said {
    #[default]
    Nothing,
    /// Its JSON.
    This(Box<str>),
    /// Its JSON, when it was heard last: something else may have been said since.
    Stale(Box<str>),
    /// Nobody knows: it was too much to keep, or nobody could read it.
    Forgotten,
}

/// What was known of a call when it was asked about.
#[derive(Debug, Default)]
pub(super) struct Known {
    said: Vec<(&'static str, Box<str>)>,
    /// Whether something may be missing that a rule looks at.
    is_partial: bool,
}

/// What a message says of a call, as it was written.
#[derive(Default)]
struct Told<'a> {
    id: Option<&'a str>,
    status: Option<&'a str>,
    values: [Option<&'a str>; MEMBERS.len()],
}

// === impl Calls ===

impl Calls {
    /// Hears an update. `kind` is the word for what it is.
    pub(super) fn hear(&mut self, kind: &str, params: &str) {
        let begins = match kind {
            "tool_call" => true,
            "tool_call_update" => false,
            _ => return,
        };
        if let Some(update) = get(params, &["update"]) {
            self.keep(&Told::of(update), begins);
        }
    }

    /// Hears an update of a history that is told again: what it says counts no more, but which calls have not ended does.
    pub(super) fn hear_again(&mut self, kind: &str, params: &str) {
        if !matches!(kind, "tool_call" | "tool_call_update") {
            return;
        }
        let told = get(params, &["update"]).map(Told::of).unwrap_or_default();
        let Some(id) = told.id.and_then(decode) else { return };
        drop(self.take(&id));
        if told.ends() != Some(true) {
            self.put(&id, Call::unknown(self.turn));
        }
    }

    /// Something was said that nobody could read: it may have been of any call.
    pub(super) fn lost(&mut self) {
        self.calls.values_mut().for_each(Call::spoil);
        self.is_blind = true;
    }

    /// What is known of the call that a request for permission is about. What the request says is known from then on.
    pub(super) fn asked(&mut self, params: &str) -> Known {
        let mut known = Known { said: Vec::new(), is_partial: true };
        let Some(call) = get(params, &["toolCall"]) else { return known };
        let told = Told::of(call);
        let Some(id) = told.id.and_then(decode) else { return known };
        let leaves_out = (0..RULED).any(|at| told.leaves_out(at));
        known.is_partial = told.is_odd();
        match self.calls.get(&*id) {
            None => known.is_partial |= leaves_out && (self.has_forgotten || self.is_blind),
            Some(call) => {
                // What has ended is another call by now.
                known.is_partial |= leaves_out && call.has_ended;
                for (at, said) in call.said.iter().enumerate() {
                    let (Some(name), true) = (MEMBERS.get(at), told.leaves_out(at)) else {
                        continue;
                    };
                    known.is_partial |= at < RULED && said.is_doubtful();
                    if let Said::This(value) | Said::Stale(value) = said {
                        known.said.push((name, value.clone()));
                    }
                }
            }
        }
        self.keep(&told, false);
        known
    }

    /// A turn is over. Where it broke off all calls have ended.
    pub(super) fn turn_over(&mut self, is_broken: bool) {
        self.retain(|call| !is_broken && !call.has_ended);
        self.turn += 1;
        self.has_forgotten = false;
        self.is_blind &= !is_broken;
    }

    fn keep(&mut self, told: &Told<'_>, begins: bool) {
        let Some(id) = told.id.and_then(decode) else { return };
        let known = self.take(&id).filter(|_| !begins);
        let mut call = match known {
            Some(call) => call,
            None if begins || !(self.has_forgotten || self.is_blind) => Call::default(),
            None => Call::unknown(self.turn),
        };
        if call.has_ended {
            call.spoil();
        }
        call.turn = self.turn;
        call.has_ended = told.ends().unwrap_or(call.has_ended);
        for (at, value) in told.values.iter().enumerate() {
            let (false, Some(value)) = (told.leaves_out(at), value) else { continue };
            call.set(at, Said::Forgotten);
            if is_said(at, value)
                && value.len() <= MAX_VALUE_BYTES
                && self.has_room(id.len() + call.bytes() + value.len())
            {
                call.set(at, Said::This((*value).into()));
            }
        }
        self.put(&id, call);
    }

    /// Takes a call out.
    fn take(&mut self, id: &str) -> Option<Call> {
        let call = self.calls.remove(id)?;
        self.bytes -= id.len() + call.bytes();
        Some(call)
    }

    /// Puts a call in that is not there. Where there is no room it is forgotten.
    fn put(&mut self, id: &str, call: Call) {
        let bytes = id.len() + call.bytes();
        if self.calls.len() >= MAX_CALLS {
            self.make_room();
        }
        if self.calls.len() >= MAX_CALLS || !self.has_room(bytes) {
            self.has_forgotten = true;
            self.is_blind |= !call.has_ended;
            return;
        }
        self.bytes += bytes;
        self.calls.insert(id.to_owned(), call);
    }

    /// Whether so many bytes more can be kept. Makes room for them.
    fn has_room(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes > MAX_BYTES {
            self.make_room();
        }
        self.bytes + bytes <= MAX_BYTES
    }

    /// Forgets what is asked about least: what has ended, and what was not heard of in this turn.
    fn make_room(&mut self) {
        let (before, turn) = (self.calls.len(), self.turn);
        let mut is_blind = self.is_blind;
        self.retain(|call| {
            let stays = !call.has_ended && call.turn == turn;
            is_blind |= !stays && !call.has_ended;
            stays
        });
        self.is_blind = is_blind;
        self.has_forgotten |= self.calls.len() < before;
    }

    fn retain(&mut self, mut stays: impl FnMut(&Call) -> bool) {
        let bytes = &mut self.bytes;
        self.calls.retain(|id, call| {
            let stays = stays(call);
            if !stays {
                *bytes -= id.len() + call.bytes();
            }
            stays
        });
    }
}

// === impl Call ===

impl Call {
    /// A call of which nothing is known but that it is there.
    fn unknown(turn: u64) -> Self {
        let said = std::array::from_fn(|_| Said::Forgotten);
        Self { said, turn, has_ended: false }
    }

    fn bytes(&self) -> usize {
        self.said.iter().map(Said::bytes).sum()
    }

    fn set(&mut self, at: usize, now: Said) {
        if let Some(said) = self.said.get_mut(at) {
            *said = now;
        }
    }

    /// Something else may have been said of it.
    fn spoil(&mut self) {
        for said in &mut self.said {
            *said = match std::mem::take(said) {
                Said::This(value) | Said::Stale(value) => Said::Stale(value),
                Said::Nothing | Said::Forgotten => Said::Forgotten,
            };
        }
    }
}

// === impl Said ===

impl Said {
    fn bytes(&self) -> usize {
        match self {
            Self::This(value) | Self::Stale(value) => value.len(),
            Self::Nothing | Self::Forgotten => 0,
        }
    }

    /// Whether something else may have been said.
    fn is_doubtful(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Forgotten)
    }
}

// === impl Known ===

impl Known {
    /// Whether something may be missing that a rule looks at: then nothing is allowed by a rule.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// The request with what it leaves out.
    pub(super) fn complete<'a>(&'a self, request: &'a str) -> Cow<'a, str> {
        with_unsaid(request, self.said.iter().map(|(name, value)| (*name, &**value)))
    }
}

// === impl Told ===

impl<'a> Told<'a> {
    fn of(call: &'a str) -> Self {
        let mut told = Self::default();
        for member in members(call) {
            match &*member.key {
                "toolCallId" => told.id = Some(member.value),
                "status" => told.status = Some(member.value),
                key => {
                    let at = MEMBERS.iter().position(|name| *name == key);
                    let value = at.and_then(|at| told.values.get_mut(at));
                    if let Some(value) = value {
                        *value = Some(member.value);
                    }
                }
            }
        }
        told
    }

    /// Whether the call has ended, where that is said.
    fn ends(&self) -> Option<bool> {
        let status = self.status.and_then(decode)?;
        Some(matches!(&*status, "completed" | "failed"))
    }

    fn leaves_out(&self, at: usize) -> bool {
        self.values.get(at).is_none_or(|value| value.is_none_or(|value| value == "null"))
    }

    /// Whether it says something in a way that nobody reads: whether that changes the call cannot be told.
    fn is_odd(&self) -> bool {
        let mut ruled = self.values.iter().enumerate().take(RULED);
        ruled.any(|(at, value)| {
            !self.leaves_out(at) && value.is_some_and(|value| !is_said(at, value))
        })
    }
}

/// Whether a member says something: what is `null` or of another kind changes nothing.
fn is_said(at: usize, value: &str) -> bool {
    match MEMBERS.get(at) {
        Some(&("locations" | "content")) => value.starts_with('['),
        Some(&"rawInput") => value != "null",
        _ => value.starts_with('"'),
    }
}

#[cfg(test)]
mod tests;
