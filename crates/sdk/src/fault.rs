//! Errors of an agent's own, as Rust types.

use schemars::JsonSchema;
use serde::Serialize;

/// An error of an agent's own: one type for each code. The value is what programs are told of it; a type without members tells nothing more.
///
/// [`Card::fault`](crate::Card::fault) declares it, so that callers can read of it before it happens, and a `?` in [`Agent::run`](crate::Agent::run) ends the run with it.
///
/// ```
/// use trilogue_sdk::prelude::*;
///
/// #[derive(serde::Serialize, JsonSchema)]
/// struct QuotaUsedUp {
///     /// How many mails may be sent a day.
///     mails_a_day: u32,
/// }
///
/// impl AgentFault for QuotaUsedUp {
///     const CODE: &'static str = "quota_used_up";
///     const DESCRIPTION: &'static str = "No more mails may be sent today.";
///     const TRANSIENT: bool = true;
/// }
/// ```
pub trait AgentFault: Serialize + JsonSchema {
    /// Its stable code: 1 to [`MAX_CODE_BYTES`](crate::error::MAX_CODE_BYTES) lower-case letters, digits, `_`, `-` or `.`, and none of the server's own.
    const CODE: &'static str;
    /// The condition, for people.
    const DESCRIPTION: &'static str;
    /// Whether the same request may succeed later.
    const TRANSIENT: bool = false;

    /// What happened this time, for people: the description unless there is more to say.
    fn message(&self) -> String {
        Self::DESCRIPTION.to_owned()
    }
}
