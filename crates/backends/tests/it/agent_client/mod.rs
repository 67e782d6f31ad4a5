//! Hosted agents: real processes, spoken to through the runtime.

mod asking;
mod ids;
mod rig;
mod sessions;
mod starting;
mod stopping;
mod turns;

pub(super) use rig::program;
