//! Tunnels to hosts. Their first bytes must not name another host.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_egress::Error;

use crate::access::NetworkAccess;
use crate::decision::{Decision, Decisions};
use crate::host_rules::HostPort;
use crate::observer::{ConnectionKind, ConnectionOutcome, ConnectionRecord};
use crate::refusal::BrokerRefusal;
use crate::relay::{RelayedBytes, relay};
use crate::state::BrokerState;

/// The most first bytes that are looked at, of a handshake of TLS or of a request.
const MAX_FIRST_BYTES: usize = 16 * 1024;
/// How long the first bytes may take until they are complete.
const FIRST_BYTES_TIME: Duration = Duration::from_secs(5);
/// The first byte of a handshake of TLS.
const TLS_HANDSHAKE: u8 = 0x16;
/// The most fields of a request that are looked at.
const MAX_FIELDS: usize = 64;

/// A connection to a host that a process may use. Dropping it writes its record.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    decisions: Arc<Decisions>,
    target: HostPort,
    kind: ConnectionKind,
    decision: Decision,
    begin: Instant,
    pub(crate) bytes: RelayedBytes,
}

/// What the first bytes of a tunnel say about their host.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NamedHost {
    Incomplete,
    /// Nothing that can be seen.
    Hidden,
    Named(String),
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
        let decision = match broker.hosts.check_literal(&target.host) {
            Ok(()) => decisions.decide(&target).await,
            Err(_) => Decision::of(ConnectionOutcome::Address),
        };
        let is_allowed = decision.outcome.is_allowed();
        let bytes = RelayedBytes::default();
        let decisions = Arc::clone(decisions);
        let mut open = Self { decisions, target, kind, decision, begin, bytes };
        if !is_allowed {
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
        let is_limited = matches!(self.decisions.access().network, NetworkAccess::Listed { .. });
        if is_limited {
            let first = match first_bytes(&mut client, &host).await {
                Some((first, named)) if self.fits(&named) => first,
                Some(_) => {
                    self.decision.outcome = ConnectionOutcome::Mismatch;
                    return;
                }
                None => return,
            };
            if timeout(idle, host.write_all(&first)).await.is_err() {
                return;
            }
            self.bytes.sent.fetch_add(first.len() as u64, Ordering::Relaxed);
        }
        relay(client, host, idle, &self.bytes).await;
    }

    /// Whether a tunnel may carry bytes for this host.
    fn fits(&self, named: &NamedHost) -> bool {
        let NamedHost::Named(name) = named else { return true };
        if self.target.is_named(name) {
            return true;
        }
        // A tunnel to an address carries what may be reached by its name too.
        let NetworkAccess::Listed { allow, .. } = &self.decisions.access().network else {
            return true;
        };
        self.target.is_address()
            && HostPort::new(name, self.target.port)
                .is_some_and(|named| allow.find(&named).is_some())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.decisions.observer().record(ConnectionRecord {
            host: self.target.host.clone(),
            port: self.target.port,
            kind: self.kind.clone(),
            outcome: self.decision.outcome,
            by: self.decision.by.take(),
            sent_bytes: self.bytes.sent.load(Ordering::Relaxed),
            received_bytes: self.bytes.received.load(Ordering::Relaxed),
            duration: self.begin.elapsed(),
        });
    }
}

/// Reads the first bytes of a client, until they show their host or cannot. None come before a host that speaks first. `None` if the client is gone.
async fn first_bytes(
    client: &mut (impl AsyncRead + Unpin),
    host: &TcpStream,
) -> Option<(BytesMut, NamedHost)> {
    let mut first = BytesMut::with_capacity(1024);
    let reading = async {
        loop {
            tokio::select! {
                biased;
                read = client.read_buf(&mut first) => match read {
                    Ok(count) if count > 0 => {}
                    _ => return None,
                },
                _ = host.readable(), if first.is_empty() => return Some(NamedHost::Hidden),
            }
            match named_host(&first) {
                NamedHost::Incomplete if first.len() < MAX_FIRST_BYTES => {}
                NamedHost::Incomplete => return Some(NamedHost::Hidden),
                named => return Some(named),
            }
        }
    };
    let named = timeout(FIRST_BYTES_TIME, reading).await;
    match named {
        Ok(named) => named.map(|named| (first, named)),
        Err(_) => Some((first, NamedHost::Hidden)),
    }
}

/// Finds the host that the first bytes of a tunnel name.
fn named_host(first: &[u8]) -> NamedHost {
    match first.first() {
        None => NamedHost::Incomplete,
        Some(&TLS_HANDSHAKE) => host_of_handshake(first),
        Some(byte) if byte.is_ascii_uppercase() => host_of_request(first),
        Some(_) => NamedHost::Hidden,
    }
}

fn host_of_handshake(first: &[u8]) -> NamedHost {
    let mut acceptor = Acceptor::default();
    let mut rest = first;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return NamedHost::Hidden;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                return name.map_or(NamedHost::Hidden, NamedHost::Named);
            }
            Ok(None) => {}
            Err(_) => return NamedHost::Hidden,
        }
    }
    NamedHost::Incomplete
}

fn host_of_request(first: &[u8]) -> NamedHost {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(first) {
        Ok(httparse::Status::Partial) => NamedHost::Incomplete,
        Err(_) => NamedHost::Hidden,
        Ok(httparse::Status::Complete(_)) => {
            let host = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
            let text = host.and_then(|field| std::str::from_utf8(field.value).ok());
            let authority = text.and_then(|text| text.parse::<http::uri::Authority>().ok());
            authority.map_or(NamedHost::Hidden, |authority| {
                NamedHost::Named(authority.host().to_owned())
            })
        }
    }
}
