//! Children that outlive their server: what is kept for the next server, and how that one adopts them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trilogue_domain::lock;
use trilogue_sandbox::{HoldSettings, Layers};
use uuid::Uuid;

use super::broker::BrokerListener;
use super::holder::{AttachedHolder, BeginOutput, HolderSocket};
use super::identity::Identity;
use super::record::{PreviousServer, RecordedChild, Records};
use super::sandbox::SavedPolicy;
use super::{limits, strays};

/// How long a child may wait for the run that continues with it, once all runs are recovered.
pub(super) const CLAIM_TIME: Duration = Duration::from_secs(10);
/// The output that a holder keeps, in bytes.
const BUFFER_BYTES: u64 = 16 * 1024 * 1024;
/// How long a child works without a server in a turn.
pub(super) const ORPHAN_TIME: Duration = Duration::from_secs(600);
/// The same while it has no turn to work on.
pub(super) const IDLE_ORPHAN_TIME: Duration = Duration::from_secs(10);

/// How a child is held from its start on.
#[derive(Debug)]
pub(super) struct HoldPlan {
    pub(super) socket: HolderSocket,
    pub(super) secret: String,
    /// Names the store of its run.
    pub(super) store: String,
}

/// What the holder of a child keeps for the next server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HeldNote {
    /// The name of its agent.
    pub(super) name: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) layers: Layers,
    /// What the owner of the child needs to continue with it.
    pub(super) owner: Value,
}

/// A child of a previous server that waits for the run that continues with it.
#[derive(Debug)]
pub(super) struct HeldChild {
    pub(super) leader: Identity,
    pub(super) attached: AttachedHolder,
    pub(super) note: HeldNote,
    pub(super) policy: SavedPolicy,
    /// The listener of its broker, if it has one.
    pub(super) broker: Option<BrokerListener>,
}

/// The adopted children that no run has claimed.
#[derive(Debug, Default)]
pub(super) struct HeldChildren(Mutex<HashMap<Uuid, HeldChild>>);

/// A child whose owner continues with it.
#[derive(Debug)]
pub struct AdoptedChild {
    pub started: super::StartedChild,
    /// What the owner kept.
    pub owner: Value,
    /// The id of the last call that the child was sent, if there was one.
    pub last_call: Option<u64>,
    /// The output flows once this is dropped.
    pub begin: BeginOutput,
}

// === impl HoldPlan ===

impl HoldPlan {
    pub(super) fn new(socket: HolderSocket, store: String) -> Self {
        let secret = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string());
        Self { socket, secret: secret.concat(), store }
    }

    pub(super) fn settings(&self) -> HoldSettings {
        HoldSettings {
            secret: self.secret.clone(),
            buffer_bytes: BUFFER_BYTES,
            orphan_ms: u64::try_from(IDLE_ORPHAN_TIME.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

// === impl HeldChildren ===

impl HeldChildren {
    /// Adopts the children of these servers that their holders have kept.
    pub(super) async fn adopt(&self, servers: &[PreviousServer], records: &Arc<Records>) {
        // A server that was killed while it adopted a child has left a second record of it. A second connection would end the first one.
        let mut children = HashMap::<_, (&RecordedChild, Vec<PathBuf>)>::new();
        for server in servers {
            for child in &server.children {
                let (_, policies) = children.entry(child.instance).or_insert((child, Vec::new()));
                policies.push(server.policy_path(child.instance));
            }
        }
        // At once: each may have to be waited for.
        join_all(children.into_values().map(|(child, policies)| async move {
            match adopt(child, &policies, records).await {
                Ok(Some(held)) => drop(lock(&self.0).insert(child.instance, held)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "an agent that outlived its server cannot be used, and ends");
                }
            }
        }))
        .await;
    }

    pub(super) fn has(&self, instance: Uuid) -> bool {
        lock(&self.0).contains_key(&instance)
    }

    pub(super) fn take(&self, instance: Uuid) -> Option<HeldChild> {
        lock(&self.0).remove(&instance)
    }

    pub(super) fn put_back(&self, instance: Uuid, held: HeldChild) {
        lock(&self.0).insert(instance, held);
    }

    /// Leaves all to the next server.
    pub(super) fn leave(&self) {
        lock(&self.0).values().for_each(|held| held.policy.leave());
    }

    /// Ends the children of which this is true.
    pub(super) async fn end(&self, is_it: impl Fn(&HeldNote) -> bool, records: &Records) {
        let left: Vec<_> = lock(&self.0).extract_if(|_, held| is_it(&held.note)).collect();
        let ends = left.into_iter().map(|(instance, held)| async move {
            tracing::warn!(
                agent = held.note.name,
                "ending an agent that outlived its server: no run continues with it"
            );
            // The holder ends the rest itself when its time is over.
            let folders = held.policy.group().map(|group| group.folder().to_owned());
            let is_clear = strays::kill(instance, Some(held.leader)).await;
            if limits::end_groups(folders.into_iter().collect()).await && is_clear {
                records.socket(instance).remove();
                records.remove(instance);
            }
        });
        join_all(ends).await;
    }
}

/// Whether a server has children that can be continued with. `store` names the store of their runs, or is `None` for any.
pub(super) fn has_held(server: &PreviousServer, store: Option<&str>) -> bool {
    server.children.iter().any(|child| {
        child.store.as_deref().is_some_and(|of| store.is_none_or(|store| of == store))
            && child.leader.is_some_and(Identity::is_alive)
    })
}

/// `policies` are the places where the file of its policy can be.
async fn adopt(
    child: &RecordedChild,
    policies: &[PathBuf],
    records: &Arc<Records>,
) -> std::io::Result<Option<HeldChild>> {
    let (Some(secret), Some(_), Some(leader)) = (&child.secret, &child.store, child.leader) else {
        return Ok(None);
    };
    if !leader.is_alive() {
        return Ok(None);
    }
    let attached = records.socket(child.instance).attach(secret).await?;
    let note: HeldNote = serde_json::from_slice(&attached.state.note)?;
    // The record first: if this server is killed now, the next one finds the child.
    records.write(child)?;
    let file = records.policy_path(child.instance);
    let of_child = (note.layers, child.group.clone());
    let policy = SavedPolicy::adopt(child.instance, policies, file.clone(), of_child)?;
    let socket = records.socket(child.instance);
    let broker = match BrokerListener::adopt(&file, (&socket, secret)).await {
        Ok(adopted) => adopted.map(|(broker, network)| {
            network.into_iter().for_each(|network| policy.set_network(network));
            broker
        }),
        Err(error) => {
            tracing::warn!(%error, agent = note.name, "an agent that outlived its server no longer reaches the network");
            None
        }
    };
    Ok(Some(HeldChild { leader, attached, note, policy, broker }))
}
