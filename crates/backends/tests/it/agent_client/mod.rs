//! Hosted agents: real processes, tested through the runtime.

mod answers;
mod asking;
mod background;
mod blocks;
mod callers;
mod deaf;
mod editor_requests;
mod histories;
mod ids;
mod large;
mod malformed;
mod matrix;
mod openings;
mod permission_completion;
mod refusals;
mod remote;
mod remote_official;
mod repeats;
mod reused;
mod rig;
mod room;
mod sessions;
mod starting;
mod stopping;
mod subagent_questions;
mod subagents;
mod tenants;
mod turns;

pub(super) use rig::program;
