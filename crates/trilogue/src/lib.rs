//! One agent, every ACP: the server as a library.
//!
//! ```no_run
//! use trilogue::sdk::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), trilogue::Error> {
//!     let echo = agent_fn("echo", "Repeats your message.", |turn, context| async move {
//!         context.text(turn.text()).await
//!     });
//!     trilogue::serve(echo, trilogue::Serve::from_args()?).await
//! }
//! ```
//!
//! # Invariants
//! - Only this crate composes the options of store, runtime and gateway, and only its binary prints, but for the address that [`serve`] announces.
//! - A server that strangers could reach without a token is not started.

#![warn(missing_docs)]

mod agents;
mod app;
pub mod callback_secret;
pub mod checkout;
pub mod config;
mod descriptor;
mod first_token;
pub mod known_agents;
mod listen;
pub mod local;
pub mod logging;
pub mod notify;
mod otlp;
mod serve;
pub mod start_folder;
pub mod token_file;

pub use agents::Agents;
pub use app::{App, Report, check, serve};
pub use config::Options;
pub use listen::Listeners;
pub use serve::Serve;
pub use trilogue_backends::builtin::NAMES as BUILTIN_AGENTS;
pub use trilogue_backends::child::find_program;
pub use trilogue_domain::Error;
pub use trilogue_sdk as sdk;
