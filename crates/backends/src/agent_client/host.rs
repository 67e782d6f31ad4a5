//! Where an agent runs: in a child process of this server, or behind a connection to another server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio::time::timeout;
use trilogue_domain::error::{Code, Error};
use trilogue_sdk::agent_client::network::{
    AgentUrl, ConnectError, ConnectionEnd, ConnectionOptions,
};
use trilogue_sdk::agent_client::peer::{self, Handler, Peer};

use super::failure::{AgentFailure, NOT_AN_AGENT_HINT};
use super::launch::Launch;
use crate::child::{
    CapturedOutput, Child, ChildInput, ChildOutput, Children, Confinement, EXIT_GRACE, Layers,
    Program, STEP, StartedChild, how_it_exited, output_tail, sandbox_hint,
};

const NO_AGENT_THERE_HINT: &str =
    "check that the address is that of an agent of the Agent Client Protocol";

/// An agent's process, or its connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum AgentHost {
    Child(Child),
    Remote(RemoteHost),
}

/// The connection to an agent at another server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteHost(Arc<RemoteState>);

#[derive(Debug)]
struct RemoteState {
    url: String,
    end: ConnectionEnd,
    /// It has none: this is for those who show the output of processes.
    stderr: CapturedOutput,
    /// The lines that were not messages.
    stray: CapturedOutput,
}

/// A host that has started, and its streams of messages.
pub(super) struct StartedHost {
    pub(super) host: AgentHost,
    streams: HostStreams,
}

enum HostStreams {
    Child(ChildOutput, ChildInput),
    Remote(DuplexStream, DuplexStream),
}

// === impl StartedHost ===

impl StartedHost {
    /// Starts the agent's program, or connects to its server.
    pub(super) async fn start(
        agent: &str,
        launch: &Launch,
        (cwd, folders): (&Path, &[PathBuf]),
        children: &Children,
    ) -> Result<Self, AgentFailure> {
        if let Some(remote) = &launch.remote {
            return connect(agent, &remote.url, launch, children).await;
        }
        let program = Program {
            name: agent,
            command: &launch.command,
            cwd,
            env: &launch.env,
            inherit: &launch.inherit,
            confinement: Confinement {
                sandbox: &launch.sandbox,
                folders,
                private: &launch.private,
            },
            can_outlive: launch.outlive,
            broker: Some(&launch.network),
        };
        Ok(Self::adopt(children.start(program).await?))
    }

    /// A program of a previous server.
    pub(super) fn adopt(started: StartedChild) -> Self {
        let streams = HostStreams::Child(started.output, started.input);
        Self { host: AgentHost::Child(started.child), streams }
    }

    /// Starts the exchange of messages.
    pub(super) fn into_peer(self, handler: Arc<dyn Handler>, options: peer::Options) -> Peer {
        match self.streams {
            HostStreams::Child(read, write) => Peer::start(read, write, handler, options),
            HostStreams::Remote(read, write) => Peer::start(read, write, handler, options),
        }
    }
}

/// Connects to an agent's server. The connection ends with this server.
async fn connect(
    agent: &str,
    url: &AgentUrl,
    launch: &Launch,
    children: &Children,
) -> Result<StartedHost, AgentFailure> {
    let Some(closed) = children.wait_for_close() else {
        let message = "the server is shutting down and connects to no agents";
        return Err(Error::new(Code::ShuttingDown, message).into());
    };
    let options = ConnectionOptions {
        connect_timeout: launch.start_timeout,
        max_message_bytes: launch.max_line_bytes,
        ..ConnectionOptions::default()
    };
    let opened = url.connect(&options).await.map_err(|error| unreached(agent, error))?;
    let (end, url) = (opened.end, url.to_string());
    let closing = end.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = closed => closing.abort(),
            _ = closing.wait() => {}
        }
    });
    let captured = |stream| CapturedOutput::new(stream, std::iter::empty());
    let (stderr, stray) = (captured("standard error"), captured("connection"));
    let host = AgentHost::Remote(RemoteHost(Arc::new(RemoteState { url, end, stderr, stray })));
    Ok(StartedHost { host, streams: HostStreams::Remote(opened.read, opened.write) })
}

fn unreached(agent: &str, error: ConnectError) -> AgentFailure {
    let ConnectError { message, hint, status, .. } = error;
    let message = format!("the agent '{agent}' is not available: {message}");
    let error = Error::new(Code::PeerUnavailable, message);
    let hint = match status {
        Some(401 | 403) => Some(format!("check `agents.{agent}.token_env` or `token_file`")),
        _ => hint,
    };
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
    .into()
}

// === impl AgentHost ===

impl AgentHost {
    pub(crate) fn child(&self) -> Option<&Child> {
        match self {
            Self::Child(child) => Some(child),
            Self::Remote(_) => None,
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().and_then(Child::pid)
    }

    /// The variables of its process.
    pub(crate) fn env(&self) -> &[(String, String)] {
        self.child().map_or(&[], Child::env)
    }

    pub(crate) fn captured(&self) -> &CapturedOutput {
        match self {
            Self::Child(child) => child.captured(),
            Self::Remote(remote) => &remote.0.stderr,
        }
    }

    pub(crate) fn stray_output(&self) -> &CapturedOutput {
        match self {
            Self::Child(child) => child.stray_output(),
            Self::Remote(remote) => &remote.0.stray,
        }
    }

    pub(crate) fn clear_output(&self) {
        match self {
            Self::Child(child) => child.clear_output(),
            Self::Remote(remote) => remote.0.stray.clear(),
        }
    }

    /// Redacts these secrets wherever its output is shown.
    pub(crate) fn hide<'a>(&self, values: impl IntoIterator<Item = &'a str>) {
        match self {
            Self::Child(child) => child.hide(values),
            Self::Remote(remote) => remote.0.stray.hide(values.into_iter()),
        }
    }

    pub(crate) async fn has_descendants(&self) -> bool {
        match self {
            Self::Child(child) => child.has_descendants().await,
            Self::Remote(_) => false,
        }
    }

    pub(crate) fn has_exited(&self) -> bool {
        match self {
            Self::Child(child) => child.has_exited(),
            Self::Remote(remote) => remote.0.end.reason().is_some(),
        }
    }

    pub(crate) async fn exited(&self) {
        match self {
            Self::Child(child) => drop(child.exited().await),
            Self::Remote(remote) => drop(remote.0.end.wait().await),
        }
    }

    /// Returns a verb phrase that completes "the agent …". Waits at most [`EXIT_GRACE`] for the end.
    pub(crate) async fn how_it_exited(&self) -> String {
        match self {
            Self::Child(child) => how_it_exited(child).await,
            Self::Remote(remote) => {
                let url = &remote.0.url;
                match timeout(EXIT_GRACE, remote.0.end.wait()).await {
                    Ok(reason) => {
                        format!("is not connected any more: the connection to {url} {reason}")
                    }
                    Err(_) => format!("sends nothing more over the connection to {url}"),
                }
            }
        }
    }

    /// Returns the end of its output, for an error.
    pub(crate) fn output_tail(&self) -> String {
        match self {
            Self::Child(child) => output_tail(child),
            Self::Remote(_) => String::new(),
        }
    }

    /// Returns the layers of its sandbox.
    pub(crate) fn layers(&self) -> Layers {
        self.child().map_or(Layers::NONE, Child::layers)
    }

    /// Returns the failure of an agent that this server cannot talk to.
    pub(super) fn incompatible(&self, message: String) -> AgentFailure {
        match self {
            Self::Child(child) => {
                let hint = sandbox_hint(child.layers(), &message).unwrap_or(NOT_AN_AGENT_HINT);
                AgentFailure::incompatible(message, hint)
            }
            // Over HTTP, the server is reached with the first message, so the certificate is refused only then.
            Self::Remote(remote) => match remote.0.end.hint() {
                Some(hint) => AgentFailure::incompatible(message, hint),
                None => AgentFailure::incompatible(message, NO_AGENT_THERE_HINT),
            },
        }
    }

    /// Waits until it ends by itself, as after its input was closed, and ends it otherwise.
    pub(crate) async fn stop(&self) {
        match self {
            Self::Child(child) => drop(child.stop().await),
            Self::Remote(remote) => {
                if timeout(STEP, remote.0.end.wait()).await.is_err() {
                    remote.0.end.abort();
                }
            }
        }
    }

    pub(crate) async fn kill(&self) {
        match self {
            Self::Child(child) => drop(child.kill().await),
            Self::Remote(remote) => remote.0.end.abort(),
        }
    }

    pub(crate) fn begin_stop(&self) {
        match self {
            Self::Child(child) => child.begin_stop(),
            Self::Remote(remote) => remote.0.end.abort(),
        }
    }
}
