//! The holder: an outer stage that owns the pipes of its agent, and keeps it alive while no server is attached. The next server continues a turn of a killed one.
//!
//! | file | what it does |
//! |---|---|
//! | `frame.rs` | the frames between a server and a holder |

mod frame;
mod frame_reader;

pub use frame::{
    HOLDER_VERSION, HolderFrame, InvalidFrame, MAX_LABEL_BYTES, MAX_LABELS, MAX_NOTE_BYTES,
    MAX_PAYLOAD_BYTES, MAX_SECRET_BYTES, ServerFrame,
};
pub use frame_reader::FrameReader;
