//! The transport over a WebSocket.

use http::Method;
use trilogue_egress::{WebSocket, WebSocketOptions};

use super::{AgentUrl, ConnectError, Connection, ConnectionEnd, ConnectionOptions, EndKind};

pub(super) async fn connect(
    agent: &AgentUrl,
    options: &ConnectionOptions,
) -> Result<Connection, ConnectError> {
    let request = agent.request(Method::GET)?;
    let request = request.body(()).map_err(|error| ConnectError::invalid(error.to_string()))?;
    let limits = WebSocketOptions::from(options);
    let opened = agent.egress()?.open_websocket(request, &limits).await;
    let (_, socket) = opened.map_err(|error| ConnectError::of(agent, &error))?;
    let WebSocket { read, write, end } = socket;
    Ok(Connection { read, write, end: ConnectionEnd(EndKind::WebSocket(end)) })
}
