//! Finds, sets and removes ids in carried JSON without changing any other byte.
//!
//! The text must be JSON. If a name occurs more than once, a lookup returns the last one. All of them are set or removed,
//! so that no reader can find another value.

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

/// Returns the value at a path of names, as it was written.
pub fn get<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(json, |json, key| scan::member(json, key).map(|member| member.value))
}

/// Returns the text at a path of names. `None` if the value is missing or not a string.
pub fn get_text<'a>(json: &'a str, path: &[&str]) -> Option<Cow<'a, str>> {
    get(json, path).and_then(text::decode)
}

/// Sets the member at a path of names to this JSON. Adds a missing member at the end of its object.
///
/// Returns `None` if an object on the path is missing.
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

/// Sets the member at a path of names to this text. Adds a missing member at the end of its object.
///
/// Returns `None` if an object on the path is missing.
pub fn set_text(json: &str, path: &[&str], value: &str) -> Option<String> {
    set(json, path, &serde_json::Value::from(value).to_string())
}

/// Removes the member at a path of names, with one of its commas. Returns the text unchanged if the member is missing.
pub fn remove<'a>(json: &'a str, path: &[&str]) -> Cow<'a, str> {
    match enclosing(json, path).and_then(|(key, within)| without(json, key, within)) {
        Some(out) => Cow::Owned(out),
        None => Cow::Borrowed(json),
    }
}

/// Returns the range of the session id, including its quotes, in params that begin with it and contain no other. Nearly all params
/// have this form. Returns `None` if the params need a full walk.
pub fn leading_session(params: &str) -> Option<Range<usize>> {
    const HEAD: &str = "{\"sessionId\":\"";
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"sessionId\""));
    let text = params.strip_prefix(HEAD)?.as_bytes();
    let length = memchr2(b'"', b'\\', text).filter(|at| text.get(*at) == Some(&b'"'))?;
    let rest = text.get(length + 1..)?;
    // A name with the same meaning needs escaped code points.
    let is_code_point = |at: usize| rest.get(at + 1) == Some(&b'u');
    if NAME.find(rest).is_some() || memchr_iter(b'\\', rest).any(is_code_point) {
        return None;
    }
    Some(HEAD.len() - 1..HEAD.len() + length + 1)
}

/// Params whose session id was cut out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutParams<'a> {
    /// The params with an empty session id.
    pub params: String,
    pub session: Cow<'a, str>,
    /// Whether the params may have escaped code points, such as halves of surrogate pairs.
    pub may_have_code_points: bool,
}

/// Returns the params of a notification or request with an empty session id, and the id.
/// Returns `None` if the params have no string `sessionId`.
pub fn cut_session(params: &str) -> Option<(String, Cow<'_, str>)> {
    cut(params).map(|cut| (cut.params, cut.session))
}

/// Like [`cut_session`], and says what the search for the id has found in passing.
pub fn cut(params: &str) -> Option<CutParams<'_>> {
    if let Some(place) = leading_session(params) {
        let (head, rest) = (params.get(..=place.start)?, params.get(place.end - 1..)?);
        // Allocates the exact size, so that the params can be stored without another allocation.
        let mut cut = String::with_capacity(head.len() + rest.len());
        cut.push_str(head);
        cut.push_str(rest);
        let session = Cow::Borrowed(params.get(place.start + 1..place.end - 1)?);
        return Some(CutParams { params: cut, session, may_have_code_points: false });
    }
    let session = get_text(params, &["sessionId"])?;
    let params = set(params, &["sessionId"], "\"\"")?;
    Some(CutParams { params, session, may_have_code_points: true })
}

/// The reverse of [`cut_session`].
pub fn put_session(params: &str, session: &str) -> Option<String> {
    set_text(params, &["sessionId"], session)
}

/// Returns the message id in the chunk of a `session/update`. `None` if the update carries no chunk, or if the chunk has no message id.
pub fn message_id(params: &str) -> Option<Cow<'_, str>> {
    let update = get(params, &["update"])?;
    let [kind, id] = scan::values(update, ["sessionUpdate", "messageId"]);
    kind.is_some_and(is_chunk_kind).then(|| text::decode(id?))?
}

/// Returns `true` if a `session/update` carries a message chunk. The chunk may have no id.
pub fn is_message_chunk(params: &str) -> bool {
    get(params, &["update"]).is_some_and(is_chunk)
}

/// Sets the message id in the chunk of a `session/update`. Returns `None` if the update carries no chunk.
pub fn put_message_id(params: &str, id: &str) -> Option<String> {
    is_message_chunk(params).then(|| set_text(params, &["update", "messageId"], id))?
}

fn is_chunk(update: &str) -> bool {
    get(update, &["sessionUpdate"]).is_some_and(is_chunk_kind)
}

/// Whether a kind of update, written with its quotes, is a message chunk.
fn is_chunk_kind(kind: &str) -> bool {
    text::decode(kind).is_some_and(|kind| CHUNKS.contains(&&*kind))
}

/// Returns the last name of a path, and the range of its object.
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
    // Copies up to the first member that stays, then each further member with the text before it.
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
