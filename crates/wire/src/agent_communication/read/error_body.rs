use serde::Deserialize;

use super::super::{ErrorBody, ErrorCode};
use super::given::Given;
use super::leaf::{Object, Text};
use super::members::object;
use super::raw::Raw;
use super::{At, Read, Violation, quoted};

/// An error as it was sent.
#[derive(Debug, Deserialize)]
pub struct Draft {
    #[serde(default)]
    code: Given<Text>,
    #[serde(default)]
    message: Given<Text>,
    #[serde(default)]
    data: Given<Raw>,
}

// === impl ErrorBody ===

impl Read for ErrorBody {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        let code = at.key("code");
        let data = at.key("data");
        Ok(Self {
            code: code_of(&draft.code.required(&code)?.0, &code)?,
            message: draft.message.required(&at.key("message"))?.0,
            data: match draft.data.optional() {
                Some(raw) if at.is_peer() => Some(raw.0),
                Some(raw) => Some(object(raw, &data)?),
                None => None,
            },
        })
    }
}

fn code_of(text: &str, at: &At<'_>) -> Result<ErrorCode, Violation> {
    match text {
        "server_error" => Ok(ErrorCode::ServerError),
        "invalid_input" => Ok(ErrorCode::InvalidInput),
        "not_found" => Ok(ErrorCode::NotFound),
        _ if at.is_peer() => Ok(ErrorCode::ServerError),
        _ => Err(at.violation(format!(
            "must be \"server_error\", \"invalid_input\" or \"not_found\", not {}",
            quoted(text)
        ))),
    }
}
