//! The card of a native agent is enforced while the agent runs.

use serde::Deserialize;
use serde_json::{Value, json};
use trilogue_domain::{Body, Code, RunStatus};
use trilogue_sdk::prelude::*;
use trilogue_sdk::to_json;

use super::harness::{Harness, failure, native, value};

/// Emits what its input requests, and ignores errors of the context.
struct Reckless;

#[derive(Deserialize)]
struct Order {
    #[serde(rename = "do")]
    what: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    value: Value,
    /// What it does afterwards: nothing, or an error of the agent.
    #[serde(default)]
    fail: bool,
}

/// A schema in which `n` and each item of `all` are integers.
fn integer_schema() -> Value {
    let integer = json!({ "type": "integer" });
    json!({
        "type": "object",
        "properties": { "n": integer, "all": { "type": "array", "items": integer } },
    })
}

#[async_trait]
impl Agent for Reckless {
    fn card(&self) -> Card {
        Card::schema("reckless", "", json!({ "type": "object" }))
            .output(integer_schema())
            .state(integer_schema())
            .update(integer_schema())
            .interrupt("count", integer_schema(), json!({ "type": "integer" }))
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let Turn::Start { input } = turn else {
            context.result(json!({ "n": 1 })).await?;
            return Ok(Outcome::Completed);
        };
        let Order { what, kind, value, fail } = input.parse()?;
        let question = || match kind.as_str() {
            "form" => Question::form("How many?", value.clone()),
            "message" => Question::message("Why?"),
            kind => Question::custom(kind).payload(&value),
        };
        match what.as_str() {
            "result" => drop(context.result(&value).await),
            "output" => drop(context.output_so_far(&value).await),
            "state" => drop(context.set_state(&value).await),
            "update" => drop(context.custom(&kind, &value).await),
            "ask" => drop(context.ask(question()).await),
            _ => return Outcome::suspended(question(), Value::Null),
        }
        drop(context.text("afterwards").await);
        if fail {
            Err(AgentError::agent_failed("an error of its own"))
        } else {
            Ok(Outcome::Completed)
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_the_card_fails_the_run_and_is_not_logged() {
    let house = Harness::with(vec![native(Reckless)]).await;
    let secret = json!({ "n": "swordfish" });
    let several = json!({ "all": ["swordfish", 1, "swordfish"] });
    let (result, state) = ("output_schema_violation", "thread_state_schema_violation");
    let (update, question) = ("stream_update_schema_violation", "interrupt_schema_violation");
    for (order, code, paths) in [
        (json!({ "do": "result", "value": secret }), result, vec!["/n"]),
        (json!({ "do": "result", "value": secret, "fail": true }), result, vec!["/n"]),
        (json!({ "do": "result", "value": several }), result, vec!["/all/0", "/all/2"]),
        (json!({ "do": "result", "value": "swordfish" }), result, vec![""]),
        (json!({ "do": "output", "value": secret }), result, vec!["/n"]),
        (json!({ "do": "state", "value": secret }), state, vec!["/n"]),
        (json!({ "do": "update", "kind": "x", "value": secret }), update, vec!["/n"]),
        (json!({ "do": "ask", "kind": "count", "value": secret }), question, vec!["/n"]),
        (json!({ "do": "suspend", "kind": "count", "value": secret }), question, vec!["/n"]),
        (json!({ "do": "ask", "kind": "unheard-of", "value": secret }), question, vec![]),
        (json!({ "do": "suspend", "kind": "unheard-of", "value": secret }), question, vec![]),
        (
            json!({ "do": "ask", "kind": "form", "value": { "type": "swordfish" } }),
            question,
            vec![],
        ),
    ] {
        let run = house.settle("reckless", value(&order)).await;
        assert_eq!(run.status, RunStatus::Failed, "{order}");
        let failed = failure(&run);
        assert_eq!((failed.code.as_str(), failed.transient), (code, false), "{order}");
        if let Some(first) = paths.first() {
            let place = if first.is_empty() { "at the top" } else { first };
            assert!(failed.message.contains(place), "{order}: {}", failed.message);
        }
        let data = failed.data.as_ref().map(Json::to_value).unwrap_or_default();
        let errors = data["errors"].as_array().cloned().unwrap_or_default();
        let told: Vec<_> = errors.iter().map(|error| &error["instance_path"]).collect();
        assert_eq!(told, paths, "{order}: {data}");
        // The input is in the log too, so only the agent's events count.
        let events = house.events(&run).await;
        let said: Vec<_> = events.iter().filter(|event| is_the_agents(&event.body)).collect();
        assert!(said.is_empty(), "{order}: {said:?}");
        assert!(!format!("{failed:?}").contains("swordfish"), "{order}: {failed:?}");
    }
}

fn is_the_agents(body: &Body) -> bool {
    let name = body.name();
    let mine = |family: &str| name.starts_with(family);
    mine("state.") || mine("interrupt.") || name == "run.result" || name == "message.delta"
}

#[tokio::test]
async fn what_fits_the_card_is_logged() {
    let house = Harness::with(vec![native(Reckless)]).await;
    for (what, name) in [
        ("result", "run.result"),
        ("output", "state.output"),
        ("state", "state.values"),
        ("update", "state.custom"),
    ] {
        let order = json!({ "do": what, "kind": "x", "value": { "n": 1, "all": [2] } });
        let run = house.settle("reckless", value(&order)).await;
        assert_eq!(run.status, RunStatus::Completed, "{order}: {:?}", run.outcome);
        let events = house.events(&run).await;
        assert!(events.iter().any(|event| event.body.name() == name), "{order}: {events:?}");
    }
}

#[tokio::test]
async fn questions_that_fit_are_asked_and_show_the_schema_of_their_answer() {
    let house = Harness::with(vec![native(Reckless)]).await;
    let schema = json!({ "type": "integer" });
    for (what, kind, given, shown) in [
        ("ask", "count", json!({ "n": 1 }), Some(&schema)),
        ("suspend", "count", json!({ "n": 1 }), Some(&schema)),
        ("ask", "form", schema.clone(), Some(&schema)),
        ("ask", "message", Value::Null, None),
    ] {
        let order = json!({ "do": what, "kind": kind, "value": given });
        let run = house.settle("reckless", value(&order)).await;
        assert_eq!(run.status, RunStatus::Interrupted, "{order}: {:?}", run.outcome);
        let pending = house.pending(&run).await;
        assert_eq!(pending.schema.as_ref().map(Json::to_value).as_ref(), shown, "{order}");
        let answer = match shown {
            Some(_) => Answer::Json(to_json(&json!(3)).unwrap()),
            None => Answer::Message(Vec::new()),
        };
        let run = house.answer(&run, answer).await;
        assert_eq!(run.status, RunStatus::Completed, "{order}: {:?}", run.outcome);
    }
}

/// Declares nothing, so it may ask any question.
struct Undeclared;

#[async_trait]
impl Agent for Undeclared {
    fn card(&self) -> Card {
        Card::chat("undeclared", "")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        context.custom("anything", json!([1])).await?;
        context.set_state(json!("anything")).await?;
        Outcome::suspended(Question::custom("anything").payload(json!(5)), Value::Null)
    }
}

#[tokio::test]
async fn an_agent_that_declares_nothing_is_held_to_nothing() {
    let house = Harness::with(vec![native(Undeclared)]).await;
    let run = house.settle("undeclared", value(&json!("hi"))).await;
    assert_eq!(run.status, RunStatus::Interrupted, "{:?}", run.outcome);
}

#[tokio::test]
async fn an_agent_with_a_written_descriptor_asks_only_what_it_declares() {
    let written = Some(Json::empty_object());
    let card =
        trilogue_sdk::AgentCard { descriptor: written, ..Undeclared.card().build().unwrap() };
    let house = Harness::with(vec![native(Undeclared).with_card(card).unwrap()]).await;
    let run = house.settle("undeclared", value(&json!("hi"))).await;
    assert_eq!(failure(&run).code, "interrupt_schema_violation");
}

#[derive(Deserialize, JsonSchema, Clone, serde::Serialize, Default)]
#[serde(default)]
struct Taste {
    #[serde(skip_serializing_if = "Option::is_none")]
    style: Option<String>,
    #[schemars(extend("default" = 3))]
    length: u32,
}

async fn report_config(_: Turn, context: Context) -> Result<(), AgentError> {
    context.result(to_json(&context.config::<Taste>()?)?).await
}

#[tokio::test]
async fn a_run_without_a_configuration_has_the_schemas_defaults() {
    let house = Harness::with(vec![native(
        agent_fn("configured", "", report_config)
            .with_card(Card::schema("configured", "", json!(true)).config(schema_of::<Taste>())),
    )])
    .await;
    let run = house.settle("configured", value(&Value::Null)).await;
    assert_eq!(house.result(&run).await, Some(json!({ "length": 3 })));

    for (config, seen) in [
        // Given values are used unchanged.
        (json!({ "style": "terse" }), Ok(json!({ "style": "terse", "length": 0 }))),
        (json!({ "length": -1 }), Err(Code::ConfigInvalid)),
    ] {
        let mut new = house.run("configured", value(&Value::Null));
        new.config = Some(to_json(&config).unwrap());
        match (house.runtime.submit(&house.by, new).await, seen) {
            (Ok(submitted), Ok(seen)) => {
                let run = submitted.settled.wait().await.unwrap();
                assert_eq!(house.result(&run).await, Some(seen));
            }
            (Err(error), Err(code)) => assert_eq!(error.code(), code),
            (given, seen) => panic!("{given:?} instead of {seen:?}"),
        }
    }
}
