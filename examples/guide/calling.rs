use trilogue_sdk::prelude::*;

pub(crate) struct Editor;

#[async_trait]
impl Agent for Editor {
    fn card(&self) -> Card {
        Card::chat("editor", "Has a text written, and reviewed.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        // A call that is awaited gives everything that the agent said.
        let draft = context.call("writer", turn.text()).await?;
        context.artifact("draft.txt", Part::text(draft.text())).await?;

        // A started call is read while it runs.
        let mut review = context.call("reviewer", draft.text()).start().await?;
        while let Some(words) = review.next_text().await? {
            context.text(words).await?;
        }
        review.await?;
        Ok(Outcome::Completed)
    }
}

pub(crate) async fn write(turn: Turn, context: Context) -> Result<(), AgentError> {
    context.text(format!("About {}: it is well known.", turn.text())).await
}

pub(crate) async fn review(turn: Turn, context: Context) -> Result<(), AgentError> {
    let question = Question::permission("Print this?").payload(json!({ "text": turn.text() }));
    let decision = context.ask_permission(question).await?;
    context.text(if decision.allowed { "Printed." } else { "Not printed." }).await
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    let agents = trilogue::Agents::new()
        .with(Editor)
        .with(agent_fn("writer", "Writes about a subject.", write))
        .with(agent_fn("reviewer", "Asks whether a text is good.", review));
    trilogue::serve(agents, trilogue::ServeOptions::from_args()?).await
}
