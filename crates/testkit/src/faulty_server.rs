//! A server of the Agent Communication Protocol that misbehaves as its prompts ask.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use futures_util::stream;
use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::Notify;
use trilogue_domain::lock;

use crate::loopback::Loopback;

/// More than the largest event that Trilogue's server accepts, in bytes.
const HUGE_BYTES: usize = 40 * 1024 * 1024;
const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// The server, with the agent `faulty`. It answers `Howdy, partner!` unless a fault prevents that.
#[derive(Debug)]
pub struct FaultyServer {
    loopback: Loopback,
    runs: FaultyRuns,
}

/// How a run misbehaves, chosen by the text of its prompt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerFault {
    None,
    /// The connection can end in the middle of the run; the list of events has the rest.
    Break,
    /// No event follows the first words, and a cancellation has no effect.
    Stall,
    /// An event is not JSON.
    Garbage,
    /// An event has a type that the protocol does not define.
    UnknownEvent,
    /// Each message is created and completed twice, and the run completes twice.
    Duplicates,
    /// Words arrive before their message starts and after it ends.
    Disorder,
    /// An event exceeds the size limit.
    Oversize,
    /// The run asks a question, and responds to the answer with 500.
    ResumeFails,
    /// The connection can end in the middle of the run, and the server has forgotten the run.
    Amnesia,
    /// The server refuses the run with 500.
    BeginFails,
    /// The server responds to the request for a run with an unrelated page.
    Page,
    /// The stream ends without an event, and the server has no list of events.
    Empty,
    /// The messages of all runs have the same id.
    SameId,
    /// The stream ends with an error that quotes the input.
    ErrorEvent,
}

#[derive(Clone, Default, Debug)]
struct FaultyRuns {
    runs: Arc<Mutex<HashMap<String, FaultyRun>>>,
    /// Notified when the connections in the middle of a run may end.
    ends: Arc<Notify>,
}

#[derive(Clone, Copy, Debug)]
struct FaultyRun {
    fault: ServerFault,
    is_cancelled: bool,
}

// === impl ServerFault ===

impl ServerFault {
    pub const ALL: [Self; 15] = [
        Self::None,
        Self::Break,
        Self::Stall,
        Self::Garbage,
        Self::UnknownEvent,
        Self::Duplicates,
        Self::Disorder,
        Self::Oversize,
        Self::ResumeFails,
        Self::Amnesia,
        Self::BeginFails,
        Self::Page,
        Self::Empty,
        Self::SameId,
        Self::ErrorEvent,
    ];

    /// The prompt that requests this fault.
    pub fn prompt(self) -> String {
        format!("{self:?}")
    }

    fn of(prompt: &str) -> Self {
        Self::ALL.into_iter().find(|fault| fault.prompt() == prompt).unwrap_or(Self::None)
    }
}

// === impl FaultyServer ===

impl FaultyServer {
    pub async fn start() -> Result<Self> {
        let runs = FaultyRuns::default();
        let router = Router::new()
            .route("/ping", get(|| async { "{}" }))
            .route("/agents/faulty", get(manifest))
            .route("/runs", post(create))
            .route("/runs/{run}", get(read).post(resume))
            .route("/runs/{run}/events", get(list))
            .route("/runs/{run}/cancel", post(cancel))
            .with_state(runs.clone());
        Ok(Self { loopback: Loopback::serve(router).await?, runs })
    }

    pub fn url(&self) -> String {
        self.loopback.url()
    }

    /// Ends the connections that are in the middle of a run, with [`ServerFault::Break`], [`ServerFault::Amnesia`] or [`ServerFault::Stall`].
    pub fn break_connections(&self) {
        self.runs.ends.notify_waiters();
    }

    /// The number of runs that began with this fault, and the number of them that were cancelled.
    pub fn count(&self, fault: ServerFault) -> (usize, usize) {
        let runs = lock(&self.runs.runs);
        let of = runs.values().filter(|run| run.fault == fault);
        of.fold((0, 0), |(begun, cancelled), run| {
            (begun + 1, cancelled + usize::from(run.is_cancelled))
        })
    }
}

// === impl FaultyRuns ===

impl FaultyRuns {
    fn insert(&self, fault: ServerFault) -> String {
        let mut runs = lock(&self.runs);
        let id = uuid_of(runs.len());
        runs.insert(id.clone(), FaultyRun { fault, is_cancelled: false });
        id
    }

    fn find(&self, id: &str) -> Option<FaultyRun> {
        let forgotten =
            |run: &FaultyRun| matches!(run.fault, ServerFault::Amnesia | ServerFault::Empty);
        lock(&self.runs).get(id).filter(|run| !forgotten(run)).copied()
    }
}

async fn manifest() -> Response {
    let types = json!(["*/*"]);
    json_response(&json!({
        "name": "faulty", "description": "Misbehaves.", "metadata": {},
        "input_content_types": types, "output_content_types": types,
    }))
}

async fn create(State(runs): State<FaultyRuns>, request: Request) -> Response {
    let body = axum::body::to_bytes(request.into_body(), MAX_REQUEST_BYTES).await;
    let body: Value = body.ok().and_then(|it| serde_json::from_slice(&it).ok()).unwrap_or_default();
    let last = body["input"].as_array().and_then(|input| input.last()).cloned().unwrap_or_default();
    let fault = ServerFault::of(last["parts"][0]["content"].as_str().unwrap_or_default());
    let id = runs.insert(fault);
    match fault {
        ServerFault::BeginFails => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        ServerFault::Page => {
            ([(header::CONTENT_TYPE, "text/html")], "<h1>Welcome</h1>").into_response()
        }
        ServerFault::Empty => event_stream(Vec::new()),
        ServerFault::Break | ServerFault::Amnesia | ServerFault::Stall => {
            let first = sse(&events(&id, fault)[..4]).into_iter().map(Ok);
            let ends = Arc::clone(&runs.ends);
            let end = async move {
                ends.notified().await;
                Err(std::io::Error::other("the connection broke"))
            };
            stream_response(Body::from_stream(stream::iter(first).chain(stream::once(end))))
        }
        _ => event_stream(sse(&events(&id, fault))),
    }
}

async fn read(State(runs): State<FaultyRuns>, Path(id): Path<String>) -> Response {
    match runs.find(&id) {
        Some(FaultyRun { fault: ServerFault::Stall, .. }) => {
            json_response(&run(&id, "in-progress"))
        }
        Some(FaultyRun { fault: ServerFault::ResumeFails, .. }) => json_response(&awaiting(&id)),
        Some(_) => json_response(&run(&id, "completed")),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn list(State(runs): State<FaultyRuns>, Path(id): Path<String>) -> Response {
    match runs.find(&id) {
        Some(FaultyRun { fault: ServerFault::Stall, .. }) => {
            let known = &events(&id, ServerFault::Stall)[..4];
            json_response(&json!({ "events": known }))
        }
        Some(run) => json_response(&json!({ "events": events(&id, run.fault) })),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn resume() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

async fn cancel(State(runs): State<FaultyRuns>, Path(id): Path<String>) -> Response {
    if let Some(run) = lock(&runs.runs).get_mut(&id) {
        run.is_cancelled = true;
    }
    (StatusCode::ACCEPTED, json_response(&run(&id, "cancelling"))).into_response()
}

/// The events of a run with this fault, from its beginning.
fn events(id: &str, fault: ServerFault) -> Vec<Value> {
    let part = |text: &str| json!({ "type": "message.part", "part": { "content_type": "text/plain", "content": text } });
    let message = |name: &str| json!({ "type": format!("message.{name}"), "message": { "role": "agent/faulty", "parts": [] } });
    let (created, completed) = (message("created"), message("completed"));
    let begun = [event_of("created", id), event_of("in-progress", id)];
    let ended = event_of("completed", id);
    let middle = match fault {
        ServerFault::Duplicates => vec![
            created.clone(),
            created,
            part("Howdy, "),
            part("partner!"),
            completed.clone(),
            completed,
            ended.clone(),
        ],
        ServerFault::Disorder => vec![part("Howdy, "), completed, created, part("partner!")],
        ServerFault::Oversize => vec![created, part(&"x".repeat(HUGE_BYTES)), completed],
        ServerFault::UnknownEvent => {
            let unknown = json!({ "type": "message.sung", "song": "la" });
            vec![created, unknown, part("Howdy, partner!"), completed]
        }
        ServerFault::SameId => {
            let mut named = created;
            named["message"]["x_trilogue"] = json!({ "message_id": "m-1" });
            let one = [named, part("Howdy, "), completed];
            let mut again = one.clone();
            again[1] = part("partner!");
            [one, again].concat()
        }
        ServerFault::Garbage => vec![created, json!("no event"), completed],
        ServerFault::ErrorEvent => {
            let error = json!({ "code": "invalid_input", "message": "boom" });
            return [&begun[..], &[created, json!({ "type": "error", "error": error })]].concat();
        }
        ServerFault::ResumeFails => {
            return [&begun[..], &[json!({ "type": "run.awaiting", "run": awaiting(id) })]]
                .concat();
        }
        _ => vec![created, part("Howdy, "), part("partner!"), completed],
    };
    [&begun[..], &middle, &[ended]].concat()
}

fn event_of(status: &str, id: &str) -> Value {
    json!({ "type": format!("run.{status}"), "run": run(id, status) })
}

fn run(id: &str, status: &str) -> Value {
    json!({
        "run_id": id, "agent_name": "faulty", "status": status, "output": [],
        "created_at": "2026-01-01T00:00:00Z",
    })
}

fn awaiting(id: &str) -> Value {
    let message =
        json!({ "role": "agent", "parts": [{ "content_type": "text/plain", "content": "Well?" }] });
    let mut run = run(id, "awaiting");
    run["await_request"] = json!({ "type": "message", "message": message });
    run
}

fn sse(events: &[Value]) -> Vec<Bytes> {
    events.iter().map(|event| format!("data: {event}\n\n").into()).collect()
}

fn event_stream(pieces: Vec<Bytes>) -> Response {
    stream_response(Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>))))
}

fn stream_response(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn json_response(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn uuid_of(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}
