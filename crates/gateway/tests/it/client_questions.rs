//! Interrupts as questions: sent to every client, answered by any of them, and withdrawn from the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trilogue_domain::limits;

use crate::client_agent::{Hosted, permission};
use crate::rig::{Rig, Setup};

fn chosen(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

#[tokio::test]
async fn every_client_is_asked_and_the_first_answer_counts() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().plain("puppet").await;
    let mut second = rig.editor_socket().plain("puppet").await;
    let session = first.session().await;
    second.load(&session).await;
    let prompt = first.start_prompt(&session, "ask").await;
    let to_first = first.request("session/request_permission").await;
    let to_second = second.request("session/request_permission").await;
    assert_eq!(to_second["params"], to_first["params"]);
    second.choose(&to_second, "yes").await;
    let withdrawn = first.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], to_first["id"]);
    assert_eq!(first.answer(&prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(first.words("agent_message_chunk"), ["yes"]);
    // An answer that comes too late changes nothing.
    first.choose(&to_first, "no").await;
    first.prompt(&session, "go on").await;
    assert_eq!(first.words("agent_message_chunk"), ["yes", "go on"]);
}

#[tokio::test]
async fn a_question_can_be_answered_on_our_own_face_and_is_taken_back() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    let alice = rig.alice();
    let pending = alice.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
    let id = pending["items"][0]["id"].as_str().unwrap();
    let path = format!("/api/v1/interrupts/{id}/answer");
    alice.post(&path, &json!({"option": "no"})).await.unwrap().ok().unwrap();
    let withdrawn = editor.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), ["no"]);
}

#[tokio::test]
async fn an_editor_that_never_answers_holds_no_question_beyond_its_deadline() {
    let interrupt_deadline = Some(Duration::from_millis(300));
    let rig = Rig::of(Setup { interrupt_deadline, ..Setup::default() }).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    // A client that shows the question and does not answer.
    let withdrawn = editor.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    editor.answer(&prompt).await;
}

#[tokio::test]
async fn an_editor_that_sends_something_now_and_then_holds_its_question_longer() {
    let deadline = Duration::from_millis(500);
    let rig = Rig::of(Setup { interrupt_deadline: Some(deadline), ..Setup::default() }).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    let begun = Instant::now();
    while begun.elapsed() < deadline * 4 {
        // It says nothing about the question.
        editor.ok("session/list", json!({})).await;
    }
    assert!(!editor.has_before(|message| message["method"] == "$/cancel_request"));
    editor.choose(&asked, "yes").await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), ["yes"]);
}

#[tokio::test]
async fn nothing_but_an_offered_option_allows() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    for answer in [
        json!({"outcome": {"outcome": "cancelled"}}),
        chosen("not-offered"),
        json!({"outcome": {"outcome": "whatever", "optionId": "yes"}}),
        json!({"outcome": 5}),
        json!(null),
    ] {
        let prompt = editor.start_prompt(&session, "ask").await;
        let asked = editor.request("session/request_permission").await;
        editor.reply(&asked, answer.clone()).await;
        editor.answer(&prompt).await;
        assert_eq!(editor.words("agent_message_chunk").last().unwrap(), "no", "{answer}");
    }
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    let error = json!({"code": -32601, "message": "what?"});
    editor.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
    editor.answer(&prompt).await;
    assert_eq!(editor.words("agent_message_chunk").last().unwrap(), "no");
}

#[tokio::test]
async fn cancelling_takes_the_question_back_and_answers_the_prompt() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    let withdrawn = editor.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn who_opens_a_session_is_asked_what_it_waits_for() {
    let rig = Rig::start().await;
    let (mut first, session) = rig.editor_socket().open_session("puppet").await;
    first.start_prompt(&session, "ask").await;
    first.request("session/request_permission").await;
    drop(first);
    for method in ["session/load", "session/resume"] {
        let mut second = rig.editor_socket().plain("puppet").await;
        let open = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
        let id = second.ask(method, open).await;
        // The answer arrives first.
        let mut order = Vec::new();
        while order.len() < 2 {
            let message = second.message().await.unwrap();
            if message["method"] != "session/update" {
                order.push(message);
            }
        }
        assert_eq!(order[0]["id"], id);
        assert_eq!(order[1]["method"], "session/request_permission", "{method}");
    }
}

#[tokio::test]
async fn a_client_without_forms_is_asked_in_words_and_its_next_prompt_is_the_answer() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().plain("puppet").await;
    let mut second = rig.editor_socket().plain("puppet").await;
    let session = first.session().await;
    second.load(&session).await;
    let asked = first.prompt(&session, "suspend").await;
    assert_eq!(asked["stopReason"], "end_turn");
    let question = first.words("agent_message_chunk");
    assert_eq!(question.len(), 1);
    assert!(question[0].contains("may I?"), "{question:?}");
    let answered = first.prompt(&session, "you may").await;
    assert_eq!(answered["stopReason"], "end_turn");
    assert!(first.words("agent_message_chunk")[1].contains("you may"), "{:?}", first.updates);
    assert!(first.words("user_message_chunk").is_empty());
    // The other client has everything, and a replay shows it too.
    let third = rig.editor_socket().load_session("puppet", &session).await;
    second.wait_for_updates(third.updates.len()).await;
    assert_eq!(second.updates, third.updates);
    assert_eq!(third.words("user_message_chunk"), ["suspend", "you may"]);
}

#[tokio::test]
async fn a_client_with_forms_is_asked_by_one_where_the_question_has_a_schema() {
    let rig = Rig::start().await;
    let (mut editor, session) =
        rig.editor_socket().open_session_with("puppet", json!({"elicitation": {"form": {}}})).await;
    let prompt = editor.start_prompt(&session, "form").await;
    let asked = editor.request("elicitation/create").await;
    assert_eq!(asked["params"]["mode"], "form");
    let content = json!({"name": "me"});
    editor.reply(&asked, json!({"action": "accept", "content": content})).await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "end_turn");
    assert!(editor.words("agent_message_chunk")[0].contains("me"), "{:?}", editor.updates);
}

#[tokio::test]
async fn who_dismisses_a_question_of_another_s_run_leaves_it_open() {
    let rig = Rig::start().await;
    let (mut editor, session) =
        rig.editor_socket().open_session_with("puppet", json!({"elicitation": {"form": {}}})).await;
    let (dismissed, declined) = (json!({"action": "cancel"}), json!({"action": "decline"}));
    let closed = json!({"outcome": {"outcome": "cancelled"}});
    let answer = json!({"value": {"name": "Ada"}});
    for (asks, method, reply, answer) in [
        ("form", "elicitation/create", &dismissed, &answer),
        ("form", "elicitation/create", &declined, &answer),
        ("ask", "session/request_permission", &closed, &json!({"option": "yes"})),
    ] {
        rig.run_on(&session, asks).await;
        let asked = editor.request(method).await;
        editor.reply(&asked, reply.clone()).await;
        // A separate task handles the reply.
        for _ in 0..20 {
            editor.ok("session/list", json!({})).await;
        }
        let alice = rig.alice();
        let pending = alice.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
        let id = pending["items"][0]["id"].as_str().unwrap();
        let path = format!("/api/v1/interrupts/{id}/answer");
        let row = alice.post(&path, answer).await.unwrap().ok().unwrap();
        let run = format!("/api/v1/runs/{}/wait", row["run_id"].as_str().unwrap());
        let run = alice.get(&run).await.unwrap().ok().unwrap();
        assert_eq!(run["status"], "completed", "{asks} {reply}: {run}");
    }
    // If the client that prompted and waits dismisses the form, that ends its turn.
    let prompt = editor.start_prompt(&session, "form").await;
    let asked = editor.request("elicitation/create").await;
    editor.reply(&asked, dismissed).await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn what_a_hosted_agent_asks_comes_as_it_asked_it() {
    let hosted = Arc::new(Hosted::new());
    let rig = Rig::of(Setup { agents: vec![hosted], ..Setup::default() }).await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let prompt = editor.start_prompt(&session, "permission").await;
    let asked = editor.request("session/request_permission").await;
    let mut expected = permission();
    expected["sessionId"] = json!(session);
    assert_eq!(asked["params"], expected);
    editor.choose(&asked, "always").await;
    editor.answer(&prompt).await;
    let told: Value =
        serde_json::from_str(editor.words("agent_message_chunk")[0].trim_end_matches('!')).unwrap();
    assert_eq!(told, chosen("always"));
}

#[tokio::test]
async fn what_an_answer_carries_beyond_itself_comes_to_a_hosted_agent() {
    let hosted = Arc::new(Hosted::new());
    let rig = Rig::of(Setup { agents: vec![hosted], ..Setup::default() }).await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let mut answer = chosen("always");
    answer["outcome"]["why"] = json!({"deep": [1.5, null]});
    answer["more"] = json!("x");
    let told = answer.clone();
    answer["_meta"] = json!({"session_id": "other"});
    answer["outcome"]["_meta"] = json!({"a": 1});
    // An answer stays valid if its extra members are too large to be stored.
    let mut large = answer.clone();
    large["more"] = "y".repeat(limits::MAX_ANSWER_EXTRA_BYTES).into();
    for (answer, told) in [(answer, told), (large, chosen("always"))] {
        let session = editor.session().await;
        let prompt = editor.start_prompt(&session, "permission").await;
        let asked = editor.request("session/request_permission").await;
        editor.reply(&asked, answer).await;
        editor.answer(&prompt).await;
        let words = editor.words("agent_message_chunk").concat();
        let said = words.trim_end_matches('!').rsplit('!').next().unwrap();
        assert_eq!(serde_json::from_str::<Value>(said).unwrap(), told);
    }
}

#[tokio::test]
async fn nothing_but_a_word_for_yes_is_consent_to_visit_an_address() {
    let rig = Rig::of(Setup { agents: vec![Arc::new(Hosted::new())], ..Setup::default() }).await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    for (words, action) in [
        ("no, never!", "decline"),
        ("yes, if you tell me why", "decline"),
        ("say something else", "decline"),
        ("No", "decline"),
        ("", "cancel"),
        (" Yes\n", "accept"),
        ("done", "accept"),
    ] {
        assert_eq!(editor.prompt(&session, "visit").await["stopReason"], "end_turn");
        let asked = editor.words("agent_message_chunk").pop().unwrap();
        assert!(asked.ends_with("Answer `yes` when that is done. Any other answer declines."));
        editor.prompt(&session, words).await;
        let told = editor.words("agent_message_chunk").pop().unwrap();
        assert_eq!(told, format!(r#"{{"action":"{action}"}}!"#), "{words}");
    }
    // A prompt without words does not consent either.
    editor.prompt(&session, "visit").await;
    let nothing = json!({"sessionId": session, "prompt": []});
    editor.ok("session/prompt", nothing).await;
    let told = editor.words("agent_message_chunk").pop().unwrap();
    assert_eq!(told, r#"{"action":"cancel"}!"#);
}

#[tokio::test]
async fn others_see_the_words_that_a_form_was_answered_with() {
    let rig = Rig::of(Setup { agents: vec![Arc::new(Hosted::new())], ..Setup::default() }).await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let mut second = rig.editor_socket().load_session("hosted", &session).await;
    first.prompt(&session, "fill").await;
    first.prompt(&session, "Ada Lovelace").await;
    let told = first.words("agent_message_chunk").pop().unwrap();
    let told: Value = serde_json::from_str(told.trim_end_matches('!')).unwrap();
    assert_eq!(told, json!({"action": "accept", "content": {"name": "Ada Lovelace"}}));
    let third = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(third.words("user_message_chunk"), ["fill", "Ada Lovelace"]);
    second.wait_for_updates(third.updates.len()).await;
    assert_eq!(second.words("user_message_chunk"), ["fill", "Ada Lovelace"]);
}
