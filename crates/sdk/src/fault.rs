//! An agent's own errors as Rust types.

use schemars::JsonSchema;
use serde::Serialize;

/// An agent's own error: one type for each code. Programs get the value as data; a type without members adds no data.
///
/// Declare it with [`Card::fault`](crate::Card::fault), so that callers know the error in advance. A `?` in [`Agent::run`](crate::Agent::run) ends the run with it.
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
    /// The stable code: 1 to [`MAX_CODE_BYTES`](crate::error::MAX_CODE_BYTES) lower-case letters, digits, `_`, `-` or `.`. It must not be one of the server's codes.
    const CODE: &'static str;
    /// The condition, for people.
    const DESCRIPTION: &'static str;
    /// Whether the same request may succeed later.
    const TRANSIENT: bool = false;

    /// What happened this time, for people. The default is the description.
    fn message(&self) -> String {
        Self::DESCRIPTION.to_owned()
    }
}
