use std::time::Duration;

use trilogue_sdk::prelude::*;

pub(crate) struct Waiter;

#[async_trait]
impl Agent for Waiter {
    fn card(&self) -> Card {
        Card::chat("waiter", "Waits a while.")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(60)) => context.text("Done.").await?,
            () = context.cancelled() => context.text("Stopped.").await?,
        }
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Waiter, trilogue::ServeOptions::from_args()?).await
}
