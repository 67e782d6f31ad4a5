//! Decides whether a process belongs to an agent: to a child of this server, or to an agent of another server on this machine.

use std::sync::LazyLock;

use super::platform::{self, SEES_PROCESSES};
use super::{Child, MARKER};

/// The most processes between a child and its descendant.
const MAX_ANCESTORS: usize = 256;

/// The marker in this server's own environment, if an agent has started the server. Its clients may have the same marker.
static OWN_MARKER: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(MARKER).ok());

/// Returns whether a process is one of these children, was started by one, or has the marker of an agent, itself or in a parent.
/// `None` if it is gone.
///
/// Every server marks its agents. An agent's programs can reach all servers of their user, so each server refuses the agents of the others too.
pub(super) fn is_of_agent(pid: u32, children: &[Child]) -> Option<bool> {
    let own = std::process::id();
    let mut pid = pid;
    for _ in 0..MAX_ANCESTORS {
        if pid == own {
            return Some(false);
        }
        if children.iter().any(|child| child.pid() == Some(pid)) || is_marked(pid) {
            return Some(true);
        }
        match platform::status(pid) {
            // A child leads a group, which its programs keep when they lose their variables and their parents.
            Some(status) if is_in_group(status.group, children) => return Some(true),
            // The first process has started none of our children.
            Some(status) if status.parent <= 1 => return Some(false),
            Some(status) => pid = status.parent,
            None => return (!SEES_PROCESSES).then_some(false),
        }
    }
    Some(true)
}

/// Returns a time before which no program of an agent was started on this machine, in ticks since its boot. `None` if no agent runs: this server has no
/// child, and no process has the marker of another server's agent.
pub(super) fn oldest_agent(children: &[Child]) -> Option<u64> {
    let own = std::process::id();
    let started = |pid: u32| platform::status(pid).map(|status| status.start);
    // Its children are younger than the server.
    let of_children = (!children.is_empty()).then(|| started(own).unwrap_or_default());
    let marked = platform::pids().into_iter().filter(|pid| *pid != own && is_marked(*pid));
    marked.filter_map(started).chain(of_children).min()
}

/// Returns whether a process that protects itself from being read may be an agent's, although [`is_of_agent`] does not find it. All agents were started after
/// `oldest`.
///
/// Its variables cannot be read. It belongs to none if it is older than all of them, or if the leader of its session runs and belongs to none: a process can only be
/// in its parent's session or in a new one.
pub(super) fn may_be_of(pid: u32, children: &[Child], oldest: u64) -> bool {
    // A process that is gone holds no connection.
    let Some(status) = platform::status(pid) else { return false };
    let Some(server) = platform::status(std::process::id()) else { return true };
    if status.start < oldest {
        return false;
    }
    let has_other_leader = status.session != pid && status.session != server.session;
    let leader = platform::status(status.session).filter(|leader| !leader.is_dead);
    match leader.filter(|_| has_other_leader) {
        Some(leader) if leader.start < oldest => false,
        Some(leader) => {
            // A daemon of another user, such as one that lets this user in over the network, begins sessions that cannot be read. Its parents can. Without a
            // parent, it may be a program that changes its user, and that an agent has left behind.
            let is_of_daemon = leader.parent > 1 && platform::is_of_other_user(status.session);
            let is_readable = is_of_daemon || platform::environment(status.session).is_some();
            !is_readable || is_of_agent(status.session, children) != Some(false)
        }
        None => true,
    }
}

fn is_in_group(group: u32, children: &[Child]) -> bool {
    children.iter().any(|child| child.pid() == Some(group))
}

fn is_marked(pid: u32) -> bool {
    let Some(environment) = platform::environment(pid) else { return false };
    let prefix = format!("{MARKER}=");
    let own = OWN_MARKER.as_deref().map(str::as_bytes);
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(prefix.as_bytes()))
        .any(|value| Some(value) != own)
}
