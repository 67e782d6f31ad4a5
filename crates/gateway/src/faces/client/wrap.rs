//! Commands of `trilogue wrap`.

use std::fmt;

use async_trait::async_trait;
use trilogue_domain::AgentName;
use trilogue_domain::error::Result;
pub use trilogue_wire::native::local::WrapCommand;

/// Registers commands as agents.
#[async_trait]
pub trait Wrap: Send + Sync + fmt::Debug {
    /// Returns the agent of a command: a new one, or the one registered earlier for the same command. The agent gets the environment of this command.
    ///
    /// # Errors
    /// `invalid_request` if the command is invalid, `already_exists` if another agent has its name, `overloaded` if there are too many.
    async fn wrap(&self, command: WrapCommand) -> Result<AgentName>;
}
