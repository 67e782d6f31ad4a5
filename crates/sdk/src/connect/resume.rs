use serde::Serialize;
use trilogue_wire::native::Json;

use crate::client::call::json;

/// The answer to what a run asks: the payload that its type wants, for the interrupt that is open, or only for the one that it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resume {
    payload: Json,
    kind: Option<String>,
    interrupt: Option<String>,
}

// === impl Resume ===

impl Resume {
    /// The answer with this payload, for whatever the run asks.
    #[must_use]
    pub fn with(payload: impl Serialize) -> Self {
        json(&payload).unwrap_or_else(Json::null).into()
    }

    /// The same answer for an interrupt of this type, and no other. Only servers that know the document's form take it.
    #[must_use]
    pub fn of_type(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// The same answer for the interrupt of this type and with this id, and no other. Only servers of ours know ids.
    #[must_use]
    pub fn to(self, kind: impl Into<String>, interrupt: impl Into<String>) -> Self {
        Self { interrupt: Some(interrupt.into()), ..self.of_type(kind) }
    }

    /// The request's body: the payload itself, unless it says what it is for.
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
        let answer = Resume::with(crate::json!({ "a": 1 }));
        assert_eq!(answer.body().as_str(), r#"{"a":1}"#);
        let body = answer.clone().of_type("approval").body().to_value();
        assert_eq!(
            body,
            crate::json!({ "interrupt_type": "approval", "resume_payload": { "a": 1 } })
        );
        assert_eq!(answer.to("approval", "i").body().to_value()["interrupt_id"], "i");
    }
}
