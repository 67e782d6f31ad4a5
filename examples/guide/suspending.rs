use serde::{Deserialize, Serialize};
use trilogue_sdk::prelude::*;

pub(crate) struct Buyer;

#[derive(Deserialize, Serialize, JsonSchema)]
struct Order {
    item: String,
}

#[derive(Deserialize, JsonSchema)]
struct Approval {
    approved: bool,
}

#[async_trait]
impl Agent for Buyer {
    fn card(&self) -> Card {
        Card::schema("buyer", "Buys what was approved.", schema_of::<Order>()).interrupt(
            "purchase_approval",
            schema_of::<Order>(),
            schema_of::<Approval>(),
        )
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        match turn {
            Turn::Start { input } => {
                let order: Order = input.parse()?;
                let question = Question::custom("purchase_approval").payload(&order);
                Outcome::suspended(question, order)
            }
            Turn::Resume { answer: Answer::Json(answer), saved, .. } => {
                let Approval { approved } = from_json(&answer)?;
                let order: Order = from_json(&saved)?;
                context.result(json!({ "bought": approved, "item": order.item })).await?;
                Ok(Outcome::Completed)
            }
            Turn::Resume { .. } => Err(AgentError::invalid_input("an approval is JSON")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Buyer, trilogue::ServeOptions::from_args()?).await
}
