use std::net::IpAddr;
use std::time::Duration;

use crate::address::AddressClass;

/// Why an outbound request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error("'{host}' stands for the {class} address {address}, which may not be reached")]
    Refused {
        /// What was asked for.
        host: String,
        /// What it stands for.
        address: IpAddr,
        class: AddressClass,
    },
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
    },
    /// The peer could not be reached, or broke the protocol.
    #[error("'{host}' could not be reached: {reason}")]
    Failed {
        /// Who was asked.
        host: String,
        reason: String,
    },
}

// === impl Error ===

impl Error {
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::BadUrl(_) => "egress_refused",
            Self::TooLarge { .. } | Self::TimedOut { .. } | Self::Failed { .. } => {
                "peer_unavailable"
            }
        }
    }

    /// What an operator can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { address, .. } => {
                Some(format!("an operator may allow it: add \"{address}\" to [egress] allow"))
            }
            _ => None,
        }
    }
}
