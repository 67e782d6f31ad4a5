use super::Json;
use super::metadata::json_object;
use super::object::object;
use crate::json::member::{optional, required};
use crate::json::words::words;
use crate::json::{Path, Violation};

object! {
    /// Why an operation failed: the body of a response, a failed run's `error`, or an event.
    pub struct ErrorBody {
        code: ErrorCode = known_code;
        message: String = required;
        /// More detail for machines: a JSON object.
        data: Option<Json> = details;
    }
}

words! {
    pub enum ErrorCode {
        /// Every failure without its own code.
        ServerError = "server_error";
        InvalidInput = "invalid_input";
        NotFound = "not_found";
    }
}

// === impl ErrorBody ===

impl ErrorBody {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Peers also use other codes.
fn known_code(json: Option<&str>, at: &Path<'_>) -> Result<ErrorCode, Violation> {
    match (required(json, at), json) {
        (Err(_), Some(json)) if at.is_lenient() && json.starts_with('"') => {
            Ok(ErrorCode::ServerError)
        }
        (read, _) => read,
    }
}

fn details(json: Option<&str>, at: &Path<'_>) -> Result<Option<Json>, Violation> {
    if at.is_lenient() { optional(json, at) } else { json_object(json, at) }
}
