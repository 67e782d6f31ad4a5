use std::borrow::Cow;

use super::object::object;
use super::tagged::tagged;
use super::{Map, Opaque};
use crate::json::{Path, Read, Violation};

tagged! {
    /// A way to authenticate.
    pub enum AuthMethod by "type" {
        /// In a terminal: the client runs the agent with arguments, and does not call `authenticate`. Only for clients with `auth.terminal`.
        Terminal(AuthMethodTerminal) = "terminal";
    } plain {
        /// By the agent itself, when `authenticate` is called.
        Agent(AuthMethodAgent);
    } read by untagged
}

object! {
    /// Authenticating in a terminal.
    pub struct AuthMethodTerminal {
        /// Its id.
        id: String = "id" as required;
        /// What it is called towards people.
        name: String = "name" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// What the agent is run with.
        args: Vec<String> = "args" as optional;
        /// The variables that the agent is run with.
        env: Option<Map<String>> = "env" as optional;
    }
}

object! {
    /// Authenticating by the agent itself.
    pub struct AuthMethodAgent {
        /// Its id.
        id: String = "id" as required;
        /// What it is called towards people.
        name: String = "name" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
    }
}

object! {
    /// Authenticates.
    pub struct AuthenticateRequest {
        /// One of the ways that `initialize` named, but none of those in a terminal.
        method_id: String = "methodId" as required;
    } may {
    }
}

object! {
    /// It is done.
    #[derive(Default)]
    pub struct AuthenticateResponse {
    } may {
    }
}

object! {
    /// Forgets who is authenticated.
    #[derive(Default)]
    pub struct LogoutRequest {
    } may {
    }
}

object! {
    /// Nobody is authenticated.
    #[derive(Default)]
    pub struct LogoutResponse {
    } may {
    }
}

// === impl AuthMethod ===

impl AuthMethod {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Terminal(method) => Some(&method.id),
            Self::Agent(method) => Some(&method.id),
            Self::Other(_) => None,
        }
    }
}

/// A way of no kind is the agent's own. One of a kind that the protocol has no word for is kept as it came: calling `authenticate` for it
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
