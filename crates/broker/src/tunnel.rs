//! Tunnels to hosts. Their first bytes must not name another host.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_egress::Error;

use crate::access::NetworkAccess;
use crate::decision::{Decision, Decisions, refuse_beyond_ceiling};
use crate::first_bytes::{NamedHost, first_bytes};
use crate::host_rules::HostPort;
use crate::observer::{ConnectionKind, ConnectionOutcome, ConnectionRecord};
use crate::refusal::BrokerRefusal;
use crate::relay::{RelayedBytes, relay};
use crate::state::BrokerState;

/// A connection to a host that a process may use. Dropping it writes its record.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    decisions: Arc<Decisions>,
    target: HostPort,
    kind: ConnectionKind,
    decision: Decision,
    begin: Instant,
    pub(crate) bytes: Arc<RelayedBytes>,
}

// === impl OpenConnection ===

impl OpenConnection {
    /// Decides about a host, and connects to it.
    pub(crate) async fn open(
        broker: &BrokerState,
        decisions: &Arc<Decisions>,
        target: HostPort,
        kind: ConnectionKind,
    ) -> Result<(Self, TcpStream), BrokerRefusal> {
        let begin = Instant::now();
        let (decisions, bytes) = (Arc::clone(decisions), Arc::default());
        // What a client gives up while it waits is refused.
        let decision = Decision::of(ConnectionOutcome::Refused);
        let mut open = Self { decisions, target, kind, decision, begin, bytes };
        open.decision = match broker.hosts.check_literal(&open.target.host) {
            Ok(()) => open.decisions.decide(&open.target).await,
            Err(_) => Decision::of(ConnectionOutcome::Address),
        };
        if !open.decision.outcome.is_allowed() {
            return Err(open.refusal());
        }
        match broker.hosts.connect(&open.target.host, open.target.port).await {
            Ok(stream) => Ok((open, stream)),
            Err(error) => {
                tracing::debug!(%error, "an agent could not be connected");
                open.decision.outcome = match error {
                    Error::Refused { .. } | Error::RefusedName { .. } => ConnectionOutcome::Address,
                    _ => ConnectionOutcome::Unreachable,
                };
                Err(open.refusal())
            }
        }
    }

    fn refusal(&self) -> BrokerRefusal {
        BrokerRefusal::of_outcome(self.decision.outcome, &self.target)
    }

    pub(crate) fn target(&self) -> &HostPort {
        &self.target
    }

    /// Carries a tunnel, until one side ends it.
    pub(crate) async fn carry(
        mut self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        mut host: TcpStream,
        idle: Duration,
    ) {
        if self.is_limited() {
            let first = match first_bytes(&mut client, &host, idle).await {
                Some((first, named)) if self.fits(&named) => first,
                Some(_) => {
                    self.decision.outcome = ConnectionOutcome::Mismatch;
                    return;
                }
                None => return,
            };
            if !timeout(idle, host.write_all(&first)).await.is_ok_and(|written| written.is_ok()) {
                return;
            }
            self.bytes.sent.fetch_add(first.len() as u64, Ordering::Relaxed);
        }
        relay(client, host, idle, &self.bytes).await;
    }

    /// Whether some hosts are out of reach. Otherwise a tunnel may carry everything.
    fn is_limited(&self) -> bool {
        let access = self.decisions.access();
        access.ceiling.is_some() || matches!(access.network, NetworkAccess::Listed { .. })
    }

    /// Whether a tunnel may carry bytes for this host.
    fn fits(&self, named: &NamedHost) -> bool {
        match named {
            NamedHost::Incomplete | NamedHost::Hidden => true,
            NamedHost::Unreadable => false,
            NamedHost::Named(names) => names.iter().all(|name| self.fits_name(name)),
        }
    }

    fn fits_name(&self, name: &str) -> bool {
        if self.target.is_named(name) {
            return true;
        }
        // A tunnel to an address carries what may be reached by its name too.
        let access = self.decisions.access();
        let named = HostPort::new(name, self.target.port).filter(|_| self.target.is_address());
        named.is_some_and(|named| {
            refuse_beyond_ceiling(&access, &named).is_none()
                && match &access.network {
                    NetworkAccess::Open => true,
                    NetworkAccess::Listed { allow, .. } => allow.find(&named).is_some(),
                }
        })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.decisions.record(ConnectionRecord {
            host: self.target.host.clone(),
            port: self.target.port,
            kind: self.kind.clone(),
            outcome: self.decision.outcome,
            by: self.decision.by.take(),
            sent_bytes: self.bytes.sent.load(Ordering::Relaxed),
            received_bytes: self.bytes.received.load(Ordering::Relaxed),
            duration: self.begin.elapsed(),
            omitted: 0,
        });
    }
}
