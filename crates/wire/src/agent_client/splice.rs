//! Ids in JSON that is carried as it came: found, set and taken out without touching any other byte.
//!
//! The text has to be JSON. Where a name comes more than once, the last one counts when it is looked for, and all are set or taken out,
//! so that no reader can find another.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr_iter, memchr2};

use crate::json::{scan, text};

pub use crate::json::scan::{Items, Member, Members, items, members};
pub use crate::json::text::decode;

/// The updates that carry a message id.
const CHUNKS: [&str; 3] = ["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"];

/// The value at the end of a path of names, as it was written.
pub fn get<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(json, |json, key| scan::member(json, key).map(|member| member.value))
}

/// The text at the end of a path of names. `None` where there is no string.
pub fn get_text<'a>(json: &'a str, path: &[&str]) -> Option<Cow<'a, str>> {
    get(json, path).and_then(text::decode)
}

/// Sets the member at the end of a path of names to this JSON. Where it is absent it comes last in its object.
///
/// `None` where the objects on the way are not there.
pub fn set(json: &str, path: &[&str], value: &str) -> Option<String> {
    let (key, within) = enclosing(json, path)?;
    let object = json.get(within.clone())?;
    let mut out = String::with_capacity(json.len() + key.len() + value.len() + 4);
    out.push_str(json.get(..within.start)?);
    let mut from = 0;
    for member in scan::members(object).filter(|member| member.key == key) {
        out.push_str(object.get(from..member.span.start)?);
        out.push_str(value);
        from = member.span.end;
    }
    if from == 0 {
        let close = object.rfind('}')?;
        let head = object.get(..close)?.trim_ascii_end();
        out.push_str(head);
        if !head.ends_with('{') {
            out.push(',');
        }
        out.push_str(&serde_json::Value::from(key).to_string());
        out.push(':');
        out.push_str(value);
        from = head.len();
    }
    out.push_str(object.get(from..)?);
    out.push_str(json.get(within.end..)?);
    Some(out)
}

/// Sets the member at the end of a path of names to this text. Where it is absent it comes last in its object.
///
/// `None` where the objects on the way are not there.
pub fn set_text(json: &str, path: &[&str], value: &str) -> Option<String> {
    set(json, path, &serde_json::Value::from(value).to_string())
}

/// Takes the member at the end of a path of names out, with one of its commas. What has no such member stays as it is.
pub fn remove<'a>(json: &'a str, path: &[&str]) -> Cow<'a, str> {
    match enclosing(json, path).and_then(|(key, within)| without(json, key, within)) {
        Some(out) => Cow::Owned(out),
        None => Cow::Borrowed(json),
    }
}

/// Where the id of a session lies, its quotes included, in params that begin with it and have no other: as nearly all are written.
/// `None` where nobody can tell without walking over them.
pub fn leading_session(params: &str) -> Option<Range<usize>> {
    const HEAD: &str = "{\"sessionId\":\"";
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"sessionId\""));
    let text = params.strip_prefix(HEAD)?.as_bytes();
    let length = memchr2(b'"', b'\\', text).filter(|at| text.get(*at) == Some(&b'"'))?;
    let rest = text.get(length + 1..)?;
    // A name that means the same can only be written with code points.
    let is_code_point = |at: usize| rest.get(at + 1) == Some(&b'u');
    if NAME.find(rest).is_some() || memchr_iter(b'\\', rest).any(is_code_point) {
        return None;
    }
    Some(HEAD.len() - 1..HEAD.len() + length + 1)
}

/// What a notification or request carries, with its session's id left empty, and that id.
/// `None` where there is no string `sessionId`.
pub fn cut_session(params: &str) -> Option<(String, Cow<'_, str>)> {
    if let Some(place) = leading_session(params) {
        let (head, rest) = (params.get(..=place.start)?, params.get(place.end - 1..)?);
        // Not a byte more: what is kept as it is here needs no other memory.
        let mut cut = String::with_capacity(head.len() + rest.len());
        cut.push_str(head);
        cut.push_str(rest);
        return Some((cut, Cow::Borrowed(params.get(place.start + 1..place.end - 1)?)));
    }
    let session = get_text(params, &["sessionId"])?;
    Some((set(params, &["sessionId"], "\"\"")?, session))
}

/// The reverse of [`cut_session`].
pub fn put_session(params: &str, session: &str) -> Option<String> {
    set_text(params, &["sessionId"], session)
}

/// The id of the message that a `session/update` carries a piece of. `None` where it carries no piece, or the piece names no message.
pub fn message_id(params: &str) -> Option<Cow<'_, str>> {
    let update = get(params, &["update"])?;
    is_chunk(update).then(|| get_text(update, &["messageId"]))?
}

/// Whether a `session/update` carries a piece of a message, which may have an id.
pub fn is_message_chunk(params: &str) -> bool {
    get(params, &["update"]).is_some_and(is_chunk)
}

/// Gives the piece of a message that a `session/update` carries the id of its message. `None` where it carries no piece.
pub fn put_message_id(params: &str, id: &str) -> Option<String> {
    is_message_chunk(params).then(|| set_text(params, &["update", "messageId"], id))?
}

fn is_chunk(update: &str) -> bool {
    get_text(update, &["sessionUpdate"]).is_some_and(|kind| CHUNKS.contains(&&*kind))
}

/// The last name of a path, and where the object lies that it belongs to.
fn enclosing<'a>(json: &str, path: &[&'a str]) -> Option<(&'a str, Range<usize>)> {
    let (key, way) = path.split_last()?;
    let mut within = 0..json.len();
    for step in way {
        let span = scan::member(json.get(within.clone())?, step)?.span;
        within = within.start + span.start..within.start + span.end;
    }
    let object = json.get(within.clone())?;
    object.trim_ascii_start().starts_with('{').then_some((*key, within))
}

fn without(json: &str, key: &str, within: Range<usize>) -> Option<String> {
    let object = json.get(within.clone())?;
    let members: Vec<_> = scan::members(object).collect();
    if !members.iter().any(|member| member.key == key) {
        return None;
    }
    let mut out = String::with_capacity(json.len());
    out.push_str(json.get(..within.start)?);
    // Up to the first member that stays, then each with what stands in front of it.
    let open = object.find('{')? + 1;
    out.push_str(object.get(..open)?);
    let (mut end, mut is_first) = (open, true);
    for member in &members {
        if member.key != key {
            let from = if is_first && end > open { member.start } else { end };
            out.push_str(object.get(from..member.span.end)?);
            is_first = false;
        }
        end = member.span.end;
    }
    out.push_str(object.get(end..)?);
    out.push_str(json.get(within.end..)?);
    Some(out)
}
