//! Control groups (cgroup v2): each program has one of its own, with limits of memory, processes and processor time.
//!
//! The operator delegates a group to the server. The server makes the groups of programs in it, beside its own leaf: the kernel allows no processes in a group that passes controllers on.
//! The outer stage of a program enters the group before it starts anything, so everything that the program starts is in it too. Without a group, the operator limits programs from outside.
//!
//! | file | what it does |
//! |---|---|
//! | `paths.rs` | the folder of this process's own group, from the lists of the kernel |
//! | `delegated.rs` | the group in which this process may make groups |
//! | `program.rs` | the group of a program |

mod delegated;
mod paths;
mod program;

use std::fmt;

pub use delegated::{DelegatedGroup, MissingGroup, delegated_group};
#[cfg(target_os = "linux")]
pub(crate) use paths::unescape;
pub use program::ProgramGroup;

/// The list of the processes of a group. A process moves itself there by writing `0`.
const PROCESSES: &str = "cgroup.procs";
/// The file that kills all processes of a group, since Linux 5.14. The topmost group has none.
const KILL: &str = "cgroup.kill";
/// The controllers that a group passes on to the groups in it.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// The limits of a program with everything that it starts. What is not set has no limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupLimits {
    /// Memory without swap, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Processor time, in hundredths of a processor.
    pub cpu_percent: Option<u32>,
}

/// A limit that a program has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReachedLimit {
    /// In bytes. The system has killed the program.
    Memory(u64),
    /// The system has refused further processes.
    Processes(u64),
}

// === impl GroupLimits ===

impl GroupLimits {
    pub const NONE: Self = Self { memory_bytes: None, processes: None, cpu_percent: None };

    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Self::NONE
    }

    /// Returns the controllers that these limits need.
    fn controllers(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.memory_bytes.is_some(), "memory"),
            (self.processes.is_some(), "pids"),
            (self.cpu_percent.is_some(), "cpu"),
        ];
        all.into_iter().filter_map(|(is_needed, name)| is_needed.then_some(name))
    }
}

// === impl ReachedLimit ===

/// Writes a clause about the program.
impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => {
                let mebibytes = bytes / (1024 * 1024);
                write!(
                    f,
                    "it needed more than its {mebibytes} MiB of memory; raise `limits.memory` of the agent"
                )
            }
            Self::Processes(count) => write!(
                f,
                "it needed more than its {count} processes and threads; raise `limits.processes` of the agent"
            ),
        }
    }
}
