//! The Agent Connect Protocol, in both directions.
//!
//! A run's log becomes its output in [`Values`], a fold without IO; [`Updates`] renders each custom update of an agent.
//! [`RemoteOutput`] is the opposite direction: a server's output of a remote run becomes a run's log.
//! Metadata, the protocol's free JSON, carries further data under the key [`EXTENSION`].

mod agent;
mod block;
mod chat;
mod config;
mod creation;
mod definitions;
mod descriptor;
mod error;
mod growing_message;
mod input;
mod interrupt;
mod message;
mod modes;
mod openapi;
mod outcome;
mod remote;
mod resume;
mod run;
mod status;
mod thread;
mod updates;
mod values;

pub use agent::{agent, agent_id, capabilities, errors, is_configurable, name, schemas};
pub use block::Links;
pub use config::{RunConfig, config, merged, shown_config};
pub use creation::{callback, creation};
pub use definitions::{Definition, ErrorData, definition, definitions, of_code};
pub use descriptor::{card, descriptor};
pub use error::{error, error_as};
pub use input::{input, stated_input};
pub use interrupt::interrupt;
pub use message::{message, messages, read_messages};
pub use modes::{Modes, missing, modes};
pub use openapi::{Security, openapi};
pub use outcome::run_error;
pub use remote::{
    OutputForm, OutputProgress, RemoteOutput, remote_answer, remote_card, remote_failure,
    remote_input, remote_input_kind, remote_interrupt,
};
pub use resume::resume;
pub use run::{CallbackContent, RunFields, callback_body, run, wait_response};
pub use status::{phase, status, statuses, thread_activity, thread_status};
pub use thread::{
    CheckpointFields, State, Template, ThreadFields, message_json, state, thread, thread_state,
};
pub use updates::Updates;
pub use values::{Values, ValuesOptions};

/// The key in metadata for data that the protocol does not have.
pub const EXTENSION: &str = "trilogue";
