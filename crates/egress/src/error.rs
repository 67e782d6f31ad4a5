use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;

use crate::address::AddressClass;

/// Why an outbound request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error("'{host}' is a {class} address, which may not be reached")]
    Refused {
        /// The requested host.
        host: String,
        address: IpAddr,
        class: AddressClass,
    },
    /// The name has an address that is not allowed, or no address. The addresses are only logged, because they would show a caller the structure of the server's network.
    #[error("'{host}' stands for no address that may be reached")]
    RefusedName {
        /// The name.
        host: String,
    },
    /// The name cannot be resolved. A caller must not be able to distinguish this from [`Error::RefusedName`]: see [`Error::conceal`].
    #[error("'{host}' could not be reached: {reason}")]
    UnknownName { host: String, reason: String },
    /// The client does not accept this URL.
    #[error("{0}")]
    BadUrl(String),
    /// The response is larger than allowed.
    #[error("the response of '{host}' is larger than {limit} bytes")]
    TooLarge {
        /// The host of the response.
        host: String,
        limit: u64,
    },
    /// The response did not arrive in time.
    #[error("'{host}' did not answer within {limit:?}")]
    TimedOut {
        /// The host of the request.
        host: String,
        limit: Duration,
        /// Whether the connection failed, so that the peer has received nothing of the request.
        is_unreached: bool,
    },
    /// The peer answered a request for a WebSocket without one.
    #[error("'{host}' answered a request for a WebSocket with status {status}")]
    NotUpgraded {
        /// The host of the request.
        host: String,
        status: u16,
        /// The body of the answer, or its beginning: at most 64 KiB, and what arrived within 2 s. The peer wrote it.
        body: Bytes,
    },
    /// The peer could not be reached, or broke the protocol.
    #[error("'{host}' could not be reached: {reason}")]
    Failed {
        /// The host of the request.
        host: String,
        reason: String,
        /// Whether the connection failed, so that the peer has received nothing of the request.
        is_unreached: bool,
    },
}

// === impl Error ===

impl Error {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::RefusedName { .. } | Self::BadUrl(_) => "egress_refused",
            Self::UnknownName { .. }
            | Self::TooLarge { .. }
            | Self::TimedOut { .. }
            | Self::NotUpgraded { .. }
            | Self::Failed { .. } => "peer_unavailable",
        }
    }

    /// Returns the error for a caller that must not learn which names the server's network has. An unknown name becomes a refused one.
    #[must_use]
    pub fn conceal(self) -> Self {
        match self {
            Self::UnknownName { host, .. } => Self::RefusedName { host },
            other => other,
        }
    }

    /// Returns `true` if the policy refused the request. A retry does not help.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::RefusedName { .. } | Self::BadUrl(_))
    }

    /// Returns `true` if the peer has received nothing of the request. Then it can be sent again safely.
    #[must_use]
    pub fn is_unreached(&self) -> bool {
        match self {
            Self::Failed { is_unreached, .. } | Self::TimedOut { is_unreached, .. } => {
                *is_unreached
            }
            Self::TooLarge { .. } | Self::NotUpgraded { .. } => false,
            Self::Refused { .. }
            | Self::RefusedName { .. }
            | Self::UnknownName { .. }
            | Self::BadUrl(_) => true,
        }
    }

    /// Returns what an operator can do about the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { address, .. } => {
                Some(format!("an operator may allow it: add \"{address}\" to [egress] allow"))
            }
            Self::RefusedName { .. } => Some(
                "an operator finds the address in the server's log, and may add it to [egress] allow"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
