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
//!     trilogue::serve(echo, trilogue::ServeOptions::from_args()?).await
//! }
//! ```
//!
//! # Invariants
//! - Only this crate composes the options of store, runtime and gateway, and only its binary prints, but for the address that [`serve`] announces.
//! - A server that strangers could reach without a token is not started.

#![warn(missing_docs)]

pub mod config;
pub mod local;
pub mod server;

pub use config::Options;
pub use server::agents::Agents;
pub use server::app::{App, Report, check, serve};
pub use server::listen::Listeners;
pub use server::serve::ServeOptions;
pub use trilogue_backends::builtin::NAMES as BUILTIN_AGENTS;
pub use trilogue_backends::child::find_program;
pub use trilogue_domain::Error;
pub use trilogue_sandbox::{NOT_STARTED as STAGE_FAILED, STAGE_COMMAND, run_stage};
pub use trilogue_sdk as sdk;
