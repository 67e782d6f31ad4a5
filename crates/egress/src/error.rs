use std::net::IpAddr;
use std::time::Duration;

use crate::address::AddressClass;

/// Why an outbound request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error("'{host}' is a {class} address, which may not be reached")]
    Refused {
        /// What was asked for.
        host: String,
        address: IpAddr,
        class: AddressClass,
    },
    /// The name stands for no address that may be reached. Which ones it stands for is only logged: it would tell a caller how the server's network is made.
    #[error("'{host}' stands for no address that may be reached")]
    RefusedName {
        /// The name.
        host: String,
    },
    /// The name cannot be resolved. To a caller this must look like [`Error::RefusedName`]: see [`Error::concealed`].
    #[error("'{host}' could not be reached: {reason}")]
    UnknownName { host: String, reason: String },
    /// The address is not one that this client takes.
    #[error("{0}")]
    BadUrl(String),
    /// The response is larger than allowed.
    #[error("the response of '{host}' is larger than {limit} bytes")]
    TooLarge {
        /// Who answered.
        host: String,
        limit: u64,
    },
    /// No response in time.
    #[error("'{host}' did not answer within {limit:?}")]
    TimedOut {
        /// Who was asked.
        host: String,
        limit: Duration,
        /// Whether it was not even connected, so that it has got nothing of the request.
        is_unreached: bool,
    },
    /// The peer could not be reached, or broke the protocol.
    #[error("'{host}' could not be reached: {reason}")]
    Failed {
        /// Who was asked.
        host: String,
        reason: String,
        /// Whether it was not even connected, so that it has got nothing of the request.
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
            | Self::Failed { .. } => "peer_unavailable",
        }
    }

    /// The error for somebody who may not learn which names the server's network has: a name that is unknown looks like one that is refused.
    #[must_use]
    pub fn concealed(self) -> Self {
        match self {
            Self::UnknownName { host, .. } => Self::RefusedName { host },
            other => other,
        }
    }

    /// Whether the policy refused it: trying again does not help.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::RefusedName { .. } | Self::BadUrl(_))
    }

    /// Whether the peer has got nothing of the request: it can be sent again without being taken twice.
    #[must_use]
    pub fn is_unreached(&self) -> bool {
        match self {
            Self::Failed { is_unreached, .. } | Self::TimedOut { is_unreached, .. } => {
                *is_unreached
            }
            Self::TooLarge { .. } => false,
            Self::Refused { .. }
            | Self::RefusedName { .. }
            | Self::UnknownName { .. }
            | Self::BadUrl(_) => true,
        }
    }

    /// What an operator can do about it.
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
