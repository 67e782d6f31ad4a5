//! Stops the processes that killed servers left running.

use std::time::Duration;

use rustix::process::Signal;

use uuid::Uuid;

use super::identity::Identity;
use super::program::{COMMAND_MARKER, MARKER};
use super::record::PreviousServer;
use super::tree::Tree;
use super::{limits, sandbox};

/// How long strays may take to exit after `TERM`.
const STRAY_GRACE: Duration = Duration::from_millis(500);

/// Stops the strays of previous servers, except for the children that this server has adopted. Removes their records only if no stray is left. Returns how many processes it found.
pub(super) async fn stop(
    mut servers: Vec<PreviousServer>,
    is_adopted: impl Fn(Uuid) -> bool,
) -> usize {
    let mut commands = Tree::default();
    for server in &mut servers {
        server.children.retain(|child| {
            let is_adopted = is_adopted(child.instance);
            if is_adopted {
                // The commands that it ran through its server have no reader any more.
                let instance = child.instance.to_string();
                commands = std::mem::take(&mut commands).with_variable(COMMAND_MARKER, &instance);
            }
            !is_adopted
        });
    }
    commands.kill_if_any().await;
    if servers.iter().all(|server| server.children.is_empty()) {
        servers.into_iter().for_each(PreviousServer::forget);
        return 0;
    }
    let mut tree = Tree::default();
    for child in servers.iter().flat_map(|server| &server.children) {
        tree = with_child(tree, child.instance, child.leader);
    }
    let strays = tree.signal(Signal::TERM).await;
    let is_clear = strays == Some(0) || tree.gone_within(STRAY_GRACE).await || tree.kill().await;
    let children = servers.iter().flat_map(|server| &server.children);
    let folders = children.filter_map(|child| child.group.clone()).collect();
    if limits::end_groups(folders).await && is_clear {
        for server in &servers {
            for child in &server.children {
                sandbox::remove_left(child.instance);
                server.socket(child.instance).remove();
            }
        }
        servers.into_iter().for_each(PreviousServer::forget);
    }
    strays.unwrap_or_default()
}

/// Kills a child of another server on this machine, with its descendants. Returns whether all are gone.
pub(crate) async fn kill(instance: Uuid, leader: Option<Identity>) -> bool {
    with_child(Tree::default(), instance, leader).kill().await
}

fn with_child(tree: Tree, instance: Uuid, leader: Option<Identity>) -> Tree {
    let tree = tree.with_variable(MARKER, &instance.to_string());
    // While the leader runs, the group id is certainly the child's. Later, another group can have the same id.
    match leader.filter(|leader| leader.is_alive()) {
        Some(leader) => tree.with_group(leader.pid),
        None => tree,
    }
}
