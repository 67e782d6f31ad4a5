//! The server's side of a connection.

use std::time::Duration;

use http::header::{AUTHORIZATION, ORIGIN};
use http::{HeaderName, HeaderValue, StatusCode};
use subtle::ConstantTimeEq;
use tokio::net::TcpStream;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use trilogue_egress::{WebSocket, WebSocketOptions, WebSocketRole};
use uuid::Uuid;

use super::{ConnectError, Connection, ConnectionEnd, ConnectionOptions, EndKind};

/// Names the connection in the response to the handshake.
const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");

/// What a server of an agent accepts.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AcceptOptions {
    /// The token that clients send as `Authorization: Bearer`. `None` accepts all that can reach the listener, except pages in browsers.
    pub token: Option<String>,
    /// The limits of each connection.
    pub connection: ConnectionOptions,
}

/// Accepts a WebSocket from a client that has connected to a listener. A page in a browser is refused: it would act for its reader.
///
/// # Errors
/// If the client sends no valid handshake in time, or is refused.
pub async fn accept(
    stream: TcpStream,
    options: &AcceptOptions,
) -> Result<Connection, ConnectError> {
    // Small messages must not wait for each other. A system that cannot do that is only slower.
    drop(stream.set_nodelay(true));
    #[expect(clippy::result_large_err, reason = "the library wants a whole response")]
    let check = |request: &Request, response| check(request, response, options.token.as_deref());
    let limit = options.connection.connect_timeout;
    let accepted = tokio::time::timeout(limit, accept_hdr_async(stream, check)).await;
    let accepted = accepted.map_err(|_| timed_out(limit))?;
    let socket = accepted
        .map_err(|error| ConnectError::invalid(format!("the handshake failed: {error}")))?;
    let limits = WebSocketOptions::from(&options.connection);
    // Nothing was read beyond the handshake: a client waits for its response.
    let socket = WebSocket::start(socket.into_inner(), WebSocketRole::Server, &limits).await;
    let WebSocket { read, write, end } = socket;
    Ok(Connection { read, write, end: ConnectionEnd(EndKind::WebSocket(end)) })
}

fn timed_out(limit: Duration) -> ConnectError {
    ConnectError::invalid(format!("the handshake was not complete within {} s", limit.as_secs()))
}

#[expect(clippy::result_large_err, reason = "the library wants a whole response")]
fn check(
    request: &Request,
    mut response: Response,
    token: Option<&str>,
) -> Result<Response, ErrorResponse> {
    if request.headers().contains_key(ORIGIN) {
        return Err(refusal(StatusCode::FORBIDDEN));
    }
    if let Some(token) = token {
        let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        // In a time that depends only on the lengths.
        let is_right = sent.unwrap_or_default().ct_eq(format!("Bearer {token}").as_bytes());
        if !bool::from(is_right) {
            return Err(refusal(StatusCode::UNAUTHORIZED));
        }
    }
    if let Ok(id) = HeaderValue::from_str(&Uuid::new_v4().to_string()) {
        response.headers_mut().insert(CONNECTION_ID, id);
    }
    Ok(response)
}

fn refusal(status: StatusCode) -> ErrorResponse {
    let mut response = ErrorResponse::new(None);
    *response.status_mut() = status;
    response
}

/// Does not show the token.
impl std::fmt::Debug for AcceptOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptOptions")
            .field("has_token", &self.token.is_some())
            .field("connection", &self.connection)
            .finish()
    }
}
