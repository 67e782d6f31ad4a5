use serde_json::json;
use trilogue_domain::Error;
use trilogue_wire::agent_connect::{ErrorBody, Json};

use super::definitions::{Definition, of_code};

pub fn error(error: &Error) -> ErrorBody {
    error_as(of_code(error.code()), error)
}

/// Like [`error`], under a more precise definition than the error's own code.
pub fn error_as(definition: &Definition, error: &Error) -> ErrorBody {
    let description = match error.hint_text() {
        Some(hint) => format!("{}; {hint}", error.message()),
        None => error.message().to_owned(),
    };
    ErrorBody {
        code: definition.code.to_owned(),
        errcode: definition.errcode,
        transient: definition.transient,
        data: data(error),
        detail: description.clone(),
        message: description.clone(),
        description,
    }
}

/// Returns the violations, or the pending interrupt.
fn data(error: &Error) -> Option<Json> {
    if let Some(pending) = error.pending_interrupt() {
        return Some(Json::from_value(&json!({ "interrupt_id": pending.as_str() })));
    }
    let violated = error.violated();
    let first = violated.first()?;
    let errors: Vec<_> = violated
        .iter()
        .map(|violation| json!({ "instance_path": violation.path, "message": violation.message }))
        .collect();
    Some(Json::from_value(&json!({ "path": first.path, "errors": errors })))
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{Code, InterruptId, Violation};

    use super::*;

    #[test]
    fn a_refusal_says_what_where_and_what_to_do() {
        let path = "/message".to_owned();
        let violation = Violation { path, message: "5 is not of type \"string\"".to_owned() };
        let refused = Error::new(Code::InvalidInput, "the input does not fit")
            .hint("send a string")
            .violations(vec![violation]);
        let body = serde_json::to_value(error(&refused)).unwrap();
        let text = "the input does not fit; send a string";
        assert_eq!(
            body,
            json!({
                "code": "input_schema_violation",
                "errcode": 4221,
                "description": text,
                "transient": false,
                "data": {
                    "path": "/message",
                    "errors": [{ "instance_path": "/message", "message": "5 is not of type \"string\"" }]
                },
                "detail": text,
                "message": text
            })
        );
    }

    #[test]
    fn a_missed_answer_names_the_interrupt_that_is_pending() {
        let pending = InterruptId::parse("i-2").unwrap();
        let missed = Error::new(Code::InterruptMismatch, "gone").pending(pending);
        let body = error(&missed);
        assert_eq!((body.code.as_str(), body.errcode), ("run_not_interrupted", 4_093));
        assert_eq!(body.data.unwrap().as_str(), r#"{"interrupt_id":"i-2"}"#);
    }
}
