//! Whether a process descends from a child.

use super::platform::{self, SEES_PROCESSES};
use super::{Child, MARKER};

/// The most processes between a child and its descendant.
const MAX_ANCESTORS: usize = 256;

/// Whether a process is one of these children, was started by one, or has the marker of one. `None` if it is gone.
pub(super) fn is_of(pid: u32, children: &[Child]) -> Option<bool> {
    if children.is_empty() {
        return Some(false);
    }
    let own = std::process::id();
    let mut pid = pid;
    for _ in 0..MAX_ANCESTORS {
        if pid == own {
            return Some(false);
        }
        if children.iter().any(|child| child.pid() == Some(pid)) || is_marked(pid, children) {
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

fn is_marked(pid: u32, children: &[Child]) -> bool {
    let Some(environment) = platform::environment(pid) else { return false };
    let prefix = format!("{MARKER}=");
    let mut values = environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(prefix.as_bytes()));
    values
        .any(|value| children.iter().any(|child| child.instance().to_string().as_bytes() == value))
}
