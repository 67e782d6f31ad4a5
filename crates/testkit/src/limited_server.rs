//! A server of the Agent Communication Protocol on a real loopback socket, with only the features that a test gives it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use trilogue_domain::lock;

use crate::loopback::Loopback;
use crate::port::reserve_address;

/// The features of the server.
#[derive(Clone, Debug)]
pub struct LimitedFeatures {
    /// The names of its agents, which echo their input. They answer `ask` with a question.
    pub agents: Vec<String>,
    /// The modes that it accepts, out of `sync` and `async`. It never streams.
    pub modes: Vec<&'static str>,
    /// Whether it responds to the mode `stream` with the run, as to `async`.
    pub answers_streams: bool,
    pub lists_events: bool,
}

/// Stopped when dropped.
#[derive(Debug)]
pub struct LimitedServer {
    loopback: Loopback,
    shared: Arc<LimitedState>,
}

#[derive(Debug)]
struct LimitedState {
    features: Mutex<LimitedFeatures>,
    runs: Mutex<HashMap<String, LimitedRun>>,
    requests: Mutex<Vec<(String, HeaderMap)>>,
    connections: AtomicUsize,
}

#[derive(Clone, Debug)]
struct LimitedRun {
    run: Value,
    /// The message with which the run ends; `None` if it asks a question first.
    said: Option<String>,
    /// The number of further reads that show it as running.
    looks: usize,
}

/// The largest request that the server reads, in bytes.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;
/// The number of reads that show a run as running before it ends.
const LOOKS: usize = 2;

// === impl LimitedFeatures ===

impl LimitedFeatures {
    pub fn of(agents: &[&str], modes: &[&'static str]) -> Self {
        Self {
            agents: agents.iter().map(|&name| name.to_owned()).collect(),
            modes: modes.to_vec(),
            answers_streams: false,
            lists_events: false,
        }
    }
}

// === impl LimitedServer ===

impl LimitedServer {
    pub async fn start(features: LimitedFeatures) -> Result<Self> {
        Self::start_at(reserve_address()?, features).await
    }

    pub async fn start_at(address: SocketAddr, features: LimitedFeatures) -> Result<Self> {
        let shared = Arc::new(LimitedState {
            features: Mutex::new(features),
            runs: Mutex::default(),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let counted = Arc::clone(&shared);
        let listener = TcpListener::bind(address).await?.tap_io(move |_| {
            counted.connections.fetch_add(1, Ordering::Relaxed);
        });
        let router = Router::new()
            .route("/ping", get(|| async { Json(json!({})) }))
            .route("/agents", get(agents))
            .route("/agents/{name}", get(agent))
            .route("/runs", post(create))
            .route("/runs/{id}", get(show).post(resume))
            .route("/runs/{id}/events", get(events))
            .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
            .with_state(Arc::clone(&shared));
        Ok(Self { loopback: Loopback::serve_on(listener, address, router), shared })
    }

    pub fn url(&self) -> String {
        self.loopback.url()
    }

    pub fn set_agents(&self, agents: &[&str]) {
        lock(&self.shared.features).agents = agents.iter().map(|&name| name.to_owned()).collect();
    }

    /// The modes of all requested runs, including refused ones, with the headers of the requests.
    pub fn requests(&self) -> Vec<(String, HeaderMap)> {
        lock(&self.shared.requests).clone()
    }

    /// The number of connections that clients made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

fn manifest(name: &str) -> Value {
    json!({ "name": name, "description": format!("{name} is limited.") })
}

fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({ "code": code, "message": message, "data": null }))).into_response()
}

async fn agents(State(shared): State<Arc<LimitedState>>) -> Json<Value> {
    let agents: Vec<_> = lock(&shared.features).agents.iter().map(|it| manifest(it)).collect();
    Json(json!({ "agents": agents }))
}

async fn agent(State(shared): State<Arc<LimitedState>>, Path(name): Path<String>) -> Response {
    if lock(&shared.features).agents.contains(&name) {
        return Json(manifest(&name)).into_response();
    }
    error_response(StatusCode::NOT_FOUND, "not_found", "no such agent")
}

async fn create(
    State(shared): State<Arc<LimitedState>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let mode = body["mode"].as_str().unwrap_or("sync").to_owned();
    lock(&shared.requests).push((mode.clone(), headers));
    let said =
        text(&body["input"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default());
    let id = uuid();
    let run = json!({
        "run_id": id, "agent_name": body["agent_name"], "session_id": body["session_id"],
        "status": "created", "await_request": null, "output": [], "error": null,
        "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
    });
    let said = (said != "ask").then_some(said);
    answer(&shared, &mode, LimitedRun { run, said, looks: LOOKS })
}

async fn resume(
    State(shared): State<Arc<LimitedState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let mode = body["mode"].as_str().unwrap_or("sync").to_owned();
    lock(&shared.requests).push((mode.clone(), headers));
    let Some(mut run) = lock(&shared.runs).get(&id).cloned() else {
        return error_response(StatusCode::NOT_FOUND, "not_found", "no such run");
    };
    run.said = Some(text(&body["await_resume"]["message"]));
    run.run["status"] = "in-progress".into();
    run.run["await_request"] = Value::Null;
    run.looks = LOOKS;
    answer(&shared, &mode, run)
}

fn answer(shared: &LimitedState, mode: &str, mut run: LimitedRun) -> Response {
    let features = lock(&shared.features).clone();
    let is_answered = mode == "stream" && features.answers_streams;
    if !is_answered && !features.modes.contains(&mode) {
        return error_response(StatusCode::UNPROCESSABLE_ENTITY, "invalid_input", "no such mode");
    }
    if mode == "sync" {
        run.looks = 0;
        run.settle();
    }
    let shown = run.run.clone();
    let id = shown["run_id"].as_str().unwrap_or_default().to_owned();
    lock(&shared.runs).insert(id, run);
    Json(shown).into_response()
}

async fn show(State(shared): State<Arc<LimitedState>>, Path(id): Path<String>) -> Response {
    match look(&shared, &id) {
        Some(run) => Json(run).into_response(),
        None => error_response(StatusCode::NOT_FOUND, "not_found", "no such run"),
    }
}

async fn events(State(shared): State<Arc<LimitedState>>, Path(id): Path<String>) -> Response {
    if !lock(&shared.features).lists_events {
        return error_response(StatusCode::NOT_IMPLEMENTED, "server_error", "no events");
    }
    let Some(run) = look(&shared, &id) else {
        return error_response(StatusCode::NOT_FOUND, "not_found", "no such run");
    };
    let mut events = vec![json!({ "type": "run.in-progress", "run": run })];
    for message in run["output"].as_array().into_iter().flatten() {
        let empty = json!({ "role": message["role"], "parts": [] });
        events.push(json!({ "type": "message.created", "message": empty }));
        for part in message["parts"].as_array().into_iter().flatten() {
            events.push(json!({ "type": "message.part", "part": part }));
        }
        events.push(json!({ "type": "message.completed", "message": message }));
    }
    if run["status"] == "completed" {
        events.push(json!({ "type": "run.completed", "run": run }));
    }
    if run["status"] == "awaiting" {
        events.push(json!({ "type": "run.awaiting", "run": run }));
    }
    Json(json!({ "events": events })).into_response()
}

/// The run as a read shows it now; the next read may show more of it.
fn look(shared: &LimitedState, id: &str) -> Option<Value> {
    let mut runs = lock(&shared.runs);
    let run = runs.get_mut(id)?;
    match run.looks {
        0 => run.settle(),
        _ => run.looks -= 1,
    }
    Some(run.run.clone())
}

fn text(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["content"].as_str()).collect()
}

fn uuid() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("00000000-0000-4000-8000-{:012}", NEXT.fetch_add(1, Ordering::Relaxed))
}

// === impl LimitedRun ===

impl LimitedRun {
    /// Ends the run, or makes it ask a question.
    fn settle(&mut self) {
        let part = |text: &str| json!({ "content_type": "text/plain", "content": text });
        match &self.said {
            Some(said) => {
                self.run["output"] = json!([{ "role": "agent", "parts": [part(said)] }]);
                self.run["status"] = "completed".into();
                self.run["finished_at"] = "2026-01-01T00:00:01Z".into();
            }
            None => {
                let message = json!({ "role": "agent", "parts": [part("Which one?")] });
                self.run["await_request"] = json!({ "type": "message", "message": message });
                self.run["status"] = "awaiting".into();
            }
        }
    }
}
