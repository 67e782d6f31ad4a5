use serde::{Deserialize, Serialize};
use trilogue_sdk::prelude::*;

pub(crate) struct Counter;

#[derive(Deserialize, Serialize, Default)]
struct State {
    turns: u32,
}

#[derive(Deserialize, Default)]
struct Config {
    shout: bool,
}

#[async_trait]
impl Agent for Counter {
    fn card(&self) -> Card {
        Card::chat("counter", "Counts its turns.")
            .state(json!({ "properties": { "turns": { "type": "integer" } } }))
            .config(json!({ "properties": { "shout": { "type": "boolean" } } }))
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let mut state: State = context.state().await?;
        state.turns += 1;
        let earlier = context.history().await?.len();
        let stop = if context.config::<Config>()?.shout { "!" } else { "." };
        context.text(format!("Turn {} after {earlier} messages{stop}", state.turns)).await?;
        context.set_state(serde_json::to_value(state)?).await?;
        Ok(Outcome::Completed)
    }
}
