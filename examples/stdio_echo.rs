//! The smallest agent of an editor: no server, no store, standard input and output.

use trilogue_sdk::prelude::*;

#[tokio::main]
async fn main() -> Result<(), AgentError> {
    let echo = agent_fn("stdio-echo", "Repeats your message.", |turn, context| async move {
        context.text(turn.text()).await
    });
    trilogue_sdk::stdio::serve(echo).await
}
