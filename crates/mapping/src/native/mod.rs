//! Our own face, `/api/v1`, in both directions.

pub mod agent;
pub mod answer;
pub mod event;
pub mod input;
pub mod interrupt;
mod json;
pub mod message;
mod read_event;
pub mod run;
mod short_original;
mod text;
pub mod token;

use json::object_of;
pub use json::{json, read_json, read_object};
pub use read_event::read_body;
pub use text::{escape_for_message, hex, read_sha256, read_time};
