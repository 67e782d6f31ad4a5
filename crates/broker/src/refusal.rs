//! The responses of the broker itself, in contrast to those of hosts.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, PROXY_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use serde_json::json;

use crate::access::Dialect;
use crate::host_rules::HostPort;
use crate::observer::ConnectionOutcome;

/// A body whose errors end the connection.
pub(crate) type BrokerBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// Why the broker does not do what a process asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BrokerRefusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: &'static str,
}

// === impl BrokerRefusal ===

impl BrokerRefusal {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { status, code, message: message.into(), hint }
    }

    /// A request that the broker does not take.
    pub(crate) fn invalid(message: &str) -> Self {
        let hint = "send CONNECT HOST:PORT, or a request with a whole http:// address";
        Self::new(StatusCode::BAD_REQUEST, "request_invalid", message, hint)
    }

    pub(crate) fn no_credentials() -> Self {
        let hint = "use the address of the proxy as it is in HTTPS_PROXY, with its password";
        let message = "the proxy needs the password of this agent";
        let status = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        Self::new(status, "proxy_credentials_missing", message, hint)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request has more than {limit} bytes");
        let hint = "send less at once";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message, hint)
    }

    /// A host that was not reached.
    pub(crate) fn of_outcome(outcome: ConnectionOutcome, target: &HostPort) -> Self {
        let (status, code, message, hint) = match outcome {
            ConnectionOutcome::Address => (
                StatusCode::FORBIDDEN,
                "address_refused",
                format!("{target} is at no address that agents may reach"),
                "the operator allows private addresses by `network.allow_addresses`",
            ),
            ConnectionOutcome::Ceiling => (
                StatusCode::FORBIDDEN,
                "network_refused",
                format!("no agent of this server may reach {target}"),
                "the operator allows it by `network.ceiling`",
            ),
            ConnectionOutcome::Unreachable => (
                StatusCode::BAD_GATEWAY,
                "host_unreachable",
                format!("{target} could not be reached"),
                "check the name and the port",
            ),
            ConnectionOutcome::Limit => (
                StatusCode::FORBIDDEN,
                "network_refused",
                format!("too many questions are open to ask about {target}"),
                "answer them first",
            ),
            _ => (
                StatusCode::FORBIDDEN,
                "network_refused",
                format!("this agent may not reach {target}"),
                "its user allows it by `network` in the agent's settings",
            ),
        };
        Self::new(status, code, message, hint)
    }

    /// A request to a provider that failed before a response.
    pub(crate) fn of_provider(message: String) -> Self {
        let hint = "check the address of the provider in `keys` of the agent's settings";
        Self::new(StatusCode::BAD_GATEWAY, "provider_unreachable", message, hint)
    }

    pub(crate) fn wrong_placeholder(name: &str) -> Self {
        let message = format!("the request does not have the placeholder of {name}");
        let hint = "send the value of the variable as the key";
        Self::new(StatusCode::UNAUTHORIZED, "key_placeholder_missing", message, hint)
    }

    pub(crate) fn unknown_key() -> Self {
        let message = "this agent has no key of this name";
        let hint = "use the address in the variable for it, as it is";
        Self::new(StatusCode::NOT_FOUND, "key_unknown", message, hint)
    }

    /// Whether a setting or a person refuses it.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.status == StatusCode::FORBIDDEN
    }

    pub(crate) fn response(&self) -> Response<BrokerBody> {
        self.response_of(&self.body())
    }

    fn body(&self) -> serde_json::Value {
        let message = format!("trilogue: {}", self.message);
        json!({ "error": { "code": self.code, "message": message, "hint": self.hint } })
    }

    /// The response in the form that clients of a provider read.
    pub(crate) fn response_in(&self, dialect: Dialect) -> Response<BrokerBody> {
        let message = format!("trilogue: {}; {}", self.message, self.hint);
        let status = self.status.as_u16();
        let body = match dialect {
            Dialect::Anthropic => {
                let kind = if status == 401 { "authentication_error" } else { "api_error" };
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
            Dialect::OpenAi => {
                json!({ "error": { "message": message, "type": "trilogue", "code": self.code } })
            }
            Dialect::Gemini => {
                let kind = if status == 401 { "UNAUTHENTICATED" } else { "UNAVAILABLE" };
                json!({ "error": { "code": status, "message": message, "status": kind } })
            }
            Dialect::Unknown => return self.response(),
        };
        self.response_of(&body)
    }

    /// The response as bytes, for a connection that has no HTTP reader yet. It is the last one.
    pub(crate) fn to_bytes(&self) -> String {
        let (code, body) = (self.status, self.body().to_string());
        format!(
            "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn response_of(&self, body: &serde_json::Value) -> Response<BrokerBody> {
        let mut response = Response::new(whole(Bytes::from(body.to_string())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::BAD_REQUEST {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            let scheme = HeaderValue::from_static("Basic realm=\"trilogue\"");
            headers.insert(PROXY_AUTHENTICATE, scheme);
        }
        response
    }
}

pub(crate) fn whole(bytes: Bytes) -> BrokerBody {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

pub(crate) fn empty() -> BrokerBody {
    Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync()
}
