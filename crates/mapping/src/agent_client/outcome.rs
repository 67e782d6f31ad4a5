//! Converts ends of runs to results of their prompts.

use std::borrow::Cow;

use serde_json::json;
use trilogue_domain::Outcome;
use trilogue_wire::agent_client::{StopReason, splice};
use trilogue_wire::jsonrpc::{Code, ErrorObject};
use trilogue_wire::native::Json;

use super::error::error_of_failure;

/// Whether an agent's own result says that the prompt was cancelled.
#[must_use]
pub fn is_cancelled_result(result: &str) -> bool {
    let said = splice::get_text(result, &["stopReason"]).map(|word| StopReason::parse(&word));
    said == Some(StopReason::Cancelled)
}

/// Returns the result of the `session/prompt` for a run's outcome. `result` is the agent's own, an original of the dialect [`super::RESULT`]; its `userMessageId` is replaced or removed.
/// The stop reason is always one of the protocol's.
/// Fails with the error of the run.
pub fn prompt_result(
    outcome: &Outcome,
    result: Option<&str>,
    user_message_id: Option<&str>,
) -> Result<Vec<u8>, ErrorObject> {
    let usual = match outcome {
        Outcome::Completed => StopReason::EndTurn,
        Outcome::Cancelled { .. } => StopReason::Cancelled,
        Outcome::Failed(failure) => return Err(error_of_failure(failure)),
        Outcome::TimedOut { reason } => {
            let data = json!({ "code": reason.as_str(), "transient": reason.is_transient() });
            let error = ErrorObject::new(Code::INTERNAL_ERROR, "no answer in time");
            return Err(error.data(Json::from_value(&data)));
        }
    };
    let result = result.filter(|result| result.starts_with('{')).unwrap_or("{}");
    let said = splice::get_text(result, &["stopReason"]).map(|word| StopReason::parse(&word));
    let stop = match (said, &usual) {
        (Some(said), StopReason::EndTurn) if said.is_known() => said,
        _ => usual,
    };
    let stopped = splice::set_text(result, &["stopReason"], stop.as_str());
    let stopped = stopped.unwrap_or_else(|| format!("{{\"stopReason\":\"{}\"}}", stop.as_str()));
    let told = match user_message_id {
        Some(id) => splice::set_text(&stopped, &["userMessageId"], id).map(Cow::Owned),
        None => Some(splice::remove(&stopped, &["userMessageId"])),
    };
    Ok(told.unwrap_or(Cow::Borrowed(&stopped)).into_owned().into_bytes())
}
