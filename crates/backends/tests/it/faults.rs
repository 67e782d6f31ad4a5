//! An agent's own errors: declared as types, returned with `?`, reported as declared.

use serde::Serialize;
use serde_json::json;
use trilogue_sdk::prelude::*;

use super::harness::{Harness, failure, native, user_input};

#[derive(Serialize, JsonSchema)]
struct OutOfStock {
    left: u32,
}

impl AgentFault for OutOfStock {
    const CODE: &'static str = "out_of_stock";
    const DESCRIPTION: &'static str = "There is less left than was asked for.";
    const TRANSIENT: bool = true;

    fn message(&self) -> String {
        format!("only {} left", self.left)
    }
}

#[derive(Serialize, JsonSchema)]
struct Closed;

impl AgentFault for Closed {
    const CODE: &'static str = "closed";
    const DESCRIPTION: &'static str = "The shop is closed for good.";
}

fn sell(what: &str) -> Result<(), OutOfStock> {
    if what == "boat" { Ok(()) } else { Err(OutOfStock { left: 2 }) }
}

async fn shop(turn: Turn, _: Context) -> Result<(), AgentError> {
    match turn.text().as_str() {
        "closed" => return Err(Closed.into()),
        // Made by hand, with another flag and other data than declared.
        "other" => {
            return Err(AgentError::new("out_of_stock", "nothing")
                .with_data(Json::from_value(&json!({ "left": "none" }))));
        }
        "undeclared" => return Err(AgentError::new("fire", "it burns").transient()),
        what => sell(what)?,
    }
    Ok(())
}

#[tokio::test]
async fn errors_are_told_as_the_card_declares_them() {
    let house = Harness::with(vec![native(
        agent_fn("shop", "", shop)
            .with_card(Card::chat("shop", "").fault::<OutOfStock>().fault::<Closed>()),
    )])
    .await;
    for (what, code, message, transient, data) in [
        ("car", "out_of_stock", "only 2 left", true, Some(json!({ "left": 2 }))),
        ("closed", "closed", "The shop is closed for good.", false, None),
        ("other", "out_of_stock", "nothing", true, Some(json!({ "left": "none" }))),
        ("undeclared", "fire", "it burns", true, None),
    ] {
        let failed = failure(&house.settle("shop", user_input(what)).await);
        assert_eq!((failed.code.as_str(), failed.message.as_str()), (code, message));
        assert_eq!(failed.transient, transient, "{what}");
        assert_eq!(failed.data.as_ref().map(Json::to_value), data, "{what}");
    }
}
