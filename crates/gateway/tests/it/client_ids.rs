//! Message ids: who chooses them, which are acknowledged, and that they stay the same.

use serde_json::{Value, json};
use trilogue_gateway::{ClientOptions, MessageIdFormat, UserMessageId};
use uuid::Uuid;

use crate::client_editor::Editor;
use crate::rig::Rig;

const UPPER: &str = "9B1DEB4D-3B7D-4BAD-9BDD-2B0D7B3DCB6D";
const LOWER: &str = "5c3b4f9e-0000-4000-8000-000000000001";

async fn rig(client: ClientOptions) -> (Rig, Editor, String) {
    let rig = Rig::with(client).await;
    let (editor, session) = rig.editor_socket().open_session("puppet").await;
    (rig, editor, session)
}

async fn prompt(editor: &mut Editor, session: &str, text: &str, id: Value) -> Value {
    let mut params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    if id != json!("absent") {
        params["messageId"] = id;
    }
    editor.call("session/prompt", params).await
}

fn acknowledged_message_id(answer: &Value) -> Option<&str> {
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"].get("userMessageId").map(|id| id.as_str().unwrap())
}

#[tokio::test]
async fn every_kind_of_id_gets_the_answer_that_the_options_say() {
    for (format, user_message_id) in [
        (MessageIdFormat::Any, UserMessageId::Seed),
        (MessageIdFormat::Any, UserMessageId::Echo),
        (MessageIdFormat::Any, UserMessageId::Off),
        (MessageIdFormat::Uuid, UserMessageId::Seed),
    ] {
        let options = ClientOptions {
            message_id_format: format,
            user_message_id,
            ..ClientOptions::default()
        };
        let (_rig, mut editor, session) = rig(options).await;
        let seed = user_message_id == UserMessageId::Seed;
        let echo = user_message_id != UserMessageId::Off;
        for (text, given) in
            [("one", UPPER), ("two", "msg_2"), ("three", "  "), ("four", "ä\u{1F980}")]
        {
            let answer = prompt(&mut editor, &session, text, json!(given)).await;
            let is_kept = format == MessageIdFormat::Any || given == UPPER;
            let expected = (echo && is_kept).then_some(given);
            assert_eq!(
                acknowledged_message_id(&answer),
                expected,
                "{given:?} {format:?} {user_message_id:?}"
            );
            // Repeating an id does not record it again, and the prompt runs.
            let again = prompt(&mut editor, &session, "again", json!(given)).await;
            assert_eq!(acknowledged_message_id(&again), None, "{given:?}");
            assert_eq!(again["result"]["stopReason"], "end_turn");
        }
        for none in [json!("absent"), Value::Null] {
            let answer = prompt(&mut editor, &session, "none", none.clone()).await;
            assert_eq!(acknowledged_message_id(&answer).is_some(), seed, "{none}");
            if let Some(id) = acknowledged_message_id(&answer) {
                assert_eq!(Uuid::try_parse(id).unwrap().to_string(), id);
            }
        }
        for unfit in [String::new(), "x".repeat(257), "a\u{0}b".to_owned()] {
            let answer = prompt(&mut editor, &session, "unfit", json!(unfit)).await;
            assert_eq!(acknowledged_message_id(&answer), None, "{unfit:?}");
            assert_eq!(answer["result"]["stopReason"], "end_turn");
        }
        for bad in [json!(5), json!({}), json!(["x"]), json!(true)] {
            let answer = prompt(&mut editor, &session, "bad", bad.clone()).await;
            assert_eq!(answer["error"]["code"], -32602, "{bad}");
        }
    }
}

#[tokio::test]
async fn an_id_is_told_with_every_result_and_with_no_error() {
    let (_rig, mut editor, session) = rig(ClientOptions::default()).await;
    let id = json!(UPPER);
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "sleep"}], "messageId": id});
    let request = editor.ask("session/prompt", params).await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    let answer = editor.answer(&request).await;
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    // A prompt that was cancelled before it began is not recorded.
    assert!(acknowledged_message_id(&answer).is_none_or(|told| told == UPPER));
    let failed = prompt(&mut editor, &session, "fail", json!(LOWER)).await;
    assert!(failed["error"]["code"].is_i64() && failed.get("result").is_none(), "{failed}");
}

#[tokio::test]
async fn ids_stay_the_same_when_the_session_is_told_again() {
    let (rig, mut editor, session) = rig(ClientOptions::default()).await;
    prompt(&mut editor, &session, "count 2", json!(UPPER)).await;
    let assigned = prompt(&mut editor, &session, "hello", json!("absent")).await;
    let assigned = acknowledged_message_id(&assigned).unwrap().to_owned();
    let second = rig.editor_socket().load_session("puppet", &session).await;
    let users: Vec<_> =
        second.texts_by_message("user_message_chunk").into_iter().map(|it| it.0).collect();
    assert_eq!(users, [json!(UPPER), json!(assigned)]);
    assert_eq!(
        second.texts_by_message("agent_message_chunk"),
        editor.texts_by_message("agent_message_chunk")
    );
    let ids: Vec<_> =
        editor.texts_by_message("agent_message_chunk").into_iter().map(|it| it.0).collect();
    assert_eq!(ids.len(), 3);
    for id in &ids {
        assert!(Uuid::try_parse(id.as_str().unwrap()).is_ok(), "{id}");
    }
    // An acknowledged id works on `/api/v1` too.
    let alice = rig.alice();
    let path = format!("/api/v1/threads/{session}/events?from_message={assigned}&limit=1");
    let page = alice.get(&path).await.unwrap().ok().unwrap();
    assert_eq!(page["items"][0]["type"], "message.started");
    assert_eq!(page["items"][0]["message_id"], json!(assigned));
    let path = format!("/api/v1/threads/{session}/copy");
    let copy = alice.post(&path, &json!({"until_message": UPPER})).await.unwrap().ok().unwrap();
    let copied = copy["id"].as_str().unwrap();
    let said = alice.get(&format!("/api/v1/threads/{copied}/messages")).await.unwrap();
    let said = said.ok().unwrap();
    assert_eq!(said["items"].as_array().unwrap().len(), 1, "{said}");
    let path = format!("/api/v1/threads/{session}/events?from_message=nobody");
    assert_eq!(alice.get(&path).await.unwrap().status, 404);
}

#[tokio::test]
async fn a_prompt_that_comes_again_is_answered_with_its_first_turn_where_that_is_asked_for() {
    let options = ClientOptions { dedupe: true, ..ClientOptions::default() };
    let (_rig, mut editor, session) = rig(options).await;
    let first = prompt(&mut editor, &session, "hello", json!(UPPER)).await;
    assert_eq!(acknowledged_message_id(&first), Some(UPPER));
    let again = prompt(&mut editor, &session, "hello", json!(UPPER)).await;
    assert_eq!(acknowledged_message_id(&again), Some(UPPER));
    assert_eq!(editor.words("agent_message_chunk"), ["hello"]);
    let other = prompt(&mut editor, &session, "something else", json!(UPPER)).await;
    assert_eq!(acknowledged_message_id(&other), None);
    assert_eq!(editor.words("agent_message_chunk"), ["hello", "something else"]);
}
