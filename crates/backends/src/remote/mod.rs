//! Agents at another server, for all protocols.
//!
//! Each run here has a run at the server. Its events are logged as they arrive, its question suspends the run here, the answer resumes the run at the server, and after a restart this server finds it again.
//! Each protocol implements how to begin, resume and find a run ([`RemoteBackend`]) and how to read its events ([`RemoteTurn`]).

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
    RemoteBackend, RemoteEnding, RemoteTurn, RemoteUpdate, abandon, read_state, run, state,
};

/// How long a server may take to describe or list its agents.
pub const DESCRIPTION_TIME: Duration = Duration::from_secs(5);

/// The address of an agent: its server, its name there, and the credential to use.
#[derive(Clone, Debug)]
pub struct Remote {
    pub server: Arc<AgentServer>,
    /// The agent's name or id at the server.
    pub agent: String,
    /// Sent to that server and nowhere else: redirects are not followed.
    pub credential: Option<Credential>,
}

// === impl Remote ===

impl Remote {
    /// Returns a transport to the server, with the credential.
    pub(crate) fn transport(&self) -> Arc<RemoteTransport> {
        let Self { server, credential, .. } = self.clone();
        Arc::new(RemoteTransport { server, credential })
    }

    /// Returns whether the agent can be used, from the last known state of its server. `is_missing` means that the server does not have the agent.
    pub(crate) fn availability(&self, is_missing: bool) -> Availability {
        match self.server.availability() {
            Availability::Available if is_missing => {
                Availability::unavailable("agent not found on its server")
            }
            known => known,
        }
    }

    /// Waits at most [`DESCRIPTION_TIME`] for the server's description of its agent.
    ///
    /// # Errors
    /// `peer_unavailable`, with the reason, if the server does not give it in time.
    pub(crate) async fn await_description<T>(
        &self,
        asked: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T> {
        let wanted = format!("say what its agent '{}' is", self.agent);
        await_answer(&self.server, &wanted, asked).await
    }
}

/// Waits at most [`DESCRIPTION_TIME`] for the answer to a request. `wanted` describes the request and completes "the server does not …".
///
/// # Errors
/// `peer_unavailable`, with the reason, if the request fails or takes too long.
pub(crate) async fn await_answer<T>(
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
