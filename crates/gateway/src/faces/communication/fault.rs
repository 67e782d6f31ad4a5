//! Errors in the form of the Agent Communication Protocol: three codes, a message, and our own detail as data.

use http::StatusCode;
use serde::Serialize;
use trilogue_domain::error::Class;
use trilogue_domain::{Code, Error};
use trilogue_wire::agent_communication::{ErrorBody, ErrorCode, Json};
use trilogue_wire::native::Problem;

use crate::http::problem;
use crate::http::reply::Reply;

/// The error's `data`: what programs can branch on beyond the protocol's three codes.
#[derive(Serialize)]
struct Data {
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    transient: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupt_id: Option<String>,
}

pub(crate) fn status(code: Code) -> StatusCode {
    match code.class() {
        _ if code == Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        // A session whose run waits accepts no further run, so the request is invalid.
        _ if code == Code::ThreadWaiting => StatusCode::BAD_REQUEST,
        Class::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Class::Conflict => StatusCode::FORBIDDEN,
        _ => problem::status(code),
    }
}

/// Returns the error as an object, for a response with this status.
pub(crate) fn describe(error: &Error, status: StatusCode, request_id: Option<&str>) -> ErrorBody {
    let Problem { code: reason, detail, hint, interrupt_id, transient, request_id, .. } =
        problem::describe(error, request_id);
    let code = match status {
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::InvalidInput,
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        _ => ErrorCode::ServerError,
    };
    let data = Data { reason, hint, transient, request_id, interrupt_id };
    let data = serde_json::to_string(&data).ok().and_then(|text| Json::parse(text).ok());
    ErrorBody { code, message: detail, data }
}

pub(crate) fn respond(error: &Error, request_id: Option<&str>) -> Reply {
    respond_with(status(error.code()), error, request_id)
}

pub(crate) fn respond_with(status: StatusCode, error: &Error, request_id: Option<&str>) -> Reply {
    problem::mark(Reply::json(status, &describe(error, status, request_id)), error)
}
