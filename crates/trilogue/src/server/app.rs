//! The server as a value: built from options and listeners, run until a shutdown signal.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use trilogue_backends::child::Children;
use trilogue_domain::error::Result;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Code, Error, Principal, Rights, RunId};
use trilogue_egress::{Client, Policy};
use trilogue_gateway::callback::Sender;
use trilogue_gateway::{
    AuditEvent, CallbackDelivery, CallbackSecrets, ClientOptions, ClientProtocol, HistoryFetch,
    Ports, Scheme, Server, TraceExporter,
};
use trilogue_mapping::agent_client::OriginalReader;
use trilogue_mapping::communication::strict::CommunicationRules;
use trilogue_runtime::Runtime;
use trilogue_store::Store;

use crate::config::{self, Options, Secret};
use crate::local::token_file;
use crate::local::{IDLE_EXIT, IdleExit, LocalListener, StartedBy, WrappedCommands};
use crate::server::agents::{
    self, Agents, Announcement, ConfiguredAgents, RefreshTasks, RemoteAgents,
};
use crate::server::listen::Listeners;
use crate::server::otlp::Tracing;
use crate::server::serve::ServeOptions;
use crate::server::{callback_secret, descriptor, first_token, logging, notify};

const CALLBACK_CONNECT_LIMIT: Duration = Duration::from_secs(5);
const CALLBACK_TIME_LIMIT: Duration = Duration::from_secs(10);
const MAX_CALLBACK_RESPONSE_BYTES: u64 = 1024 * 1024;

/// A server that is ready to run.
#[derive(Debug)]
pub struct App {
    gateway: trilogue_gateway::Options,
    mounts: Vec<trilogue_gateway::Mount>,
    client: ClientOptions,
    ports: Ports,
    store: Arc<dyn Store>,
    listeners: Listeners,
    token_files: Vec<PathBuf>,
    shutdown_deadline: Duration,
    local_listener: LocalListener,
    children: Arc<Children>,
    /// The principal of local connections.
    owner: Principal,
    idle_exit: Option<Duration>,
    /// Asks servers elsewhere for their agents.
    refresh_tasks: RefreshTasks,
    /// Tells the other servers of agents that join.
    announcement: Announcement,
    traces: Option<Arc<TraceExporter>>,
    /// The settings that differ from their defaults, as the audit lines of the start show them.
    settings_in_force: Vec<(String, String)>,
}

/// The work that a shutdown left unfinished.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Runs that were running at the deadline and ended as lost.
    pub abandoned: Vec<RunId>,
    /// Runs that wait for an answer, which the next server can take.
    pub waiting: Vec<RunId>,
    /// Connections that were dropped at the deadline.
    pub dropped_connections: u64,
}

/// Serves these agents beside those of the options until SIGTERM or Ctrl-C.
///
/// Prints a line `listening: http://ADDRESS` for each address when it is ready. Logs go to standard error. The server writes its token to the per-user state folder, where the command line finds it.
///
/// # Errors
/// When the options would expose the server, an address or the store cannot be used, or an agent's name or schema is not valid.
pub async fn serve(agents: impl Into<Agents>, serve: impl Into<ServeOptions>) -> Result<()> {
    let ServeOptions { options } = serve.into();
    config::check(&options)
        .map_err(|error| Error::new(Code::InvalidRequest, error.to_string()).hint(error.hint))?;
    let _log = logging::start(&options.log)?;
    let listeners = Listeners::bind(&options.server).await?;
    let app = App::build(&options, agents.into(), listeners).await?;
    if let Some(why) = app.local_listener().explain() {
        tracing::info!(why, "not found by the programs of this user");
    }
    announce(app.addresses());
    let report = app.run(stop_signal()).await?;
    tracing::info!(
        abandoned = report.abandoned.len(),
        waiting = report.waiting.len(),
        "the server has stopped"
    );
    Ok(())
}

/// Checks the parts of the options that need no start: agents, log level, the store's kind, addresses.
pub fn check(options: &Options) -> Result<()> {
    let mounts = options.mounts_in_force()?;
    let descriptors = descriptor::of_files(options)?;
    agents::check_names(&agents::build_agents(options, &descriptors)?, &mounts)?;
    agents::schemes(options)?;
    logging::check(&options.log)?;
    Tracing::of(&options.telemetry.otlp)?;
    trilogue_store::check_url(&options.store.url)?;
    options.store.check()?;
    options.cluster.check()?;
    if node_name(options).is_some() {
        options.cluster.check_listener(options.server.listen.0.first())?;
    }
    let url = options.server.public_url.as_deref();
    if let Some(text) = url.filter(|text| !is_web_address(text) || text.contains(['?', '#'])) {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("`server.public_url` is not a web address: '{}'", text.escape_debug()),
        )
        .hint("write it with its scheme, such as \"https://agents.example.com\""));
    }
    config::check_hosts_and_origins(&options.server)?;
    options.agent_registry.to_url()?;
    Ok(())
}

fn is_web_address(text: &str) -> bool {
    url::Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

// === impl App ===

impl App {
    /// Opens the store, recovers what the last server left, and prepares to serve on these listeners. Raises the process's soft limit of open files.
    ///
    /// # Errors
    /// When the store cannot be opened or recovered, an agent is not valid, two agents share a name, mounts collide, or the token file cannot be written.
    pub async fn build(options: &Options, agents: Agents, listeners: Listeners) -> Result<Self> {
        let local_listener = LocalListener::open(&options.server, StartedBy::Library);
        Self::build_behind(local_listener, options, agents, listeners).await
    }

    /// The same with a local listener that was opened before.
    pub async fn build_behind(
        local_listener: LocalListener,
        options: &Options,
        agents: Agents,
        listeners: Listeners,
    ) -> Result<Self> {
        check(options)?;
        trilogue_gateway::raise_descriptor_limit();
        trilogue_gateway::install_recorder(node_name(options));
        hide_process();
        let state = token_file::state_dir();
        if let Ok(state) = &state {
            token_file::check_owner(state).map_err(|error| {
                Error::new(Code::InvalidRequest, format!("cannot use the state folder: {error}"))
                    .hint("set XDG_STATE_HOME to a folder that only this user can read")
            })?;
        }
        // Ends child processes that the last server left before new ones start.
        let folder = state.as_ref().ok().cloned();
        let children = Children::open_for(folder, &options.store.url).await?;
        let built =
            Self::build_with(&children, state, local_listener, options, agents, listeners).await;
        if built.is_err() {
            children.close().await;
        }
        built
    }

    /// The same with these children, which the caller closes if it fails.
    async fn build_with(
        children: &Arc<Children>,
        state: io::Result<PathBuf>,
        mut local_listener: LocalListener,
        options: &Options,
        agents: Agents,
        listeners: Listeners,
    ) -> Result<Self> {
        let policy = options.egress.to_policy();
        children.set_budget(options.runtime.to_budget());
        if let Some(name) = node_name(options) {
            children.set_node(name);
        }
        let descriptors = descriptor::load(options, &policy, state.as_deref().ok()).await?;
        let elsewhere = RemoteAgents::find(options, children).await?;
        let ConfiguredAgents { agents: mut backends, mut schedules } =
            agents::build_agents_with(options, &descriptors, &elsewhere, children)?;
        agents::log_sandboxes(options);
        schedules.extend(elsewhere.into_schedules());
        backends.extend(agents.into_backends()?);
        let mounts = options.mounts_in_force()?;
        agents::check_names(&backends, &mounts)?;
        let egress = Client::new(policy.clone(), trilogue_egress::Options::default())
            .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
        let originals: Arc<dyn ReadOriginal> = Arc::new(OriginalReader);
        if node_name(options).is_some() {
            options.cluster.check_listener(listeners.addresses.first())?;
        }
        let node = options.cluster.to_node(listeners.addresses.first())?;
        let store_options = trilogue_store::Options {
            reader: Arc::clone(&originals),
            node: Some(node),
            ..options.store.to_options()?
        };
        let store = Box::pin(trilogue_store::open(&options.store.url, store_options)).await?;
        children.adopt_held().await?;
        let clock = store.clock();
        let token_files = match options.server.no_auth {
            true => Vec::new(),
            false => {
                let state = state.as_deref().map_err(|error| {
                    Error::new(
                        Code::InvalidRequest,
                        format!("cannot find the state folder: {error}"),
                    )
                    .hint("set XDG_STATE_HOME to a folder that only this user can read")
                })?;
                let now = clock.now();
                first_token::ensure(store.as_ref(), state, &listeners.addresses, now).await?
            }
        };
        let (tenant, id) = first_token::owner()?;
        let tracing = Tracing::of(&options.telemetry.otlp)?;
        let tracing = tracing.map(|tracing| match node_name(options) {
            Some(name) => tracing.of_node(name),
            None => tracing,
        });
        let trace_ratio = tracing.as_ref().map(|tracing| tracing.options.sample_ratio);
        let traces = tracing.map(|tracing| export_traces(tracing, &store)).transpose()?;
        let agent_schemes = agents::schemes(options)?;
        let anonymous = trilogue_gateway::anonymous(tenant.clone())?;
        let takes_anybody = agent_schemes.values().any(|it| it.contains(&Scheme::None));
        // The others know it before this server takes threads.
        agents::announce(&backends, store.as_ref()).await?;
        let runtime = Runtime::start(
            trilogue_runtime::Options {
                // These callers have no token whose rights could be checked when queued work starts.
                local_principal: match options.server.no_auth {
                    true => Some(id.clone()),
                    false => takes_anybody.then(|| anonymous.id.clone()),
                },
                callback_attempts: options.callbacks.attempts,
                callback_backoff: options.callbacks.backoff.0,
                callback_backoff_max: options.callbacks.max_backoff.0,
                max_part_metadata_bytes: options.server.limits.max_part_metadata.to_usize(),
                notify: options.notify.is_on(),
                trace_ratio,
                ended_runs: traces.clone().map(|traces| traces as _),
                ..options.runtime.to_options()
            },
            Arc::clone(&store),
            backends,
            Arc::clone(&clock),
            originals,
        )
        .await?;
        children.end_unclaimed();
        runtime.check_output_with(Arc::new(CommunicationRules));
        runtime.fetch_with(Arc::new(HistoryFetch::new(egress.clone())));
        let owner = Principal { tenant, id, rights: Rights::all(), own: false };
        let connect = mounts.iter().filter(|mount| mount.protocol == config::Protocol::Connect);
        let prefixes: Vec<String> = connect.map(|mount| mount.path()).collect();
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let announcement = Announcement::start(runtime.clone(), Arc::clone(&store) as _);
        let refresh_tasks = RefreshTasks::start(schedules, &runtime, &mounts);
        let inspector = options.inspector.path(&mounts);
        let mounts = config::to_gateway(&mounts, &client_options(options))?;
        let callback_secrets = callback_secrets(options, state.as_deref().ok())?;
        let usual = options.server.to_options(owner.clone(), config::overrides(options));
        let gateway = trilogue_gateway::Options {
            has_nodes: store.node().is_some(),
            node_name: node_name(options).unwrap_or_default().to_owned(),
            allowed_hosts: usual
                .allowed_hosts
                .iter()
                .cloned()
                .chain(options.cluster.host())
                .collect(),
            agent_schemes,
            callback_secrets: callback_secrets.clone(),
            store_url: trilogue_store::redacted_url(&options.store.url),
            inspector,
            anonymous: takes_anybody.then_some(anonymous),
            ..usual
        };
        let ports = Ports {
            runtime,
            read: Arc::clone(&store) as _,
            tokens: Arc::clone(&store) as _,
            admin: Arc::clone(&store) as _,
            configurations: Arc::clone(&store) as _,
            queue: Arc::clone(&store) as _,
            clock,
            egress,
            agent_processes: Arc::new(agents::HostedProcesses(Arc::clone(children))),
        };
        let sender = callback_sender(policy, callback_secrets)?;
        notify::start(&options.notify, &ports, &owner, &sender);
        let delivery =
            CallbackDelivery::new(&gateway, &listeners.addresses, &prefixes, &ports, sender);
        ports.runtime.deliver_with(Arc::new(delivery));
        local_listener
            .announce(&listeners.addresses, &trilogue_store::redacted_url(&options.store.url));
        let idle_exit = idle_exit(&options.server, &local_listener);
        let shutdown_deadline = options.server.shutdown_deadline.0;
        Ok(Self {
            client: client_options(options),
            gateway,
            mounts,
            ports,
            store,
            listeners,
            token_files,
            shutdown_deadline,
            local_listener,
            children: Arc::clone(children),
            owner,
            idle_exit,
            refresh_tasks,
            announcement,
            traces,
            settings_in_force: settings_in_force(options),
        })
    }

    /// Whether the programs of the user find this server.
    #[must_use]
    pub fn local_listener(&self) -> &LocalListener {
        &self.local_listener
    }

    /// Returns the addresses on which the server listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.listeners.addresses
    }

    /// Returns the token file of each address; empty if the server needs no token.
    #[must_use]
    pub fn token_files(&self) -> &[PathBuf] {
        &self.token_files
    }

    /// Returns what ends the agents with the server when it stops. Without it, turns outlive a stop.
    pub fn end_agents(&self) -> impl FnOnce() + Send + 'static {
        let children = Arc::clone(&self.children);
        move || children.end_with_server()
    }

    /// Serves until `shutdown` is ready. Then it refuses new runs, waits for running ones until the deadline, and closes connections and the store.
    ///
    /// # Errors
    /// When a listener exposes more than the options allow, or the store cannot be closed cleanly.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<Report> {
        for (key, value) in &self.settings_in_force {
            trilogue_gateway::audit(AuditEvent::SettingInForce, None, key, value);
        }
        let runtime = self.ports.runtime.clone();
        let server =
            Server::start(self.gateway, &self.mounts, self.ports, self.listeners.listeners)?;
        if let LocalListener::Open(claim) = &mut self.local_listener {
            let listener = claim.listener().map_err(|error| {
                Error::new(Code::Internal, format!("cannot listen on the local socket: {error}"))
            })?;
            let wrapped = Arc::new(WrappedCommands::new(runtime, Arc::clone(&self.children)));
            if let Some(listener) = listener {
                let protocol = ClientProtocol::new(self.client, wrapped);
                server.listen_local(listener, &protocol, self.owner)?;
            }
        }
        let connections = server.local_connections();
        let idle = self
            .idle_exit
            .map(|limit| IdleExit { connections, store: Arc::clone(&self.store), limit }.wait());
        tokio::select! {
            () = shutdown => {}
            () = async move { if let Some(idle) = idle { idle.await } else { std::future::pending().await } } => {
                tracing::info!("the server is idle and stops");
            }
        }
        // Dropping them ends their tasks before the runtime stops.
        drop((self.refresh_tasks, self.announcement));
        let left = server.shutdown(self.shutdown_deadline).await;
        self.children.close().await;
        if let Some(traces) = &self.traces {
            traces.close().await;
        }
        self.store.close().await?;
        // After the store: the claim in it lets the user's next server start.
        drop(self.local_listener);
        Ok(Report {
            abandoned: left.runs.abandoned,
            waiting: left.runs.waiting,
            dropped_connections: left.dropped_connections,
        })
    }
}

/// The name that distinguishes this server in metrics and traces if several servers can share its store.
fn node_name(options: &Options) -> Option<&str> {
    trilogue_store::takes_nodes(&options.store.url).then_some(options.cluster.name.as_str())
}

/// The settings that differ from their defaults, so that the audit lines of two starts can be compared.
fn settings_in_force(options: &Options) -> Vec<(String, String)> {
    let mut defaults = Options::default();
    for (name, agent) in &options.agents {
        // Each agent is compared with the defaults of its kind.
        defaults.agents.insert(name.clone(), config::Agent::of(agent.kind));
    }
    let defaults = config::settings(&defaults, None, &[]);
    let mut settings = config::settings(options, None, &[]);
    settings.retain(|setting| {
        !defaults.iter().any(|it| it.key == setting.key && it.value == setting.value)
    });
    let shown = settings.into_iter().map(|config::Setting { key, value, .. }| {
        // Arguments, the addresses of notices and queries of addresses may hold secrets.
        let is_private = key.ends_with(".command") || key.starts_with("notify.");
        let is_address = value.contains("://") && value.contains(['?', '@']);
        (key, if is_private || is_address { "(not shown)".to_owned() } else { value })
    });
    shown.collect()
}

/// Hides this process's memory and environment from other programs of its user, such as the agents that it starts.
fn hide_process() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(%error, "other programs of this user can read the server's memory");
        }
    }
}

/// The options for editors, with room for the longest lines that agents may send.
fn client_options(options: &Options) -> ClientOptions {
    let client = options.client.to_options();
    let lines = options.agents.values().map(|agent| agent.max_line.to_usize());
    // The envelope and its ids make a line longer, but never twice as long.
    let longest = lines.max().unwrap_or(0).saturating_mul(2);
    ClientOptions { max_sent_bytes: client.max_sent_bytes.max(longest), ..client }
}

/// Sends the runs that end to a collector.
fn export_traces(tracing: Tracing, store: &Arc<dyn Store>) -> Result<Arc<TraceExporter>> {
    let options = tracing.options;
    Ok(TraceExporter::start(options, tracing.collector()?, Arc::clone(store) as _))
}

fn idle_exit(server: &config::Server, local_listener: &LocalListener) -> Option<Duration> {
    let LocalListener::Open(claim) = local_listener else { return None };
    let by_default = (claim.record().started_by == StartedBy::OnDemand).then_some(IDLE_EXIT);
    let set = server.idle_exit.map(|span| span.0);
    set.or(by_default).filter(|limit| !limit.is_zero())
}

fn callback_sender(policy: Policy, secrets: CallbackSecrets) -> Result<Sender> {
    let client = trilogue_egress::Options {
        connect_timeout: CALLBACK_CONNECT_LIMIT,
        total_timeout: Some(CALLBACK_TIME_LIMIT),
        // Only the status of a receiver's response is read.
        max_response_bytes: MAX_CALLBACK_RESPONSE_BYTES,
        ..trilogue_egress::Options::default()
    };
    let client = Client::new(policy, client)
        .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
    Ok(Sender::new(client, secrets))
}

/// Returns the secrets from which the keys of callbacks are derived: the configured ones, otherwise the one in the state folder.
fn callback_secrets(options: &Options, state: Option<&Path>) -> Result<CallbackSecrets> {
    let mut secrets: Vec<_> = options.callbacks.secrets.0.iter().map(Secret::key).collect();
    if secrets.is_empty() {
        let secret = match state {
            Some(state) => callback_secret::ensure(state).map_err(|error| {
                Error::new(
                    Code::InvalidRequest,
                    format!("cannot use the callback secret: {error}"),
                )
                .hint("set `callbacks.secrets`, or XDG_STATE_HOME to a folder that only this user can read")
            })?,
            None => {
                tracing::warn!("callbacks are signed with a temporary secret: the server has no state folder");
                Secret::generate().ok_or_else(|| {
                    Error::new(Code::Internal, "the system provides no random bytes")
                })?
            }
        };
        secrets.push(secret.key());
    }
    Ok(CallbackSecrets::new(secrets))
}

/// Prints the server's addresses. An error is ignored, so that the server also runs without a reader of standard output.
fn announce(addresses: &[SocketAddr]) {
    let mut to = std::io::stdout().lock();
    for address in addresses {
        if writeln!(to, "listening: http://{address}").is_err() {
            return;
        }
    }
    // The reader of the output may be gone, and the server runs without it.
    drop(to.flush());
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        // Without a handler the signal ends the process by itself.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
