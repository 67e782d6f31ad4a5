//! The ids of prompts that answer a question in words.

use serde_json::{Value, json};
use trilogue_gateway::{ClientOptions, Options, UserMessageId};
use uuid::Uuid;

use crate::client_editor::{Door, Editor};
use crate::client_history::numbered;
use crate::rig::Rig;

async fn load(editor: &mut Editor, session: &str) {
    let load = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    editor.ok("session/load", load).await;
}

/// Has the agent ask in words, and answers; gives the result and how a client that was there and one that comes know the answer.
async fn answer(user_message_id: UserMessageId, id: Option<&str>) -> (Value, Value) {
    let client = ClientOptions { user_message_id, ..ClientOptions::default() };
    let rig = Rig::with(Options { client, ..Options::default() }).await;
    let door = Door::of(&rig);
    let mut editor = door.plain("puppet").await;
    let session = editor.session().await;
    let mut there = door.plain("puppet").await;
    load(&mut there, &session).await;
    editor.prompt(&session, "suspend").await;
    let mut params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "you may"}]});
    if let Some(id) = id {
        params["messageId"] = json!(id);
    }
    let result = editor.ok("session/prompt", params).await;
    assert_eq!(result["stopReason"], "end_turn");
    let mut late = door.plain("puppet").await;
    load(&mut late, &session).await;
    there.updated(late.updates.len()).await;
    assert_eq!(there.updates, late.updates);
    let said = late.said("user_message_chunk");
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1].1, "you may");
    assert!(editor.said("user_message_chunk").is_empty());
    (result, said[1].0.clone())
}

#[tokio::test]
async fn an_answer_in_words_has_the_id_that_its_client_gave() {
    for option in [UserMessageId::Seed, UserMessageId::Echo] {
        let (result, shown) = answer(option, Some("mine-1")).await;
        assert_eq!(result["userMessageId"], "mine-1", "{option:?}");
        assert_eq!(shown, "mine-1");
    }
    let (result, shown) = answer(UserMessageId::Off, Some("mine-1")).await;
    assert_eq!(result.get("userMessageId"), None);
    assert_eq!(shown, "mine-1");
}

#[tokio::test]
async fn an_answer_in_words_without_an_id_gets_one() {
    let (result, shown) = answer(UserMessageId::Seed, None).await;
    assert_eq!(result["userMessageId"], shown);
    assert!(Uuid::try_parse(shown.as_str().unwrap()).is_ok(), "{shown}");
    let (result, _) = answer(UserMessageId::Echo, None).await;
    assert_eq!(result.get("userMessageId"), None);
}

/// A prompt with a message id and a key.
fn prompt(session: &str, text: &str, id: &str) -> Value {
    json!({
        "sessionId": session, "messageId": id, "prompt": [{"type": "text", "text": text}],
        "_meta": {"trilogue": {"key": format!("key-of-{id}")}},
    })
}

#[tokio::test]
async fn an_answer_in_words_that_comes_again_is_the_same_answer() {
    let rig = Rig::start().await;
    let door = Door::of(&rig);
    let mut first = numbered(&door, "puppet").await;
    let session = first.session().await;
    first.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    let answer = first.ok("session/prompt", prompt(&session, "you may", "mine-1")).await;
    assert_eq!(answer["userMessageId"], "mine-1");
    drop(first);
    let mut second = numbered(&door, "puppet").await;
    second.ok("_trilogue/attach", json!({"sessionId": session, "after": 1})).await;
    let again = second.ok("session/prompt", prompt(&session, "you may", "mine-1")).await;
    assert_eq!(again, answer);
    let mut late = door.plain("puppet").await;
    load(&mut late, &session).await;
    assert_eq!(late.words("user_message_chunk"), ["suspend", "you may"]);
}

#[tokio::test]
async fn a_prompt_that_comes_again_does_not_answer_what_it_led_to() {
    let rig = Rig::start().await;
    let door = Door::of(&rig);
    let mut first = numbered(&door, "puppet").await;
    let session = first.session().await;
    first.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    drop(first);
    let mut second = numbered(&door, "puppet").await;
    second.ok("_trilogue/attach", json!({"sessionId": session, "after": 1})).await;
    let again = second.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    assert_eq!(again["stopReason"], "end_turn");
    second.ok("session/prompt", prompt(&session, "you may", "mine-1")).await;
    let mut late = door.plain("puppet").await;
    load(&mut late, &session).await;
    assert_eq!(late.words("user_message_chunk"), ["suspend", "you may"]);
}

#[tokio::test]
async fn of_two_clients_that_answer_in_words_each_has_its_own_id() {
    let rig = Rig::start().await;
    let door = Door::of(&rig);
    for _ in 0..10 {
        let (mut one, mut two) = (door.plain("puppet").await, door.plain("puppet").await);
        let session = one.session().await;
        load(&mut two, &session).await;
        one.prompt(&session, "suspend").await;
        two.until(|it| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
        let asked = one.ask("session/prompt", prompt(&session, "one", "id-one")).await;
        let too = two.ask("session/prompt", prompt(&session, "two", "id-two")).await;
        assert_eq!(one.answer(&asked).await["result"]["stopReason"], "end_turn");
        assert_eq!(two.answer(&too).await["result"]["stopReason"], "end_turn");
        let mut late = door.plain("puppet").await;
        load(&mut late, &session).await;
        let said = late.said("user_message_chunk");
        assert_eq!(said.len(), 3, "{said:?}");
        for (id, text) in &said[1..] {
            let fits = |mine: &str| *id == json!(format!("id-{mine}"));
            assert!(!fits(if text == "one" { "two" } else { "one" }), "{said:?}");
        }
        assert!(said[1].0 == json!(format!("id-{}", said[1].1)), "{said:?}");
        assert_ne!(said[1].0, said[2].0);
    }
}
