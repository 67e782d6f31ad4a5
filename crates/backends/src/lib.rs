//! The kinds of agents: native ones, and those that come with the server.
//!
//! # Invariants
//! - A backend turns turns into its agent's own terms and what the agent says into events; it knows no face and no store.
//! - What does not fit an agent is refused before a run exists, by [`Backend::admit`](trilogue_runtime::Backend::admit).

pub mod builtin;
pub mod native;

pub use native::NativeAgent;
