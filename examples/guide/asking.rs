use trilogue_sdk::prelude::*;

pub(crate) struct Cleaner;

#[async_trait]
impl Agent for Cleaner {
    fn card(&self) -> Card {
        Card::chat("cleaner", "Removes old files, if it may.")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let question = Question::permission("Remove 3 old files?").payload(json!({ "files": 3 }));
        let decision = context.ask_permission(question).await?;
        let reply = if decision.allowed { "Removed." } else { "I left them alone." };
        context.text(reply).await?;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Cleaner, trilogue::ServeOptions::from_args()?).await
}
