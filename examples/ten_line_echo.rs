//! The smallest agent, served: it says what it hears.

use trilogue::sdk::prelude::*;

struct Echo;

#[async_trait]
impl Agent for Echo {
    fn card(&self) -> Card {
        Card::chat("ten-line-echo", "Says what it hears.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        context.text(turn.text()).await?;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Echo, trilogue::Options::default()).await
}
