//! Errors in the form of the Agent Connect Protocol: an object, or the description alone if the mount is set so.

use http::{HeaderName, HeaderValue, StatusCode, header};
use trilogue_domain::{Code, Error};
use trilogue_mapping::connect::{Definition, definition, error_as, of_code};
use trilogue_wire::agent_connect::ErrorBody as Body;

use super::{ConnectCall, ErrorBody, State};
use crate::core::scheme::Scheme;
use crate::http::problem;
use crate::http::reply::Reply;

/// The code of the error, for programs that do not read bodies.
const ERROR_CODE: HeaderName = HeaderName::from_static("x-acp-error-code");
/// Whether the same request may succeed later.
const ERROR_TRANSIENT: HeaderName = HeaderName::from_static("x-acp-error-transient");

/// Returns the error as a response. Every response has the request's id in a header.
pub(super) fn respond(state: &State, error: &Error, request_id: Option<&str>) -> Reply {
    let known = of_code(error.code());
    answer(status(known, error.code()), known, state, &to_client_error(error, request_id))
}

pub(super) fn respond_with(status: StatusCode, call: &ConnectCall, error: &Error) -> Reply {
    answer(status, of_code(error.code()), &call.state, &to_client_error(error, None))
}

/// Returns the error as a response under a more precise code of the protocol.
pub(super) fn respond_as(code: &str, call: &ConnectCall, error: &Error) -> Reply {
    let known = definition(code);
    answer(status(known, error.code()), known, &call.state, &to_client_error(error, None))
}

pub(super) fn describe(error: &Error) -> Body {
    error_as(of_code(error.code()), &to_client_error(error, None))
}

fn answer(status: StatusCode, known: &Definition, state: &State, error: &Error) -> Reply {
    let body = error_as(known, error);
    let reply = match state.options.error_body {
        ErrorBody::Object => Reply::json(status, &body),
        ErrorBody::String => Reply::json(status, &body.description),
    };
    let transient = HeaderValue::from_static(if known.transient { "true" } else { "false" });
    let reply = problem::mark(reply, error)
        .header_text(ERROR_CODE, known.code)
        .header(ERROR_TRANSIENT, transient);
    if error.code() == Code::Unauthenticated { challenged(reply, state) } else { reply }
}

fn status(known: &Definition, code: Code) -> StatusCode {
    match known.http_status {
        // This error belongs to a run's output; as a response it appears only if other code reports it.
        200 => problem::status(code),
        status => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Returns the error for the client. The text of a server error stays in the server's log.
fn to_client_error(error: &Error, request_id: Option<&str>) -> Error {
    if error.code() != Code::Internal {
        return error.clone();
    }
    let problem = problem::describe(error, request_id);
    let published = Error::new(Code::Internal, problem.detail);
    match problem.hint {
        Some(hint) => published.hint(hint),
        None => published,
    }
}

/// Adds the schemes that the server accepts if the agent has no own setting.
fn challenged(reply: Reply, state: &State) -> Reply {
    let ways = Scheme::DEFAULT.iter().filter_map(|scheme| scheme.challenge());
    let reply = ways.fold(reply.without(&header::WWW_AUTHENTICATE), |reply, way| {
        reply.also(header::WWW_AUTHENTICATE, way)
    });
    let prefix = &state.place.prefix;
    reply.header_text(header::LINK, &format!("<{prefix}/authentication>; rel=\"authentication\""))
}
