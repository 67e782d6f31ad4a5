//! The errors of the protocol: one definition for each code.

use serde_json::{Value, json};
use trilogue_domain::Code;
use trilogue_wire::agent_connect::{ErrorDefinition, Json};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition {
    pub code: &'static str,
    /// Its own number. Below 1000 it ends runs; otherwise its first three digits are the HTTP status, and those of status 422 continue up to 4239.
    pub errcode: u32,
    pub transient: bool,
    /// The HTTP status of its response; 200 if it comes as the output of a run.
    pub http_status: u16,
    pub description: &'static str,
    pub data: ErrorData,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorData {
    None,
    /// The locations where a value does not fit its schema.
    Violations,
    /// Our own finer code, and the agent's details.
    Reason,
    /// The interrupt that is pending instead.
    Interrupt,
}

macro_rules! definitions {
    ($($code:literal $number:literal $transient:ident $status:literal $data:ident $description:literal)*) => {
        const ALL: &[Definition] = &[$(Definition {
            code: $code,
            errcode: $number,
            transient: definitions!(@ $transient),
            http_status: $status,
            description: $description,
            data: ErrorData::$data,
        },)*];
    };
    (@ transient) => { true };
    (@ permanent) => { false };
}

definitions! {
    "agent_error" 1 permanent 200 Reason "The agent failed."
    "output_schema_violation" 2 permanent 200 Reason "The agent's output does not fit the schema that it declares."
    "interrupt_schema_violation" 3 permanent 200 Reason "The agent raised an interrupt that it does not declare, or one that does not fit its schema."
    "run_timeout" 4 transient 200 Reason "The run's time was over before it ended."
    "run_cancelled" 5 permanent 200 Reason "The run was cancelled."
    "run_rolled_back" 6 permanent 200 Reason "The run was removed together with what it did."
    "worker_lost" 7 transient 200 Reason "The agent was lost with its process; what it did last is not known."
    "agent_unavailable" 8 transient 503 Reason "The agent cannot be reached."
    "resource_exhausted" 9 transient 503 None "No space is left for the request."
    "stream_update_schema_violation" 10 permanent 200 Reason "An update of the agent's own does not fit the schema that it declares."
    "unauthenticated" 4010 permanent 401 None "The request has no valid credentials."
    "forbidden" 4030 permanent 403 None "The credentials do not permit this."
    "not_found" 4040 permanent 404 None "Not found."
    "agent_not_found" 4041 permanent 404 None "Agent not found."
    "thread_not_found" 4042 permanent 404 None "Thread not found."
    "run_not_found" 4043 permanent 404 None "Run not found."
    "checkpoint_not_found" 4044 permanent 404 None "Checkpoint not found."
    "configuration_not_found" 4045 permanent 404 None "Configured instance not found."
    "method_not_allowed" 4050 permanent 405 None "The path does not take this method."
    "conflict" 4090 permanent 409 None "Something else stands in the way."
    "thread_exists" 4091 permanent 409 None "The id of the thread is taken."
    "thread_busy" 4092 transient 409 None "A run is pending on the thread."
    "run_not_interrupted" 4093 permanent 409 Interrupt "The run does not wait for this answer."
    "run_superseded" 4094 permanent 409 None "A newer run of the thread took the run's place."
    "configuration_exists" 4095 permanent 409 None "The id of the configured instance is taken."
    "payload_too_large" 4130 permanent 413 None "The request is larger than a limit."
    "validation_error" 4220 permanent 422 Violations "The request breaks a rule."
    "input_schema_violation" 4221 permanent 422 Violations "The input does not fit the agent's input schema."
    "config_schema_violation" 4222 permanent 422 Violations "The configuration does not fit the agent's config schema."
    "resume_schema_violation" 4223 permanent 422 Violations "The answer does not fit the interrupt's resume schema."
    "thread_state_schema_violation" 4224 permanent 422 Violations "The values do not fit the agent's thread state schema."
    "thread_state_incompatible" 4225 permanent 422 Violations "The state of the thread does not fit the agent's thread state schema."
    "invalid_json" 4226 permanent 422 None "The body is not JSON, or is nested too deep."
    "stream_mode_not_supported" 4227 permanent 422 None "The agent does not stream in this mode."
    "threads_not_supported" 4228 permanent 422 None "The agent does not run on threads."
    "configuration_not_supported" 4229 permanent 422 None "The agent takes no configuration."
    "messages_not_supported" 4230 permanent 422 None "The thread's state has no messages."
    "invalid_webhook" 4231 permanent 422 None "The callback's address cannot be called."
    "filter_too_broad" 4232 permanent 422 None "The search leaves too many candidates."
    "idempotency_mismatch" 4233 permanent 422 None "The idempotency key was used with another request."
    "agent_memory_not_rewindable" 4234 permanent 422 None "The agent's memory is its own and cannot be moved back."
    "rate_limited" 4290 transient 429 None "The caller is faster than a limit."
    "internal_error" 5000 permanent 500 None "A fault of the server."
    "overloaded" 5030 transient 503 None "The server cannot serve this now."
}

/// The definition of an unknown error.
const FALLBACK: Definition = Definition {
    code: "internal_error",
    errcode: 5_000,
    transient: false,
    http_status: 500,
    description: "A fault of the server.",
    data: ErrorData::None,
};

pub fn definitions() -> Vec<ErrorDefinition> {
    ALL.iter().map(Definition::to_wire).collect()
}

/// Returns the definition of a code; falls back to `internal_error`.
pub fn definition(code: &str) -> &'static Definition {
    definition_named(code).unwrap_or(&FALLBACK)
}

pub(super) fn definition_named(code: &str) -> Option<&'static Definition> {
    ALL.iter().find(|known| known.code == code)
}

pub(super) fn by_number(errcode: i64) -> Option<&'static Definition> {
    ALL.iter().find(|known| i64::from(known.errcode) == errcode)
}

/// Returns the definition of one of our codes. `already_exists` is a plain `conflict`: a caller that knows what exists uses a more precise one.
/// Codes that do not occur in this protocol's requests have the definition of their kind.
pub fn of_code(code: Code) -> &'static Definition {
    definition(match code {
        Code::InvalidInput => "input_schema_violation",
        Code::AnswerInvalid => "resume_schema_violation",
        Code::InvalidJson | Code::JsonTooDeep => "invalid_json",
        Code::InvalidRequest
        | Code::InvalidId
        | Code::InvalidCursor
        | Code::NotAcceptable
        | Code::NotImplemented
        | Code::UnsupportedMediaType
        | Code::UpgradeRequired => "validation_error",
        Code::HostNotAllowed | Code::OriginNotAllowed => "forbidden",
        Code::InterruptNotFound => "not_found",
        Code::AlreadyExists | Code::ThreadWaiting | Code::RunNotEnded => "conflict",
        Code::CallRefused => "validation_error",
        Code::ParentEnded
        | Code::RunNotRestored
        | Code::ThreadOfSubagent
        | Code::SubagentNotCancellable => "conflict",
        Code::RunEnded | Code::InterruptResolved | Code::InterruptMismatch => "run_not_interrupted",
        Code::BodyTooLarge
        | Code::JsonTooComplex
        | Code::EventTooLarge
        | Code::BlobTooLarge
        | Code::TooManyParts => "payload_too_large",
        Code::Overloaded => "rate_limited",
        Code::DiskFull => "resource_exhausted",
        Code::StoreReadOnly
        | Code::StoreUnavailable
        | Code::ThreadElsewhere
        | Code::OwnershipLost
        | Code::ShuttingDown => "overloaded",
        Code::AgentFailed
        | Code::AgentPanicked
        | Code::OutputInvalid
        | Code::ProtocolViolation
        | Code::RemoteOutputTooLarge
        | Code::EgressRefused => "agent_error",
        Code::AgentLost => "worker_lost",
        Code::AwaitTimeout => "run_timeout",
        Code::PeerUnavailable => "agent_unavailable",
        Code::StoreCorrupt
        | Code::StoreLocked
        | Code::StoreTooNew
        | Code::ThreadQuarantined
        | Code::Internal => "internal_error",
        same => same.as_str(),
    })
}

// === impl Definition ===

impl Definition {
    pub fn to_wire(&self) -> ErrorDefinition {
        ErrorDefinition {
            code: self.code.to_owned(),
            errcode: self.errcode,
            description: self.description.to_owned(),
            transient: self.transient,
            http_status: Some(self.http_status),
            schema: self.data.schema().map(|schema| Json::from_value(&schema)),
        }
    }
}

// === impl ErrorData ===

impl ErrorData {
    fn schema(self) -> Option<Value> {
        let place = json!({ "type": "string", "description": "A JSON Pointer" });
        match self {
            Self::None => None,
            Self::Violations => Some(json!({
                "type": "object",
                "properties": {
                    "path": place,
                    "errors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": { "instance_path": place, "message": { "type": "string" } },
                            "required": ["instance_path", "message"]
                        }
                    }
                },
                "required": ["path", "errors"]
            })),
            Self::Reason => Some(json!({
                "type": "object",
                "properties": {
                    "reason": { "type": "string", "description": "A finer code" },
                    "details": { "description": "What the agent has added" }
                },
                "required": ["reason"]
            })),
            Self::Interrupt => Some(json!({
                "type": "object",
                "properties": { "interrupt_id": { "type": "string" } },
                "required": ["interrupt_id"]
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_and_every_number_is_defined_once_and_the_number_says_the_status() {
        let (mut codes, mut numbers) = (HashSet::new(), HashSet::new());
        for known in ALL {
            assert!(codes.insert(known.code), "{} stands twice", known.code);
            assert!(numbers.insert(known.errcode), "{} stands twice", known.errcode);
            assert!(known.errcode < trilogue_domain::limits::FIRST_AGENT_ERROR, "{}", known.code);
            if known.errcode >= 1_000 {
                let kind = if known.errcode / 10 == 423 { 422 } else { known.errcode / 10 };
                assert_eq!(u32::from(known.http_status), kind, "{}", known.code);
            }
        }
        assert_eq!(definition(FALLBACK.code), &FALLBACK);
    }

    #[test]
    fn every_code_of_ours_has_a_definition_of_its_own_choice() {
        for code in Code::ALL {
            let found = of_code(*code);
            let is_ours = found.code == code.as_str();
            let is_fault = matches!(
                code,
                Code::Internal
                    | Code::StoreCorrupt
                    | Code::StoreLocked
                    | Code::StoreTooNew
                    | Code::ThreadQuarantined
            );
            assert!(is_ours || is_fault || *found != FALLBACK, "{code:?} has no definition");
            // Every protocol says the same about a retry.
            assert_eq!(found.transient, code.is_transient(), "{code:?}");
        }
        assert_eq!(of_code(Code::InvalidInput).errcode, 4_221);
        // Every definition must belong to one of our codes or be looked up by name; otherwise nothing raises it.
        const BY_NAME: [&str; 4] =
            ["run_cancelled", "thread_exists", "configuration_exists", "messages_not_supported"];
        for known in ALL {
            let of_ours = Code::ALL.iter().any(|code| of_code(*code) == known);
            assert!(of_ours || BY_NAME.contains(&known.code), "nothing raises {}", known.code);
        }
        assert_eq!(of_code(Code::ThreadBusy).http_status, 409);
        assert!(of_code(Code::ThreadBusy).transient);
    }
}
