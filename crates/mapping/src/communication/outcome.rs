use serde_json::json;
use trilogue_domain::{Code, Failure, Outcome, RunStatus};
use trilogue_wire::agent_communication::{ErrorBody, ErrorCode, Json, RunStatus as WireStatus};

/// Converts a run's status. A timed-out run has failed.
pub fn status(status: RunStatus) -> WireStatus {
    match status {
        RunStatus::Queued => WireStatus::Created,
        RunStatus::Running => WireStatus::InProgress,
        RunStatus::Interrupted => WireStatus::Awaiting,
        RunStatus::Cancelling => WireStatus::Cancelling,
        RunStatus::Completed => WireStatus::Completed,
        RunStatus::Failed | RunStatus::TimedOut => WireStatus::Failed,
        RunStatus::Cancelled => WireStatus::Cancelled,
    }
}

pub fn error(outcome: &Outcome) -> Option<ErrorBody> {
    match outcome {
        Outcome::Completed | Outcome::Cancelled { .. } => None,
        Outcome::Failed(failure) => Some(error_of_failure(failure)),
        Outcome::TimedOut { reason } => {
            let data = json!({ "reason": reason.as_str(), "transient": reason.is_transient() });
            Some(ErrorBody {
                code: ErrorCode::ServerError,
                message: "no answer in time".to_owned(),
                data: Some(Json::from_value(&data)),
            })
        }
    }
}

/// Converts a failure. The protocol has three codes; ours and the agent's own are in `data`.
fn error_of_failure(failure: &Failure) -> ErrorBody {
    let code = match failure.code.as_str() {
        code if code == Code::InvalidInput.as_str() => ErrorCode::InvalidInput,
        code if code == Code::NotFound.as_str() => ErrorCode::NotFound,
        _ => ErrorCode::ServerError,
    };
    let says_all = code != ErrorCode::ServerError && !failure.transient && failure.data.is_none();
    let data = (!says_all).then(|| {
        let mut data = json!({ "reason": failure.code, "transient": failure.transient });
        if let (Some(details), Some(data)) = (&failure.data, data.as_object_mut()) {
            data.insert("details".to_owned(), details.to_value());
        }
        Json::from_value(&data)
    });
    ErrorBody { code, message: failure.message.clone(), data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str, data: Option<serde_json::Value>) -> serde_json::Value {
        let failure = Failure {
            code: code.to_owned(),
            message: "why".to_owned(),
            transient: false,
            data: data.map(|data| trilogue_domain::Json::from_value(&data)),
        };
        serde_json::to_value(error(&Outcome::Failed(failure)).unwrap()).unwrap()
    }

    #[test]
    fn clients_meet_three_codes_and_the_reason_stands_in_the_data() {
        let plain = json!({ "code": "invalid_input", "message": "why", "data": null });
        assert_eq!(body("invalid_input", None), plain);
        let own = body("quota", Some(json!([1])));
        assert_eq!(own["code"], "server_error");
        assert_eq!(own["data"], json!({ "reason": "quota", "transient": false, "details": [1] }));
        let late = error(&Outcome::TimedOut { reason: Code::AwaitTimeout }).unwrap();
        assert!(late.data.unwrap().as_str().contains("await_timeout"));
        assert_eq!(error(&Outcome::Cancelled { reason: None }), None);
    }
}
