//! One event in the forms of all protocols, as their streams show it.

use serde_json::{Value, json};

use crate::rig::{Rig, text};

async fn forms(rig: &Rig, thread: &str, number: u64) -> Value {
    let path = format!("/api/v1/threads/{thread}/events/{number}/forms");
    rig.alice().get(&path).await.unwrap().ok().unwrap()
}

async fn events(rig: &Rig, thread: &str) -> Vec<Value> {
    let page = rig.alice().get(&format!("/api/v1/threads/{thread}/events?limit=1000")).await;
    page.unwrap().ok().unwrap()["items"].as_array().unwrap().clone()
}

fn frames<'a>(forms: &'a Value, protocol: &str) -> &'a [Value] {
    let forms = forms["forms"].as_array().unwrap();
    let form = forms.iter().find(|form| form["protocol"] == protocol).unwrap();
    form["frames"].as_array().unwrap()
}

#[tokio::test]
async fn every_event_has_the_forms_that_the_streams_send() {
    let rig = Rig::start().await;
    let run = rig.run_on("told", "large").await;
    let run = text(&run, "/id");
    let (mut communication, mut connect) = (Vec::new(), Vec::new());
    for event in events(&rig, "told").await {
        let forms = forms(&rig, "told", event["number"].as_u64().unwrap()).await;
        assert_eq!(forms["event"]["type"], event["type"]);
        assert_eq!(forms["event"]["number"], event["number"]);
        if event["run_id"].is_string() {
            communication.extend_from_slice(frames(&forms, "communication"));
            connect.extend_from_slice(frames(&forms, "connect"));
        }
        for frame in frames(&forms, "client") {
            assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
            assert_eq!(frame["params"]["sessionId"], "told", "{frame}");
        }
    }
    let path = format!("/communication/runs/{run}/events");
    let listed = rig.alice().get(&path).await.unwrap().ok().unwrap();
    // The protocol's list has whole states of the run; its stream has them too.
    let kinds = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| text(event, "/type").to_owned()).collect()
    };
    assert_eq!(kinds(&communication), kinds(listed["events"].as_array().unwrap()));
    // Each event that changes the output produces a sample, and the last sample is the run's output.
    let path = format!("/connect/threads/told/runs/{run}/wait");
    let output = rig.alice().get(&path).await.unwrap().ok().unwrap();
    assert!(connect.len() > 1 && connect.iter().all(|it| it["type"] == "values"), "{connect:?}");
    assert_eq!(connect.last().unwrap()["values"], output["output"]["values"]);
}

#[tokio::test]
async fn a_form_says_what_becomes_of_the_event() {
    let rig = Rig::start().await;
    rig.run_on("asked", "suspend").await;
    let events = events(&rig, "asked").await;
    let asked = events.iter().find(|event| event["type"] == "interrupt.raised").unwrap();
    let forms = forms(&rig, "asked", asked["number"].as_u64().unwrap()).await;
    for form in forms["forms"].as_array().unwrap() {
        let rows = form["fidelity"].as_array().unwrap();
        assert!(!rows.is_empty(), "{form}");
        assert!(rows.iter().all(|row| row["protocol"] == form["protocol"]), "{form}");
    }
    assert_eq!(frames(&forms, "communication").last().unwrap()["type"], "run.awaiting");
    assert_eq!(frames(&forms, "connect").last().unwrap()["type"], "interrupt");
}

#[tokio::test]
async fn the_request_of_a_run_is_code() {
    let rig = Rig::start().await;
    let run = rig.run_on("asked", "it's").await;
    let path = format!("/api/v1/runs/{}/requests", text(&run, "/id"));
    let requests = rig.alice().get(&path).await.unwrap().ok().unwrap();
    let items = requests["items"].as_array().unwrap();
    let names: Vec<_> = items.iter().map(|item| text(item, "/name")).collect();
    assert_eq!(names, ["curl", "acp-sdk", "agntcy-acp", "JSON-RPC"]);
    assert!(text(&items[0], "/code").contains("/api/v1/runs' "), "{requests}");
    let large = "x".repeat(256 * 1024);
    let run = rig.run_on("large", &large).await;
    let path = format!("/api/v1/runs/{}/requests", text(&run, "/id"));
    assert_eq!(rig.alice().get(&path).await.unwrap().code(), "body_too_large");
}

#[tokio::test]
async fn what_is_no_event_has_no_forms() {
    let rig = Rig::start().await;
    rig.run_on("short", "x").await;
    for number in ["0", "99999", "x", "-1"] {
        let path = format!("/api/v1/threads/short/events/{number}/forms");
        assert_eq!(rig.alice().get(&path).await.unwrap().code(), "not_found", "{number}");
    }
}

#[tokio::test]
async fn a_thread_is_copied_as_it_was_at_an_event() {
    let rig = Rig::start().await;
    for input in ["one", "two"] {
        rig.run_on("long", input).await;
    }
    let events = events(&rig, "long").await;
    let completed = |event: &&Value| event["type"] == "message.completed";
    let second = events.iter().filter(completed).nth(1).unwrap()["number"].as_u64().unwrap();
    let copy = async |until: u64| {
        let body = json!({ "until_event": until });
        rig.alice().post("/api/v1/threads/long/copy", &body).await.unwrap()
    };
    let copied = copy(second).await.ok().unwrap();
    let messages = format!("/api/v1/threads/{}/messages", text(&copied, "/id"));
    let messages = rig.alice().get(&messages).await.unwrap().ok().unwrap();
    assert_eq!(messages["items"].as_array().unwrap().len(), 2, "{messages}");
    assert_eq!(copy(1).await.code(), "not_found");
    let both = json!({ "until_event": 9, "until_message": "x" });
    let refused = rig.alice().post("/api/v1/threads/long/copy", &both).await.unwrap();
    assert_eq!(refused.code(), "invalid_request");
}
