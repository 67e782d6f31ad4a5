//! Converts errors in both directions with one table of codes.

use serde_json::{Map, Value, json};
use trilogue_domain::error::Class;
use trilogue_domain::{Code, Error, Failure, Json};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, ErrorObject};

use super::PROTOCOL;

/// The members of an error's data that can hold the reason, the most informative first.
const REASONS: [&str; 7] =
    ["details", "detail", "reason", "message", "error", "description", "cause"];
/// Separates an agent's message from the end of its standard error.
pub const STDERR_INTRODUCTION: &str = "; its standard error ends with: ";
/// The longest reason in a failure's message, in characters.
const MAX_REASON_CHARS: usize = 1_000;

fn number(code: Code) -> jsonrpc::Code {
    if code == Code::MethodNotAllowed {
        return jsonrpc::Code::METHOD_NOT_FOUND;
    }
    match code.class() {
        Class::Invalid | Class::Unprocessable | Class::TooLarge => jsonrpc::Code::INVALID_PARAMS,
        Class::Unauthenticated => jsonrpc::Code::AUTH_REQUIRED,
        Class::NotFound => jsonrpc::Code::RESOURCE_NOT_FOUND,
        // The request is well formed but cannot be processed now, or not for this client.
        Class::Conflict | Class::Forbidden => jsonrpc::Code::INVALID_REQUEST,
        Class::TooMany | Class::NoSpace | Class::Unavailable | Class::Internal => {
            jsonrpc::Code::INTERNAL_ERROR
        }
    }
}

/// Returns the error for a client: `data` has our code, the hint, the violations and the pending interrupt, if present.
pub fn error_object(error: &Error) -> ErrorObject {
    refusal(error, None)
}

/// Like [`error_object`], for a request with a session: `data` names a session that does not exist.
pub fn session_error(error: &Error, session: &str) -> ErrorObject {
    let is_lost = matches!(error.code(), Code::ThreadNotFound | Code::NotFound | Code::InvalidId);
    let mut told = refusal(error, is_lost.then_some(session));
    if is_lost {
        told.code = jsonrpc::Code::RESOURCE_NOT_FOUND;
    }
    told
}

fn refusal(error: &Error, session: Option<&str>) -> ErrorObject {
    let mut data = Map::new();
    let mut set = |key: &str, value: Value| drop(data.insert(key.to_owned(), value));
    if let Some(session) = session {
        set("sessionId", session.into());
    }
    set("code", error.code().as_str().into());
    if let Some(hint) = error.hint_text() {
        set("hint", hint.into());
    }
    if error.code().is_transient() {
        set("transient", true.into());
    }
    if let Some(pending) = error.pending_interrupt() {
        set("interruptId", pending.as_str().into());
    }
    let violated = error.violated().iter();
    let violated: Vec<_> =
        violated.map(|it| json!({ "path": it.path, "message": it.message })).collect();
    if !violated.is_empty() {
        set("violations", violated.into());
    }
    ErrorObject::new(number(error.code()), error.message()).data(of(data))
}

/// Adds explanations to an agent's own error: the end of its standard error after the message, and a hint in the data.
/// Data that is not an object becomes the member `details` of one. The agent's own hint stays.
pub fn with_explanation(mut error: ErrorObject, stderr: &str, hint: Option<&str>) -> ErrorObject {
    if !stderr.is_empty() && !error.message.contains(stderr) {
        error.message = format!("{}{STDERR_INTRODUCTION}{stderr}", error.message);
    }
    let Some(hint) = hint else { return error };
    let data = match error.data.as_ref().map(|data| data.as_str()) {
        None | Some("null") => "{}".to_owned(),
        Some(object) if object.starts_with('{') => object.to_owned(),
        Some(other) => format!("{{\"details\":{other}}}"),
    };
    if splice::get(&data, &["hint"]).is_none()
        && let Some(hinted) = splice::set_text(&data, &["hint"], hint)
    {
        error.data = trilogue_wire::native::Json::parse(hinted).ok().or(error.data);
    }
    error
}

/// Returns the error of a failed run: an agent's own error unchanged, with explanations; any other by our code.
pub(super) fn error_of_failure(failure: &Failure) -> ErrorObject {
    if let Some(details) = &failure.data
        && let Some(own) = original(details.as_str())
    {
        let text = |name: &str| splice::get_text(details.as_str(), &[name]);
        return with_explanation(own, &text("stderr").unwrap_or_default(), text("hint").as_deref());
    }
    let code = Code::from_text(&failure.code);
    let number = code.map_or(jsonrpc::Code::INTERNAL_ERROR, number);
    let mut data = Map::new();
    data.insert("code".to_owned(), failure.code.clone().into());
    data.insert("transient".to_owned(), failure.transient.into());
    if let Some(details) = &failure.data {
        if let Some(hint) = splice::get_text(details.as_str(), &["hint"]) {
            data.insert("hint".to_owned(), hint.into());
        }
        data.insert("details".to_owned(), details.to_value());
    }
    ErrorObject::new(number, failure.message.clone()).data(of(data))
}

fn original(details: &str) -> Option<ErrorObject> {
    let is_ours = splice::get_text(details, &["protocol"]).is_some_and(|name| name == PROTOCOL);
    is_ours.then(|| splice::get(details, &["error"]).map(ErrorObject::read))?
}

fn of(data: Map<String, Value>) -> trilogue_wire::native::Json {
    trilogue_wire::native::Json::from_value(&Value::Object(data))
}

/// Returns an agent's error as the failure of a run; the original is in the details, and is restored from them.
pub fn failure_of(code: i32, message: &str, data: Option<&Json>) -> Failure {
    let known = match jsonrpc::Code(code) {
        jsonrpc::Code::INVALID_PARAMS => Code::InvalidInput,
        jsonrpc::Code::RESOURCE_NOT_FOUND => Code::NotFound,
        jsonrpc::Code::AUTH_REQUIRED => Code::Unauthenticated,
        _ => Code::AgentFailed,
    };
    let reason = data.and_then(|data| reason(&data.to_value()));
    let data = data.map_or_else(String::new, |data| format!(",\"data\":{}", data.as_str()));
    let text = Value::from(message);
    let details = format!(
        "{{\"protocol\":\"{PROTOCOL}\",\"error\":{{\"code\":{code},\"message\":{text}{data}}}}}"
    );
    let mut failure = match reason.filter(|reason| !message.contains(reason.as_str())) {
        Some(reason) => Failure::of(known, &format!("{message}: {reason}")),
        None => Failure::of(known, message),
    };
    failure.data = Json::parse(details).ok();
    failure
}

/// Returns the reason in the data of an agent's error. Many agents have a general message and put the cause there.
fn reason(data: &Value) -> Option<String> {
    let text = match data {
        Value::String(text) => text.as_str(),
        Value::Object(members) => {
            return REASONS.iter().find_map(|name| reason(members.get(*name)?));
        }
        _ => return None,
    };
    let text = text.trim();
    let shown: String = text.chars().take(MAX_REASON_CHARS).collect();
    (!shown.is_empty()).then_some(shown)
}
