//! The server: listeners, connections, shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal};
use trilogue_runtime::{DrainReport, HandOverAll};
use trilogue_wire::native::Status;

use crate::access::authenticator::Authenticator;
use crate::access::failed_sign_ins::FailedSignIns;
use crate::access::origin_guard::OriginGuard;
use crate::access::peer_filter::PeerFilter;
use crate::core::audit::{FailureLimit, RefusalLimits};
use crate::core::descriptors;
use crate::core::exposure::Exposure;
use crate::core::lifecycle::Lifecycle;
use crate::core::log_throttle::LogThrottle;
use crate::core::meters::{self, Meters};
use crate::core::opened_folders::OpenedFolders;
use crate::core::options::{Access, Options};
use crate::core::ports::Ports;
use crate::core::render_turns::RenderTurns;
use crate::core::scheme::Scheme;
use crate::face::{Protocol, Services};
use crate::faces::native;
use crate::http::connection::{self, ConnectionServer};
use crate::http::connections::Connections;
use crate::http::forward::Forwarder;
use crate::http::node_client::NodeClient;
use crate::http::receive::BodyBudget;
use crate::local::LocalAcceptor;
use crate::mounts::{self, Mount, MountedViews, Router, open_local};
use crate::pipeline::{MAX_SEARCHES_PER_PRINCIPAL, Pipeline};
use crate::stream::Streams;
use crate::tcp::TcpAcceptor;
use trilogue_runtime::shares::Shares;

/// How long a server keeps its open connections after handing over its threads: a request may be on its way or in progress. Longer than the idle timeout of the proxies in our examples, so that they close first.
const LAST_REQUESTS_WAIT: Duration = Duration::from_millis(1_500);
/// How often the server checks whether any connection is left.
const LAST_REQUESTS_LOOK: Duration = Duration::from_millis(20);
/// The most large responses of one principal that are rendered at once; further ones wait.
const MAX_LARGE_RESPONSES: usize = 2;
/// How often recorded metrics are folded together.
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Server {
    services: Services,
    native: Arc<native::State>,
    addresses: Vec<SocketAddr>,
    local_connections: Arc<watch::Sender<usize>>,
    tasks: TaskTracker,
    accept_end: CancellationToken,
    /// Stops clients from sending further requests on their connections.
    last_requests: CancellationToken,
    /// Ends connections.
    connections_end: CancellationToken,
    drop_connections: CancellationToken,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShutdownReport {
    pub runs: DrainReport,
    /// Connections that were still open at the deadline and were dropped.
    pub dropped_connections: u64,
}

// === impl Server ===

impl Server {
    /// Serves these mounts and the native face on these listeners. Needs a Tokio runtime.
    ///
    /// # Errors
    /// `invalid_request` if a listener is reachable from further away than the options allow, with the fix; as [`crate::check_mounts`].
    pub fn start(
        options: Options,
        mounts: &[Mount],
        ports: Ports,
        listeners: Vec<TcpListener>,
    ) -> Result<Self> {
        let addresses: std::io::Result<Vec<_>> =
            listeners.iter().map(TcpListener::local_addr).collect();
        let addresses = addresses.map_err(|error| {
            Error::new(Code::Internal, format!("a listener has no address: {error}"))
        })?;
        check_exposure(&options, &addresses)?;
        check_schemes(&options)?;
        let mounts = mounts::with_inspector(mounts, &options)?;
        let services = services(options, ports)?;
        let address = services.options.address(&addresses);
        let views = Arc::new(MountedViews::new(&mounts, &services, &address));
        let native = Arc::new(native::State::new(&services, views));
        let pipeline = Arc::new(pipeline(&services, Arc::clone(&native), &mounts, &addresses)?);
        let server = Self {
            local_connections: Arc::new(watch::Sender::new(0)),
            tasks: TaskTracker::new(),
            accept_end: CancellationToken::new(),
            last_requests: CancellationToken::new(),
            connections_end: CancellationToken::new(),
            drop_connections: CancellationToken::new(),
            addresses,
            native,
            services,
        };
        let options = &server.services.options;
        let connections = connections(options);
        let peers = PeerFilter::of(&options.exposure);
        let connection_server = ConnectionServer {
            options: Arc::clone(options),
            meters: Arc::clone(&server.services.meters),
            builder: Arc::new(connection::builder(options)),
            anonymous_budget: BodyBudget::anonymous(connection::MAX_ANONYMOUS_BYTES),
            last_requests: server.last_requests.clone(),
            stop: server.connections_end.clone(),
        };
        for (listener, address) in listeners.into_iter().zip(&server.addresses) {
            let acceptor = TcpAcceptor {
                pipeline: Arc::clone(&pipeline),
                server: connection_server.clone(),
                connections: Arc::clone(&connections),
                peers: peers.clone().filter(|_| reaches_out(*address)),
                tasks: server.tasks.clone(),
                accept_end: server.accept_end.clone(),
                drop_connections: server.drop_connections.clone(),
                failures: LogThrottle::default(),
                refusals: LogThrottle::default(),
            };
            server.tasks.spawn(acceptor.run(listener));
        }
        if let Some(heard) = server.services.ports.runtime.subscribe_to_peers() {
            let authenticator = Arc::clone(&server.services.authenticator);
            let end = server.connections_end.clone();
            server.tasks.spawn(async move {
                end.run_until_cancelled(authenticator.hear_revocations(heard)).await;
            });
        }
        let accept_end = server.accept_end.clone();
        server.tasks.spawn(async move {
            while tokio::time::timeout(UPKEEP, accept_end.cancelled()).await.is_err() {
                meters::upkeep();
            }
        });
        Ok(server)
    }

    /// Serves this protocol on a local socket, in the name of this principal. Accepts only programs of the server's own user, and not those of the agents that it hosts. Call it before anything else uses the server.
    ///
    /// # Errors
    /// `invalid_request` if the protocol has no local connections.
    pub fn listen_local(
        &self,
        listener: UnixListener,
        protocol: &dyn Protocol,
        owner: Principal,
    ) -> Result<()> {
        let address = self.services.options.address(&self.addresses);
        let local = LocalAcceptor {
            face: open_local(protocol, &self.services, &address)?,
            owner: Arc::new(owner),
            agent_processes: Arc::clone(&self.services.ports.agent_processes),
            connections: Arc::clone(&self.local_connections),
            tasks: self.tasks.clone(),
            accept_end: self.accept_end.clone(),
            connections_end: self.connections_end.clone(),
            drop_connections: self.drop_connections.clone(),
        };
        self.tasks.spawn(local.run(listener));
        Ok(())
    }

    /// Returns the number of programs that are connected through [`Server::listen_local`]; it changes as they come and go.
    pub fn local_connections(&self) -> watch::Receiver<usize> {
        self.local_connections.subscribe()
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the status of the server.
    pub async fn status(&self) -> Result<Status> {
        self.native.status().await
    }

    /// Stops the server. In order: reports not ready, hands its threads over to other nodes, lets runs end until the deadline, accepts no new connections, ends streams and then connections, and reports what it abandoned.
    ///
    /// Handing over takes at most half of the time. Until then the server works as before, and forwards requests that belong to other nodes.
    pub async fn shutdown(self, deadline: Duration) -> ShutdownReport {
        let began = Instant::now();
        self.services.lifecycle.drain();
        self.last_requests.cancel();
        let runtime = &self.services.ports.runtime;
        if runtime.hand_over_all(deadline / 2).await == HandOverAll::Done {
            self.accept_end.cancel();
            self.last_requests_answered().await;
        }
        let runs = runtime.drain(deadline.saturating_sub(began.elapsed())).await;
        self.accept_end.cancel();
        self.services.lifecycle.end_streams();
        self.connections_end.cancel();
        self.tasks.close();
        let grace = self.services.options.connection_grace;
        let mut dropped_connections = 0;
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            dropped_connections = self.services.meters.connections.get();
            self.drop_connections.cancel();
            self.tasks.wait().await;
        }
        ShutdownReport { runs, dropped_connections }
    }

    /// Waits until no connection is open, except those of streams, of long waits and of silent clients.
    async fn last_requests_answered(&self) {
        let closed = async {
            loop {
                // The listeners first accept the connections in their queues.
                tokio::time::sleep(LAST_REQUESTS_LOOK).await;
                if self.services.meters.connections.get() == 0 {
                    return;
                }
            }
        };
        drop(tokio::time::timeout(LAST_REQUESTS_WAIT, closed).await);
    }
}

fn connections(options: &Options) -> Arc<Connections> {
    let max_connections = descriptors::connection_cap(options.max_connections);
    Connections::new(max_connections, options)
}

/// Whether other machines can reach a listener on this address.
fn reaches_out(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

fn check_exposure(options: &Options, addresses: &[SocketAddr]) -> Result<()> {
    let Some(public) = addresses.iter().find(|address| reaches_out(**address)) else {
        return Ok(());
    };
    if matches!(options.access, Access::Open(_)) {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("{public} is reachable from other machines, and authentication is off"),
        )
        .hint("listen on 127.0.0.1 and [::1] only, or leave authentication on: remove `server.no_auth`"));
    }
    if options.exposure == Exposure::Loopback {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("{public} is reachable from other machines, and would be unencrypted"),
        )
        .hint("listen on 127.0.0.1 and [::1] only; or put a proxy that encrypts in front and name its address in `server.trusted_proxies`; or accept the risk with `server.dangerously_plain_http = true`"));
    }
    Ok(())
}

/// Refuses authentication schemes that the server cannot enforce.
fn check_schemes(options: &Options) -> Result<()> {
    let wants_more = |schemes: &[Scheme]| !schemes.contains(&Scheme::None);
    let names_none = |schemes: &[Scheme]| schemes.contains(&Scheme::None);
    let agent = |is: &dyn Fn(&[Scheme]) -> bool| {
        options.agent_schemes.iter().find(|(_, schemes)| is(schemes)).map(|(name, _)| name)
    };
    match &options.access {
        Access::Open(_) => match agent(&wants_more) {
            Some(name) => Err(Error::new(
                Code::InvalidRequest,
                format!("the agent '{name}' wants its callers to show who they are, and authentication is off"),
            )
            .hint("leave authentication on: remove `server.no_auth`; or remove `authentication` from the agent")),
            None => Ok(()),
        },
        Access::Tokens => match agent(&names_none) {
            Some(name) if options.anonymous.is_none() => Err(Error::new(
                Code::InvalidRequest,
                format!("the agent '{name}' takes callers without a token, and `anonymous` is not set"),
            )
            .hint("set `anonymous`")),
            _ => Ok(()),
        },
    }
}

fn services(options: Options, ports: Ports) -> Result<Services> {
    let options = Arc::new(options);
    let (tokens, clock) = (Arc::clone(&ports.tokens), Arc::clone(&ports.clock));
    let authenticator = Arc::new(Authenticator::new(&options, tokens, clock)?);
    let lifecycle = Arc::new(Lifecycle::begin(ports.clock.now()));
    let meters = Arc::new(Meters::new());
    let streams = Streams::new(&options, &ports, &authenticator, &lifecycle, &meters);
    let body_budget = BodyBudget::of(&options);
    let open_request_budget = BodyBudget::of_open_requests(&options);
    let response_budget = BodyBudget::of_responses(&options);
    let kept_budget = BodyBudget::of_kept_messages(&options);
    let forwarder = options.has_nodes.then(Forwarder::new).transpose()?;
    let node_client =
        forwarder.as_ref().map(|forwarder| Arc::new(NodeClient::new(forwarder, &ports)));
    Ok(Services {
        forwarder,
        node_client,
        ports,
        options,
        authenticator,
        lifecycle,
        meters,
        body_budget,
        open_request_budget,
        response_budget,
        kept_budget,
        streams: Arc::new(streams),
        common_states: Arc::default(),
    })
}

fn pipeline(
    services: &Services,
    native: Arc<native::State>,
    mounts: &[Mount],
    addresses: &[SocketAddr],
) -> Result<Pipeline> {
    let Services { options, authenticator, meters, ports, body_budget, response_budget, .. } =
        services;
    let durability = ports.admin.durability();
    let weak = (durability != "fsync").then(|| HeaderValue::from_static(durability));
    Ok(Pipeline {
        guard: OriginGuard::new(
            &options.allowed_hosts,
            &options.allowed_origins,
            addresses,
            options.inspector.as_ref().map(|prefix| format!("{prefix}/")),
        ),
        authenticator: Arc::clone(authenticator),
        router: Router::new(native, mounts, services, &options.address(addresses))?,
        meters: Arc::clone(meters),
        agent_processes: Arc::clone(&ports.agent_processes),
        weak_durability: weak,
        failures: FailureLimit::default(),
        failed_sign_ins: FailedSignIns::new(options.max_failed_sign_ins),
        agent_refusals: RefusalLimits::default(),
        request_refusals: RefusalLimits::default(),
        opened_folders: OpenedFolders::clone(&services.common_state()),
        options: Arc::clone(options),
        body_budget: Arc::clone(body_budget),
        response_budget: Arc::clone(response_budget),
        turns: RenderTurns::new(MAX_LARGE_RESPONSES),
        requests: Shares::new(options.max_requests_each()),
        searches: Shares::new(MAX_SEARCHES_PER_PRINCIPAL),
        forwarder: services.forwarder.clone(),
        admin: Arc::clone(&ports.admin),
    })
}
