//! Agents behind another server, whatever its protocol.
//!
//! A run here is a run there: its events are logged as they come, its question suspends the run, its answer resumes the one there, and after a restart it is found again.
//! A protocol brings its side of that: how a run is begun, resumed and found ([`RemoteBackend`]), and what it tells ([`RemoteTurn`]).

mod attempt;
mod directory;
mod failure;
mod follower;
mod memory;
mod message_ids;
mod resources;
pub mod server;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_runtime::Availability;
use trilogue_sdk::client::{ClientError, Credential};

pub(crate) use attempt::{attempt, is_unreached};
pub use directory::{AgentListing, Directory, ListedAgent, Refresh};
pub(crate) use memory::{RemoteMemory, bind, log_position, memory};
pub use resources::{MAX_RESOURCE_BYTES, RESOURCE_TIME};
use server::AgentServer;
pub use server::RemoteTransport;
pub(crate) use turn::{
    RemoteBackend, RemoteEnding, RemoteNews, RemoteTurn, abandon, read_state, run, state,
};

/// How long a server may take to say what its agent is, when this server starts.
pub const DESCRIPTION_TIME: Duration = Duration::from_secs(5);

/// Where an agent is, and how its server is talked to.
#[derive(Clone, Debug)]
pub struct Remote {
    pub server: Arc<AgentServer>,
    /// The agent's name or id there.
    pub agent: String,
    /// Sent to that server and nowhere else: redirects are not followed.
    pub credential: Option<Credential>,
}

// === impl Remote ===

impl Remote {
    /// The way to the server.
    pub(crate) fn transport(&self) -> Arc<RemoteTransport> {
        let Self { server, credential, .. } = self.clone();
        Arc::new(RemoteTransport { server, credential })
    }

    /// Whether the agent can be used, as far as is known; `is_missing` says that its server has no such agent.
    pub(crate) fn availability(&self, is_missing: bool) -> Availability {
        match self.server.availability() {
            Availability::Available if is_missing => {
                Availability::unavailable("its server has no such agent")
            }
            known => known,
        }
    }

    /// What the server says of its agent, waited for at most [`DESCRIPTION_TIME`].
    ///
    /// # Errors
    /// `peer_unavailable` with why it does not say.
    pub(crate) async fn described<T>(
        &self,
        asked: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T> {
        let wanted = format!("say what its agent '{}' is", self.agent);
        answered_in_time(&self.server, &wanted, asked).await
    }
}

/// What a server answers that is asked to do this, waited for at most [`DESCRIPTION_TIME`].
///
/// # Errors
/// `peer_unavailable` with why it does not do it.
pub(crate) async fn answered_in_time<T>(
    server: &AgentServer,
    wanted: &str,
    asked: impl Future<Output = Result<T, ClientError>>,
) -> Result<T> {
    let why = match timeout(DESCRIPTION_TIME, asked).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", DESCRIPTION_TIME.as_secs()),
    };
    let message = format!("the server {server} does not {wanted}: {why}");
    Err(Error::new(Code::PeerUnavailable, message))
}
