//! The holder: an outer stage that owns the pipes of its agent, and keeps it alive while no server is attached. The next server continues a turn of a killed one.
//!
//! | file | what it does |
//! |---|---|
//! | `frame.rs` | the frames between a server and a holder |
//! | `frame_reader.rs` | splits the bytes of a connection into frames |
//! | `start.rs` | starts the agent with pipes, and ends its processes |
//! | `run.rs` | the loop |
//! | `attach_listener.rs` | connections before they have proved the secret |
//! | `attached_server.rs` | the connection of the attached server |
//! | `agent.rs`, `input_queue.rs` | the pipes of the agent |
//! | `buffer.rs`, `turn_state.rs` | what is kept for the next server |
//! | `nonblocking.rs` | reads and writes that do not wait |

mod frame;
mod frame_reader;

#[cfg(target_os = "linux")]
mod agent;
#[cfg(target_os = "linux")]
mod attach_listener;
#[cfg(target_os = "linux")]
mod attached_server;
#[cfg(target_os = "linux")]
mod buffer;
#[cfg(target_os = "linux")]
mod input_queue;
#[cfg(target_os = "linux")]
mod nonblocking;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod turn_state;

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

pub use frame::{
    HOLDER_VERSION, HolderFrame, InvalidFrame, MAX_LABEL_BYTES, MAX_LABELS, MAX_NOTE_BYTES,
    MAX_PAYLOAD_BYTES, MAX_SECRET_BYTES, ServerFrame,
};
pub use frame_reader::FrameReader;

#[cfg(target_os = "linux")]
pub(crate) use start::hold;
