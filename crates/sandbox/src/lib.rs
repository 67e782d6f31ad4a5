//! The sandbox of a program: what it may read, write and ask of the system.
//!
//! A server starts a program through a *stage*: its own executable with the hidden command [`STAGE_COMMAND`] and a [`SandboxPolicy`]. The stage restricts itself, and then becomes the
//! program or its parent. No code runs between a fork and an exec, so nothing here is `unsafe`.
//!
//! | file | what it does |
//! |---|---|
//! | `policy.rs` | what a program may do, as the server gives it to the stage |
//! | `layers.rs`, `machine.rs` | the layers, and which this machine has |
//! | `access.rs` | what a policy allows with a path |
//! | `grants.rs` | the paths that programs may usually read |
//! | `links.rs` | links on the way to a path |
//! | `git.rs` | repositories of git |
//! | `stage.rs` | the stage: applies the layers and starts the program |
//! | `child_tree.rs` | the processes of a program, as the stage sees them |
//! | `lease.rs` | until when a program may work in a cluster |
//! | `files.rs` | files by Landlock |
//! | `calls.rs` | system calls by seccomp |
//! | `namespaces.rs` | the program's own view of processes, mounts and the network |
//! | `resources.rs` | limits of resources, and capabilities |
//! | `control_group/` | limits of a program with everything that it starts, in a group that the operator delegates |
//! | `broker/` | the way to the broker, through which a program reaches the network |
//! | `holder/` | keeps a program alive while no server is attached |
//!
//! Other systems than Linux have no layer.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

mod access;
mod git;
mod grants;
mod layers;
mod lease;
mod links;
mod machine;
mod policy;

pub mod broker;
pub mod control_group;
pub mod holder;

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod child_tree;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod resources;
#[cfg(target_os = "linux")]
mod stage;

pub use access::PathAccess;
#[cfg(target_os = "linux")]
pub use child_tree::Descendants;
pub use git::is_git_repository;
pub use grants::{is_too_much, usual_paths};
pub use layers::Layers;
pub use lease::LeaseFile;
pub use links::{ResolvedPath, resolve_links};
pub use machine::layers_of_machine;
pub use policy::{
    BrokerSettings, HoldSettings, Network, ResourceLimits, SandboxPolicy, command_stage_words,
    held_stage_words, stage_variable, stage_words,
};

/// The hidden command of a program that has a stage.
pub const STAGE_COMMAND: &str = "hold";

/// The exit status of a stage that could not start its program.
pub const NOT_STARTED: u8 = 126;

/// The executable of this process, also if its path holds another one now.
const SELF: &str = "/proc/self/exe";

/// Whether this program runs the stage when it is started as one.
static HAS_STAGE: AtomicBool = AtomicBool::new(false);

/// Whether this program can start itself as a stage: not if [`run_stage`] was not called, or if this system has no sandbox.
fn has_stage() -> bool {
    cfg!(target_os = "linux") && HAS_STAGE.load(Ordering::Acquire)
}

/// Runs the stage if this process was started as one, and returns the exit status: that of the program, or an error if it was not started. `None` if this process is no
/// stage. Call it before anything else in `main`, while the process has one thread, and exit with [`NOT_STARTED`] after an error.
#[must_use]
pub fn run_stage() -> Option<io::Result<ExitCode>> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != STAGE_COMMAND) {
        HAS_STAGE.store(true, Ordering::Release);
        return None;
    }
    let arguments: Vec<_> = arguments.collect();
    #[cfg(target_os = "linux")]
    return Some(stage::run(&arguments));
    #[cfg(not(target_os = "linux"))]
    Some(Err(io::Error::other(format!("no sandbox on this system: {} words", arguments.len()))))
}
