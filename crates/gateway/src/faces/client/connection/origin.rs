//! Where a client is, and what it may do.

use std::path::PathBuf;
use std::sync::Arc;

use trilogue_domain::{Principal, RequestSource, TokenId};

use crate::access::authenticator::Caller;
use crate::core::opened_folders::OpenedFolders;

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

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientTransport {
    LocalSocket,
    WebSocket,
    Http,
}

// === impl ClientTransport ===

impl ClientTransport {
    /// Returns its name in the native API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::LocalSocket => "local",
            Self::WebSocket => "websocket",
            Self::Http => "http",
        }
    }
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

    /// Returns the source of the client's requests. It decides which folders of this machine they may name.
    pub(crate) const fn source(&self) -> RequestSource {
        match self {
            Self::Local { .. } => RequestSource::LocalSocket,
            Self::Network(_) => RequestSource::Network,
        }
    }

    /// Returns the client's token, if it needed one.
    pub(crate) const fn token(&self) -> Option<&TokenId> {
        match self {
            Self::Local { .. } => None,
            Self::Network(caller) => caller.token.as_ref(),
        }
    }

    /// Returns the folders of this machine that the client may name in addition to the roots of its agent. A local client needs none of them.
    pub(crate) fn folders(&self, opened: &OpenedFolders) -> Vec<PathBuf> {
        match self {
            Self::Local { .. } => Vec::new(),
            Self::Network(caller) => opened.of(&caller.principal),
        }
    }
}
