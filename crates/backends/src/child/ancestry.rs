//! Whether a process is one of an agent: of a child of this server, or of an agent of another server on this machine.

use std::sync::LazyLock;

use super::platform::{self, SEES_PROCESSES};
use super::{Child, MARKER};

/// The most processes between a child and its descendant.
const MAX_ANCESTORS: usize = 256;

/// The marker that this server has itself: an agent has started it. Its clients may have the same one.
static OWN_MARKER: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(MARKER).ok());

/// Whether a process is one of these children, or was started by one, or it or a parent has the marker of an agent. `None` if it is gone.
///
/// Every server marks its agents. Their programs reach all servers of their user, so that each refuses those of the others too.
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
            // The first process has started none of our children.
            Some(status) if status.parent <= 1 => return Some(false),
            Some(status) => pid = status.parent,
            None => return (!SEES_PROCESSES).then_some(false),
        }
    }
    Some(true)
}

/// Whether a process that protects itself from being read may be of a child.
///
/// Its parents and its variables can say no more. It is not of a child if it is older than this server, or if the leader of its session
/// runs and is not of a child: a process joins no session but its parent's or its own.
pub(super) fn may_be_of(pid: u32, children: &[Child]) -> bool {
    // One that is gone holds no connection any more.
    let Some(status) = platform::status(pid) else { return false };
    if is_of_agent(pid, children) == Some(true) || is_in_group(status.group, children) {
        return true;
    }
    let Some(server) = platform::status(std::process::id()) else { return true };
    if status.start < server.start {
        return false;
    }
    let has_other_leader = status.session != pid && status.session != server.session;
    let leader = platform::status(status.session).filter(|leader| !leader.is_dead);
    match leader.filter(|_| has_other_leader) {
        Some(leader) if leader.start < server.start => false,
        Some(_) => {
            let is_readable = platform::environment(status.session).is_some();
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
