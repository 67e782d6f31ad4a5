//! What `serve`, `demo` and `user-server` share: options, the start, and the end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trilogue::config::{self, Cidr, List, Log, LogFormat, Mount, Options};
use trilogue::local::{LocalListener, LogFile, ServerRecord, StartedBy, UserServerDir, start};
use trilogue::{App, Listeners, Report};
use trilogue_domain::Code;

use crate::command::port_owner;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::print;

/// Options that override a server's configuration.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Listen at this address instead, such as 127.0.0.1:7878. May be given several times; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Use this store instead: `memory:`, `sqlite:PATH` or `postgres://…`.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Serve without tokens. Only on loopback.
    #[arg(long)]
    no_auth: bool,
    /// Serve a protocol at this prefix instead, such as communication=/. May be given several times.
    #[arg(long, value_name = "PROTOCOL=PREFIX")]
    mount: Vec<Mount>,
    /// Enforce the documents of the Agent Communication Protocol and of the Agent Client Protocol literally, for clients and for agents.
    #[arg(long)]
    strict: bool,
    /// Also do what the Agent Connect Protocol's document says where the official client cannot read it, wherever that protocol is served: the mount option `as_documented`.
    #[arg(long)]
    as_documented: bool,
    /// Let the server call these private addresses too, such as 127.0.0.1 or 10.0.0.0/8, for callbacks and for histories on other servers.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    allow_egress: Vec<Cidr>,
    /// Write the server's addresses to this file when it is ready, one per line.
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
}

/// The listener by which programs find a server, and its log.
#[derive(Debug)]
pub(crate) struct ServerPlace {
    pub(crate) local_listener: LocalListener,
    /// Where the log goes besides standard error, with the settings of that file's log.
    pub(crate) log_file: Option<(LogFile, Log)>,
    /// Whether another port may replace one that is in use.
    pub(crate) any_port: bool,
}

/// The signals that stop a server.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Overrides ===

impl Overrides {
    /// Overrides settings, and returns their keys with the options that set them.
    pub(crate) fn apply(&self, options: &mut Options) -> Vec<(&'static str, &'static str)> {
        let mut set = Vec::new();
        if !self.listen.is_empty() {
            options.server.listen = List(self.listen.clone());
            set.push(("server.listen", "--listen"));
        }
        if let Some(store) = &self.store {
            options.store.url.clone_from(store);
            set.push(("store.url", "--store"));
        }
        if self.no_auth {
            options.server.no_auth = true;
            set.push(("server.no_auth", "--no-auth"));
        }
        if !self.mount.is_empty() {
            options.mount_instead(&self.mount);
            set.push(("mounts", "--mount"));
        }
        if self.strict {
            options.enforce_documents();
            set.extend([("mounts", "--strict"), ("client.strict", "--strict")]);
        }
        if self.as_documented {
            options.connect_as_documented();
            set.push(("mounts", "--as-documented"));
        }
        if !self.allow_egress.is_empty() {
            options.egress.allow.0.extend(&self.allow_egress);
            set.push(("egress.allow", "--allow-egress"));
        }
        set
    }

    /// Whether the command line sets the addresses.
    pub(crate) fn says_where(&self) -> bool {
        !self.listen.is_empty()
    }

    /// The same options in another working directory.
    pub(crate) fn with_absolute_paths(&self) -> std::io::Result<Self> {
        let mut overrides = self.clone();
        if let Some(path) = self.store.as_deref().and_then(|url| url.strip_prefix("sqlite:")) {
            // An empty path stays empty, so that the check of the settings refuses it.
            if let Ok(path) = std::path::absolute(path) {
                overrides.store = Some(format!("sqlite:{}", path.display()));
            }
        }
        overrides.port_file = self.port_file.as_deref().map(std::path::absolute).transpose()?;
        Ok(overrides)
    }

    /// Starts a server, calls `ready`, and serves until a signal comes.
    pub(crate) async fn serve(
        &self,
        options: &Options,
        place: ServerPlace,
        json: bool,
        ready: impl FnOnce(&App) -> Result,
    ) -> Result {
        let signals = Signals::listen()?;
        config::check(options)?;
        let ServerPlace { mut local_listener, log_file, any_port } = place;
        let _log = match &log_file {
            Some((file, log)) => {
                let opened = file.open().map_err(|error| {
                    CliError::failure(format!("cannot write {}: {error}", file.path().display()))
                })?;
                let guard = trilogue::server::logging::start_with_file(&options.log, log, opened)?;
                local_listener.set_log(file.path());
                tokio::spawn(file.clone().keep_bounded());
                guard
            }
            None => trilogue::server::logging::start(&options.log)?,
        };
        let listeners = bind(options, any_port).await?;
        for (address, why) in &listeners.left_out {
            match options.log.format.is_json() {
                true => tracing::info!(%address, why, "not listening there"),
                false => print::note(&format!("not listening on {address}: {why}")),
            }
        }
        let agents = trilogue::Agents::new();
        let app = App::build_behind(local_listener, options, agents, listeners).await?;
        if let Some(why) = app.local_listener().explain() {
            match options.log.format.is_json() {
                true => tracing::info!(why, "not found by the programs of this user"),
                false => print::note(&why),
            }
        }
        if let Some(file) = &self.port_file {
            write_addresses(file, app.addresses())?;
        }
        if json {
            let files: Vec<_> =
                app.token_files().iter().map(|it| it.display().to_string()).collect();
            print::json(&json!({ "listen": app.addresses(), "token_files": files }))?;
        } else {
            ready(&app)?;
        }
        run(app, signals, options.log.format).await
    }
}

/// The folder of this user's server.
pub(crate) fn user_server_dir() -> Result<UserServerDir> {
    UserServerDir::of_user().map_err(|error| {
        CliError::usage(format!("cannot find the state folder: {error}")).hint("set XDG_STATE_HOME")
    })
}

/// Becomes this user's server, unless another process is.
///
/// # Errors
/// If the folder cannot be used.
pub(crate) async fn claim(
    dir: &UserServerDir,
    started_by: StartedBy,
) -> Result<Result<LocalListener, Option<ServerRecord>>> {
    let in_dir = dir.clone();
    let opened =
        tokio::task::spawn_blocking(move || LocalListener::open_in(&in_dir, started_by)).await;
    match opened {
        Ok(LocalListener::Taken(by)) => Ok(Err(by)),
        Ok(LocalListener::Failed(error)) => {
            Err(CliError::failure(format!("cannot use {}: {error}", dir.folder().display())))
        }
        Ok(opened) => Ok(Ok(opened)),
        Err(_) => Err(CliError::failure("cannot read the folder of the user's server")),
    }
}

/// Listens at the configured addresses, or on any free loopback port if one of them is in use and `any_port` allows that.
pub(crate) async fn bind(options: &Options, any_port: bool) -> Result<Listeners> {
    let error = match Listeners::bind(&options.server).await {
        Err(error) if error.code() == Code::AlreadyExists => error,
        bound => return Ok(bound?),
    };
    let taken = options.server.listen.0.iter().find_map(|address| {
        Some(format!("the address {address} is in use by {}", user_of(*address)?))
    });
    let message = taken.unwrap_or_else(|| error.message().to_owned());
    if !any_port {
        return Err(CliError { message: message.into(), ..CliError::from(error) });
    }
    print::note(&format!("{message}: listening on any free port"));
    let mut server = options.server.clone();
    server.listen = List(vec![([127, 0, 0, 1], 0).into()]);
    Ok(Listeners::bind(&server).await?)
}

/// The program that listens on an address, in words.
pub(crate) fn user_of(address: SocketAddr) -> Option<String> {
    let own = UserServerDir::of_user().ok().and_then(|dir| start::running(&dir));
    let own = own.filter(|record| record.addresses.contains(&address.to_string()));
    own.map(|record| format!("your server, {record}")).or_else(|| port_owner::program_at(address))
}

/// Serves until a signal comes or the server ends by itself.
/// A signal that stops a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopSignal {
    Terminate,
    /// From Ctrl-C or `trilogue stop`.
    Interrupt,
}

pub(crate) async fn run(app: App, signals: Signals, format: LogFormat) -> Result {
    let (first, second) = signals.split();
    let end_agents = app.end_agents();
    let stopped = async move {
        // A service manager starts the server again, and a person who stops it means its agents too.
        if first.await == StopSignal::Interrupt {
            end_agents();
        }
    };
    let served = app.run(stopped);
    tokio::select! {
        report = served => log_report(&report?, format),
        // A second signal means not to wait for runs.
        _ = second => return Err(CliError::new(ExitStatus::Interrupted, "stopped without waiting")),
    }
    Ok(())
}

/// Reports the work that the stop left unfinished.
fn log_report(report: &Report, format: LogFormat) {
    let ids = |runs: &[trilogue_domain::RunId]| {
        runs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    if format.is_json() {
        tracing::info!(
            abandoned = ids(&report.abandoned),
            waiting = ids(&report.waiting),
            dropped_connections = report.dropped_connections,
            "the server has stopped"
        );
        return;
    }
    if !report.abandoned.is_empty() {
        print::note(&format!("lost at the deadline: {}", ids(&report.abandoned)));
    }
    if !report.waiting.is_empty() {
        print::note(&format!("still waiting for an answer: {}", ids(&report.waiting)));
    }
    if report.dropped_connections > 0 {
        print::note(&format!("connections dropped: {}", report.dropped_connections));
    }
    print::note("stopped");
}

/// Writes the file atomically: its readers wait for it to appear.
fn write_addresses(file: &Path, addresses: &[SocketAddr]) -> Result {
    let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let draft = file.with_extension("new");
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, file))
        .map_err(|error| CliError::failure(format!("cannot write {}: {error}", file.display())))
}

// === impl Signals ===

impl Signals {
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| CliError::failure(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Resolve at the first and at the second signal.
    fn split(
        mut self,
    ) -> (
        impl Future<Output = StopSignal> + Send + 'static,
        impl Future<Output = StopSignal> + Send + 'static,
    ) {
        let (first, first_received) = tokio::sync::oneshot::channel();
        let (second, second_received) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let signal = self.next().await;
            // The receiver is gone when the server has ended by itself.
            let _ = first.send(signal);
            let signal = self.next().await;
            let _ = second.send(signal);
        });
        (received(first_received), received(second_received))
    }

    async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}

async fn received(signal: tokio::sync::oneshot::Receiver<StopSignal>) -> StopSignal {
    match signal.await {
        Ok(signal) => signal,
        Err(_) => std::future::pending().await,
    }
}
