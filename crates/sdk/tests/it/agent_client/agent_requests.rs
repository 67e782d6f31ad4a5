//! Requests of the agent to its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use trilogue_sdk::agent_client::wire::{
    ClientCapabilities, FileSystemCapabilities, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionRequest, RequestPermissionResponse,
};
use trilogue_sdk::agent_client::{
    ClientHandler, ErrorObject, RejectAll, allow_once, file_not_found,
};
use trilogue_sdk::async_trait;

use super::{Agent, session};

fn permission() -> Value {
    json!({
        "sessionId": "s",
        "toolCall": { "toolCallId": "c" },
        "options": [
            { "optionId": "1", "name": "Always", "kind": "allow_always" },
            { "optionId": "2", "name": "Never", "kind": "reject_always" },
            { "optionId": "3", "name": "No", "kind": "reject_once" },
            { "optionId": "4", "name": "Yes", "kind": "allow_once" },
        ],
    })
}

async fn response_to(agent: &mut Agent, method: &str, params: &Value) -> Value {
    agent.ask(0, method, params).await;
    let answer = agent.read_message().await;
    assert_eq!(answer["id"], 0);
    answer
}

#[tokio::test]
async fn by_default_everything_is_rejected() {
    let (_session, mut agent) = session(json!({}), RejectAll).await;
    let answer = response_to(&mut agent, "session/request_permission", &permission()).await;
    assert_eq!(answer["result"], json!({ "outcome": { "outcome": "selected", "optionId": "3" } }));
    let mut only_allows = permission();
    only_allows["options"].as_array_mut().unwrap().truncate(1);
    let answer = response_to(&mut agent, "session/request_permission", &only_allows).await;
    assert_eq!(answer["result"], json!({ "outcome": { "outcome": "cancelled" } }));
    for (method, params) in [
        ("fs/read_text_file", json!({ "sessionId": "s", "path": "/a" })),
        ("fs/write_text_file", json!({ "sessionId": "s", "path": "/a", "content": "" })),
        ("terminal/create", json!({ "sessionId": "s", "command": "rm" })),
        (
            "elicitation/create",
            json!({ "sessionId": "s", "message": "?", "mode": "form", "requestedSchema": {} }),
        ),
        ("craft/drain", json!({})),
        ("_ext", json!([1])),
        ("session/prompt", json!({})),
    ] {
        let answer = response_to(&mut agent, method, &params).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}

/// Serves the file `/there`, and allows once. If the title says "made up", chooses an option that the request did not offer.
#[derive(Clone, Debug, Default)]
struct Host {
    asked: Arc<AtomicUsize>,
    never: bool,
}

#[async_trait]
impl ClientHandler for Host {
    fn capabilities(&self) -> ClientCapabilities {
        let fs = FileSystemCapabilities { read_text_file: true, ..FileSystemCapabilities::new() };
        ClientCapabilities { fs: Some(fs), ..ClientCapabilities::new() }
    }

    async fn permission(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.never {
            std::future::pending::<()>().await;
        }
        match request.tool_call.title.as_deref() {
            Some("made up") => RequestPermissionResponse::selected("made up"),
            _ => allow_once(&request),
        }
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> Result<ReadTextFileResponse, ErrorObject> {
        match request.path.as_str() {
            "/there" => Ok(ReadTextFileResponse::new("words")),
            path => Err(file_not_found(path)),
        }
    }
}

#[tokio::test]
async fn what_is_offered_is_given() {
    let (_session, mut agent) = session(json!({}), Host::default()).await;
    let answer = response_to(&mut agent, "session/request_permission", &permission()).await;
    assert_eq!(answer["result"]["outcome"]["optionId"], "4");
    let read = |path: &str| json!({ "sessionId": "s", "path": path });
    let answer = response_to(&mut agent, "fs/read_text_file", &read("/there")).await;
    assert_eq!(answer["result"], json!({ "content": "words" }));
    let answer = response_to(&mut agent, "fs/read_text_file", &read("/a b")).await;
    assert_eq!(
        answer["error"],
        json!({ "code": -32002, "message": "Resource not found: /a b", "data": { "uri": "file:///a%20b" } })
    );
    let answer = response_to(&mut agent, "fs/read_text_file", &json!({ "sessionId": "s" })).await;
    assert_eq!(answer["error"]["code"], -32602);
    let write = json!({ "sessionId": "s", "path": "/a", "content": "" });
    let answer = response_to(&mut agent, "fs/write_text_file", &write).await;
    assert_eq!(answer["error"]["code"], -32601);
}

#[tokio::test]
async fn an_option_that_was_not_offered_allows_nothing() {
    let (_session, mut agent) = session(json!({}), Host::default()).await;
    let mut made_up = permission();
    made_up["toolCall"]["title"] = json!("made up");
    let answer = response_to(&mut agent, "session/request_permission", &made_up).await;
    assert_eq!(answer["result"]["outcome"]["optionId"], "3");
}

#[tokio::test]
async fn questions_of_a_cancelled_turn_are_answered_as_cancelled() {
    let host = Host { never: true, ..Host::default() };
    let (session, mut agent) = session(json!({}), host.clone()).await;
    let turn = session.prompt("hi").await.unwrap();
    let (prompt, _) = agent.read_request("session/prompt").await;
    agent.ask(0, "session/request_permission", &permission()).await;
    // The agent's response arrives after its request, so the client has taken the request by then.
    agent.pinged(&session).await;
    turn.cancel().await.unwrap();
    let mut heard = [agent.read_message().await, agent.read_message().await];
    heard.sort_by_key(|it| it.get("method").is_none());
    assert_eq!(heard[0]["method"], "session/cancel");
    assert_eq!(heard[1]["result"], json!({ "outcome": { "outcome": "cancelled" } }));
    agent.answer(&prompt, &json!({ "stopReason": "cancelled" })).await;
    turn.finish().await.unwrap();
}

#[tokio::test]
async fn an_agent_may_give_up_on_its_question() {
    let host = Host { never: true, ..Host::default() };
    let (_session, mut agent) = session(json!({}), host).await;
    agent.ask(0, "session/request_permission", &permission()).await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 0 } });
    agent.line(&cancel.to_string()).await;
    assert_eq!(agent.read_message().await["error"]["code"], -32800);
}
