use serde_json::{Value, json};
use trilogue_domain::{AgentCard, Code, Failure, Outcome};
use trilogue_wire::agent_connect::{Json, RunError};

use super::definitions::{Definition, definition, of_code};
use crate::native::json as to_wire;

pub fn run_error(outcome: &Outcome, card: &AgentCard, run_id: &str) -> Option<RunError> {
    match outcome {
        Outcome::Completed => None,
        Outcome::Failed(failure) => Some(error_of_failure(failure, card, run_id)),
        Outcome::Cancelled { reason: Some(Code::RunRolledBack) } => {
            let known = definition("run_rolled_back");
            Some(of(known, run_id, "the run was removed together with what it did", None))
        }
        Outcome::Cancelled { reason } => {
            let description = match reason {
                Some(Code::RunSuperseded) => "a newer run of the thread took the run's place",
                _ => "the run was cancelled",
            };
            let data = reason.map(|code| json!({ "reason": code.as_str() }));
            Some(of(definition("run_cancelled"), run_id, description, data))
        }
        Outcome::TimedOut { reason } => {
            let data = json!({ "reason": reason.as_str() });
            let description = "no answer in time";
            Some(of(definition("run_timeout"), run_id, description, Some(data)))
        }
    }
}

/// Converts a failure. A declared error of the agent is kept; one of ours becomes its counterpart in the protocol; any other becomes `agent_failed` with its code as the reason. That includes errors that refuse requests, because no request was refused.
fn error_of_failure(failure: &Failure, card: &AgentCard, run_id: &str) -> RunError {
    if let Some(declared) = card.errors.iter().find(|error| error.code == failure.code) {
        return RunError {
            run_id: run_id.to_owned(),
            errcode: i64::from(declared.number),
            description: failure.message.clone(),
            code: Some(declared.code.clone()),
            transient: declared.transient,
            data: failure.data.as_ref().map(to_wire),
        };
    }
    let known = Code::from_text(&failure.code).map(of_code).filter(|known| !is_refusal(known));
    let known = known.unwrap_or_else(|| definition("agent_error"));
    let is_said = failure.code == known.code || failure.code == Code::AgentFailed.as_str();
    let data = (!is_said || failure.data.is_some()).then(|| {
        let mut data = json!({ "reason": failure.code });
        if let (Some(details), Some(members)) = (&failure.data, data.as_object_mut()) {
            members.insert("details".to_owned(), details.to_value());
        }
        data
    });
    // The failure is more precise than the definition of its kind.
    let transient = failure.transient;
    RunError { transient, ..of(known, run_id, &failure.message, data) }
}

/// Whether the error only refuses requests. An invalid state also ends runs: an agent can set one, or find one.
fn is_refusal(known: &Definition) -> bool {
    let ends_too = [Code::StateInvalid, Code::StateIncompatible].map(Code::as_str);
    (4_000..5_000).contains(&known.errcode) && !ends_too.contains(&known.code)
}

fn of(known: &Definition, run_id: &str, description: &str, data: Option<Value>) -> RunError {
    RunError {
        run_id: run_id.to_owned(),
        errcode: i64::from(known.errcode),
        description: description.to_owned(),
        code: Some(known.code.to_owned()),
        transient: known.transient,
        data: data.map(|data| Json::from_value(&data)),
    }
}
