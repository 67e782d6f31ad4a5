//! The first exchange with an agent: `initialize`.

use serde_json::value::RawValue;
use tokio::time::timeout;
use trilogue_domain::error::{Code, Error};
use trilogue_sdk::agent_client::peer::{self, Peer, RawJson};
use trilogue_wire::agent_client::{InitializeResponse, PROTOCOL_VERSION, Rules, read_result};

use super::profile::Profile;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::host::AgentHost;
use crate::agent_client::launch::Launch;
use crate::child::EXIT_GRACE;

/// Stops a process unless it was handed out.
struct AbortOnDrop {
    host: AgentHost,
    peer: Peer,
    is_armed: bool,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.peer.abort();
            self.host.begin_stop();
        }
    }
}

/// Initializes an agent. Stops its process if that fails or the caller gives up. Returns the response unchanged, and parsed.
pub(super) async fn initialize(
    agent: &str,
    (host, peer): (&AgentHost, &Peer),
    launch: &Launch,
    profile: &Profile,
) -> Result<(RawJson, InitializeResponse), AgentFailure> {
    let mut guard = AbortOnDrop { host: host.clone(), peer: peer.clone(), is_armed: true };
    let greeting = greet(agent, (host, peer), launch, profile).await?;
    let answer = read_greeting(host, &greeting)?;
    guard.is_armed = false;
    Ok((greeting, answer))
}

async fn greet(
    agent: &str,
    (host, peer): (&AgentHost, &Peer),
    launch: &Launch,
    profile: &Profile,
) -> Result<RawJson, AgentFailure> {
    let params = profile.params();
    let greeting = tokio::select! {
        biased;
        greeting = timeout(launch.start_timeout, peer.call("initialize", &params)) => greeting,
        () = host.exited() => {
            // Wait for its last output, which has the reason.
            drop(timeout(EXIT_GRACE, peer.wait_for_end()).await);
            Ok(Err(peer::CallFailure::Closed))
        }
    };
    match greeting {
        Ok(Ok(greeting)) => Ok(greeting),
        Ok(Err(peer::CallFailure::Closed)) => {
            let how = host.how_it_exited().await;
            let tail = host.output_tail();
            Err(host.incompatible(format!("the agent '{agent}' {how} during startup{tail}")))
        }
        Ok(Err(peer::CallFailure::Refused(error))) => {
            let tail = host.output_tail();
            let message = format!("the agent '{agent}' refused `initialize`: {error}{tail}");
            Err(host.incompatible(message))
        }
        Ok(Err(failed)) => Err(failed.into()),
        Err(_) => {
            let seconds = launch.start_timeout.as_secs();
            let tail = host.output_tail();
            let message =
                format!("the agent '{agent}' did not answer within {seconds} s of its start{tail}");
            let error = Error::new(Code::PeerUnavailable, message);
            let hint = "check that the command or the address is that of an agent of the Agent Client Protocol; if it needs longer to start, raise `start_timeout`";
            Err(error.hint(hint).into())
        }
    }
}

/// Reads the answer of an agent.
pub(super) fn read_greeting(
    host: &AgentHost,
    greeting: &RawJson,
) -> Result<InitializeResponse, AgentFailure> {
    let wrong = |why: String| {
        host.incompatible(format!("the agent's answer to `initialize` is invalid: {why}"))
    };
    let raw: &RawValue =
        serde_json::from_slice(greeting.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let answer: InitializeResponse =
        read_result(raw, Rules::Lenient).map_err(|error| wrong(error.to_string()))?;
    if answer.protocol_version != PROTOCOL_VERSION {
        let version = answer.protocol_version;
        let message = format!(
            "the agent speaks version {version} of the Agent Client Protocol, and this server only version {PROTOCOL_VERSION}"
        );
        let hint = "use a version of the agent that speaks version 1 of the Agent Client Protocol";
        let error = Error::new(Code::PeerUnavailable, message).hint(hint);
        return Err(AgentFailure::Incompatible(error));
    }
    Ok(answer)
}
