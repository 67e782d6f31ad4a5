//! A server of the Agent Communication Protocol that streams what its client tells it to, on a real loopback socket.

use anyhow::Result;
use axum::extract::Path;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::loopback::Loopback;

/// Every run streams the events in the text of its last message, a JSON array, between its own first and last event. Stopped when dropped.
#[derive(Debug)]
pub struct ScriptedServer(Loopback);

// === impl ScriptedServer ===

impl ScriptedServer {
    pub async fn start() -> Result<Self> {
        let router = Router::new()
            .route("/ping", get(|| async { Json(json!({})) }))
            .route("/agents/{name}", get(agent))
            .route("/runs", post(create));
        Ok(Self(Loopback::serve(router).await?))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }
}

async fn agent(Path(name): Path<String>) -> Json<Value> {
    Json(json!({ "name": name, "description": "It follows a script." }))
}

async fn create(Json(body): Json<Value>) -> Response {
    let script = body["input"].as_array().and_then(|messages| messages.last()?.pointer("/parts/0"));
    let script = script.and_then(|part| part["content"].as_str()).unwrap_or_default();
    let events: Vec<Value> = serde_json::from_str(script).unwrap_or_default();
    let completed = events.iter().filter(|event| event["type"] == "message.completed");
    let output: Vec<Value> = completed.map(|event| event["message"].clone()).collect();
    let run = |status: &str, output: &[Value]| {
        json!({ "run_id": "01890a5d-ac96-774b-bcce-b302099a8057", "agent_name": body["agent_name"],
            "session_id": body["session_id"], "status": status, "output": output,
            "created_at": "2026-01-01T00:00:00Z" })
    };
    let first = json!({ "type": "run.created", "run": run("created", &[]) });
    let last = json!({ "type": "run.completed", "run": run("completed", &output) });
    let all = std::iter::once(first).chain(events).chain([last]);
    let stream: String = all.map(|event| format!("data: {event}\n\n")).collect();
    ([(CONTENT_TYPE, "text/event-stream")], stream).into_response()
}
