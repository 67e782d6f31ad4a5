//! Thread owners, runs, interrupts and queue workers.
//!
//! All change is a command to the thread's owner.
//! Faces, timers and callbacks never append.
//!
//! # Invariants
//! - An event is delivered to no one before it is durable, and to no one by a way around the log.
//! - `running` is durable before an agent sees its input, except for a native agent called synchronously without idempotency key.
//! - A panic in one run is caught there.

pub mod backend;
pub mod handle;
pub mod request;

pub use backend::{Backend, Ending, Input, RunContext, Stopped, Turn};
pub use handle::Runtime;
pub use request::{
    AnswerTo, DrainReport, NewRun, NewThread, Options, Presence, RuntimeStatus, Settled, Submitted,
    ThreadChoice, ThreadPatch, WhenWaiting,
};
