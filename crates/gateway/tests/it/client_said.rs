//! The ids of prompts that answer a question in words.

use serde_json::{Value, json};
use trilogue_gateway::{ClientOptions, UserMessageId};
use uuid::Uuid;

use crate::client_editor::Editor;
use crate::rig::Rig;

/// Makes the agent ask in words, and answers. Returns the result, and the answer's message id, which an attached client and a later one see alike.
async fn answer(user_message_id: UserMessageId, id: Option<&str>) -> (Value, Value) {
    let client = ClientOptions { user_message_id, ..ClientOptions::default() };
    let rig = Rig::with(client).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let mut there = rig.editor_socket().load_session("puppet", &session).await;
    editor.prompt(&session, "suspend").await;
    let mut params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "you may"}]});
    if let Some(id) = id {
        params["messageId"] = json!(id);
    }
    let result = editor.ok("session/prompt", params).await;
    assert_eq!(result["stopReason"], "end_turn");
    let late = rig.editor_socket().load_session("puppet", &session).await;
    there.wait_for_updates(late.updates.len()).await;
    assert_eq!(there.updates, late.updates);
    let said = late.texts_by_message("user_message_chunk");
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1].1, "you may");
    assert!(editor.texts_by_message("user_message_chunk").is_empty());
    (result, said[1].0.clone())
}

#[tokio::test]
async fn an_answer_in_words_has_the_id_that_its_client_gave() {
    for option in [UserMessageId::Seed, UserMessageId::Echo] {
        let (result, shown) = answer(option, Some(MINE)).await;
        assert_eq!(result["userMessageId"], MINE, "{option:?}");
        assert_eq!(shown, MINE);
    }
    let (result, shown) = answer(UserMessageId::Off, Some(MINE)).await;
    assert_eq!(result.get("userMessageId"), None);
    assert_eq!(shown, MINE);
}

#[tokio::test]
async fn an_answer_in_words_without_an_id_gets_one() {
    let (result, shown) = answer(UserMessageId::Seed, None).await;
    assert_eq!(result["userMessageId"], shown);
    assert!(Uuid::try_parse(shown.as_str().unwrap()).is_ok(), "{shown}");
    let (result, _) = answer(UserMessageId::Echo, None).await;
    assert_eq!(result.get("userMessageId"), None);
}

fn prompt(session: &str, text: &str, id: &str) -> Value {
    json!({
        "sessionId": session, "messageId": id, "prompt": [{"type": "text", "text": text}],
        "_meta": {"trilogue": {"key": format!("key-of-{id}")}},
    })
}

#[tokio::test]
async fn an_answer_in_words_that_comes_again_is_the_same_answer() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered("puppet").await;
    let session = first.session().await;
    first.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    let answer = first.ok("session/prompt", prompt(&session, "you may", MINE)).await;
    assert_eq!(answer["userMessageId"], MINE);
    drop(first);
    let mut second = rig.editor_socket().numbered("puppet").await;
    second.ok("_trilogue/attach", json!({"sessionId": session, "after": 1})).await;
    let again = second.ok("session/prompt", prompt(&session, "you may", MINE)).await;
    assert_eq!(again, answer);
    let late = rig.editor_socket().load_session("puppet", &session).await;
    assert_eq!(late.words("user_message_chunk"), ["suspend", "you may"]);
}

/// The client's next position from the server, after the last update.
async fn position(editor: &mut Editor) -> u64 {
    loop {
        let line = editor.line().await.unwrap();
        if line.starts_with("#P ") {
            return line.rsplit(' ').next().unwrap().parse().unwrap();
        }
    }
}

#[tokio::test]
async fn a_client_that_comes_back_is_not_told_what_it_answered() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered("puppet").await;
    let session = first.session().await;
    first.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    let asked = position(&mut first).await;
    let answer = first.ok("session/prompt", prompt(&session, "you may", MINE)).await;
    drop(first);
    // Also from the middle of the answer's message.
    for after in [1, asked, asked + 1] {
        let mut again = rig.editor_socket().numbered("puppet").await;
        again.ok("_trilogue/attach", json!({"sessionId": session, "after": after})).await;
        let same = again.ok("session/prompt", prompt(&session, "you may", MINE)).await;
        assert_eq!(same, answer, "{after}");
        assert_eq!(again.texts_by_message("user_message_chunk"), [], "{after}");
        let heard = again.words("agent_message_chunk");
        assert!(heard.last().unwrap().contains("you may"), "{after}: {heard:?}");
    }
}

#[tokio::test]
async fn a_client_that_comes_back_is_told_what_another_one_answered() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered("puppet").await;
    let session = first.session().await;
    first.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    drop(first);
    let mut other = rig.editor_socket().load_session("puppet", &session).await;
    other.prompt(&session, "you may").await;
    let mut again = rig.editor_socket().numbered("puppet").await;
    again.ok("_trilogue/attach", json!({"sessionId": session, "after": 1})).await;
    assert_eq!(again.words("user_message_chunk"), ["you may"]);
}

#[tokio::test]
async fn a_prompt_that_comes_again_does_not_answer_what_it_led_to() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered("puppet").await;
    let session = first.session().await;
    first.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    drop(first);
    let mut second = rig.editor_socket().numbered("puppet").await;
    second.ok("_trilogue/attach", json!({"sessionId": session, "after": 1})).await;
    let again = second.ok("session/prompt", prompt(&session, "suspend", "asks")).await;
    assert_eq!(again["stopReason"], "end_turn");
    second.ok("session/prompt", prompt(&session, "you may", MINE)).await;
    let late = rig.editor_socket().load_session("puppet", &session).await;
    assert_eq!(late.words("user_message_chunk"), ["suspend", "you may"]);
}

#[tokio::test]
async fn of_two_clients_that_answer_in_words_each_has_its_own_id() {
    let rig = Rig::start().await;
    for _ in 0..10 {
        let (mut one, mut two) =
            (rig.editor_socket().plain("puppet").await, rig.editor_socket().plain("puppet").await);
        let session = one.session().await;
        two.load(&session).await;
        one.prompt(&session, "suspend").await;
        two.until(|it| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
        let asked = one.ask("session/prompt", prompt(&session, "one", id_of("one"))).await;
        let too = two.ask("session/prompt", prompt(&session, "two", id_of("two"))).await;
        assert_eq!(one.answer(&asked).await["result"]["stopReason"], "end_turn");
        assert_eq!(two.answer(&too).await["result"]["stopReason"], "end_turn");
        let late = rig.editor_socket().load_session("puppet", &session).await;
        let said = late.texts_by_message("user_message_chunk");
        assert_eq!(said.len(), 3, "{said:?}");
        for (id, text) in &said[1..] {
            let fits = |mine: &str| *id == id_of(mine);
            assert!(!fits(if text == "one" { "two" } else { "one" }), "{said:?}");
        }
        assert_eq!(said[1].0, id_of(&said[1].1), "{said:?}");
        assert_ne!(said[1].0, said[2].0);
    }
}

fn id_of(text: &str) -> &'static str {
    if text == "one" { MINE } else { "5c3b4f9e-0000-4000-8000-000000000002" }
}

/// An id that is valid in every protocol.
const MINE: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

async fn got(rig: &Rig, path: &str) -> Value {
    rig.alice().get(path).await.unwrap().ok().unwrap()
}

async fn say(editor: &mut Editor, session: &str, text: &str, id: &str) -> Value {
    let prompt = json!([{"type": "text", "text": text}]);
    let params = json!({"sessionId": session, "messageId": id, "prompt": prompt});
    editor.ok("session/prompt", params).await
}

#[tokio::test]
async fn an_answer_in_words_is_a_message_on_every_face() {
    for rig in [Rig::start().await, Rig::on_disk().await] {
        let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
        editor.prompt(&session, "suspend").await;
        let answer = say(&mut editor, &session, "you may", MINE).await;
        assert_eq!(answer["userMessageId"], MINE);
        // The id is now in use.
        let again = say(&mut editor, &session, "again", MINE).await;
        assert_eq!(again.get("userMessageId"), None, "{again}");
        let events = format!("/api/v1/threads/{session}/events?from_message={MINE}&limit=5");
        let events = got(&rig, &events).await;
        let began = &events["items"][0];
        assert_eq!(
            (&began["type"], &began["message_id"]),
            (&json!("message.started"), &json!(MINE))
        );
        let kinds: Vec<_> = events["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["type"].as_str().unwrap())
            .collect();
        let expected = ["message.part", "message.completed", "interrupt.resolved", "run.resumed"];
        assert_eq!(kinds[1..], expected);
        let said = got(&rig, &format!("/api/v1/threads/{session}/messages")).await;
        let said: Vec<_> = said["items"].as_array().unwrap().iter().rev().collect();
        let roles: Vec<_> = said.iter().map(|it| it["role"] == "user").collect();
        assert_eq!(roles, [true, true, false, true, false], "{said:?}");
        assert_eq!(
            (&said[1]["id"], &said[1]["parts"][0]["content"]),
            (&json!(MINE), &json!("you may"))
        );
        // The agent's message is the output in every protocol.
        let run = said[1]["run_id"].as_str().unwrap();
        let shown = got(&rig, &format!("/api/v1/runs/{run}")).await;
        assert_eq!(shown["output"], json!([said[2]]), "{shown}");
        let shown = got(&rig, &format!("/communication/runs/{run}")).await;
        assert_eq!(shown["output"].as_array().unwrap().len(), 1, "{shown}");
        assert_ne!(shown["output"][0]["role"], "user");
        let streamed = got(&rig, &format!("/communication/runs/{run}/events")).await;
        assert!(!streamed.to_string().contains("\"role\":\"user\""), "{streamed}");
        let shown = got(&rig, &format!("/connect/threads/{session}/runs/{run}/wait")).await;
        assert_eq!(shown["output"]["messages"].as_array().unwrap().len(), 1, "{shown}");
        // The user's messages are in the history.
        let history = got(&rig, &format!("/communication/sessions/{session}")).await;
        let resource = format!("/resources/{session}/{MINE}");
        let entries = history["history"].as_array().unwrap();
        assert!(entries[1].as_str().unwrap().ends_with(&resource), "{history}");
        assert_eq!(entries.len(), 5);
        let message = got(&rig, &format!("/communication{resource}")).await;
        assert_eq!(
            (&message["role"], &message["parts"][0]["content"]),
            (&json!("user"), &json!("you may"))
        );
        let thread = got(&rig, &format!("/connect/threads/{session}")).await;
        let users = thread["messages"].as_array().unwrap().iter().filter(|it| it["role"] == "user");
        assert_eq!(users.count(), 3, "{thread}");
    }
}

#[tokio::test]
async fn a_copy_ends_at_an_answer_in_words_and_tells_it_once() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    editor.prompt(&session, "suspend").await;
    say(&mut editor, &session, "you may", MINE).await;
    let path = format!("/api/v1/threads/{session}/copy");
    let copy = rig.alice().post(&path, &json!({"until_message": MINE})).await.unwrap();
    let copy = copy.ok().unwrap()["id"].as_str().unwrap().to_owned();
    let mut late = rig.editor_socket().load_session("puppet", &copy).await;
    let said = late.texts_by_message("user_message_chunk");
    assert_eq!(said.last().unwrap(), &(json!(MINE), "you may".to_owned()));
    assert_eq!(said.len(), 2, "{said:?}");
    // The copy has no open question.
    late.prompt(&copy, "hello").await;
    assert_eq!(late.words("agent_message_chunk").last().unwrap(), "hello");
}

#[tokio::test]
async fn an_answer_in_words_that_comes_again_is_known_by_its_id_where_that_is_asked_for() {
    let client = ClientOptions { dedupe: true, ..ClientOptions::default() };
    let rig = Rig::with(client).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let asked = say(&mut editor, &session, "suspend", "asks").await;
    // The prompt that led to the question does not answer it.
    assert_eq!(say(&mut editor, &session, "suspend", "asks").await, asked);
    let answer = say(&mut editor, &session, "you may", MINE).await;
    let told = editor.words("agent_message_chunk");
    assert_eq!(say(&mut editor, &session, "you may", MINE).await, answer);
    assert_eq!(editor.words("agent_message_chunk"), told);
    let other = say(&mut editor, &session, "you may not", MINE).await;
    assert_eq!(other.get("userMessageId"), None, "{other}");
    assert_eq!(editor.words("agent_message_chunk").last().unwrap(), "you may not");
}
