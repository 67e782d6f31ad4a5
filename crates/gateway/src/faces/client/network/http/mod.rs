//! Clients over HTTP: each message is the body of a request, and what the server sends comes as server-sent events.
//!
//! The request `initialize` begins a connection. Its id is in the header `Acp-Connection-Id` of the response and of every later request.

pub(in crate::faces::client) mod connection;
mod reader;
mod routing;
mod serving;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, ThreadId};
use trilogue_mapping::native::escape_for_message;
use trilogue_wire::jsonrpc::{Id, Incoming, Invalid, Reason, parse};

use self::connection::HttpConnection;
use self::routing::{StreamKey, session_in};
use super::admission::{CONNECTION_ID, ClientCall, admit, agent};
use crate::core::not_found::no_thread;
use crate::faces::common::cursors::LAST_EVENT_ID;
use crate::faces::common::idempotency::keyed_body;
use crate::http::body::ReplyBody;
use crate::http::reply::Reply;

/// The session of a request or a stream.
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// A message of the client, as far as its transport reads it.
struct PostedMessage {
    /// The id and the method of a request.
    request: Option<(Id<'static>, String)>,
    session: Option<ThreadId>,
}

/// Ends a connection whose first request was given up, because the client does not know its id.
struct CloseUnlessOpen(Option<Arc<HttpConnection>>);

/// Takes one message.
pub(super) async fn post(call: &ClientCall) -> Result<Reply> {
    let agent = agent(call)?;
    if !has_type(call, JSON) {
        return Err(Error::new(Code::UnsupportedMediaType, "the body of a message is JSON")
            .hint("send 'Content-Type: application/json'"));
    }
    let most = call.state.options.max_line_bytes;
    if call.body.len() > most {
        let message = format!("the message is longer than {most} bytes");
        return Err(
            Error::new(Code::BodyTooLarge, message).hint("an operator may raise `client.max_line`")
        );
    }
    let message = PostedMessage::read(&call.body)?;
    let is_initialize = message.request.as_ref().is_some_and(|(_, name)| name == "initialize");
    match call.header(&CONNECTION_ID) {
        None if is_initialize => initialize(call, agent).await,
        None => Err(no_connection()),
        Some(_) if is_initialize => {
            Err(Error::new(Code::InvalidRequest, "the connection is initialized already")
                .hint("send 'initialize' without 'Acp-Connection-Id' to begin another one"))
        }
        Some(id) => {
            let connection = call.state.http_connections.find(id, &call.caller, &agent)?;
            check_session(call, &message)?;
            let request = message.request.as_ref().map(|(id, _)| (id, message.session));
            match keyed_body(call)? {
                Some(key) => connection.post_once(key, call.body.clone(), request).await?,
                None => {
                    if let Some((id, session)) = request {
                        connection.on_request(id, session)?;
                    }
                    connection.post(call.body.clone()).await?;
                }
            }
            Ok(Reply::new(StatusCode::ACCEPTED, ReplyBody::Whole(None)))
        }
    }
}

/// Begins a connection, and responds to its first request.
async fn initialize(call: &ClientCall, agent: AgentName) -> Result<Reply> {
    check_accept(call, JSON)?;
    let admission = admit(&call.state, &call.caller)?;
    let connection = serving::begin(&call.state, &call.caller, agent, admission);
    let mut guard = CloseUnlessOpen(Some(connection.clone()));
    let response = connection.expect_first_response();
    connection.post(call.body.clone()).await?;
    let Ok(response) = response.await else {
        return Err(no_response(call));
    };
    // An agent can take long to start.
    connection.touch();
    let is_open = parse(&response).is_ok_and(|message| match message {
        Incoming::Response(response) => response.outcome.is_ok(),
        Incoming::Request(_) | Incoming::Notification(_) => false,
    });
    let reply = Reply::json_bytes(StatusCode::OK, response);
    if !is_open {
        return Ok(reply);
    }
    guard.0 = None;
    Ok(reply.header_text(CONNECTION_ID, &connection.id))
}

/// Returns why a connection ended before its first response.
fn no_response(call: &ClientCall) -> Error {
    if call.state.is_draining() {
        return Error::new(Code::ShuttingDown, "the server ends its connections");
    }
    Error::new(Code::Overloaded, "the connection ended before its first response").hint(
        "read the messages of your other connections; an operator may raise `server.limits.max_responses`",
    )
}

/// Opens a stream of server-sent events.
pub(super) fn stream(call: &ClientCall) -> Result<Reply> {
    let agent = agent(call)?;
    check_accept(call, EVENT_STREAM)?;
    let connection = find(call, &agent)?;
    let stream = match call.header(&SESSION_ID) {
        None => StreamKey::Connection,
        Some(session) => StreamKey::Session(session_id(session)?),
    };
    let after = match call.header(&LAST_EVENT_ID).filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => Some(id.parse().map_err(|_| {
            let message = format!("invalid 'Last-Event-ID' '{}'", escape_for_message(id));
            Error::new(Code::InvalidCursor, message).hint("send the id of an event of this stream")
        })?),
    };
    reader::open(call, connection, stream, after)
}

/// Ends a connection.
pub(super) fn delete(call: &ClientCall) -> Result<Reply> {
    let agent = agent(call)?;
    find(call, &agent)?.close();
    Ok(Reply::new(StatusCode::ACCEPTED, ReplyBody::Whole(None)))
}

fn find(call: &ClientCall, agent: &AgentName) -> Result<Arc<HttpConnection>> {
    let id = call.header(&CONNECTION_ID).ok_or_else(no_connection)?;
    call.state.http_connections.find(id, &call.caller, agent)
}

fn no_connection() -> Error {
    Error::new(Code::InvalidRequest, "the header 'Acp-Connection-Id' is missing")
        .hint("send the id from the response to 'initialize'")
}

fn session_id(text: &str) -> Result<ThreadId> {
    ThreadId::parse(text).map_err(|_| no_thread(text))
}

/// The header of a session is optional, because the message names it. The response to a request of the server names none.
fn check_session(call: &ClientCall, message: &PostedMessage) -> Result<()> {
    let (Some(named), Some(session)) = (call.header(&SESSION_ID), &message.session) else {
        return Ok(());
    };
    if named == session.as_str() {
        return Ok(());
    }
    Err(Error::new(Code::InvalidRequest, "'Acp-Session-Id' and 'sessionId' differ")
        .hint("leave the header out, or send the same id"))
}

/// Whether the body has this type.
fn has_type(call: &ClientCall, wanted: &str) -> bool {
    let sent = call.header(&header::CONTENT_TYPE).unwrap_or_default();
    sent.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case(wanted))
}

/// Fails with `not_acceptable` if the client says that it does not accept a response of this type.
fn check_accept(call: &ClientCall, kind: &str) -> Result<()> {
    let mut values = call.headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let (group, _) = kind.split_once('/').unwrap_or((kind, ""));
    let accepts = |entry: &str| {
        let entry = entry.split(';').next().unwrap_or_default().trim();
        entry == "*/*"
            || entry.eq_ignore_ascii_case(kind)
            || entry.strip_suffix("/*").is_some_and(|it| it.eq_ignore_ascii_case(group))
    };
    let texts = values.filter_map(|value| value.to_str().ok());
    if texts.flat_map(|value| value.split(',')).any(accepts) {
        return Ok(());
    }
    Err(Error::new(Code::NotAcceptable, format!("the response has the type {kind}"))
        .hint(format!("send 'Accept: {kind}'; for a WebSocket, send 'Upgrade: websocket'")))
}

// === impl PostedMessage ===

impl PostedMessage {
    /// # Errors
    /// `not_implemented` for a batch, `invalid_json` or `invalid_request` for another body that is not a message.
    fn read(body: &Bytes) -> Result<Self> {
        let params = |params: Option<&serde_json::value::RawValue>| session_in(params?.get());
        match parse(body).map_err(|invalid| to_error(&invalid))? {
            Incoming::Request(request) => Ok(Self {
                request: Some((request.id.into_owned(), request.method.into_owned())),
                session: params(request.params),
            }),
            Incoming::Notification(notification) => {
                Ok(Self { request: None, session: params(notification.params) })
            }
            Incoming::Response(_) => Ok(Self { request: None, session: None }),
        }
    }
}

fn to_error(invalid: &Invalid<'_>) -> Error {
    let code = match invalid.reason {
        Reason::Batch => Code::NotImplemented,
        Reason::Blank | Reason::NotUtf8 | Reason::NotJson => Code::InvalidJson,
        Reason::TooDeep(_) => Code::JsonTooDeep,
        Reason::TooComplex => Code::JsonTooComplex,
        _ => Code::InvalidRequest,
    };
    Error::new(code, format!("the body is no message of JSON-RPC: {}", invalid.reason))
        .hint("send one request, notification or response as a JSON object")
}

// === impl CloseUnlessOpen ===

impl Drop for CloseUnlessOpen {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.close();
        }
    }
}
