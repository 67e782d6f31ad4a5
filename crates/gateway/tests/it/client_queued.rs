//! Prompts that wait for their turn: a conversation runs one turn after the other, and excess requests wait too.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_gateway::ClientOptions;

use crate::client_agent::Hosted;
use crate::client_editor::Editor;
use crate::rig::{Rig, Setup};

/// The agent's message once it has read the file.
const CONTENT: &str = r#"{"content":"x"}!"#;

/// The capabilities of a client that can read files.
fn reads() -> Value {
    json!({"fs": {"readTextFile": true}})
}

fn place(session: &str) -> Value {
    json!({"sessionId": session, "cwd": "/w", "mcpServers": []})
}

fn received_messages(editor: &Editor) -> Vec<(String, String)> {
    let (mut told, mut last) = (Vec::<(String, String)>::new(), Value::Null);
    for update in editor.updates.iter().map(|params| &params["update"]) {
        let kind = update["sessionUpdate"].as_str().unwrap();
        let Some(who) = kind.strip_suffix("_message_chunk") else { continue };
        let text = update["content"]["text"].as_str().unwrap();
        match told.last_mut() {
            Some((_, whole)) if last == update["messageId"] => whole.push_str(text),
            _ => told.push((who.to_owned(), text.to_owned())),
        }
        last = update["messageId"].clone();
    }
    told
}

async fn wait_for_messages(editor: &mut Editor, expected: &[(String, String)]) {
    while received_messages(editor).len() < expected.len()
        || received_messages(editor).last() != expected.last()
    {
        let known = editor.updates.len();
        editor.wait_for_updates(known + 1).await;
    }
    assert_eq!(received_messages(editor), expected);
}

fn turns(turns: &[(&str, &str)]) -> Vec<(String, String)> {
    turns.iter().map(|(who, what)| ((*who).to_owned(), (*what).to_owned())).collect()
}

async fn until_queued(rig: &Rig, session: &str, count: usize) {
    let (alice, path) = (rig.alice(), format!("/api/v1/runs?thread_id={session}&status=queued"));
    while alice.get(&path).await.unwrap().ok().unwrap()["items"].as_array().unwrap().len() != count
    {
        tokio::task::yield_now().await;
    }
}

/// Two clients of a session. The first one has a running turn, which ends once the client answers its request for a file.
async fn at_work() -> (Rig, Editor, Editor, String, Value, Value) {
    let agents = vec![Arc::new(Hosted::new()) as _];
    let rig = Rig::of(Setup { agents, ..Setup::default() }).await;
    let (mut first, session) = rig.editor_socket().open_session_with("hosted", reads()).await;
    let second = rig.editor_socket().load_session("hosted", &session).await;
    let prompt = first.start_prompt(&session, "read /x").await;
    let read = first.request("fs/read_text_file").await;
    (rig, first, second, session, prompt, read)
}

#[tokio::test]
async fn a_prompt_that_waits_is_shown_when_its_turn_begins() {
    let (rig, mut first, mut second, session, prompt, read) = at_work().await;
    let later = second.start_prompt(&session, "later").await;
    until_queued(&rig, &session, 1).await;
    let last = first.start_prompt(&session, "last").await;
    until_queued(&rig, &session, 2).await;
    // Further clients may join before the turns begin.
    let mut resumed = rig.editor_socket().plain("hosted").await;
    resumed.ok("session/resume", place(&session)).await;
    let mut loaded = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(received_messages(&loaded), turns(&[("user", "read /x")]));
    first.reply(&read, json!({"content": "x"})).await;
    for id in [&prompt, &last] {
        assert_eq!(first.answer(id).await["result"]["stopReason"], "end_turn");
    }
    assert_eq!(second.answer(&later).await["result"]["stopReason"], "end_turn");
    let whole = [
        ("user", "read /x"),
        ("agent", CONTENT),
        ("user", "later"),
        ("agent", "later!"),
        ("user", "last"),
        ("agent", "last!"),
    ];
    let again = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(received_messages(&again), turns(&whole));
    wait_for_messages(&mut loaded, &turns(&whole)).await;
    wait_for_messages(&mut resumed, &turns(&whole[1..])).await;
    // No client receives its own prompts.
    let [_, read, later, _, last, end] = whole;
    wait_for_messages(&mut first, &turns(&[read, later, whole[3], end])).await;
    wait_for_messages(&mut second, &turns(&[whole[0], read, whole[3], last, end])).await;
}

#[tokio::test]
async fn a_prompt_that_never_begins_is_shown_behind_the_turn_that_it_waited_for() {
    let (rig, mut first, mut second, session, prompt, read) = at_work().await;
    let never = second.start_prompt(&session, "never").await;
    until_queued(&rig, &session, 1).await;
    second.notify("$/cancel_request", json!({"requestId": never})).await;
    let answer = second.answer(&never).await["result"].take();
    assert_eq!(answer["stopReason"], "cancelled");
    // The prompt was recorded, and its id is known.
    let id = answer["userMessageId"].as_str().unwrap().to_owned();
    let mut resumed = rig.editor_socket().plain("hosted").await;
    resumed.ok("session/resume", place(&session)).await;
    first.reply(&read, json!({"content": "x"})).await;
    first.answer(&prompt).await;
    let whole = turns(&[("user", "read /x"), ("agent", CONTENT), ("user", "never")]);
    let again = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(received_messages(&again), whole);
    assert_eq!(again.texts_by_message("user_message_chunk")[1].0, id.as_str());
    for editor in [&mut first, &mut resumed] {
        wait_for_messages(editor, &whole[1..]).await;
    }
}

#[tokio::test]
async fn prompts_whose_runs_are_rolled_back_are_cancelled() {
    for on_disk in [false, true] {
        let agents = vec![Arc::new(Hosted::new()) as _];
        let rig = Rig::of(Setup { agents, on_disk, ..Setup::default() }).await;
        let mut first = rig.editor_socket().numbered("hosted").await;
        let session = first.session().await;
        let mut second = rig.editor_socket().load_session("hosted", &session).await;
        let prompt = first.start_prompt(&session, "wait").await;
        wait_for_messages(&mut first, &turns(&[("agent", "waiting")])).await;
        let later = second.start_prompt(&session, "later").await;
        until_queued(&rig, &session, 1).await;
        let run = json!({
            "agent": "hosted", "input": "instead", "thread_id": session, "strategy": "rollback",
        });
        rig.alice().post("/api/v1/runs", &run).await.unwrap().ok().unwrap();
        // The ids of their messages are unknown again.
        for (editor, id) in [(&mut first, &prompt), (&mut second, &later)] {
            assert_eq!(editor.answer(id).await["result"], json!({"stopReason": "cancelled"}));
        }
        first.prompt(&session, "hello").await;
        let again = rig.editor_socket().load_session("hosted", &session).await;
        let whole =
            [("user", "instead"), ("agent", "instead!"), ("user", "hello"), ("agent", "hello!")];
        assert_eq!(received_messages(&again), turns(&whole));
    }
}

/// A client that has one request handled at a time.
async fn crowded() -> (Rig, Editor, String) {
    with(ClientOptions { max_requests: 1, ..ClientOptions::default() }).await
}

/// A client with files, and its session with a hosted agent.
async fn with(client: ClientOptions) -> (Rig, Editor, String) {
    let agents = vec![Arc::new(Hosted::new()) as _];
    let rig = Rig::of(Setup { agents, client, ..Setup::default() }).await;
    let (editor, session) = rig.editor_socket().open_session_with("hosted", reads()).await;
    (rig, editor, session)
}

#[tokio::test]
async fn requests_that_are_too_many_wait_and_are_all_answered() {
    let (_rig, mut editor, session) = crowded().await;
    let first = editor.start_prompt(&session, "read /x").await;
    let mut others = Vec::new();
    for number in 0..300 {
        others.push(editor.start_prompt(&session, &format!("word {number}")).await);
    }
    // The answer that the first prompt waits for arrives after the others.
    let read = editor.request("fs/read_text_file").await;
    editor.reply(&read, json!({"content": "x"})).await;
    for id in std::iter::once(&first).chain(&others) {
        assert_eq!(editor.answer(id).await["result"]["stopReason"], "end_turn");
    }
    let said = editor.words("agent_message_chunk");
    let expected = (0..300).map(|number| format!("word {number}!"));
    assert_eq!(said[1..], expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn what_waits_is_cancelled_like_what_is_worked_on() {
    let (_rig, mut editor, session) = crowded().await;
    let running = editor.start_prompt(&session, "wait").await;
    wait_for_messages(&mut editor, &turns(&[("agent", "waiting")])).await;
    let one = editor.start_prompt(&session, "never").await;
    let list = editor.ask("session/list", json!({})).await;
    let kept = editor.ask("session/list", json!({})).await;
    let another = editor.start_prompt(&session, "never").await;
    editor.notify("$/cancel_request", json!({"requestId": list})).await;
    assert_eq!(editor.answer(&list).await["error"]["code"], -32800);
    editor.notify("$/cancel_request", json!({"requestId": one})).await;
    assert_eq!(editor.answer(&one).await["result"], json!({"stopReason": "cancelled"}));
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    for id in [&another, &running] {
        assert_eq!(editor.answer(id).await["result"]["stopReason"], "cancelled");
    }
    assert!(editor.answer(&kept).await["result"]["sessions"].is_array());
    editor.prompt(&session, "hello").await;
    assert_eq!(editor.words("agent_message_chunk"), ["waiting", "hello!"]);
}

#[tokio::test]
async fn what_is_too_much_to_wait_is_refused_and_answers_are_heard() {
    let client =
        ClientOptions { max_requests: 1, max_line_bytes: 16 * 1024, ..ClientOptions::default() };
    let (_rig, mut editor, session) = with(client).await;
    let first = editor.start_prompt(&session, "read /x").await;
    let read = editor.request("fs/read_text_file").await;
    let mut others = Vec::new();
    for number in 0..64 {
        others.push(editor.start_prompt(&session, &format!("word {number}")).await);
    }
    editor.reply(&read, json!({"content": "x"})).await;
    assert_eq!(editor.answer(&first).await["result"]["stopReason"], "end_turn");
    let (mut taken, mut refused) = (0, 0);
    for id in &others {
        let answer = editor.answer(id).await;
        if answer["result"]["stopReason"] == "end_turn" {
            assert_eq!(refused, 0, "{answer}");
            taken += 1;
        } else {
            assert_eq!(answer["error"]["data"]["code"], "overloaded", "{answer}");
            refused += 1;
        }
    }
    assert!(taken > 8 && refused > 8, "{taken} and {refused}");
    editor.prompt(&session, "hello").await;
    assert_eq!(editor.words("agent_message_chunk").len(), taken + 2);
}

#[tokio::test]
async fn what_stood_behind_something_large_goes_on_when_that_is_cancelled() {
    let client = ClientOptions { max_line_bytes: 4096, ..ClientOptions::default() };
    let (_rig, mut editor, session) = with(client).await;
    let first = editor.start_prompt(&session, "read /x").await;
    let read = editor.request("fs/read_text_file").await;
    let large = format!("word {}", "x".repeat(3300));
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(editor.start_prompt(&session, &large).await);
    }
    let list = editor.ask("session/list", json!({})).await;
    let last = others.pop().unwrap();
    editor.notify("$/cancel_request", json!({"requestId": last})).await;
    assert_eq!(editor.answer(&last).await["result"], json!({"stopReason": "cancelled"}));
    assert!(editor.answer(&list).await["result"]["sessions"].is_array());
    editor.reply(&read, json!({"content": "x"})).await;
    for id in std::iter::once(&first).chain(&others) {
        assert_eq!(editor.answer(id).await["result"]["stopReason"], "end_turn");
    }
}

#[tokio::test]
async fn a_prompt_that_was_sent_before_a_question_is_no_answer_to_it() {
    let client = ClientOptions { max_requests: 1, ..ClientOptions::default() };
    let rig = Rig::with(client).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let first = editor.start_prompt(&session, "sleep").await;
    let asks = editor.start_prompt(&session, "suspend").await;
    let before = editor.start_prompt(&session, "before").await;
    // Once this is answered, all earlier requests have arrived.
    let list = editor.ask("session/list", json!({})).await;
    editor.notify("$/cancel_request", json!({"requestId": list})).await;
    assert_eq!(editor.answer(&list).await["error"]["code"], -32800);
    editor.notify("$/cancel_request", json!({"requestId": first})).await;
    assert_eq!(editor.answer(&first).await["result"]["stopReason"], "cancelled");
    for id in [&asks, &before] {
        assert_eq!(editor.answer(id).await["result"]["stopReason"], "end_turn");
    }
    assert_eq!(editor.words("agent_message_chunk").last().unwrap(), "before");
    editor.prompt(&session, "behind").await;
    let told = editor.words("agent_message_chunk").pop().unwrap();
    assert!(told.contains("behind") && told != "behind", "{told}");
}
