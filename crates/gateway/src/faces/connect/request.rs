//! Reads requests: body and query.

use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use trilogue_domain::error::{Result, Violation};
use trilogue_domain::{Code, Error, Json, limits};
use trilogue_mapping::native::{escape_for_message, read_json, read_object};
use trilogue_store::rows::{Listing, Page};
use trilogue_wire::agent_connect as wire;

use super::{ConnectCall, DEFAULT_LIMIT};
use crate::http::reply::{NEXT, Reply};

const NO_BODY_TIMEOUT: &str = "'timeout' in the body has no effect: send it in the query";
const NO_BODY_BLOCK_TIMEOUT: &str =
    "'block_timeout' in the body has no effect: send it in the query";
/// The longest wait that a client can request.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Reads the body with any content type; an empty one counts as `{}`.
/// Errors: `invalid_json`; `invalid_request`, naming the invalid member.
pub(super) fn body_or_empty<T: DeserializeOwned>(call: &ConnectCall) -> Result<T> {
    check_text(call)?;
    wire::decode_or_empty(&call.body).map_err(violated)
}

/// Checks that the whole body is valid text, including members that the server ignores.
fn check_text(call: &ConnectCall) -> Result<()> {
    match std::str::from_utf8(&call.body) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(Code::InvalidJson, "the body is not valid UTF-8")),
    }
}

/// Whether the mount follows the protocol's document even if an official client cannot.
pub(super) fn is_as_documented(call: &ConnectCall) -> bool {
    call.state.options.as_documented
}

/// Returns a switch of the query; `false` if it is not sent.
/// Errors: `invalid_request`.
pub(super) fn flag(call: &ConnectCall, name: &str) -> Result<bool> {
    match call.query(name) {
        None | Some("false" | "False" | "0") => Ok(false),
        Some("true" | "True" | "1") => Ok(true),
        Some(other) => Err(wrong(name, other, "'true' or 'false'")),
    }
}

/// Returns how long the client waits: `timeout`, or `block_timeout` of earlier protocol versions; in seconds, with fractions.
/// Errors: `invalid_request`.
pub(super) fn patience(call: &ConnectCall) -> Result<Option<Duration>> {
    let sent = ["timeout", "block_timeout"]
        .into_iter()
        .find_map(|name| call.query(name).map(|text| (name, text)));
    let Some((name, text)) = sent else { return Ok(None) };
    let time = text.parse::<f64>().ok().and_then(|time| Duration::try_from_secs_f64(time).ok());
    match time {
        Some(time) if time <= MAX_WAIT => Ok(Some(time)),
        _ => {
            let takes = format!(
                "a number of seconds up to {}; this server waits at most {} seconds (`server.limits.max_wait`)",
                MAX_WAIT.as_secs(),
                call.state.max_wait.as_secs()
            );
            Err(wrong(name, text, &takes))
        }
    }
}

/// A member of the body that belongs in the query. Without this check it would be ignored silently.
#[derive(serde::Deserialize)]
struct Misplaced {
    timeout: Option<serde::de::IgnoredAny>,
    block_timeout: Option<serde::de::IgnoredAny>,
}

/// Returns the name of the wait time if the body contains it.
/// Errors: `invalid_request` on a mount that follows the document.
pub(super) fn misplaced_patience(call: &ConnectCall) -> Result<Option<&'static str>> {
    let Ok(body) = serde_json::from_slice::<Misplaced>(&call.body) else { return Ok(None) };
    let (name, warning) = match body {
        Misplaced { timeout: Some(_), .. } => ("timeout", NO_BODY_TIMEOUT),
        Misplaced { block_timeout: Some(_), .. } => ("block_timeout", NO_BODY_BLOCK_TIMEOUT),
        _ => return Ok(None),
    };
    if !is_as_documented(call) {
        return Ok(Some(warning));
    }
    let message = format!("the body has '{name}', which is a parameter of the query");
    Err(Error::new(Code::InvalidRequest, message)
        .hint(format!("write it into the address: …/wait?{name}=SECONDS")))
}

pub(super) fn page(limit: Option<wire::Limit>, offset: Option<wire::Offset>) -> Page {
    let limit = limit.map_or(DEFAULT_LIMIT, |limit| size(limit.get()));
    Page { limit, after: None, skip: offset.map_or(0, |offset| size(offset.get())) }
}

/// Adds the position of the next page, if there is one: a page can be shorter than its limit.
pub(super) fn with_next_offset<T>(reply: Reply, skip: usize, found: &Listing<T>) -> Reply {
    match found.next {
        Some(_) => reply.header_text(NEXT, &(skip + found.rows.len()).to_string()),
        None => reply,
    }
}

/// Returns the page that the query requests. Errors: `invalid_request`.
pub(super) fn queried_page(call: &ConnectCall) -> Result<Page> {
    Ok(page(bounded(call, "limit")?, bounded(call, "offset")?))
}

fn bounded<T: FromStr<Err = String>>(call: &ConnectCall, name: &str) -> Result<Option<T>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|takes: String| {
        let message = format!("'{name}' is '{}'", escape_for_message(text));
        Error::new(Code::InvalidRequest, message).hint(format!("'{name}' {takes}"))
    })
}

pub(super) fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the conditions of a search: the members of an object, each with the canonical text of its value.
/// Errors: `json_too_deep`.
pub(super) fn members(object: Option<wire::Object>) -> Result<Vec<(String, String)>> {
    let Some(object) = object else { return Ok(Vec::new()) };
    match read_json(object.into_json())?.to_value() {
        serde_json::Value::Object(members) => {
            Ok(members.into_iter().map(|(key, value)| (key, value.to_string())).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Converts metadata from the wire.
/// Errors: `body_too_large`, `json_too_deep`.
pub(super) fn metadata(object: Option<wire::Object>) -> Result<Option<Json>> {
    read_object(object.map(wire::Object::into_json), "metadata")
}

/// Returns metadata with the members of `patch` written over it.
/// Errors: `body_too_large`.
pub(super) fn merged(metadata: &Json, patch: &Json) -> Result<Json> {
    let merged = metadata.merged(patch);
    if merged.as_bytes().len() > limits::MAX_METADATA_BYTES {
        let most = limits::MAX_METADATA_BYTES;
        let message = format!("'metadata' would be larger than {most} bytes");
        return Err(Error::new(Code::BodyTooLarge, message));
    }
    Ok(merged)
}

fn violated(violation: wire::Violation) -> Error {
    let (code, message) = if violation.is_malformed() {
        (Code::InvalidJson, format!("the body {}", violation.message))
    } else {
        (Code::InvalidRequest, format!("the body does not fit: {violation}"))
    };
    let wire::Violation { path, message: why, .. } = violation;
    Error::new(code, message).violations(vec![Violation { path, message: why }])
}

fn wrong(name: &str, text: &str, takes: &str) -> Error {
    Error::new(Code::InvalidRequest, format!("'{name}' is '{}'", escape_for_message(text)))
        .hint(format!("'{name}' is {takes}"))
}
