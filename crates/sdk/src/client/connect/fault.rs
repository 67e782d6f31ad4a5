use serde_json::{Map, Value};
use trilogue_wire::native::Json;

use crate::client::call::perhaps_elsewhere;

/// An error response of an Agent Connect Protocol server.
///
/// Servers write it in several forms: the members below, a bare text, `{"detail": …}`, or an empty body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The HTTP status.
    pub status: u16,
    /// The stable code, if the server sends one.
    pub code: Option<String>,
    /// The number of the code, if the server sends one.
    pub errcode: Option<i64>,
    /// The message for people.
    pub description: String,
    /// Whether the same call may succeed later without a change, if the server reports it.
    pub transient: Option<bool>,
    /// What to do next, if the server reports it.
    pub hint: Option<String>,
    /// Details. The code decides their form.
    pub data: Option<Json>,
    is_foreign: bool,
}

// === impl Fault ===

impl Fault {
    /// Reads the body of a response with this error status.
    #[must_use]
    pub fn read(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(Value::String(description)) if !description.is_empty() => {
                Self { description, ..Self::silent(status) }
            }
            Ok(Value::Object(members)) => {
                Self::described(status, &members).unwrap_or_else(|| Self::foreign(status))
            }
            _ => Self::foreign(status),
        }
    }

    /// Returns `true` if the response was not in one of the protocol's forms. It may come from a proxy, or from a server of another protocol.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns `true` if the requested name or id does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status == 404
    }

    pub(crate) fn is_transient(&self) -> bool {
        self.transient.unwrap_or(matches!(self.status, 408 | 429 | 502..=504))
    }

    pub(super) fn is_not_implemented(&self) -> bool {
        let says_so = || self.description.to_ascii_lowercase().contains("not implemented");
        self.status == 501 || (self.status == 500 && says_so())
    }

    /// Returns `true` if the response has this status and no code.
    pub(super) fn is_unnamed(&self, status: u16) -> bool {
        self.status == status && self.code.is_none()
    }

    /// Returns `true` if a server without codes refuses this member of a request.
    pub(super) fn rejects(&self, member: &str) -> bool {
        self.is_unnamed(422) && self.description.contains(member)
    }

    fn described(status: u16, members: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        // A validator returns a list of violations.
        let detail = || match members.get("detail")? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            list => Some(list.to_string()),
        };
        let description = text("description").or_else(|| text("message")).or_else(detail)?;
        Some(Self {
            code: text("code"),
            errcode: members.get("errcode").and_then(Value::as_i64),
            description,
            transient: members.get("transient").and_then(Value::as_bool),
            hint: text("hint"),
            data: members.get("data").filter(|data| !data.is_null()).map(Json::from_value),
            ..Self::silent(status)
        })
    }

    fn foreign(status: u16) -> Self {
        let elsewhere = perhaps_elsewhere(status);
        let description = format!("the server answered with status {status}{elsewhere}");
        Self { description, is_foreign: true, ..Self::silent(status) }
    }

    fn silent(status: u16) -> Self {
        Self {
            status,
            code: None,
            errcode: None,
            description: String::new(),
            transient: None,
            hint: None,
            data: None,
            is_foreign: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_in_every_form() {
        let ours = Fault::read(
            422,
            br#"{"code":"input_schema_violation","errcode":4221,"description":"no","transient":false,"data":{"path":"/a"},"detail":"no","message":"no","hint":"h"}"#,
        );
        assert_eq!(ours.code.as_deref(), Some("input_schema_violation"));
        assert_eq!((ours.errcode, ours.transient), (Some(4221), Some(false)));
        assert_eq!((ours.description.as_str(), ours.hint.as_deref()), ("no", Some("h")));
        assert_eq!(ours.data.as_ref().map(Json::as_str), Some(r#"{"path":"/a"}"#));
        for (body, description) in [
            (r#""gone""#, "gone"),
            (r#"{"detail":"Run not found"}"#, "Run not found"),
            (r#"{"detail":[{"loc":["body","x"]}]}"#, r#"[{"loc":["body","x"]}]"#),
            (r#"{"code":"c","message":"m"}"#, "m"),
        ] {
            let fault = Fault::read(404, body.as_bytes());
            assert_eq!(fault.description, description);
            assert!(!fault.is_foreign() && fault.is_not_found());
        }
        for body in ["", "<html>", "null", "{}", r#"{"detail":null}"#, r#""""#] {
            let fault = Fault::read(404, body.as_bytes());
            assert!(fault.is_foreign() && fault.description.contains("404"), "{body}");
        }
    }

    #[test]
    fn what_may_pass_is_known_by_word_or_by_status() {
        assert!(Fault::read(503, b"").is_transient() && !Fault::read(500, b"").is_transient());
        assert!(!Fault::read(503, br#"{"description":"x","transient":false}"#).is_transient());
        assert!(Fault::read(409, br#"{"description":"x","transient":true}"#).is_transient());
        assert!(Fault::read(500, br#"{"detail":"Not implemented"}"#).is_not_implemented());
        assert!(!Fault::read(500, br#"{"detail":"boom"}"#).is_not_implemented());
        let listed = Fault::read(422, br#"{"detail":[{"loc":["body","stream_mode","x"]}]}"#);
        assert!(listed.rejects("stream_mode") && !listed.rejects("limit"));
        let ours = Fault::read(422, br#"{"code":"x","description":"stream_mode"}"#);
        assert!(!ours.rejects("stream_mode"));
    }
}
