//! A server of the Agent Communication Protocol that answers each run with a prepared body, on a real loopback socket.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use trilogue_domain::lock;

use crate::loopback::Loopback;

/// The server, with agents of every name. Stopped when dropped.
#[derive(Debug)]
pub struct PayloadServer {
    loopback: Loopback,
    payload: SharedPayload,
}

/// A status, a content type and a body.
type Payload = (u16, &'static str, String);
type SharedPayload = Arc<Mutex<Payload>>;

// === impl PayloadServer ===

impl PayloadServer {
    pub async fn start() -> Result<Self> {
        let payload = SharedPayload::default();
        let router = Router::new()
            .route("/ping", get(|| async { Json(json!({})) }))
            .route("/agents/{name}", get(agent))
            .route("/runs", post(answer))
            .with_state(Arc::clone(&payload));
        Ok(Self { loopback: Loopback::serve(router).await?, payload })
    }

    pub fn url(&self) -> String {
        self.loopback.url()
    }

    /// Has further runs answered with this event between the first and the last event of a run.
    pub fn answer_with_event(&self, event: &str) {
        let run = |status: &str| {
            json!({ "run_id": "01890a5d-ac96-774b-bcce-b302099a8057", "agent_name": "any",
                "status": status, "output": [], "created_at": "2026-01-01T00:00:00Z" })
        };
        let first = json!({ "type": "run.created", "run": run("created") });
        let last = json!({ "type": "run.completed", "run": run("completed") });
        let stream = format!("data: {first}\n\ndata: {event}\n\ndata: {last}\n\n");
        *lock(&self.payload) = (200, "text/event-stream", stream);
    }

    /// Has further runs refused with this body.
    pub fn refuse_with(&self, body: &str) {
        *lock(&self.payload) = (500, "application/json", body.to_owned());
    }
}

async fn agent(Path(name): Path<String>) -> Json<Value> {
    Json(json!({ "name": name, "description": "It sends what a test prepares." }))
}

async fn answer(State(payload): State<SharedPayload>) -> Response {
    let (status, kind, body) = lock(&payload).clone();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
