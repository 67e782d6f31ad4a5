//! Where a client is, and what it may do.

use std::sync::Arc;

use trilogue_domain::Principal;

use crate::access::authenticator::Caller;

/// Where a client is.
#[derive(Clone, Debug)]
pub(crate) enum ClientOrigin {
    /// A program that runs as the server's user and uses the local socket.
    Local {
        principal: Arc<Principal>,
        /// The program's process, if the system knows it.
        pid: Option<u32>,
    },
    /// A caller that reached the server over the network.
    Network(Caller),
}

// === impl ClientOrigin ===

impl ClientOrigin {
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        match self {
            Self::Local { principal, .. } => principal,
            Self::Network(caller) => &caller.principal,
        }
    }

    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Local { .. })
    }

    pub(crate) const fn pid(&self) -> Option<u32> {
        match self {
            Self::Local { pid, .. } => *pid,
            Self::Network(_) => None,
        }
    }
}
