//! An agent behind a server of this protocol: its descriptor, the requests to it, and its output.

mod card;
mod failure;
mod input;
mod message;
mod output;
mod question;

pub use card::{remote_card, remote_input_kind};
pub use failure::remote_failure;
pub use input::remote_input;
pub use output::{OutputForm, OutputProgress, RemoteOutput};
pub use question::{remote_answer, remote_interrupt};
