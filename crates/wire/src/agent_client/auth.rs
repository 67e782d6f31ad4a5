use std::borrow::Cow;

use super::object::object;
use super::tagged::tagged;
use super::{Map, Opaque};
use crate::json::{Path, Read, Violation};

tagged! {
    pub enum AuthMethod by "type" {
        /// The client runs the agent in a terminal and does not call `authenticate`. Only for clients with `auth.terminal`.
        Terminal(AuthMethodTerminal) = "terminal";
    } plain {
        /// The agent authenticates itself when the client calls `authenticate`.
        Agent(AuthMethodAgent);
    } read by untagged
}

object! {
    pub struct AuthMethodTerminal {
        id: String = "id";
        /// For people.
        name: String = "name";
    } may {
        description: Option<String> = "description";
        args: Vec<String> = "args" as optional;
        env: Option<Map<String>> = "env" as optional;
    }

    pub struct AuthMethodAgent {
        id: String = "id";
        /// For people.
        name: String = "name";
    } may {
        description: Option<String> = "description";
    }

    pub struct AuthenticateRequest {
        /// One of the methods of `initialize`, but not a terminal method.
        method_id: String = "methodId";
    }

    pub struct AuthenticateResponse;

    pub struct LogoutRequest;

    pub struct LogoutResponse;
}

// === impl AuthMethod ===

impl AuthMethod {
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Terminal(method) => Some(&method.id),
            Self::Agent(method) => Some(&method.id),
            Self::Other(_) => None,
        }
    }
}

/// Reads a method without a kind as the agent's own. An unknown kind is kept unchanged, because calling `authenticate` for it
/// would be a guess.
fn untagged(
    json: &str,
    kind: Option<Cow<'_, str>>,
    at: &Path<'_>,
) -> Result<AuthMethod, Violation> {
    match kind {
        Some(kind) if kind != "agent" => {
            Ok(AuthMethod::Other(Opaque { kind: kind.into_owned(), json: Read::read(json, at)? }))
        }
        _ => AuthMethodAgent::read(json, at).map(AuthMethod::Agent),
    }
}
