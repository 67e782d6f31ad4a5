//! The Agent Client Protocol for programs: a typed [`Client`] that drives an agent, and below it a [`peer`] that speaks the framing in either role.
//!
//! A client is connected over two byte streams, or launches a program. What the agent asks is put to the client's [`ClientHandler`], whose answers reject where nobody says otherwise.
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
//! The example `agent_client` in the project's folder `examples` is a program of that kind, with an agent for the other side.
//!
//! # Invariants
//! - Nothing is sent that the agent did not say it takes; the error names the capability.
//! - Whatever comes is given as it came too, unknown members and kinds included.
//! - Nothing is allowed, and no file or terminal is given, that the program did not allow or offer.
//! - Nothing grows without bound: an agent that says more than is read waits while a turn is at work, and loses its oldest words otherwise.

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
    client_handler::{ClientHandler, RejectAll, allowing_once, file_not_found, rejecting},
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
