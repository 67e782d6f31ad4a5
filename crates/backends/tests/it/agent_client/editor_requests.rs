//! Requests of an agent for which an editor is needed, outside of prompts and at the end of the agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use trilogue_backends::agent_client::ClientTools;
use trilogue_domain::{Json, Principal, RunStatus};
use trilogue_runtime::{AttachGuard, CallError, Client, ClientProfile};

use super::background::{NEVER_QUIET, background_run, go, once, wait_for_text};
use super::rig::{Rig, alice, editor, until, until_async};

/// An editor with terminals and extensions that records the calls of agents.
#[derive(Debug)]
struct RecordingEditor {
    profile: ClientProfile,
    principal: Principal,
    calls: Mutex<Vec<(String, Value)>>,
}

// === impl RecordingEditor ===

impl RecordingEditor {
    fn new() -> Arc<Self> {
        let (profile, principal) = (editor(r#"{"terminal":true}"#), alice());
        Arc::new(Self { profile, principal, calls: Mutex::default() })
    }

    async fn attach(self: &Arc<Self>, rig: &Rig) -> AttachGuard {
        let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
        rig.runtime.attach(&row, Arc::clone(self) as _)
    }

    fn calls_of(&self, method: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == method).map(|(_, it)| it.clone()).collect()
    }
}

#[async_trait]
impl Client for RecordingEditor {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    fn principal(&self) -> &Principal {
        &self.principal
    }

    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError> {
        self.calls.lock().unwrap().push((method.to_owned(), params.to_value()));
        Ok(Json::from_value(&match method {
            "terminal/create" => json!({ "terminalId": "t-1" }),
            "terminal/output" => json!({ "output": "", "truncated": false }),
            _ => json!({ "from": "the editor" }),
        }))
    }

    async fn notify(&self, _: &str, _: Json) {}
}

async fn rig(client_wait: Duration) -> Rig {
    Rig::with(&[], |launch| {
        launch.client_tools = ClientTools::Forward;
        launch.background_quiet = NEVER_QUIET;
        launch.client_wait = client_wait;
    })
    .await
}

/// A request that the agent sends after its answer, as soon as the file exists.
fn request(rig: &Rig, method: &str) -> String {
    once(rig, "go", &json!({ "call": method, "params": { "command": "sh", "path": "/a" } }))
}

#[tokio::test]
async fn a_request_on_a_thread_that_never_had_an_editor_is_refused_at_once() {
    for method in ["fs/read_text_file", "terminal/create", "_x/ask"] {
        let rig = rig(NEVER_QUIET).await;
        rig.run(&rig.thread, &request(&rig, method)).await;
        go(&rig, "go");
        let run = background_run(&rig, 0, RunStatus::Running).await;
        wait_for_text(&rig, &run, "told: failed").await;
        let said = rig.reply_text(&run).await;
        assert!(said.contains("-32601"), "{method}: {said}");
        rig.end().await;
    }
}

#[tokio::test]
async fn an_editor_that_comes_back_answers_the_request() {
    let rig = rig(NEVER_QUIET).await;
    let editor = RecordingEditor::new();
    let attached = editor.attach(&rig).await;
    rig.run(&rig.thread, &request(&rig, "_x/ask")).await;
    drop(attached);
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    assert_eq!(editor.calls_of("_x/ask").len(), 0);
    let again = RecordingEditor::new();
    let _attached = again.attach(&rig).await;
    wait_for_text(&rig, &run, r#"told: {"from":"the editor"}"#).await;
    assert_eq!(again.calls_of("_x/ask").len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_request_is_refused_when_the_editor_does_not_come_back_in_time() {
    let rig = rig(Duration::from_millis(100)).await;
    drop(RecordingEditor::new().attach(&rig).await);
    rig.run(&rig.thread, &request(&rig, "_x/ask")).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "told: failed").await;
    let said = rig.reply_text(&run).await;
    assert!(said.contains("-32601"), "{said}");
    rig.end().await;
}

#[tokio::test]
async fn the_terminals_of_an_agent_that_dies_are_released_at_its_editor() {
    for in_prompt in [true, false] {
        let rig = rig(NEVER_QUIET).await;
        let editor = RecordingEditor::new();
        let _attached = editor.attach(&rig).await;
        if in_prompt {
            let run = rig.run(&rig.thread, "term-open:sleep 9\ncrash").await;
            assert_eq!(run.status, RunStatus::Failed);
        } else {
            rig.run(&rig.thread, &request(&rig, "terminal/create")).await;
            go(&rig, "go");
            let run = background_run(&rig, 0, RunStatus::Running).await;
            wait_for_text(&rig, &run, "t-1").await;
            rig.children.close().await;
            assert_eq!(rig.wait_until_settled(&run).await.status, RunStatus::Failed);
        }
        assert_eq!(editor.calls_of("terminal/create").len(), 1);
        until("the terminal is released", || !editor.calls_of("terminal/release").is_empty()).await;
        assert_eq!(editor.calls_of("terminal/release"), [json!({ "terminalId": "t-1" })]);
        rig.end().await;
    }
}

#[tokio::test]
async fn a_terminal_that_its_agent_has_released_is_not_released_again() {
    let rig = rig(NEVER_QUIET).await;
    let editor = RecordingEditor::new();
    let _attached = editor.attach(&rig).await;
    let run = rig.run(&rig.thread, "term:true\nterm-open:true\ncrash").await;
    assert_eq!(run.status, RunStatus::Failed);
    // Both have one id here, so one release is the agent's and the other one the server's.
    until("the terminal is released", || editor.calls_of("terminal/release").len() == 2).await;
    until_async("the process is gone", async || rig.children.count() == 0).await;
    assert_eq!(editor.calls_of("terminal/release").len(), 2);
    rig.end().await;
}
