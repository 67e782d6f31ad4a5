//! The smallest agent behind a WebSocket: no server, no store.

use trilogue_sdk::prelude::*;
use trilogue_sdk::websocket;

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let echo = agent_fn("websocket-echo", "Repeats your message.", |turn, context| async move {
        context.text(turn.text()).await
    });
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    websocket::serve(address, echo, websocket::Options::default()).await
}
