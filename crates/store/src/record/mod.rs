//! The persisted form of events and rows, with its version.

mod frame;

pub use frame::{Draft, Frame};
