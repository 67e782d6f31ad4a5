//! Commands that become agents.

use std::fmt;

use async_trait::async_trait;
use trilogue_domain::AgentName;
use trilogue_domain::error::Result;
pub use trilogue_wire::native::local::WrapCommand;

/// Makes agents of commands.
#[async_trait]
pub trait Wrap: Send + Sync + fmt::Debug {
    /// The agent of a command: one that is served from now on, or was made of the same command before. What it is started with is then what this command says.
    ///
    /// # Errors
    /// `invalid_request` where the command cannot be one, `already_exists` where another agent has its name, `overloaded` where there are too many.
    async fn wrap(&self, command: WrapCommand) -> Result<AgentName>;
}
