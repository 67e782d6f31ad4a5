//! Starts the process of a server of agents, watches it and restarts it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_sdk::client::HttpTransport;

use super::agent_server::Probe;
use super::launch::{LaunchOnPort, ServerLaunch};
use crate::child::{
    Breaker, Child, ChildInput, Children, Confinement, Program, StartedChild, count_failure,
    how_it_exited, output_tail,
};

/// How long a starting server may take to answer one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before the second probe of a starting server. It doubles with each probe, up to [`MAX_PROBE_DELAY`].
const PROBE_DELAY: Duration = Duration::from_millis(20);
const MAX_PROBE_DELAY: Duration = Duration::from_millis(500);
/// The delay before a server is restarted. It doubles with each restart, up to [`MAX_RESTART_DELAY`], until the server runs for [`STABLE_TIME`].
const RESTART_DELAY: Duration = Duration::from_millis(100);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(10);
/// The run time after which a server counts as stable and the restart delay is reset.
const STABLE_TIME: Duration = Duration::from_secs(60);

/// Starts a server, keeps it running and gives its address. Dropping it stops the server.
pub(super) struct ServerProcess {
    supervisor: Arc<ProcessSupervisor>,
    state: watch::Sender<ServerState>,
    task: OnceLock<AbortHandle>,
}

#[derive(Clone, Debug)]
pub(super) enum ServerState {
    /// The server is being started, for the first time or after an exit.
    Starting,
    Running(Box<HttpTransport>),
    /// The server could not be started. The start is retried.
    Failed(Error),
}

struct ProcessSupervisor {
    /// The server's name in logs.
    name: String,
    launch: ServerLaunch,
    children: Arc<Children>,
    probe: Probe,
    breaker: Breaker,
}

/// A server that answers.
struct RunningServer {
    child: StopOnDrop,
    transport: HttpTransport,
    /// The server's standard input. Dropping it closes the input, so that the server can exit by itself.
    _input: ChildInput,
}

struct StopOnDrop(Child);

// === impl ServerProcess ===

impl ServerProcess {
    /// Creates the handle. Does not start the server.
    pub(super) fn new(
        name: String,
        launch: ServerLaunch,
        children: Arc<Children>,
        probe: Probe,
    ) -> Self {
        let breaker = Breaker::default();
        let supervisor = Arc::new(ProcessSupervisor { name, launch, children, probe, breaker });
        let state = watch::Sender::new(ServerState::Starting);
        Self { supervisor, state, task: OnceLock::new() }
    }

    /// Starts the server and keeps it running. Does nothing if it was started before. Returns at once.
    pub(super) fn start(&self) {
        self.task.get_or_init(|| {
            let (supervisor, state) = (Arc::clone(&self.supervisor), self.state.clone());
            tokio::spawn(async move { supervisor.keep_running(&state).await }).abort_handle()
        });
    }

    pub(super) fn launch(&self) -> &ServerLaunch {
        &self.supervisor.launch
    }

    pub(super) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    /// Returns a transport to the server. Starts it if needed, and waits for it at most `start_timeout`.
    /// Errors: why it could not be started, or `peer_unavailable` if it is still starting.
    pub(super) async fn transport(&self) -> Result<HttpTransport> {
        self.start();
        let mut state = self.state.subscribe();
        let started = state.wait_for(|state| !matches!(state, ServerState::Starting));
        // The state below shows whether it has started, so ignore a timeout.
        drop(timeout(self.launch().start_timeout, started).await);
        match self.state() {
            ServerState::Running(transport) => Ok(*transport),
            ServerState::Failed(error) => Err(error),
            ServerState::Starting => Err(Error::new(
                Code::PeerUnavailable,
                format!("{} is still being started", self.supervisor.subject()),
            )
            .hint("wait, or raise `start_timeout`")),
        }
    }

    /// Waits until the server runs. May wait forever.
    pub(super) async fn wait_until_running(&self) {
        self.wait_for(|state| matches!(state, ServerState::Running(_))).await;
    }

    /// Waits until the server runs or could not be started.
    pub(super) async fn wait_for_start(&self) {
        self.wait_for(|state| !matches!(state, ServerState::Starting)).await;
    }

    async fn wait_for(&self, is_there: impl FnMut(&ServerState) -> bool) {
        let mut state = self.state.subscribe();
        // The wait fails only if the sender is dropped, and `self` holds the sender.
        drop(state.wait_for(is_there).await);
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl fmt::Debug for ServerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerProcess")
            .field("name", &self.supervisor.name)
            .field("state", &self.state.borrow())
            .finish_non_exhaustive()
    }
}

// === impl ProcessSupervisor ===

impl ProcessSupervisor {
    async fn keep_running(&self, state: &watch::Sender<ServerState>) {
        let mut delay = RESTART_DELAY;
        while !self.children.is_closed() {
            let begun = Instant::now();
            match self.start().await {
                Ok(running) => {
                    state.send_replace(ServerState::Running(Box::new(running.transport.clone())));
                    let why = self.watch(&running.child.0).await;
                    state.send_replace(ServerState::Starting);
                    count_failure(&self.name);
                    self.breaker.record_failure(&why);
                }
                Err(error) => {
                    count_failure(&self.name);
                    self.breaker.record_failure(error.message());
                    if !self.children.is_closed() {
                        tracing::warn!(server = self.name, %error, "a server of agents could not be started");
                    }
                    state.send_replace(ServerState::Failed(error));
                }
            }
            if begun.elapsed() >= STABLE_TIME {
                delay = RESTART_DELAY;
            }
            sleep(delay).await;
            delay = (delay * 2).min(MAX_RESTART_DELAY);
            self.pause(state).await;
        }
    }

    /// Waits while the breaker is open because the server failed too often.
    async fn pause(&self, state: &watch::Sender<ServerState>) {
        while let Some(pause) = self.breaker.pause() {
            if let Err(error) = self.breaker.check(self.subject()) {
                state.send_replace(ServerState::Failed(error));
            }
            sleep(pause).await;
        }
    }

    /// Waits until the server exits, and stops its remaining descendants. Returns a message that says how it exited.
    async fn watch(&self, child: &Child) -> String {
        let exit = child.exited().await;
        child.stop().await;
        let why = format!("{} {exit}", self.subject());
        if !self.children.is_closed() {
            let stderr = output_tail(child);
            tracing::warn!(server = self.name, %exit, ?stderr, "a server of agents has exited and is started again");
        }
        why
    }

    async fn start(&self) -> Result<RunningServer> {
        self.breaker.check(self.subject())?;
        self.children.make_room().await?;
        let port = self.launch.port().map_err(|error| {
            Error::new(Code::Internal, format!("no free port for {}: {error}", self.subject()))
        })?;
        let LaunchOnPort { command, env, url } = self.launch.on(port);
        let folders = [self.launch.working_folder().await?];
        let program = Program {
            name: &self.name,
            command: &command,
            cwd: &self.launch.cwd,
            env: &env,
            inherit: &self.launch.inherit,
            confinement: Confinement {
                sandbox: &self.launch.sandbox,
                folders: &folders,
                private: &self.launch.private,
            },
            can_outlive: false,
            broker: None,
        };
        let StartedChild { child, input, output } = self.children.start(program).await?;
        let child = StopOnDrop(child);
        child.0.capture(&self.name, output);
        let transport = HttpTransport::to(&url)
            .map_err(|error| Error::new(Code::InvalidRequest, error.message))?;
        self.wait_for_answer(&child.0, &transport).await?;
        tracing::info!(server = self.name, url, pid = child.0.pid(), "a server of agents runs");
        Ok(RunningServer { child, transport, _input: input })
    }

    async fn wait_for_answer(&self, child: &Child, transport: &HttpTransport) -> Result<()> {
        let answer = async {
            let mut delay = PROBE_DELAY;
            while !self.probe.is_answered(transport, PROBE_TIMEOUT).await {
                sleep(delay).await;
                delay = (delay * 2).min(MAX_PROBE_DELAY);
            }
        };
        let limit = self.launch.start_timeout;
        let answered = tokio::select! {
            biased;
            _ = child.exited() => None,
            answered = timeout(limit, answer) => Some(answered),
        };
        // The message may show its output: a server that has not answered yet has received no data of a thread.
        let failed = |how: String| {
            let message = format!("{} {how}{}", self.subject(), output_tail(child));
            Error::new(Code::PeerUnavailable, message)
        };
        match answered {
            Some(Ok(())) => Ok(()),
            None => Err(failed(format!("{} during startup", how_it_exited(child).await))),
            Some(Err(_)) => Err(failed(format!(
                "did not answer {} within {} s of its start",
                self.probe.path(),
                limit.as_secs()
            ))
            .hint("check that the command listens on `{port}` of 127.0.0.1, and that `url` is where it serves the protocol; if it needs longer to start, raise `start_timeout`")),
        }
    }

    fn subject(&self) -> String {
        format!("the server of '{}'", self.name)
    }
}

// === impl StopOnDrop ===

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.begin_stop();
    }
}
