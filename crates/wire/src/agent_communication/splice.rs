//! Writes the protocol's objects around rendered parts, so that each part is rendered once.
//!
//! Every function appends to `out`. Bytes in arguments must be JSON, as the `write` methods of this module's types make it.
//! They are copied without a check.

use std::io;

use serde::Serialize;

use super::write::json;
use super::{ErrorBody, EventKind, Role, RunStatus, Time, Uuid};

/// Appends an unnamed `text/plain` part whose content is these pieces, joined.
pub fn text_part<'a>(out: &mut Vec<u8>, pieces: impl IntoIterator<Item = &'a str>) {
    out.extend_from_slice(br#"{"name":null,"content_type":"text/plain","content":""#);
    for piece in pieces {
        escaped(out, piece);
    }
    out.extend_from_slice(br#"","content_encoding":"plain","content_url":null,"metadata":null}"#);
}

fn escaped(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail.
    let _ = text.serialize(&mut serde_json::Serializer::with_formatter(out, Unquoted));
}

struct Unquoted;

impl serde_json::ser::Formatter for Unquoted {
    fn begin_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        Ok(())
    }

    fn end_string<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        Ok(())
    }
}

pub fn message<P: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    role: &Role,
    parts: impl IntoIterator<Item = P>,
    created_at: Option<Time>,
    completed_at: Option<Time>,
) {
    message_head(out, role);
    separated(out, parts);
    message_tail(out, created_at, completed_at);
}

/// Appends a message up to the opening bracket of its parts. The parts follow, with commas between them, then [`message_tail`].
pub fn message_head(out: &mut Vec<u8>, role: &Role) {
    out.extend_from_slice(br#"{"role":"#);
    json(out, role);
    out.extend_from_slice(br#","parts":["#);
}

/// Appends a message from the closing bracket of its parts to its end.
pub fn message_tail(out: &mut Vec<u8>, created_at: Option<Time>, completed_at: Option<Time>) {
    out.extend_from_slice(br#"],"created_at":"#);
    time(out, created_at);
    out.extend_from_slice(br#","completed_at":"#);
    time(out, completed_at);
    out.push(b'}');
}

#[derive(Clone, Copy, Debug)]
pub struct RunHead<'a> {
    pub run_id: Uuid,
    pub agent_name: &'a str,
    pub session_id: Option<Uuid>,
    pub status: RunStatus,
    /// The rendered message to which the run awaits an answer.
    pub awaits: Option<&'a [u8]>,
    pub error: Option<&'a ErrorBody>,
    pub created_at: Time,
    pub finished_at: Option<Time>,
}

pub fn run<M: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    head: &RunHead<'_>,
    output: impl IntoIterator<Item = M>,
) {
    run_head(out, head);
    separated(out, output);
    run_tail(out, head);
}

/// Appends a run up to the opening bracket of its output. The messages follow, with commas between them, then [`run_tail`].
pub fn run_head(out: &mut Vec<u8>, head: &RunHead<'_>) {
    out.extend_from_slice(br#"{"run_id":"#);
    json(out, &head.run_id);
    out.extend_from_slice(br#","agent_name":"#);
    json(out, &head.agent_name);
    out.extend_from_slice(br#","session_id":"#);
    json(out, &head.session_id);
    out.extend_from_slice(br#","status":"#);
    json(out, &head.status);
    out.extend_from_slice(br#","await_request":"#);
    match head.awaits {
        Some(message) => await_request(out, message),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(br#","output":["#);
}

/// Appends a run from the closing bracket of its output to its end.
pub fn run_tail(out: &mut Vec<u8>, head: &RunHead<'_>) {
    out.extend_from_slice(br#"],"error":"#);
    json(out, &head.error);
    out.extend_from_slice(br#","created_at":"#);
    time(out, Some(head.created_at));
    out.extend_from_slice(br#","finished_at":"#);
    time(out, head.finished_at);
    out.push(b'}');
}

pub fn await_request(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(br#"{"type":"message","message":"#);
    out.extend_from_slice(message);
    out.push(b'}');
}

pub fn event(out: &mut Vec<u8>, kind: EventKind, about: &[u8]) {
    event_head(out, kind);
    out.extend_from_slice(about);
    event_tail(out);
}

/// Appends an event up to its object. The object follows, then [`event_tail`].
pub fn event_head(out: &mut Vec<u8>, kind: EventKind) {
    for piece in ["{\"type\":\"", kind.as_str(), "\",\"", kind.member(), "\":"] {
        out.extend_from_slice(piece.as_bytes());
    }
}

pub fn event_tail(out: &mut Vec<u8>) {
    out.push(b'}');
}

pub fn agents<A: AsRef<[u8]>>(out: &mut Vec<u8>, agents: impl IntoIterator<Item = A>) {
    out.extend_from_slice(br#"{"agents":["#);
    separated(out, agents);
    out.extend_from_slice(b"]}");
}

pub fn events<E: AsRef<[u8]>>(out: &mut Vec<u8>, events: impl IntoIterator<Item = E>) {
    out.extend_from_slice(br#"{"events":["#);
    separated(out, events);
    out.extend_from_slice(b"]}");
}

/// Returns the text before and after the elements of a session's history.
#[must_use]
pub fn session(id: Uuid, state: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let (mut before, mut behind) = (br#"{"id":"#.to_vec(), br#"],"state":"#.to_vec());
    json(&mut before, &id);
    before.extend_from_slice(br#","history":["#);
    json(&mut behind, &state);
    behind.push(b'}');
    (before, behind)
}

pub fn runs<R: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    runs: impl IntoIterator<Item = R>,
    next: Option<&str>,
) {
    out.extend_from_slice(br#"{"runs":["#);
    separated(out, runs);
    out.extend_from_slice(br#"],"next":"#);
    json(out, &next);
    out.push(b'}');
}

pub fn separated<I: AsRef<[u8]>>(out: &mut Vec<u8>, items: impl IntoIterator<Item = I>) {
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_ref());
    }
}

fn time(out: &mut Vec<u8>, time: Option<Time>) {
    match time {
        Some(time) => {
            out.push(b'"');
            time.write_short(out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}
