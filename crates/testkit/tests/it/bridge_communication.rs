//! Agents behind another server of the Agent Communication Protocol, used through this server's interfaces.

use serde_json::{Value, json};
use trilogue_testkit::scripted_server::ScriptedServer;
use trilogue_testkit::{Client, Folder, Server, until};

use crate::bridge::{
    Bridge, LIMIT, answer, bridge_settings, communicate, message, pending_question, start_with,
    status_of, texts, wait_for_end,
};
use crate::events;
use crate::kill_rounds::stop;

const KIND: &str = "agent-communication";

/// An answer to a question for a message.
fn go_on() -> Value {
    json!({ "message": [{ "content_type": "text/plain", "content": "go on" }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_has_its_content_types_and_its_description_here() {
    let bridge = Bridge::start(KIND).await;
    let (client, far) = (bridge.client(), bridge.far.client());
    let direct = json!({ "agent_name": "mime_types", "input": [message("x")], "mode": "sync" });
    let direct = far.post("/comm/v0/runs", &direct).await.unwrap().ok().unwrap();
    let run = communicate(&client, "far_mime_types", json!([message("x")])).await;
    let parts = |run: &Value| run["output"][0]["parts"].clone();
    assert!(parts(&direct).as_array().is_some_and(|parts| !parts.is_empty()));
    assert_eq!(parts(&run), parts(&direct));
    let manifest = client.get("/communication/agents/far_echo").await.unwrap().ok().unwrap();
    let theirs = far.get("/comm/v0/agents/echo").await.unwrap().ok().unwrap();
    assert_eq!(manifest["description"], theirs["description"]);
    bridge.stop().await;
}

/// The server is killed right after it has accepted an answer, before the other server has confirmed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_answer_outlives_the_server_that_passes_it_on() {
    let bridge = Bridge::start(KIND).await;
    let waiting = communicate(&bridge.client(), "far_awaiter", json!([message("x")])).await;
    let run = waiting["run_id"].as_str().unwrap();
    bridge.far.pause().unwrap();
    answer(&bridge.client(), &go_on()).await;
    let bridge = bridge.restart_with(|far| far.resume().unwrap()).await;
    let client = bridge.client();
    let ended = until("the run to end", LIMIT, || async {
        // The question is open again if the answer did not reach the other server.
        if let Some(question) = pending_question(&client).await {
            let path = format!("/api/v1/interrupts/{question}/answer");
            client.post(&path, &go_on()).await.ok()?;
        }
        let run = status_of(&client, run).await;
        (run["finished_at"] != Value::Null).then_some(run)
    })
    .await
    .unwrap();
    assert_eq!(ended["status"], "completed", "{ended}");
    bridge.stop().await;
}

/// The other server is down when its question is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_cannot_be_passed_on_is_asked_for_again() {
    let mut bridge = Bridge::with_store(KIND, "sqlite:far.db").await;
    let client = bridge.client();
    let waiting = communicate(&client, "far_awaiter", json!([message("x")])).await;
    let run = waiting["run_id"].as_str().unwrap();
    let first = pending_question(&client).await;
    bridge.far.kill().await.unwrap();
    answer(&client, &go_on()).await;
    until("the question to be asked again", LIMIT, || async {
        pending_question(&client).await.filter(|question| Some(question) != first.as_ref())
    })
    .await
    .unwrap();
    assert_eq!(status_of(&client, run).await["status"], "awaiting");
    let bridge = bridge.start_far_again().await;
    answer(&client, &go_on()).await;
    wait_for_end(&client, run).await;
    let ended = status_of(&client, run).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    bridge.stop().await;
}

/// A server in front of an agent that follows a script, with a mount that enforces the rules at `/strict`.
async fn in_front_of_script(dir: &Folder, far: &ScriptedServer) -> Server {
    let mount = |prefix: &str, is_strict: bool| {
        format!(
            "[[mounts]]\nprotocol = \"communication\"\nprefix = \"{prefix}\"\nstrict = {is_strict}\n\n"
        )
    };
    let mounts = [mount("/communication", false), mount("/strict", true)].concat();
    let agent = bridge_settings(KIND, &far.url(), &["script"]);
    start_with(dir, format!("{mounts}{agent}")).await
}

/// A run at a mount, whose agent streams these events.
async fn follow_script(client: &Client, mount: &str, events: &Value) -> Value {
    let input = json!([message(&events.to_string())]);
    let body = json!({ "agent_name": "far_script", "input": input, "mode": "sync" });
    client.post(&format!("{mount}/runs"), &body).await.unwrap().ok().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_elsewhere_leaves_out_is_filled_in_and_breaks_the_strict_rules() {
    let (dir, far) = (Folder::new().unwrap(), ScriptedServer::start().await.unwrap());
    let server = in_front_of_script(&dir, &far).await;
    let client = server.client();
    let typed = json!({ "content_type": "text/plain", "content": "bare" });
    let created = |message: Value| json!([{ "type": "message.created", "message": message }]);
    for (script, why) in [
        (json!([{ "type": "message.part", "part": { "content": "bare" } }]), "content_type"),
        (
            json!([{ "type": "message.part", "part": { "content": "bare", "content_type": null } }]),
            "content_type",
        ),
        (created(json!({ "role": "agent", "parts": [{ "content": "bare" }] })), "content_type"),
        (created(json!({ "parts": [typed] })), "role"),
        (created(json!({ "role": "agent", "parts": [typed], "x_extra": 1 })), "x_extra"),
    ] {
        let run = follow_script(&client, "/communication", &script).await;
        assert_eq!(run["status"], "completed", "{script}: {run}");
        let part = &run["output"][0]["parts"][0];
        assert_eq!(
            (&part["content_type"], &part["content"]),
            (&json!("text/plain"), &json!("bare"))
        );
        let run = follow_script(&client, "/strict", &script).await;
        assert_eq!(
            (&run["status"], &run["error"]["data"]["reason"]),
            (&json!("failed"), &json!("output_invalid")),
            "{script}: {run}"
        );
        assert!(run["error"]["message"].as_str().unwrap().contains(why), "{script}: {run}");
    }
    let run =
        follow_script(&client, "/strict", &created(json!({ "role": "agent", "parts": [typed] })))
            .await;
    assert_eq!(run["status"], "completed", "{run}");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_that_contradicts_itself_is_shown_with_a_note_and_fails_on_a_strict_mount()
 {
    let (dir, far) = (Folder::new().unwrap(), ScriptedServer::start().await.unwrap());
    let server = in_front_of_script(&dir, &far).await;
    let client = server.client();
    let part = |text: &str| json!({ "content_type": "text/plain", "content": text });
    let message = |kind: &str, text: &str| json!({ "type": kind, "message": { "role": "agent", "parts": [part(text)] } });
    let script = json!([message("message.created", "AAA"), message("message.completed", "BBB")]);

    let run = follow_script(&client, "/communication", &script).await;
    assert_eq!(
        (&run["status"], texts(&run)),
        (&json!("completed"), vec!["AAABBB".to_owned()]),
        "{run}"
    );
    let log = events(&client, run["session_id"].as_str().unwrap()).await.unwrap();
    let notes = log.iter().filter(|event| event["kind"] == "message.contradiction");
    assert_eq!(notes.count(), 1, "{log:?}");
    let log = server.home().log_end();
    assert_eq!(log.matches("with other content than it had streamed").count(), 1, "{log}");

    let run = follow_script(&client, "/strict", &script).await;
    assert_eq!(
        (&run["status"], &run["error"]["data"]["reason"]),
        (&json!("failed"), &json!("protocol_violation")),
        "{run}"
    );

    // A repetition in another order contradicts nothing.
    let image =
        json!({ "content_type": "image/png", "content": "aGk=", "content_encoding": "base64" });
    let file = json!({ "content_type": "text/csv", "content": "1,2", "name": "a.csv" });
    let whole = [part("one "), part("two"), file.clone(), image.clone()];
    let message = |kind: &str, parts: &[Value]| json!({ "type": kind, "message": { "role": "agent", "parts": parts } });
    let each = |part: &Value| json!({ "type": "message.part", "part": part });
    let script = json!([
        message("message.created", &whole[..2]),
        each(&whole[1]),
        each(&file),
        each(&image),
        message("message.completed", &whole),
    ]);
    let run = follow_script(&client, "/strict", &script).await;
    assert_eq!(
        (&run["status"], texts(&run)),
        (&json!("completed"), vec!["one two1,2aGk=".to_owned()]),
        "{run}"
    );
    stop(server).await;
}
