use serde::{Deserialize, Serialize};
use trilogue_sdk::prelude::*;

pub(crate) struct Counter;

#[derive(Deserialize, Serialize, JsonSchema, Default)]
#[serde(default)]
struct State {
    turns: u32,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(default)]
struct Config {
    shout: bool,
}

#[async_trait]
impl Agent for Counter {
    fn card(&self) -> Card {
        Card::chat("counter", "Counts its turns.")
            .state(schema_of::<State>())
            .config(schema_of::<Config>())
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let mut state: State = context.state().await?;
        state.turns += 1;
        let earlier = context.history().await?.len();
        let stop = if context.config::<Config>()?.shout { "!" } else { "." };
        context.text(format!("Turn {} after {earlier} messages{stop}", state.turns)).await?;
        context.set_state(state).await?;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Counter, trilogue::ServeOptions::from_args()?).await
}
