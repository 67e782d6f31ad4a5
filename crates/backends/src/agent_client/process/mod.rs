//! The processes of an agent: started, initialized, counted, watched and stopped. This module does not know sessions.

mod authentication;
mod greeting;
mod initialize;
mod lease;
mod pool;
mod principal;
#[expect(clippy::module_inception, reason = "the room is named after its most important type")]
mod process;
mod profile;

pub(super) use authentication::{AuthMode, Authentication};
pub(super) use greeting::{GreetingCache, json_of};
pub(super) use lease::ProcessLease;
pub(super) use pool::{OpeningGuard, Pool, ProcessSpec};
pub(super) use principal::PrincipalKey;
pub(super) use process::{AdoptedProcess, Process};
pub(super) use profile::Profile;

use std::time::Duration;

/// The timeout of a call that a client makes through the server: a person may have to sign in somewhere.
pub(super) const CLIENT_CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// The timeout of the server's own calls, such as closing a session.
pub(super) const SERVER_CALL_TIMEOUT: Duration = Duration::from_secs(5);
