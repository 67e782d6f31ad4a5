//! Threads that change their node on purpose: to the node whose editor continues them, and away from a node that drains.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::json;
use trilogue_testkit::editor::agent_text;
use trilogue_testkit::{Editor, Folder, until};

use crate::client_official::{hosted, scripted};
use crate::cluster::Cluster;
use crate::{echo, run_of};

const LIMIT: Duration = Duration::from_secs(30);

async fn editor_at(cluster: &Cluster, node: &str, agent: &str, cwd: &Path) -> Editor {
    let command = cluster.command_line(node, &["connect", agent]).await.unwrap();
    Editor::launch(&command, cwd).await
}

async fn cluster_with_sessions(folder: &Folder) -> Cluster {
    let agent = scripted(&folder.path().join("sessions"), &[]).await;
    Cluster::start(&hosted(&[("scripted", agent)])).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_editor_goes_on_with_a_thread_of_another_node() {
    let (store, cwd) = (Folder::new().unwrap(), Folder::new().unwrap());
    let cluster = cluster_with_sessions(&store).await;
    let mut first = editor_at(&cluster, "a", "scripted", cwd.path()).await;
    let session = first.session_in(cwd.path()).await;
    first.prompt(&session, "say:one").await;
    assert_eq!(cluster.owner(&session).await.unwrap().as_deref(), Some("a"));

    let mut second = editor_at(&cluster, "b", "scripted", cwd.path()).await;
    second.load_in(&session, cwd.path()).await;
    assert_eq!(agent_text(&second.updates_of(&session)), "one");
    assert_eq!(second.prompt(&session, "say:, two").await["stopReason"], "end_turn");
    assert_eq!(cluster.owner(&session).await.unwrap().as_deref(), Some("b"));
    first.prompt(&session, "say:, three").await;
    assert_eq!(cluster.owner(&session).await.unwrap().as_deref(), Some("a"));

    // A running turn stays on its node; the other node's editor answers and cancels it.
    let asking = first.start_prompt(&session, "permission").await;
    let asked = second.request("session/request_permission").await;
    let waiting = second.start_prompt(&session, "say:, four").await;
    second.choose(&asked, "once").await;
    first.end_turn(&asking).await;
    second.end_turn(&waiting).await;
    assert_eq!(cluster.owner(&session).await.unwrap().as_deref(), Some("b"));
    let endless = second.start_prompt(&session, "say:, five\nslow").await;
    // The run before may still wait for late output; it ends when this one begins.
    until("the sixth run to be at work", LIMIT, || {
        let (client, path) = (cluster.client(), format!("/api/v1/runs?thread_id={session}"));
        async move {
            let runs = client.get(&path).await.ok()?.ok().ok()?;
            let runs = runs["items"].as_array()?;
            let is_running = runs.iter().any(|run| run["status"] == "running");
            (runs.len() == 6 && is_running).then_some(())
        }
    })
    .await
    .unwrap();
    first.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(second.answer(&endless).await["result"]["stopReason"], "cancelled");
    first.prompt(&session, "say:, six").await;
    first.close().await;
    second.close().await;
    let mut third = editor_at(&cluster, "c", "scripted", cwd.path()).await;
    third.load_in(&session, cwd.path()).await;
    let whole = agent_text(&third.updates_of(&session));
    assert_eq!(whole, "one, two, threepermission: once, four, five, six");
    third.close().await;
    cluster.stop().await.unwrap();
}

/// The editor's answer reaches the question on the node that owns its thread by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_wherever_its_thread_has_gone() {
    let cwd = Folder::new().unwrap();
    let cluster = Cluster::start("").await.unwrap();
    let [a, ..] = &cluster.clients()[..] else { panic!("there are three nodes") };
    let mut editor = editor_at(&cluster, "b", "mailcomposer", cwd.path()).await;
    let session = editor.session_in(cwd.path()).await;
    let turn = editor.start_prompt(&session, "Write to ada@example.com saying hi").await;
    let asked = editor.request("session/request_permission").await;
    let hand_over = format!("/api/v1/threads/{session}/hand-over");
    assert_eq!(a.post(&hand_over, &json!({ "node": "a" })).await.unwrap().status, 204);
    assert_eq!(cluster.owner(&session).await.unwrap().as_deref(), Some("a"));
    editor.choose(&asked, "true").await;
    editor.end_turn(&turn).await;
    assert_eq!(cluster.owner(&session).await.unwrap().as_deref(), Some("a"));
    let runs = a.get(&format!("/api/v1/runs?thread_id={session}")).await.unwrap().ok().unwrap();
    let runs = runs["items"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["status"]), (1, &json!("completed")), "{runs:?}");
    let unknown = a.post(&hand_over, &json!({ "node": "x" })).await.unwrap();
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "not_found"));
    editor.close().await;
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_until_the_thread_of_a_dead_node_is_taken_over() {
    let cwd = Folder::new().unwrap();
    let mut cluster = Cluster::start("").await.unwrap();
    let mut editor = editor_at(&cluster, "b", "mailcomposer", cwd.path()).await;
    let session = editor.session_in(cwd.path()).await;
    let turn = editor.start_prompt(&session, "Write to ada@example.com saying hi").await;
    let asked = editor.request("session/request_permission").await;
    let hand_over = format!("/api/v1/threads/{session}/hand-over");
    let taken = cluster.clients()[0].post(&hand_over, &json!({ "node": "a" })).await.unwrap();
    assert_eq!(taken.status, 204);
    cluster.lose(0).await.unwrap();
    editor.choose(&asked, "true").await;
    editor.end_turn(&turn).await;
    assert_ne!(cluster.owner(&session).await.unwrap().as_deref(), Some("a"));
    editor.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_drains_hands_over_each_thread_when_it_has_nothing_to_do() {
    let store = Folder::new().unwrap();
    let cluster = cluster_with_sessions(&store).await;
    let [a, b, _] = &cluster.clients()[..] else { panic!("there are three nodes") };
    echo(a, "idle", "before").await.ok().unwrap();
    let mail = json!("Write to ada@example.com saying hi");
    let waiting = a.post("/api/v1/runs", &run_of("mailcomposer", "waiting", &mail, "wait")).await;
    assert_eq!(waiting.unwrap().ok().unwrap()["status"], "interrupted");
    let busy = run_of("scripted", "busy", &json!("permission"), "async");
    a.post("/api/v1/runs", &busy).await.unwrap().ok().unwrap();
    until("the permission", LIMIT, || async {
        let inbox = a.get("/api/v1/interrupts?pending=true").await.ok()?.ok().ok()?;
        (inbox["items"].as_array()?.len() == 2).then_some(())
    })
    .await
    .unwrap();

    // Any node forwards the request.
    let drained = b.post("/api/v1/nodes/a/drain", &json!({})).await.unwrap().ok().unwrap();
    assert_eq!((&drained["name"], &drained["draining"]), (&json!("a"), &json!(true)));
    let moved = |thread: &'static str| {
        let cluster = &cluster;
        until("the thread to have moved", LIMIT, move || async move {
            let owner = cluster.owner(thread).await.ok()?;
            (owner.as_deref() != Some("a")).then_some(())
        })
    };
    moved("idle").await.unwrap();
    moved("waiting").await.unwrap();
    assert_eq!(cluster.owner("busy").await.unwrap().as_deref(), Some("a"));
    // The draining node takes no threads, and forwards requests.
    for thread in ["idle", "new"] {
        echo(a, thread, "after").await.ok().unwrap();
        let owner = cluster.owner(thread).await.unwrap();
        assert!(owner.as_deref().is_some_and(|owner| owner != "a"), "{thread}: {owner:?}");
    }
    let stateless = json!({ "agent": "echo", "input": "alone", "mode": "wait" });
    let alone = a.post("/api/v1/runs", &stateless).await.unwrap().ok().unwrap();
    assert_eq!(alone["status"], "completed");

    let asked =
        b.get("/api/v1/interrupts?pending=true&thread_id=busy").await.unwrap().ok().unwrap();
    let asked = &asked["items"][0];
    let path = format!("/api/v1/interrupts/{}/answer", asked["id"].as_str().unwrap());
    b.post(&path, &json!({ "option": "once" })).await.unwrap().ok().unwrap();
    moved("busy").await.unwrap();
    let status = a.get("/api/v1/nodes").await.unwrap().ok().unwrap();
    let of_a = status["items"].as_array().unwrap().iter().find(|node| node["name"] == "a");
    assert_eq!(of_a.unwrap()["open_threads"], 0, "{status}");

    let undone = a
        .send(Method::DELETE, "/api/v1/nodes/a/drain", &[], Bytes::new())
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(undone["draining"], false);
    echo(a, "again", "here").await.ok().unwrap();
    assert_eq!(cluster.owner("again").await.unwrap().as_deref(), Some("a"));
    cluster.stop().await.unwrap();
}
