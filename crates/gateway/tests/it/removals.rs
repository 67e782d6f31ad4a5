//! Who may remove runs and threads, and write the settings of an editor: a person, for what others made with the right `admin`, and on a page with a new sign-in.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::Client;

use crate::rig::{AgentPrograms, Rig, Setup, text, user};

/// A run on this thread that is at work until it is stopped.
async fn running(client: &Client, thread: &str) -> String {
    let body = json!({
        "agent": "puppet", "input": "sleep", "thread_id": thread, "create_thread": true, "mode": "async",
    });
    let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    text(&run, "/id").to_owned()
}

/// Requests that remove a run at work on this thread, over each protocol that can.
fn rollbacks(thread: &str, run: &str) -> [(Method, String, Value); 4] {
    let input = json!({"messages": [{"role": "user", "content": "x"}]});
    let connect = json!({"agent_id": "puppet", "input": input, "multitask_strategy": "rollback"});
    let native =
        json!({"agent": "puppet", "input": "x", "thread_id": thread, "strategy": "rollback"});
    [
        (Method::POST, format!("/connect/runs/{run}/cancel?action=rollback"), Value::Null),
        (Method::POST, "/api/v1/runs".to_owned(), native),
        (Method::POST, format!("/connect/threads/{thread}/runs"), connect),
        (Method::DELETE, format!("/connect/runs/{run}"), Value::Null),
    ]
}

async fn status(
    client: &Client,
    headers: &[(&str, &str)],
    (method, path, body): &(Method, String, Value),
) -> u16 {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    client.send(method.clone(), path, headers, body).await.unwrap().status
}

fn delete(path: String) -> (Method, String, Value) {
    (Method::DELETE, path, Value::Null)
}

#[tokio::test]
async fn what_another_principal_made_is_removed_only_with_the_right_admin() {
    let rig = Rig::start().await;
    rig.token("alpha", "bob", user(), false).await;
    let (alice, bob) = (rig.alice(), rig.as_("alpha", "bob"));
    let ended = rig.run_on("ended", "x").await;
    let ended = text(&ended, "/id");
    let at_work = running(&alice, "busy").await;
    let mut requests = rollbacks("busy", &at_work).to_vec();
    requests.extend([
        delete(format!("/api/v1/runs/{ended}")),
        delete(format!("/connect/runs/{ended}")),
        delete(format!("/connect/threads/ended/runs/{ended}")),
        delete("/connect/threads/ended".to_owned()),
        delete("/api/v1/threads/ended".to_owned()),
    ]);
    for request in &requests {
        assert_eq!(status(&bob, &[], request).await, 403, "{request:?}");
    }
    for run in [ended, &at_work] {
        assert_eq!(alice.get(&format!("/api/v1/runs/{run}")).await.unwrap().status, 200);
    }
    // Users can remove their own runs, and an administrator can also remove those of others.
    for client in [&bob, &alice] {
        for number in 0..4 {
            let thread = format!("of-bob-{number}");
            let run = running(&bob, &thread).await;
            let request = &rollbacks(&thread, &run)[number];
            let done = status(client, &[], request).await;
            assert!((200..300).contains(&done), "{request:?}: {done}");
            let gone = client.get(&format!("/api/v1/runs/{run}/wait")).await.unwrap();
            assert_eq!(gone.status, 404, "{request:?}: {}", gone.json());
        }
    }
}

#[tokio::test]
async fn an_old_session_removes_its_own_and_nothing_of_others() {
    let rig = Rig::start().await;
    rig.token("alpha", "bob", user(), false).await;
    let (alice, bob) = (rig.alice(), rig.as_("alpha", "bob"));
    let old = rig.old_session("alpha", "alice").await;
    let old = old.each_ref().map(|(name, value)| (*name, value.as_str()));
    let page = rig.stranger();
    let of_bob = running(&bob, "of-bob").await;
    let [_, replace, ..] = rollbacks("of-bob", &of_bob);
    let body = json!({"agent": "puppet", "input": "x", "thread_id": "of-bob", "mode": "async"});
    let ended = bob.post("/api/v1/runs", &json!({"agent": "puppet", "input": "x"})).await;
    let ended = ended.unwrap().ok().unwrap();
    let remove = delete(format!("/api/v1/runs/{}", text(&ended, "/id")));
    for request in [&replace, &remove] {
        assert_eq!(status(&page, &old, request).await, 403, "{request:?}");
    }
    // Another strategy removes nothing.
    assert_eq!(status(&page, &old, &(Method::POST, "/api/v1/runs".to_owned(), body)).await, 202);
    assert_eq!(status(&alice, &[], &remove).await, 204);
    let own = running(&alice, "own").await;
    let [_, replace, ..] = rollbacks("own", &own);
    assert_eq!(status(&page, &old, &replace).await, 200);
    let settings = json!({"metadata": {"trilogue.config": {"mode": "x"}}});
    let write = (Method::PATCH, "/api/v1/threads/own".to_owned(), settings);
    assert_eq!(status(&page, &old, &write).await, 403);
    assert_eq!(status(&alice, &[], &write).await, 200);
}

#[tokio::test]
async fn a_program_of_an_agent_removes_nothing_and_writes_no_settings_of_an_editor() {
    let agent_processes = Some(Arc::new(AgentPrograms::every()) as _);
    let rig = Rig::of(Setup { agent_processes, ..Setup::default() }).await;
    let client = rig.alice();
    let run = running(&client, "busy").await;
    let mut requests = rollbacks("busy", &run).to_vec();
    for member in ["trilogue.config", "trilogue.cwd", "trilogue.additional_directories"] {
        let metadata = json!({ member: {"permissions": [{"decision": "allow"}]} });
        let body = json!({ "metadata": metadata });
        let new_run = json!({
            "agent": "puppet", "input": "x", "create_thread": true, "thread_metadata": metadata,
        });
        requests.extend([
            (Method::POST, "/api/v1/threads".to_owned(), body.clone()),
            (Method::PATCH, "/api/v1/threads/busy".to_owned(), body.clone()),
            (Method::POST, "/api/v1/threads/busy/copy".to_owned(), body.clone()),
            (Method::POST, "/api/v1/runs".to_owned(), new_run),
            (Method::POST, "/connect/threads".to_owned(), body.clone()),
            (Method::PATCH, "/connect/threads/busy".to_owned(), body),
        ]);
    }
    for request in &requests {
        assert_eq!(status(&client, &[], request).await, 403, "{request:?}");
    }
    let left = client.get("/api/v1/threads/busy").await.unwrap().ok().unwrap();
    assert_eq!(left.get("metadata").unwrap_or(&json!({})), &json!({}));
    // What it may do is written down as its own, whether its run has a configuration or not.
    for config in [Value::Null, json!({})] {
        let mut body = json!({"agent": "puppet", "input": "x"});
        if !config.is_null() {
            body["config"] = config;
        }
        let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        let path = format!("/api/v1/runs/{}/events", text(&run, "/id"));
        let events = client.get(&path).await.unwrap().ok().unwrap();
        let audit = &events["items"][0]["audit"];
        assert_eq!((&audit["source"], &audit["can_answer"]), (&json!("agent"), &json!(false)));
    }
}
