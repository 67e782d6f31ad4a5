//! Opens WebSockets.

use http::Method;
use trilogue_egress::{WebSocket, WebSocketOptions};

use super::{AgentUrl, ConnectError, ConnectionOptions};

pub(super) async fn open(
    agent: &AgentUrl,
    options: &ConnectionOptions,
) -> Result<WebSocket, ConnectError> {
    let request = agent.request(Method::GET)?;
    let request = request.body(()).map_err(|error| ConnectError::invalid(error.to_string()))?;
    let limits = WebSocketOptions::from(options);
    let opened = agent.egress()?.open_websocket(request, &limits).await;
    let (_, socket) = opened.map_err(|error| ConnectError::of(agent, &error))?;
    Ok(socket)
}
