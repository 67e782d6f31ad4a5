//! An agent's requests about a client's own request, and the clients that answer an agent's calls.

use serde_json::json;

use crate::client_hosted::hosted_server;

#[tokio::test]
async fn what_an_agent_asks_about_a_request_is_asked_under_the_clients_own_id() {
    let (rig, hosted) = hosted_server().await;
    let able = json!({"elicitation": {"form": {}, "url": {}}});
    let mut editor = rig.editor_socket().with("hosted", able).await;
    for mode in ["form", "url"] {
        let request = editor.ask("authenticate", json!({"methodId": mode})).await;
        let asked = editor.request("elicitation/create").await;
        assert_eq!(asked["params"]["requestId"], request, "{asked}");
        assert_eq!(asked["params"]["mode"], mode);
        editor.reply(&asked, json!({"action": "accept", "content": {"x": 1}})).await;
        assert_eq!(editor.answer(&request).await["result"], json!({}));
        let done = editor.wait_for_notification("elicitation/complete").await;
        assert_eq!(done["params"], json!({"elicitationId": "e"}));
    }
    // A text id, used by another client at the same time.
    let mut other = rig.editor_socket().with("hosted", json!({"elicitation": {"form": {}}})).await;
    other.send(&json!({"jsonrpc": "2.0", "id": "text-1", "method": "authenticate", "params": {"methodId": "form"}})).await;
    let asked = other.request("elicitation/create").await;
    assert_eq!(asked["params"]["requestId"], "text-1");
    other.reply(&asked, json!({"action": "decline"})).await;
    other.answer(&json!("text-1")).await;
    let heard: Vec<_> =
        hosted.recorded_calls("answered").iter().map(|it| it["params"].clone()).collect();
    assert_eq!(heard.len(), 3);
    assert_eq!(heard[2], json!({"action": "decline"}));
}

#[tokio::test]
async fn a_client_without_a_form_is_asked_nothing_and_told_nothing() {
    let (rig, hosted) = hosted_server().await;
    for (able, mode) in [
        (json!({}), "form"),
        (json!({}), "url"),
        (json!({"elicitation": {"form": {}}}), "url"),
        (json!({"elicitation": {"url": {}}}), "form"),
    ] {
        let mut editor = rig.editor_socket().with("hosted", able.clone()).await;
        let request = editor.ask("authenticate", json!({"methodId": mode})).await;
        let mut told = Vec::new();
        // The agent's notification about it comes before the response.
        let answer = loop {
            let message = editor.message().await.unwrap();
            if message["id"] == request {
                break message;
            }
            told.push(message["method"].clone());
        };
        assert_eq!(answer["result"], json!({}));
        let heard = hosted.recorded_calls("answered");
        assert_eq!(heard.last().unwrap()["params"], json!({"action": "cancel"}), "{able} {mode}");
        let knows_addresses = able["elicitation"].get("url").is_some();
        let expected: &[&str] = if knows_addresses { &["elicitation/complete"] } else { &[] };
        assert_eq!(told, expected, "{able}");
    }
}

#[tokio::test]
async fn who_takes_over_answers_what_the_client_before_was_asked() {
    let (rig, _) = hosted_server().await;
    let able = json!({"fs": {"readTextFile": true}});
    let (mut first, session) = rig.editor_socket().open_session_with("hosted", able.clone()).await;
    let _prompt = first.start_prompt(&session, "read /a").await;
    first.request("fs/read_text_file").await;
    drop(first);
    let mut second = rig.editor_socket().with("hosted", able).await;
    second.load(&session).await;
    let asked = second.request("fs/read_text_file").await;
    assert_eq!(asked["params"], json!({"sessionId": session, "path": "/a"}));
    second.reply(&asked, json!({"content": "of the second"})).await;
    second.until(|message| message["params"]["update"]["content"]["text"] == "!").await;
    assert_eq!(second.words("agent_message_chunk"), ["{\"content\":\"of the second\"}!"]);
    // The capabilities of the client that prompts decide what the agent may request.
    let mut third = rig.editor_socket().load_session("hosted", &session).await;
    third.prompt(&session, "read /b").await;
    assert_eq!(third.words("agent_message_chunk").last().unwrap(), "-32601!");
    let prompt = second.start_prompt(&session, "read /c").await;
    let asked = second.request("fs/read_text_file").await;
    second.reply(&asked, json!({"content": "c"})).await;
    second.answer(&prompt).await;
    assert_eq!(second.words("agent_message_chunk").last().unwrap(), "{\"content\":\"c\"}!");
}
