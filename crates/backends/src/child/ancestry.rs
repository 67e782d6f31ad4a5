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

fn is_marked(pid: u32) -> bool {
    let Some(environment) = platform::environment(pid) else { return false };
    let prefix = format!("{MARKER}=");
    let own = OWN_MARKER.as_deref().map(str::as_bytes);
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(prefix.as_bytes()))
        .any(|value| Some(value) != own)
}
