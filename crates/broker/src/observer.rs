//! Questions about hosts, and records of connections, for the server of an agent.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::host_rules::HostPort;
use crate::usage::RequestUsage;

/// Answers questions about hosts, and takes records. Its functions do not block.
pub trait BrokerObserver: Send + Sync + fmt::Debug {
    /// Decides about a host that no setting allows. Questions about one host are asked once at a time. Dropped if the process is gone.
    fn ask(&self, target: &HostPort) -> BoxFuture<'static, NetworkAnswer>;

    /// Takes the record of a connection that has ended or was refused.
    fn record(&self, record: ConnectionRecord);

    /// Takes what a request to a provider has used.
    fn record_usage(&self, usage: RequestUsage);
}

/// The answer to a question about a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkAnswer {
    /// Whether the connections that wait may begin.
    pub is_allowed: bool,
    /// Who answered, for the record: a person, a rule, or why no answer came.
    pub by: String,
}

/// A connection of a process that has ended, or was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionRecord {
    /// The name of the host, or its address without brackets.
    pub host: String,
    /// The port of the host.
    pub port: u16,
    /// How the process asked for it.
    pub kind: ConnectionKind,
    /// What became of it.
    pub outcome: ConnectionOutcome,
    /// The pattern, the person or the rule that decided, if one did.
    pub by: Option<String>,
    /// The bytes from the process to the host.
    pub sent_bytes: u64,
    /// The bytes from the host to the process.
    pub received_bytes: u64,
    /// From the request to the end, with the wait for an answer.
    pub duration: Duration,
    /// The records before this one that were left out, because the process made too many.
    pub omitted: u64,
}

/// How a process asks for a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionKind {
    /// A tunnel by CONNECT.
    Connect,
    /// A tunnel by SOCKS5.
    Socks5,
    /// A request with a whole `http://` address.
    Http,
    /// A request with the key of this name.
    Key(String),
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectionOutcome {
    /// Everything is allowed.
    Open,
    /// A pattern of the settings allows it.
    Listed,
    /// A person or a rule has allowed it.
    Answered,
    /// No setting allows it, or a person or a rule has refused it.
    Refused,
    /// It is beyond the ceiling of the operator.
    Ceiling,
    /// Its address is one that agents never reach.
    Address,
    /// What it carried names another host.
    Mismatch,
    /// The host could not be reached.
    Unreachable,
    /// Too many questions are open.
    Limit,
}

// === impl ConnectionKind ===

impl ConnectionKind {
    /// Returns the word for records.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Socks5 => "socks5",
            Self::Http => "http",
            Self::Key(_) => "key",
        }
    }
}

// === impl ConnectionOutcome ===

impl ConnectionOutcome {
    /// Returns the word for records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Listed => "listed",
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Ceiling => "ceiling",
            Self::Address => "address",
            Self::Mismatch => "mismatch",
            Self::Unreachable => "unreachable",
            Self::Limit => "limit",
        }
    }

    /// Whether the host was reached.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Open | Self::Listed | Self::Answered)
    }
}
