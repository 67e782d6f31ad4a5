use serde::Serialize;
use serde_json::Number;

use super::object::object;
use super::tagged::tagged;
use super::{ElicitationSchema, Id, Map};
use crate::json::schema::schema;
use crate::json::{Path, Read, Violation, refusal};

tagged! {
    pub enum CreateElicitationRequest by "mode" {
        /// Only for clients with `elicitation.form`.
        Form(Box<ElicitationForm>) = "form";
        /// Only for clients with `elicitation.url`.
        Url(Box<ElicitationUrl>) = "url";
    }
}

object! {
    /// A form. It must not ask for secrets.
    pub struct ElicitationForm {
        message: String = "message";
        requested_schema: ElicitationSchema = "requestedSchema";
    } may {
        session_id: Option<String> = "sessionId" as optional;
        tool_call_id: Option<String> = "toolCallId";
        /// The client's request that the form belongs to, if it belongs to no session.
        request_id: Option<Id<'static>> = "requestId" as optional;
    }
    check form_has_scope;

    pub struct ElicitationUrl {
        message: String = "message";
        /// `elicitation/complete` uses this id.
        elicitation_id: String = "elicitationId";
        url: String = "url";
    } may {
        session_id: Option<String> = "sessionId" as optional;
        tool_call_id: Option<String> = "toolCallId";
        /// The client's request that the URL belongs to, if it belongs to no session.
        request_id: Option<Id<'static>> = "requestId" as optional;
    }
    check url_has_scope;
}

tagged! {
    /// An unknown action counts as no answer.
    pub enum CreateElicitationResponse by "action" {
        Accept(ElicitationAccept) = "accept";
        Decline(ElicitationDecline) = "decline";
        Cancel(ElicitationCancel) = "cancel";
    }
}

object! {
    pub struct ElicitationAccept may {
        content: Option<Map<ElicitationValue>> = "content" as optional;
    }

    pub struct ElicitationDecline;

    pub struct ElicitationCancel;
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum ElicitationValue {
    Text(String),
    Number(Number),
    Boolean(bool),
    Texts(Vec<String>),
}

object! {
    /// The user has finished at a URL. Unknown ids have no effect.
    pub struct CompleteElicitationNotification {
        elicitation_id: String = "elicitationId";
    }
}

// === impl CreateElicitationRequest ===

impl CreateElicitationRequest {
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Form(form) => Some(&form.message),
            Self::Url(url) => Some(&url.message),
            Self::Other(_) => None,
        }
    }

    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::Form(form) => form.session_id.as_deref(),
            Self::Url(url) => url.session_id.as_deref(),
            Self::Other(_) => None,
        }
    }

    pub fn request_id(&self) -> Option<&Id<'static>> {
        match self {
            Self::Form(form) => form.request_id.as_ref(),
            Self::Url(url) => url.request_id.as_ref(),
            Self::Other(_) => None,
        }
    }
}

fn form_has_scope(form: &ElicitationForm, at: &Path<'_>) -> Result<(), Violation> {
    has_scope(form.session_id.is_some() || form.request_id.is_some(), at)
}

fn url_has_scope(url: &ElicitationUrl, at: &Path<'_>) -> Result<(), Violation> {
    has_scope(url.session_id.is_some() || url.request_id.is_some(), at)
}

fn has_scope(is_there: bool, at: &Path<'_>) -> Result<(), Violation> {
    if is_there { Ok(()) } else { Err(at.violation("must have a sessionId or a requestId")) }
}

// === impl ElicitationValue ===

impl Read for ElicitationValue {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        match json.as_bytes().first() {
            Some(b'"') => String::read(json, at).map(Self::Text),
            Some(b't' | b'f') => bool::read(json, at).map(Self::Boolean),
            Some(b'[') => Vec::read(json, at).map(Self::Texts),
            Some(b'0'..=b'9' | b'-') => Number::read(json, at).map(Self::Number),
            _ => Err(refusal("a string, a number, a boolean or an array of strings", json, at)),
        }
    }
}

schema!(ElicitationValue = "ElicitationValue", |_| {
    let texts = schemars::json_schema!({ "type": "array", "items": { "type": "string" } });
    schemars::json_schema!({ "anyOf": [{ "type": ["string", "number", "boolean"] }, texts] })
});
