use serde_json::Value;
use trilogue_domain::{Code, Failure, Json};
use trilogue_wire::agent_connect::RunError;

use crate::connect::definitions::{by_number, definition_named, of_code};
use crate::native::read_json;

/// Returns why a remote run failed, or was refused. Keeps the reason and the details of our servers, and the code of an agent's own error.
#[must_use]
pub fn remote_failure(error: &RunError) -> Failure {
    let data = error.data.as_ref().map(|data| data.to_value()).unwrap_or_default();
    let reason = data.get("reason").and_then(Value::as_str);
    let known = match &error.code {
        Some(code) => definition_named(code),
        None => by_number(error.errcode),
    };
    let code = match (reason, known, &error.code) {
        (Some(reason), ..) => reason.to_owned(),
        (None, Some(known), _) => {
            let ours = Code::from_text(known.code)
                .or_else(|| Code::ALL.iter().copied().find(|code| of_code(*code) == known));
            ours.unwrap_or(Code::AgentFailed).as_str().to_owned()
        }
        (None, None, Some(own)) => own.clone(),
        (None, None, None) => Code::AgentFailed.as_str().to_owned(),
    };
    let details = match reason {
        Some(_) => data.get("details").map(Json::from_value),
        None => error.data.clone().and_then(|data| read_json(data).ok()),
    };
    Failure { code, message: error.description.clone(), transient: error.transient, data: details }
}
