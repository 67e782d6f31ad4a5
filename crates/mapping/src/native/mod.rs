//! Our own face, `/api/v1`, both ways.
//!
//! What is stored is given as *facts*: the words of the vocabulary that the face shows of it, borrowed.

pub mod agent;
pub mod answer;
pub mod event;
pub mod input;
pub mod interrupt;
mod json;
pub mod message;
pub mod run;
mod text;
pub mod thread;
pub mod token;

pub use json::{json, read_json, read_object};
pub use text::{hex, read_sha256, read_time, shown};
