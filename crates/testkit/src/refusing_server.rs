//! A server of the Agent Connect Protocol on a real loopback socket that refuses every run.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde_json::{Value, json};
use trilogue_domain::lock;

use crate::loopback::Loopback;

/// The largest request that the server reads, in bytes.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;
/// The name of the agent with threads.
const THREADED: &str = "threaded";

/// A server with the agents `plain`, without threads, and `threaded`. It refuses a run with the status that the last message of its input names, or with 422 if it names none. Stopped when dropped.
#[derive(Debug)]
pub struct RefusingServer {
    loopback: Loopback,
    inputs: Inputs,
}

/// The messages of the refused runs.
type Inputs = Arc<Mutex<Vec<Vec<Value>>>>;

// === impl RefusingServer ===

impl RefusingServer {
    pub async fn start() -> Result<Self> {
        let inputs = Inputs::default();
        let router = Router::new()
            .route("/agents/{agent}", get(agent))
            .route("/agents/{agent}/descriptor", get(descriptor))
            .route("/runs", post(refuse))
            .route("/runs/wait", post(refuse))
            .route("/runs/stream", post(refuse))
            .route("/threads/{thread}/runs/stream", post(refuse))
            .fallback(|| async { answer(404, &json!({ "detail": "Not Found" })) })
            .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
            .with_state(Arc::clone(&inputs));
        Ok(Self { loopback: Loopback::serve(router).await?, inputs })
    }

    pub fn url(&self) -> String {
        self.loopback.url()
    }

    /// The messages of each refused run, in the order of the runs.
    pub fn inputs(&self) -> Vec<Vec<Value>> {
        lock(&self.inputs).clone()
    }
}

fn answer(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(body.clone())).into_response()
}

/// Describes an agent whose id is its name.
fn agent_named(name: &str) -> Value {
    let metadata = json!({ "ref": { "name": name, "version": "1" }, "description": "Refuses." });
    json!({ "agent_id": name, "metadata": metadata })
}

async fn agent(Path(id): Path<String>) -> Json<Value> {
    Json(agent_named(&id))
}

async fn descriptor(Path(id): Path<String>) -> Json<Value> {
    let message = json!({
        "type": "object",
        "properties": { "role": { "type": "string" }, "content": {} },
    });
    let input = json!({
        "type": "object",
        "properties": { "messages": { "type": "array", "items": message } },
        "required": ["messages"],
    });
    let capabilities = json!({
        "threads": id == THREADED, "interrupts": false, "callbacks": false,
        "streaming": { "values": true, "custom": false },
    });
    let specs = json!({
        "capabilities": capabilities, "input": input, "output": { "type": "object" },
        "config": { "type": "object" },
    });
    Json(json!({ "metadata": agent_named(&id)["metadata"], "specs": specs }))
}

async fn refuse(State(inputs): State<Inputs>, Json(creation): Json<Value>) -> Response {
    let messages = creation["input"]["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().and_then(|message| message["content"].as_str());
    let status = last.and_then(|text| text.parse().ok()).unwrap_or(422);
    lock(&inputs).push(messages);
    answer(status, &json!("no"))
}
