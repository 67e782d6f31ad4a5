//! Errors as RFC 9457 problem details, and the one table from error class to status.

use http::{HeaderValue, StatusCode, header};
use trilogue_domain::error::Class;
use trilogue_domain::{Code, Error};
use trilogue_wire::native::Problem;

use super::reply::Reply;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"trilogue\"");
const SOON: HeaderValue = HeaderValue::from_static("1");

pub(crate) fn status(code: Code) -> StatusCode {
    match code {
        Code::MethodNotAllowed => return StatusCode::METHOD_NOT_ALLOWED,
        Code::NotAcceptable => return StatusCode::NOT_ACCEPTABLE,
        Code::UnsupportedMediaType => return StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::UpgradeRequired => return StatusCode::UPGRADE_REQUIRED,
        Code::NotImplemented => return StatusCode::NOT_IMPLEMENTED,
        _ => {}
    }
    match code.class() {
        Class::Invalid => StatusCode::BAD_REQUEST,
        Class::Unauthenticated => StatusCode::UNAUTHORIZED,
        Class::Forbidden => StatusCode::FORBIDDEN,
        Class::NotFound => StatusCode::NOT_FOUND,
        Class::Conflict => StatusCode::CONFLICT,
        Class::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        Class::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Class::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Class::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Class::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Class::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the error as an object. The text of a server error stays in the server's log.
pub(crate) fn describe(error: &Error, request_id: Option<&str>) -> Problem {
    let code = error.code();
    let internal = code == Code::Internal;
    if internal {
        tracing::error!(error = %error, request_id, "a request failed by a fault of ours");
    }
    let mut detail = if internal { "the server met a fault of its own" } else { error.message() };
    if detail.is_empty() {
        detail = code.as_str();
    }
    let hint = if internal {
        Some("the server's log has the details under the request id".to_owned())
    } else {
        error.hint_text().map(str::to_owned)
    };
    Problem {
        kind: format!("urn:trilogue:error:{}", code.as_str()),
        title: code.as_str().replace('_', " "),
        status: status(code).as_u16(),
        code: code.as_str().to_owned(),
        detail: detail.to_owned(),
        hint,
        interrupt_id: error.pending_interrupt().map(|id| id.as_str().to_owned()),
        transient: code.is_transient(),
        request_id: request_id.map(str::to_owned),
    }
}

pub(crate) fn respond(error: &Error, request_id: Option<&str>) -> Reply {
    let reply = Reply::json(status(error.code()), &describe(error, request_id))
        .header(header::CONTENT_TYPE, PROBLEM_JSON);
    mark(reply, error)
}

/// Adds the headers that tell the client how to handle an error.
pub(crate) fn mark(mut reply: Reply, error: &Error) -> Reply {
    let code = error.code();
    match code.class() {
        Class::Unauthenticated => reply = reply.header(header::WWW_AUTHENTICATE, CHALLENGE),
        Class::TooMany | Class::Unavailable if code.is_transient() => {
            reply = reply.header(header::RETRY_AFTER, SOON);
        }
        _ => {}
    }
    if let Some(id) = error.pending_interrupt()
        && let Ok(id) = HeaderValue::from_str(id.as_str())
    {
        reply = reply.header(super::reply::INTERRUPT_ID, id);
    }
    reply
}
