//! A server of the Agent Connect Protocol like the first ones: only stateless runs that a client waits for, no threads, no streams, and times without an offset.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;
use trilogue_domain::lock;

use crate::loopback::Loopback;

const AGENT: &str = "3f1e2549-5799-4321-91ae-2a4881d55526";
const TIME: &str = "2026-11-20T23:53:06.156959";

/// A server with one agent, `org.example.old`. It answers `echo: …`. On `hold` it first waits for `release`, on `ask` it asks in the form that the following words name, and on `fail` it fails.
#[derive(Debug)]
pub struct WaitOnlyServer {
    loopback: Loopback,
    shared: Arc<WaitOnlyState>,
}

#[derive(Debug, Default)]
struct WaitOnlyState {
    runs: Mutex<HashMap<String, watch::Sender<WaitOnlyRun>>>,
    waits: AtomicUsize,
    /// The status with which it refuses to describe its agent; 0 if it does describe it.
    descriptor_status: AtomicU16,
}

#[derive(Clone, Debug)]
struct WaitOnlyRun {
    id: String,
    creation: Value,
    status: &'static str,
    output: Value,
}

type Answer = (StatusCode, Json<Value>);

// === impl WaitOnlyServer ===

impl WaitOnlyServer {
    pub async fn start() -> Result<Self> {
        let shared = Arc::<WaitOnlyState>::default();
        let unknown = || async { detail(StatusCode::NOT_FOUND, "Not Found") };
        let missing = || async { detail(StatusCode::INTERNAL_SERVER_ERROR, "Not implemented") };
        let router = Router::new()
            .route("/agents/search", post(search))
            .route("/agents/{agent}", get(agent))
            .route("/agents/{agent}/descriptor", get(descriptor))
            .route("/runs", post(create))
            .route("/runs/{run}", get(show).post(resume))
            .route("/runs/{run}/wait", get(wait))
            .route("/runs/{run}/stream", get(missing))
            .route("/runs/{run}/cancel", post(missing))
            .fallback(unknown)
            .with_state(Arc::clone(&shared));
        Ok(Self { loopback: Loopback::serve(router).await?, shared })
    }

    pub fn url(&self) -> String {
        self.loopback.url()
    }

    /// Makes it refuse to describe its agent with this status; `None` ends that.
    pub fn refuse_descriptor(&self, status: Option<u16>) {
        self.shared.descriptor_status.store(status.unwrap_or(0), Ordering::Release);
    }

    /// The number of runs that were created.
    pub fn runs(&self) -> usize {
        lock(&self.shared.runs).len()
    }

    /// The messages of all created runs, in no order.
    pub fn run_messages(&self) -> Vec<String> {
        let message = |run: &watch::Sender<WaitOnlyRun>| {
            run.borrow().creation["input"]["message"].as_str().unwrap_or_default().to_owned()
        };
        lock(&self.shared.runs).values().map(message).collect()
    }

    /// The number of requests that have waited for a run.
    pub fn waits(&self) -> usize {
        self.shared.waits.load(Ordering::Acquire)
    }

    /// Lets the runs that wait on `hold` end.
    pub fn release(&self) {
        for run in lock(&self.shared.runs).values() {
            run.send_modify(|run| {
                if run.status == "pending" {
                    run.end("success", result_output("held"));
                }
            });
        }
    }
}

fn detail(status: StatusCode, why: &str) -> Answer {
    (status, Json(json!({ "detail": why })))
}

fn agent_entry() -> Value {
    let reference = json!({ "name": "org.example.old", "version": "0.1.0", "url": null });
    let metadata = json!({ "ref": reference, "description": "Is old." });
    json!({ "agent_id": AGENT, "metadata": metadata })
}

async fn search(Json(asked): Json<Value>) -> Answer {
    if asked["name"].is_null() && asked["version"].is_null() {
        let why = "At least one of 'name' or 'version' must be provided";
        return detail(StatusCode::UNPROCESSABLE_ENTITY, why);
    }
    let found = if asked["name"] == "org.example.old" { json!([agent_entry()]) } else { json!([]) };
    (StatusCode::OK, Json(found))
}

async fn agent(Path(id): Path<String>) -> Answer {
    if id != AGENT {
        return detail(StatusCode::NOT_FOUND, &format!("Agent \"{id}\" not found"));
    }
    (StatusCode::OK, Json(agent_entry()))
}

async fn descriptor(State(shared): State<Arc<WaitOnlyState>>, Path(_): Path<String>) -> Answer {
    if let Ok(status) = StatusCode::from_u16(shared.descriptor_status.load(Ordering::Acquire)) {
        return detail(status, "not now");
    }
    let text = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let approval = json!({
        "interrupt_type": "approval",
        "interrupt_payload": text("question"),
        "resume_payload": text("answer"),
    });
    let specs = json!({
        "capabilities": { "threads": false, "interrupts": true, "callbacks": false, "streaming": null },
        "input": text("message"),
        "output": text("message"),
        "config": {},
        "custom_streaming_update": null,
        "thread_state": null,
        "interrupts": [approval],
    });
    (StatusCode::OK, Json(json!({ "metadata": agent_entry()["metadata"], "specs": specs })))
}

async fn create(State(shared): State<Arc<WaitOnlyState>>, Json(creation): Json<Value>) -> Answer {
    if !creation["stream_mode"].is_null() {
        return detail(StatusCode::UNPROCESSABLE_ENTITY, "stream_mode: Input should be None");
    }
    let mut runs = lock(&shared.runs);
    let id = format!("00000000-0000-4000-8000-{:012}", runs.len() + 1);
    let heard = creation["input"]["message"].as_str().unwrap_or_default().to_owned();
    let mut run = WaitOnlyRun { id: id.clone(), creation, status: "pending", output: Value::Null };
    let created = run.to_json();
    run.handle_message(&heard);
    runs.insert(id, watch::Sender::new(run));
    (StatusCode::OK, Json(created))
}

async fn show(State(shared): State<Arc<WaitOnlyState>>, Path(id): Path<String>) -> Answer {
    match lock(&shared.runs).get(&id) {
        Some(run) => (StatusCode::OK, Json(run.borrow().to_json())),
        None => detail(StatusCode::NOT_FOUND, "WaitOnlyRun not found"),
    }
}

async fn wait(State(shared): State<Arc<WaitOnlyState>>, Path(id): Path<String>) -> Answer {
    shared.waits.fetch_add(1, Ordering::AcqRel);
    let Some(mut run) = lock(&shared.runs).get(&id).map(watch::Sender::subscribe) else {
        return (StatusCode::NOT_FOUND, Json(Value::Null));
    };
    let Ok(ended) = run.wait_for(|run| run.status != "pending").await else {
        return detail(StatusCode::INTERNAL_SERVER_ERROR, "gone");
    };
    (StatusCode::OK, Json(json!({ "run": ended.to_json(), "output": ended.output })))
}

async fn resume(
    State(shared): State<Arc<WaitOnlyState>>,
    Path(id): Path<String>,
    Json(payload): Json<Value>,
) -> Answer {
    let runs = lock(&shared.runs);
    let Some(run) = runs.get(&id).filter(|run| run.borrow().status == "interrupted") else {
        return detail(StatusCode::BAD_REQUEST, "WaitOnlyRun is not in interrupted state");
    };
    let Some(answer) = payload["answer"].as_str() else {
        let why = "Resume payload not valid: 'answer' is a required property";
        return detail(StatusCode::UNPROCESSABLE_ENTITY, why);
    };
    let mut shown = run.borrow().to_json();
    run.send_modify(|run| run.end("success", result_output(answer)));
    shown["status"] = "pending".into();
    (StatusCode::OK, Json(shown))
}

fn result_output(text: &str) -> Value {
    json!({ "type": "result", "values": { "message": format!("echo: {text}") } })
}

// === impl WaitOnlyRun ===

impl WaitOnlyRun {
    fn handle_message(&mut self, heard: &str) {
        let question = json!({ "question": "Go on?" });
        let asked = match heard {
            "hold" => return,
            "fail" => {
                let error = json!({
                    "type": "error", "run_id": self.id, "errcode": 1, "description": "boom",
                });
                return self.end("error", error);
            }
            "ask" => json!({ "approval": question }),
            "ask raw" => question,
            "ask named" => json!({ "interrupt_type": "approval", "interrupt_payload": question }),
            other => return self.end("success", result_output(other)),
        };
        self.end("interrupted", json!({ "type": "interrupt", "interrupt": asked }));
    }

    fn end(&mut self, status: &'static str, output: Value) {
        (self.status, self.output) = (status, output);
    }

    fn to_json(&self) -> Value {
        json!({
            "run_id": self.id, "thread_id": null, "agent_id": AGENT, "created_at": TIME,
            "updated_at": TIME, "status": self.status, "creation": self.creation,
        })
    }
}
