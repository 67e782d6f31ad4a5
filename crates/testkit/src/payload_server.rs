//! A server of the Agent Communication Protocol that answers each run with a prepared body, on a real loopback socket.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use trilogue_domain::lock;

use crate::loopback::Loopback;

const EVENT_STREAM: &str = "text/event-stream";

/// The server, with agents of every name. Stopped when dropped.
#[derive(Debug)]
pub struct PayloadServer {
    loopback: Loopback,
    payload: SharedPayload,
}

#[derive(Clone, Debug)]
enum Payload {
    Whole {
        status: u16,
        kind: &'static str,
        body: String,
    },
    /// An event stream that breaks off, and then this list of the run's events.
    Listed {
        begin: String,
        list: String,
    },
    /// An event stream that repeats a text.
    Endless {
        begin: String,
        repeated: String,
    },
}

type SharedPayload = Arc<Mutex<Payload>>;

// === impl PayloadServer ===

impl PayloadServer {
    pub async fn start() -> Result<Self> {
        let payload = SharedPayload::default();
        let router = Router::new()
            .route("/ping", get(|| async { Json(json!({})) }))
            .route("/agents/{name}", get(agent))
            .route("/runs", post(answer))
            .route("/runs/{run}/events", get(listed))
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
        *lock(&self.payload) = Payload::Whole { status: 200, kind: EVENT_STREAM, body: stream };
    }

    /// Has the streams of further runs break off after the first event. Their list of events is this JSON.
    pub fn answer_with_list(&self, events: &str) {
        let list = format!("{{\"events\":{events}}}");
        *lock(&self.payload) = Payload::Listed { begin: begin(), list };
    }

    /// Has further runs begin, and then send this text again and again without end.
    pub fn answer_without_end(&self, text: &str) {
        *lock(&self.payload) = Payload::Endless { begin: begin(), repeated: text.to_owned() };
    }

    /// Has further runs refused with this body.
    pub fn refuse_with(&self, body: &str) {
        let (status, kind, body) = (500, "application/json", body.to_owned());
        *lock(&self.payload) = Payload::Whole { status, kind, body };
    }
}

async fn agent(Path(name): Path<String>) -> Json<Value> {
    Json(json!({ "name": name, "description": "It sends what a test prepares." }))
}

/// The first event of a run.
fn begin() -> String {
    let run = json!({ "run_id": "01890a5d-ac96-774b-bcce-b302099a8057", "agent_name": "any",
        "status": "created", "output": [], "created_at": "2026-01-01T00:00:00Z" });
    format!("data: {}\n\n", json!({ "type": "run.created", "run": run }))
}

async fn listed(State(payload): State<SharedPayload>) -> Response {
    match &*lock(&payload) {
        Payload::Listed { list, .. } => {
            ([(CONTENT_TYPE, "application/json")], list.clone()).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn answer(State(payload): State<SharedPayload>) -> Response {
    let payload = lock(&payload).clone();
    match payload {
        Payload::Whole { status, kind, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, [(CONTENT_TYPE, kind)], body).into_response()
        }
        Payload::Listed { begin, .. } => ([(CONTENT_TYPE, EVENT_STREAM)], begin).into_response(),
        Payload::Endless { begin, repeated } => {
            let pieces = stream::iter([begin]).chain(stream::repeat(repeated));
            let body = Body::from_stream(pieces.map(Ok::<_, Infallible>));
            ([(CONTENT_TYPE, EVENT_STREAM)], body).into_response()
        }
    }
}

// === impl Payload ===

impl Default for Payload {
    fn default() -> Self {
        Self::Whole { status: 404, kind: "text/plain", body: String::new() }
    }
}
