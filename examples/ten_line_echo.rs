//! The smallest agent, served: it repeats your message.

use trilogue::sdk::prelude::*;

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    let echo = agent_fn("ten-line-echo", "Repeats your message.", |turn, context| async move {
        context.text(turn.text()).await
    });
    trilogue::serve(echo, trilogue::ServeOptions::from_args()?).await
}
