//! Processes of the operating system.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "other.rs")]
mod system;

pub(crate) use system::machine;
pub(super) use system::*;
