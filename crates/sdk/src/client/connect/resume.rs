use serde::Serialize;
use trilogue_wire::native::Json;

use crate::client::call::json;

/// The answer to an interrupted run: the payload for its open interrupt, or only for the interrupt that the answer names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resume {
    payload: Json,
    kind: Option<String>,
    interrupt: Option<String>,
}

// === impl Resume ===

impl Resume {
    /// Returns an answer with this payload for the open interrupt.
    #[must_use]
    pub fn new(payload: impl Serialize) -> Self {
        json(&payload).unwrap_or_else(Json::null).into()
    }

    /// Answers only an interrupt of this type. Only servers that support the specification's form accept this.
    #[must_use]
    pub fn of_type(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// Answers only the interrupt of this type with this id. Only Trilogue servers know ids.
    #[must_use]
    pub fn for_interrupt(self, kind: impl Into<String>, interrupt: impl Into<String>) -> Self {
        Self { interrupt: Some(interrupt.into()), ..self.of_type(kind) }
    }

    /// Returns the request's body: the payload itself, unless the answer names its interrupt.
    pub(super) fn body(&self) -> Json {
        let Some(kind) = &self.kind else { return self.payload.clone() };
        let mut body = serde_json::json!({ "interrupt_type": kind });
        body["resume_payload"] = self.payload.to_value();
        if let Some(interrupt) = &self.interrupt {
            body["interrupt_id"] = interrupt.as_str().into();
        }
        Json::from_value(&body)
    }
}

impl From<Json> for Resume {
    fn from(payload: Json) -> Self {
        Self { payload, kind: None, interrupt: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_payload_unless_it_says_what_it_is_for() {
        let answer = Resume::new(crate::json!({ "a": 1 }));
        assert_eq!(answer.body().as_str(), r#"{"a":1}"#);
        let body = answer.clone().of_type("approval").body().to_value();
        assert_eq!(
            body,
            crate::json!({ "interrupt_type": "approval", "resume_payload": { "a": 1 } })
        );
        assert_eq!(answer.for_interrupt("approval", "i").body().to_value()["interrupt_id"], "i");
    }
}
