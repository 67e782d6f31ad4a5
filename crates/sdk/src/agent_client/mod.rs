//! The Agent Client Protocol for programs: a typed [`Client`] that drives an agent, and the lower-level [`peer`] that speaks the framing in either role.
//!
//! A client connects over two byte streams, launches a program, or, with the feature `ws` or `http`, connects to an agent behind a server. The client's [`ClientHandler`] answers the agent's requests. Its default answers reject.
//!
//! ```no_run
//! use trilogue_sdk::agent_client::{Attachment, Client, Command, SessionOptions, Options, Prompt, RejectAll};
//!
//! # async fn example() -> Result<(), trilogue_sdk::agent_client::Error> {
//! let command = Command::new("some-agent").arg("--acp");
//! let client = Client::launch(command, RejectAll, Options::default()).await?;
//! let session = client.new_session(SessionOptions::at("/home/me/project")).await?;
//!
//! let file = Attachment::read("src/main.rs").await?;
//! let mut turn = session.prompt(Prompt::from("What does this do?").attach(file)).await?;
//! while let Some(update) = turn.next().await? {
//!     if update.message.as_ref().is_some_and(|message| message.is_first) {
//!         println!();
//!     }
//!     print!("{}", update.text());
//! }
//! let recorded = turn.outcome().and_then(|ended| ended.user_message_id.as_deref());
//! println!("\nthe agent knows the question as {recorded:?}");
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The example `agent_client` in the project's folder `examples` is such a program, with an agent for the other side.
//!
//! # Invariants
//! - The client sends nothing that the agent does not support; the error names the missing capability.
//! - Every message is also available as the agent wrote it, including unknown members and kinds.
//! - The agent gets no permission, file or terminal that the program did not allow or offer.
//! - All queues have limits. A turn with too many unread bytes fails with [`Error::Overflow`]; outside of turns the oldest updates are dropped.

#[cfg(feature = "client")]
mod attachment;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod client_handler;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod launch;
#[cfg(any(feature = "ws", feature = "http"))]
pub mod network;
pub mod peer;
#[cfg(feature = "client")]
mod session;
#[cfg(feature = "client")]
mod session_router;
#[cfg(feature = "client")]
mod turn;
#[cfg(feature = "client")]
mod update;
#[cfg(feature = "client")]
mod update_queue;
#[cfg(feature = "client")]
mod user_messages;

#[cfg(feature = "client")]
pub use self::{
    attachment::{Attachment, MAX_ATTACHED_BYTES, Prompt},
    client::{Client, Options, SessionOptions},
    client_handler::{ClientHandler, RejectAll, allow_once, file_not_found, reject},
    error::{Error, means_lost_session},
    launch::Command,
    session::{Session, SessionReplay},
    turn::{PromptTurn, TurnEnd},
    update::{Message, Messages, Piece, Speaker, Update},
    user_messages::UserMessages,
};

pub use trilogue_wire::agent_client as wire;
pub use trilogue_wire::agent_client::{ContentBlock, SessionUpdate, StopReason};
pub use trilogue_wire::jsonrpc::{Code as ErrorCode, ErrorObject};
