//! Takes the connections of a process.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use trilogue_egress::{Authorities, Client, Error, Options, Policy};

use crate::access::AgentAccess;
use crate::connection;
use crate::decision::Decisions;
use crate::observer::BrokerObserver;
use crate::prices::PriceTable;
use crate::state::BrokerState;

/// The connections of a process that are open at once. Further ones wait until one ends.
pub const MAX_CONNECTIONS: usize = 512;
/// How long connecting to a host may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a provider may be silent: a model may think for minutes.
const PROVIDER_IDLE: Duration = Duration::from_secs(600);
/// How long no connection is accepted after the system has refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The proxy of all agents of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Broker(Arc<BrokerState>);

/// What the operator has set for all agents.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// The addresses that agents may reach.
    pub addresses: Policy,
    /// Authorities of certificates of providers, in addition to those of the system.
    pub authorities: Authorities,
    /// What tokens cost.
    pub prices: PriceTable,
    /// How long a tunnel may carry nothing.
    pub idle: Duration,
}

/// Serves a process until it is dropped: its connections end with it.
#[derive(Debug)]
pub struct BrokerGuard {
    decisions: Arc<Decisions>,
    ended: CancellationToken,
}

// === impl BrokerOptions ===

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            addresses: Policy::default(),
            authorities: Authorities::default(),
            prices: PriceTable::default(),
            idle: Duration::from_secs(600),
        }
    }
}

// === impl Broker ===

impl Broker {
    /// # Errors
    /// [`Error::Failed`] if the authorities of certificates cannot be loaded.
    pub fn new(options: BrokerOptions) -> Result<Self, Error> {
        let BrokerOptions { addresses, authorities, prices, idle } = options;
        let host_options = Options { connect_timeout: CONNECT_TIMEOUT, ..Options::default() };
        let provider_options = Options {
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: PROVIDER_IDLE,
            total_timeout: None,
            // It streams through, and is never held.
            max_response_bytes: u64::MAX,
            authorities,
            ..Options::default()
        };
        let hosts = Client::new(addresses, host_options)?;
        let providers = Client::new(Policy::anywhere(), provider_options)?;
        Ok(Self(Arc::new(BrokerState { hosts, providers, prices, idle })))
    }

    /// Serves the connections of a process on its listener.
    #[must_use]
    pub fn serve(
        &self,
        listener: TcpListener,
        access: AgentAccess,
        observer: Arc<dyn BrokerObserver>,
    ) -> BrokerGuard {
        let ended = CancellationToken::new();
        let decisions = Arc::new(Decisions::new(access, observer, ended.clone()));
        let accepting =
            accept(Arc::clone(&self.0), listener, Arc::clone(&decisions), ended.clone());
        tokio::spawn(accepting);
        BrokerGuard { decisions, ended }
    }
}

impl PartialEq for Broker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Broker {}

/// Accepts connections until the process is gone.
async fn accept(
    broker: Arc<BrokerState>,
    listener: TcpListener,
    decisions: Arc<Decisions>,
    ended: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accepting = async {
        loop {
            // Before the connection: what has no place waits in the queue of the system.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (broker, decisions) = (Arc::clone(&broker), Arc::clone(&decisions));
                    let ended = ended.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            () = ended.cancelled() => {}
                            () = connection::serve(stream, &broker, &decisions) => {}
                        }
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection of an agent was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = ended.cancelled() => {}
        () = accepting => {}
    }
}

// === impl BrokerGuard ===

impl BrokerGuard {
    /// Replaces what the process may reach. Open connections stay.
    pub fn set_access(&self, access: AgentAccess) {
        self.decisions.set_access(access);
    }
}

impl Drop for BrokerGuard {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}
