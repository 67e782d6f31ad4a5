use std::borrow::Cow;

use serde_json::value::RawValue;

use super::envelope::Envelope;
use super::{About, ErrorObject, Id, Invalid, Reason};
use crate::json::{DEFAULT_MAX_TREE_BYTES, is_deeper, is_too_complex, text};

/// The default maximum nesting of arrays and objects.
pub const DEFAULT_MAX_DEPTH: usize = 128;

/// A parsed line. It borrows everything from the line, as it was written.
#[derive(Clone, Debug)]
pub enum Incoming<'a> {
    Request(Request<'a>),
    Notification(Notification<'a>),
    Response(Response<'a>),
}

#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub id: Id<'a>,
    pub method: Cow<'a, str>,
    /// An object or an array. `null` counts as absent.
    pub params: Option<&'a RawValue>,
}

#[derive(Clone, Debug)]
pub struct Notification<'a> {
    pub method: Cow<'a, str>,
    /// An object or an array. `null` counts as absent.
    pub params: Option<&'a RawValue>,
}

#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// The id of the request; `null` if the peer could not read it.
    pub id: Id<'a>,
    pub outcome: Result<&'a RawValue, ErrorObject>,
}

/// Parses a line, nested at most [`DEFAULT_MAX_DEPTH`] levels deep. The error contains the reply.
pub fn parse(line: &[u8]) -> Result<Incoming<'_>, Invalid<'_>> {
    parse_within(line, DEFAULT_MAX_DEPTH)
}

/// Parses a line, nested at most `max_depth` levels deep. A pass-through that parses no values needs no limit: `usize::MAX`.
pub fn parse_within(line: &[u8], max_depth: usize) -> Result<Incoming<'_>, Invalid<'_>> {
    let text = std::str::from_utf8(line).map_err(|_| Invalid::nameless(Reason::NotUtf8))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_ascii();
    if text.is_empty() {
        return Err(Invalid::nameless(Reason::Blank));
    }
    let mut envelope = envelope(text).map_err(Invalid::nameless)?;
    // Some peers write every member, with `null` for the absent ones.
    envelope.method = envelope.method.filter(|method| method.get() != "null");
    let about = about(&envelope);
    if is_deeper(text, max_depth) {
        return Err(Invalid { reason: Reason::TooDeep(max_depth), about });
    }
    if max_depth < usize::MAX && is_too_complex(line, DEFAULT_MAX_TREE_BYTES) {
        return Err(Invalid { reason: Reason::TooComplex, about });
    }
    if envelope.method.is_none() && (envelope.result.is_some() || envelope.error.is_some()) {
        return response(&envelope).map_err(|reason| Invalid { reason, about });
    }
    call(&envelope)
}

fn envelope(text: &str) -> Result<Envelope<'_>, Reason> {
    serde_json::from_str(text).map_err(|_| match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) if raw.get().starts_with('[') => Reason::Batch,
        Ok(raw) if !raw.get().starts_with('{') => Reason::NotAnObject,
        _ => Reason::NotJson,
    })
}

/// Returns the kind and id of an invalid message.
fn about<'a>(envelope: &Envelope<'a>) -> About<'a> {
    let id = envelope.id.and_then(|raw| Id::of(raw.get()));
    let answers = envelope.result.is_some() || envelope.error.is_some();
    match (id, envelope.method) {
        (Some(id), Some(_)) if !answers => About::Request(id),
        (Some(id), None) if answers => About::Response(id),
        (None, None) if answers => About::Response(Id::NULL),
        (None, Some(_)) if envelope.id.is_none() && !answers => About::Notification,
        _ => About::Nothing,
    }
}

/// Parses a response with or without `jsonrpc`: if it were refused, its request would stay open for ever.
fn response<'a>(envelope: &Envelope<'a>) -> Result<Incoming<'a>, Reason> {
    let id = match envelope.id {
        Some(raw) => Id::of(raw.get()).ok_or(Reason::BadId)?,
        None => Id::NULL,
    };
    let error = envelope.error.filter(|error| error.get() != "null");
    let outcome = match (envelope.result, error) {
        (_, None) => Ok(envelope.result.unwrap_or(RawValue::NULL)),
        (None, Some(error)) => Err(ErrorObject::read(error.get())),
        // Some peers write `result: null` next to an error.
        (Some(result), Some(error)) if result.get() == "null" => {
            Err(ErrorObject::read(error.get()))
        }
        (Some(_), Some(_)) => return Err(Reason::ResultAndError),
    };
    Ok(Incoming::Response(Response { id, outcome }))
}

fn call<'a>(envelope: &Envelope<'a>) -> Result<Incoming<'a>, Invalid<'a>> {
    let Some(method) = envelope.method else {
        // Without `jsonrpc`, it is a line of a program's log that has an `id` by chance. It must not end our request.
        return Err(match is_version(envelope) {
            true => unclear(envelope, Reason::NoMethod),
            false => Invalid::nameless(Reason::BadVersion),
        });
    };
    let reason = match text::decode(method.get()) {
        _ if !is_version(envelope) => Reason::BadVersion,
        _ if envelope.result.is_some() || envelope.error.is_some() => {
            let says = |member: Option<&RawValue>| member.is_some_and(|it| it.get() != "null");
            return Err(match says(envelope.result) || says(envelope.error) {
                true => unclear(envelope, Reason::CallAndResponse),
                // Some peers write every member, with `null` for the absent ones.
                false => Invalid::nameless(Reason::CallAndResponse),
            });
        }
        None => Reason::BadMethod,
        Some(method) => return request_or_notification(envelope, method),
    };
    Err(Invalid::nameless(reason))
}

/// Returns the error for a message with an id that is neither a call nor a response, or is both.
fn unclear<'a>(envelope: &Envelope<'a>, reason: Reason) -> Invalid<'a> {
    let id = envelope.id.and_then(|raw| Id::of(raw.get()));
    Invalid { reason, about: id.map_or(About::Nothing, About::Unclear) }
}

fn request_or_notification<'a>(
    envelope: &Envelope<'a>,
    method: Cow<'a, str>,
) -> Result<Incoming<'a>, Invalid<'a>> {
    let id = match envelope.id {
        Some(raw) => Some(Id::of(raw.get()).ok_or(Invalid::nameless(Reason::BadId))?),
        None => None,
    };
    let params = envelope.params.filter(|params| params.get() != "null");
    if params.is_some_and(|params| !params.get().starts_with(['{', '['])) {
        let about = id.map_or(About::Notification, About::Request);
        return Err(Invalid { reason: Reason::BadParams, about });
    }
    Ok(match id {
        Some(id) => Incoming::Request(Request { id, method, params }),
        None => Incoming::Notification(Notification { method, params }),
    })
}

fn is_version(envelope: &Envelope<'_>) -> bool {
    envelope.jsonrpc.is_some_and(|version| version.get() == r#""2.0""#)
}
