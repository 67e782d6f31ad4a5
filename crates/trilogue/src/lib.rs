//! One agent, every ACP: the server as a library.
//!
//! ```no_run
//! use trilogue::sdk::prelude::*;
//!
//! struct Echo;
//!
//! #[async_trait]
//! impl Agent for Echo {
//!     fn card(&self) -> Card {
//!         Card::chat("echo", "Says what it hears.")
//!     }
//!
//!     async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
//!         context.text(turn.text()).await?;
//!         Ok(Outcome::Completed)
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), trilogue::Error> {
//!     trilogue::serve(Echo, trilogue::Options::default()).await
//! }
//! ```
//!
//! # Invariants
//! - Only this crate composes the options of store, runtime and gateway, and only its binary prints.
//! - A server that strangers could reach without a token is not started.

#![warn(missing_docs)]

mod agents;
mod app;
pub mod callback_secret;
pub mod config;
mod descriptor;
mod first_token;
mod listen;
pub mod local;
pub mod logging;
pub mod notify;
pub mod token_file;

pub use agents::Agents;
pub use app::{App, Report, check, serve};
pub use config::Options;
pub use listen::Listeners;
pub use trilogue_backends::builtin::NAMES as BUILTIN_AGENTS;
pub use trilogue_domain::Error;
pub use trilogue_sdk as sdk;
