use std::fmt;

use serde::Serialize;

use super::{Code, Payload};
use crate::json::{Json, scan::members, text};

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ErrorObject {
    pub code: Code,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

// === impl ErrorObject ===

impl ErrorObject {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn of(code: Code) -> Self {
        Self::new(code, code.text())
    }

    #[must_use]
    pub fn data(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }

    pub fn method_not_found(method: &str) -> Self {
        let data = serde_json::json!({ "method": method });
        Self::of(Code::METHOD_NOT_FOUND).data(Json::from_value(&data))
    }

    /// Reads a peer's error in any form: an error that cannot be understood is still an error.
    /// A code that is not a whole number becomes [`Code::INTERNAL_ERROR`]; a message that is not text becomes the code's text.
    pub fn read(json: &str) -> Self {
        let (mut code, mut message, mut data) = (None, None, None);
        for member in members(json) {
            match &*member.key {
                "code" => code = member.value.parse().ok().map(Code),
                "message" => message = text::decode(member.value),
                "data" => data = Some(member.value),
                _ => {}
            }
        }
        let code = code.unwrap_or(Code::INTERNAL_ERROR);
        Self {
            code,
            message: message.map_or_else(|| code.text().to_owned(), Into::into),
            data: data.filter(|data| *data != "null").and_then(|data| Json::parse(data).ok()),
        }
    }
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.0)
    }
}

impl std::error::Error for ErrorObject {}

impl Payload for ErrorObject {}
