//! The user's server on this machine: programs find it, or start it if none runs.
//!
//! A server [claims](ServerClaim) its user's [folder](UserServerDir): it holds a lock there, listens on a socket, and writes a [record](ServerRecord).
//! The program that an editor launches finds that socket, or [starts](start::connect_or_start) a server first, and then [relays](proxy::run) lines.
//!
//! # Invariants
//! - One process at a time is the user's server. Files of a dead one are replaced.
//! - Only the user can reach the socket, and both ends check the other's user.
//! - Commands and their environment stay in memory.

pub mod agent_catalog;
pub mod checkout;
mod claim;
pub(crate) mod download;
mod idle_exit;
pub mod known_agents;
mod local_listener;
mod log_file;
pub mod login_file;
pub(crate) mod private_paths;
pub(crate) mod providers;
pub mod proxy;
mod server_record;
pub mod start;
pub mod start_folder;
pub mod token_file;
mod user_options;
mod user_server_dir;
mod wrapped;

pub use claim::{ClaimResult, ServerClaim};
pub(crate) use idle_exit::IdleExit;
pub use local_listener::LocalListener;
pub use log_file::LogFile;
pub use private_paths::private_files;
pub use server_record::{ServerRecord, StartedBy};
pub use user_options::{built_in_agents, user_options};
pub use user_server_dir::UserServerDir;
pub(crate) use wrapped::WrappedCommands;

use std::time::Duration;

/// How to make this machine's programs trust the certificate of an own authority.
pub const TRUST_AUTHORITY: &str = "set SSL_CERT_FILE to the file of that authority's certificate";

/// How long a server that was started on demand stays when nothing uses it.
pub const IDLE_EXIT: Duration = Duration::from_secs(30 * 60);
