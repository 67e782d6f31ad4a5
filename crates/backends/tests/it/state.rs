//! The state of a thread between runs, agents and clients.

use serde_json::{Value, json};
use trilogue_domain::{Code, RunStatus};
use trilogue_runtime::{StateContent, ThreadPatch};
use trilogue_sdk::prelude::*;
use trilogue_sdk::to_json;

use super::harness::{Harness, native, value};
use trilogue_backends::builtin::MailComposer;

fn tally_card() -> Card {
    let numbers = json!({ "type": "array", "items": { "type": "integer" } });
    Card::schema("tally", "", json!(true)).state(json!({ "properties": { "messages": numbers } }))
}

async fn tally(_: Turn, context: Context) -> Result<(), AgentError> {
    context.set_state(json!({ "messages": [1, 2] })).await
}

async fn say(house: &Harness, message: &str) -> Value {
    let run = house.settle("mailcomposer", value(&json!({ "message": message }))).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    house.result(&run).await.unwrap()
}

async fn state(house: &Harness) -> Value {
    let thread = house.store.thread(&house.by.scope(), &house.thread).await.unwrap().unwrap();
    match house.runtime.state_at(&thread, None).await.unwrap() {
        StateContent::Value(state) => state.to_value(),
        StateContent::Messages(messages) => panic!("{messages:?}"),
    }
}

async fn patch(house: &Harness, values: Value) -> Result<(), trilogue_domain::Error> {
    let patch = ThreadPatch { values: Some(to_json(&values).unwrap()), ..ThreadPatch::default() };
    house.runtime.patch_thread(&house.by, &house.thread, patch).await.map(drop)
}

#[tokio::test]
async fn the_second_run_of_a_thread_remembers_the_first() {
    let house = Harness::with(vec![native(MailComposer::default())]).await;
    let first = say(&house, "Hello, my name is John?").await;
    assert_eq!(first, json!({ "message": "Hello John, how can I help?" }));
    let second = say(&house, "Can you remind my name?").await;
    assert_eq!(second, json!({ "message": "Yes, your name is John" }));
    let said = json!([
        "Hello, my name is John?",
        "Hello John, how can I help?",
        "Can you remind my name?",
        "Yes, your name is John",
    ]);
    assert_eq!(state(&house).await, json!({ "messages": said }));
}

#[tokio::test]
async fn what_a_client_sets_has_to_fit_the_agent_and_is_what_it_remembers() {
    let house = Harness::with(vec![native(MailComposer::default())]).await;
    say(&house, "Hello").await;
    let before = state(&house).await;
    let error = patch(&house, json!({ "messages": ["a", 5] })).await.unwrap_err();
    assert_eq!(error.code(), Code::StateInvalid);
    assert_eq!(error.violated()[0].path, "/messages/1");
    assert_eq!(state(&house).await, before);

    patch(&house, json!({ "messages": ["Call me anything; my name is Zoë", "Fine."] }))
        .await
        .unwrap();
    assert_eq!(say(&house, "What is my name?").await, json!({ "message": "Your name is Zoë" }));
}

#[tokio::test]
async fn agents_share_a_thread_only_where_its_state_fits_both() {
    let house = Harness::with(vec![
        native(MailComposer::default()),
        native(agent_fn("tally", "", tally).with_card(tally_card())),
    ])
    .await;
    let run = house.settle("tally", value(&Value::Null)).await;
    assert_eq!(run.status, RunStatus::Completed);
    let new = house.run("mailcomposer", value(&json!({ "message": "Hello" })));
    let error = house.runtime.submit(&house.by, new).await.map(drop).unwrap_err();
    assert_eq!(error.code(), Code::StateIncompatible);
    let paths: Vec<_> = error.violated().iter().map(|place| place.path.as_str()).collect();
    assert_eq!(paths, ["/messages/0", "/messages/1"]);
    assert_eq!(state(&house).await, json!({ "messages": [1, 2] }));
    // The agent that made the state continues with it.
    let run = house.settle("tally", value(&Value::Null)).await;
    assert_eq!(run.status, RunStatus::Completed);
}
