use serde::{Deserialize, Serialize};
use trilogue_sdk::prelude::*;

pub(crate) struct Buyer;

#[derive(Deserialize, Serialize)]
struct Order {
    item: String,
}

#[derive(Deserialize)]
struct Approval {
    approved: bool,
}

#[async_trait]
impl Agent for Buyer {
    fn card(&self) -> Card {
        let order = json!({
            "type": "object",
            "properties": { "item": { "type": "string" } },
            "required": ["item"]
        });
        let approval = json!({
            "type": "object",
            "properties": { "approved": { "type": "boolean" } },
            "required": ["approved"]
        });
        Card::schema("buyer", "Buys what was approved.", &order).interrupt(
            "purchase_approval",
            order,
            approval,
        )
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        match turn {
            Turn::Start { input } => {
                let order: Order = input.parse()?;
                let order = serde_json::to_value(order)?;
                let question = Question::custom("purchase_approval").payload(&order);
                Outcome::suspended(question, order)
            }
            Turn::Resume { answer: Answer::Json(answer), saved, .. } => {
                let Approval { approved } = serde_json::from_str(answer.as_str())?;
                let order: Order = serde_json::from_str(saved.as_str())?;
                context.result(json!({ "bought": approved, "item": order.item })).await?;
                Ok(Outcome::Completed)
            }
            Turn::Resume { .. } => Err(AgentError::invalid_input("an approval is JSON")),
        }
    }
}
