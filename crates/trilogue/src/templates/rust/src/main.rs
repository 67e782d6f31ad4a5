//! NAME: an agent of the Agent Client Protocol.

use trilogue_sdk::prelude::*;

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let agent = agent_fn("NAME", "Repeats your message.", |turn, context| async move {
        context.text(format!("You said: {}", turn.text())).await
    });
    trilogue_sdk::stdio::serve(agent).await
}
