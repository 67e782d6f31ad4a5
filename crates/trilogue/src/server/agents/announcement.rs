//! Tells the servers that share the store which agents this one has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::task::AbortHandle;
use trilogue_domain::AgentCard;
use trilogue_domain::error::Result;
use trilogue_mapping::{communication, connect, native};
use trilogue_runtime::{Backend, Runtime};
use trilogue_store::{Admin, NodeAgent};

/// How many bytes of a digest are kept: it tells descriptions apart, and guards nothing.
const DIGEST_BYTES: usize = 8;
/// How long to wait before a list that could not be stored is made again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The task that tells of agents that join. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Announcement(AbortHandle);

/// Tells the other servers about these agents.
/// Fails as storing.
pub(crate) async fn announce(agents: &[Arc<dyn Backend>], admin: &dyn Admin) -> Result<()> {
    admin.publish_agents(agents.iter().map(|agent| node_agent(agent.as_ref())).collect()).await
}

// === impl Announcement ===

impl Announcement {
    /// Tells about the agents of this runtime whenever one joins.
    pub(crate) fn start(runtime: Runtime, admin: Arc<dyn Admin>) -> Self {
        let task = async move {
            loop {
                runtime.wait_for_agent().await;
                while let Err(error) = announce(&all(&runtime), admin.as_ref()).await {
                    tracing::warn!(%error, "the other servers cannot be told of an agent");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        };
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn all(runtime: &Runtime) -> Vec<Arc<dyn Backend>> {
    let cards = runtime.all_agents().into_iter();
    cards.filter_map(|card| runtime.backend(&card.name).ok().cloned()).collect()
}

fn node_agent(agent: &dyn Backend) -> NodeAgent {
    let card = agent.card();
    let name = card.name.as_str();
    let mut also = vec![
        connect::agent_id(card).to_ascii_lowercase(),
        connect::name(card).to_owned(),
        communication::face_name(&card.name),
    ];
    also.retain(|text| text != name);
    also.dedup();
    let digest = agent.is_listed().then(|| digest(card, agent.is_native()));
    NodeAgent { name: name.to_owned(), digest, also }
}

/// Returns a digest of an agent's kind and of its data that clients see in every protocol. Data that a hosted agent reports only once it runs
/// is left out.
fn digest(card: &AgentCard, is_native: bool) -> String {
    let seen = json!([
        is_native,
        native::agent::agent(card, None),
        communication::agent(card),
        connect::descriptor(card).to_value(),
    ]);
    let digest = Sha256::digest(seen.to_string());
    digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{AgentName, InputKind, Json};

    use super::*;

    #[test]
    fn what_clients_rely_on_changes_the_digest() {
        let name = AgentName::parse("mail").unwrap();
        let card = AgentCard::new(name, InputKind::Chat);
        let first = digest(&card, true);
        assert_eq!((first.len(), &first), (2 * DIGEST_BYTES, &digest(&card, true)));
        let schema = Json::parse(r#"{"type":"object"}"#).unwrap();
        for (changed, is_native) in [
            (card.clone(), false),
            (AgentCard { version: "2".to_owned(), ..card.clone() }, true),
            (AgentCard { config_schema: Some(schema.clone()), ..card.clone() }, true),
            (AgentCard { input: InputKind::Schema(schema), ..card }, true),
        ] {
            assert_ne!(digest(&changed, is_native), first, "{changed:?}");
        }
    }
}
