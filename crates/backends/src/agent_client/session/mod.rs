//! A session of an agent: its queue and actor, its modes, and what a thread keeps of it.

mod actor;
mod answer;
mod background;
mod binding;
mod choice;
mod family;
mod lease;
mod log_without_run;
mod modes;
mod network;
mod offers;
mod open_work;
mod replay;
#[expect(clippy::module_inception, reason = "the room is named after its most important type")]
mod session;
mod split_text;
mod start;
mod subagents;
mod threads;
mod transcript;

pub(super) use background::StartingSessions;
pub(super) use binding::{SessionBinding, SessionParams};
pub(super) use choice::{setting, settings_of};
pub(super) use family::OpenSubagents;
pub(super) use lease::SessionLease;
pub(super) use offers::Offers;
pub(super) use open_work::is_of_agent;
pub(super) use session::{KeptSession, Session};
pub(super) use start::SessionStart;
pub(super) use threads::{OpeningRollback, Thread, ThreadState, Threads};
