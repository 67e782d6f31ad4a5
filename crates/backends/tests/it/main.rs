//! The agents that come with the server, through the SDK's ports and through the runtime.
#![expect(clippy::unwrap_used, clippy::panic, reason = "functions of tests fail by panicking")]

mod admission;
mod agent_client;
mod child;
mod child_ends;
mod child_peers;
mod child_records;
mod contract;
mod echo;
mod faults;
mod harness;
mod mailcomposer;
mod metadata;
mod permission;
mod researcher;
mod runtime;
mod state;
mod workspace_files;
mod workspace_folders;
mod workspace_terminals;
mod workspace_trees;

use std::sync::Arc;

use agent_client::program as agent_client_program;

use trilogue_domain::AgentName;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{
    Agent, AgentError, Input, Json, Message, Outcome, Part, Role, RunId, RunInfo, ThreadId,
    Timestamp, Turn, run_turn,
};

async fn turn(
    agent: &dyn Agent,
    recorder: &Arc<Recorder>,
    config: Option<Json>,
    turn: Turn,
) -> Result<Outcome, AgentError> {
    let agent_name = AgentName::parse("sample").unwrap();
    let info =
        RunInfo { run: RunId::generate(), thread: ThreadId::generate(), agent: agent_name, config };
    run_turn(agent, turn, info, recorder.clone()).await
}

fn start(messages: Vec<Vec<Part>>) -> Turn {
    let message = |parts| Message::new(Role::User, parts, Some(Timestamp::from_micros(0)));
    Turn::Start { input: Input::Messages(messages.into_iter().map(message).collect()) }
}
