//! The members of the protocol's document on every mount, behaviour that needs an option, and errors as bare strings.

use serde_json::{Value, json};
use trilogue_gateway::{ConnectOptions, ErrorBody};

use crate::connect::{Face, NOBODY, expected_refusal, refusal, run_body};
use crate::rig::text;

fn documented() -> ConnectOptions {
    ConnectOptions { as_documented: true, ..ConnectOptions::default() }
}

#[tokio::test]
async fn every_mount_has_the_documents_names_beside_the_others() {
    for options in [documented(), ConnectOptions::default()] {
        let face = Face::with(options).await;
        let agents = face.post_ok("/agents/search", &json!({})).await;
        for agent in agents.as_array().unwrap() {
            assert_eq!(agent["id"], agent["agent_id"]);
        }
        let said_x = json!({"message": "x"});
        let done = face.post_ok("/runs/wait", &run_body("say", "x")).await;
        assert_eq!((&done["output"]["values"], &done["output"]["result"]), (&said_x, &said_x));
        assert_eq!((text(&done, "/type"), &done["result"]), ("result", &said_x));
        let asks = face.post_ok("/runs/wait", &run_body("ask", "")).await;
        let names = (text(&asks, "/type"), text(&asks, "/interrupt_type"));
        assert_eq!(names, ("interrupt", "approval"));
        assert_eq!(asks["interrupt_payload"], json!({"question": "shall I?"}));
        let streamed = face.post("/runs/stream", &run_body("say", "x")).await;
        let events = String::from_utf8(streamed.body.to_vec()).unwrap();
        assert!(events.contains(r#""result":{"message":"x"}"#), "{events}");
    }
}

#[tokio::test]
async fn what_is_not_declared_is_streamed_all_the_same() {
    for options in [documented(), ConnectOptions::default()] {
        let face = Face::with(options).await;
        let mail = json!({"agent_id": "org.agntcy.mailcomposer", "input": {"message": "hi"}});
        let streamed = face.post("/runs/stream", &mail).await;
        let text = String::from_utf8(streamed.body.to_vec()).unwrap();
        assert_eq!(text.starts_with("event: run\ndata: {"), options.as_documented, "{text}");
        assert!(text.contains("\"status\":\"success\""), "{text}");
        // A client that joins a run knows its id.
        let joined = face.get(&format!("/runs/{}/stream", run_of(&streamed))).await;
        let text = String::from_utf8(joined.body.to_vec()).unwrap();
        assert!(!text.contains("event: run\n"), "{text}");
    }
}

fn run_of(streamed: &trilogue_testkit::Reply) -> &str {
    streamed.headers["x-run-id"].to_str().unwrap()
}

#[tokio::test]
async fn a_state_that_nobody_declares_can_be_hidden() {
    for (options, hidden) in [(documented(), true), (ConnectOptions::default(), false)] {
        let face = Face::with(options).await;
        let thread = face.thread().await;
        let path = format!("/threads/{thread}");
        let body = json!({"agent_id": "secretive", "input": {}});
        face.post_ok(&format!("{path}/runs/wait"), &body).await;
        let shown = face.get_ok(&path).await;
        assert_eq!(shown.get("values").is_none(), hidden, "{shown}");
        let history = face.get_ok(&format!("{path}/history")).await;
        assert_eq!(history.as_array().unwrap().is_empty(), hidden, "{history}");
        let found = face.post_ok("/threads/search", &json!({})).await;
        assert_eq!(found[0].get("values").is_none(), hidden);
        let state = face.get(&format!("{path}/state")).await;
        assert_eq!(state.status, if hidden { 404 } else { 200 });
        let chat = json!({"agent_id": "puppet", "input": "hello"});
        for body in [run_body("say", "x"), chat] {
            let open = face.thread().await;
            face.post_ok(&format!("/threads/{open}/runs/wait"), &body).await;
            let shown = face.get_ok(&format!("/threads/{open}")).await;
            assert!(shown.get("values").is_some(), "{shown}");
        }
    }
}

#[tokio::test]
async fn errors_are_strings_where_the_mount_says_so() {
    let strings = ConnectOptions { error_body: ErrorBody::String, ..ConnectOptions::default() };
    let face = Face::with(strings).await;
    let unknown = face.get(&format!("/runs/{NOBODY}")).await;
    assert!(matches!(unknown.json(), Value::String(_)), "{}", unknown.json());
    assert_eq!(unknown.headers["x-acp-error-code"], "run_not_found");
    let invalid = face.post("/runs", &json!({"input": {"do": 5}})).await;
    assert_eq!(invalid.headers["x-acp-error-code"], "input_schema_violation");
    assert!(invalid.json().is_string());
}

#[tokio::test]
async fn what_is_hidden_is_neither_found_by_its_content_nor_set() {
    let face = Face::with(documented()).await;
    let secret = json!({"secret": true});
    let mut hidden = Vec::new();
    let mut open = Vec::new();
    for _ in 0..3 {
        let thread = face.thread().await;
        let body = json!({"agent_id": "secretive", "input": {}});
        face.post_ok(&format!("/threads/{thread}/runs/wait"), &body).await;
        hidden.push(thread);
        // A thread whose state a client has set itself.
        let thread = face.thread().await;
        assert_eq!(
            face.patch(&format!("/threads/{thread}"), &json!({"values": secret})).await.status,
            200
        );
        open.insert(0, thread);
    }
    let ids = async |body: Value| -> Vec<String> {
        let found = face.post_ok("/threads/search", &body).await;
        let all = found.as_array().unwrap().iter();
        all.map(|it| text(it, "/thread_id").to_owned()).collect()
    };
    assert_eq!(ids(json!({"values": secret})).await, open);
    assert_eq!(ids(json!({"values": secret, "limit": 2})).await, open[..2]);
    assert_eq!(ids(json!({"values": secret, "limit": 2, "offset": 2})).await, open[2..]);
    assert_eq!(ids(json!({})).await.len(), 6);
    let path = format!("/threads/{}", hidden[0]);
    for patch in [json!({"values": secret}), json!({"messages": []})] {
        let reply = face.patch(&path, &patch).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{patch}");
    }
    assert_eq!(face.patch(&path, &json!({"metadata": {"a": 1}})).await.json()["metadata"]["a"], 1);
    // Neither a copy nor the run's removal reveals it.
    let copy = face.post_ok(&format!("{path}/copy"), &json!({})).await;
    assert!(copy.get("values").is_none(), "{copy}");
    let runs = face.get_ok(&format!("{path}/runs")).await;
    assert_eq!(face.delete(&format!("{path}/runs/{}", text(&runs, "/0/run_id"))).await.status, 204);
    let shown = face.get_ok(&path).await;
    assert!(shown.get("values").is_none(), "{shown}");
    assert_eq!(ids(json!({"values": secret})).await, open);
}
