use trilogue_egress::{Error as EgressError, certificate_hint};

/// Why no connection to an agent could be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectError {
    /// What happened.
    pub message: String,
    /// What you can do about it.
    pub hint: Option<String>,
    /// The HTTP status of the server's refusal, if it refused.
    pub status: Option<u16>,
    /// The body of that refusal, as far as it arrived: at most 64 KiB. The server wrote it.
    pub body: Vec<u8>,
}

/// How to trust the certificate of an own authority.
pub(super) const TRUST_AUTHORITY: &str = "name the file of that authority's certificate";

// === impl ConnectError ===

impl ConnectError {
    pub(super) fn invalid(message: String) -> Self {
        Self { message, hint: None, status: None, body: Vec::new() }
    }

    /// Converts the error of a request to the server at this address.
    pub(super) fn of(url: &impl std::fmt::Display, error: &EgressError) -> Self {
        let EgressError::NotUpgraded { status, body, .. } = error else {
            let reason = match error {
                EgressError::Failed { reason, .. } | EgressError::UnknownName { reason, .. } => {
                    reason.clone()
                }
                error => error.to_string(),
            };
            let hint = certificate_hint(&reason, TRUST_AUTHORITY).or_else(|| error.hint());
            let message = format!("no agent can be reached at {url}: {reason}");
            return Self { hint, ..Self::invalid(message) };
        };
        Self { body: body.to_vec(), ..Self::of_status(url, *status) }
    }

    /// Returns the error for a response with an unexpected status.
    pub(super) fn of_status(url: &impl std::fmt::Display, status: u16) -> Self {
        let hint = match status {
            300..=399 => "redirects are not followed: use the address that it names",
            401 | 403 => "check the token and what it allows",
            404 => "check the path of the address",
            429 => "wait, or let the operator of the server raise its limits",
            501 => {
                "let the proxy in front of the server pass WebSockets on, or use an address that begins with http:// or https://"
            }
            500..=599 => "look into the log of the server",
            _ => {
                "check that the address serves the Agent Client Protocol, and over which transport"
            }
        };
        let message = format!("the server at {url} refused the connection with status {status}");
        let hint = Some(hint.to_owned());
        Self { hint, status: Some(status), ..Self::invalid(message) }
    }
}
