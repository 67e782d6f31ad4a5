use trilogue_sdk::prelude::*;

pub(crate) struct Echo;

#[async_trait]
impl Agent for Echo {
    fn card(&self) -> Card {
        Card::chat("echo", "Repeats your message.").version("1.0.0")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        context.text(turn.text()).await?;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Echo, trilogue::ServeOptions::from_args()?).await
}
