//! The peer: the same two routes over a map, and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use trilogue_domain::lock;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{RunId, ThreadId};

/// The body that creates a run.
#[derive(Clone, Deserialize, Serialize)]
struct Creation {
    agent_id: String,
    input: Value,
    on_completion: String,
    on_disconnect: String,
    multitask_strategy: String,
}

#[derive(Clone, Serialize)]
struct Run {
    run_id: String,
    thread_id: String,
    agent_id: String,
    created_at: String,
    updated_at: String,
    status: &'static str,
    creation: Creation,
}

#[derive(Clone, Serialize)]
struct Output {
    r#type: &'static str,
    values: Value,
}

#[derive(Clone, Serialize)]
struct Answer {
    run: Run,
    output: Output,
}

/// How each run ended, once it has.
type Runs = Arc<Mutex<HashMap<String, watch::Receiver<Option<Answer>>>>>;

/// The two routes.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/runs", post(create))
        .route("/runs/{run}/wait", get(wait))
        .with_state(Runs::default())
}

async fn create(State(runs): State<Runs>, Json(creation): Json<Creation>) -> Json<Run> {
    let now = SystemClock.now().to_string();
    let run = Run {
        run_id: RunId::generate().to_string(),
        thread_id: ThreadId::generate().to_string(),
        agent_id: creation.agent_id.clone(),
        created_at: now.clone(),
        updated_at: now,
        status: "pending",
        creation,
    };
    let (done, ended) = watch::channel(None);
    lock(&runs).insert(run.run_id.clone(), ended);
    let mut ending = run.clone();
    tokio::spawn(async move {
        ending.status = "success";
        ending.updated_at = SystemClock.now().to_string();
        let output = Output { r#type: "result", values: ending.creation.input.clone() };
        done.send_replace(Some(Answer { run: ending, output }));
    });
    Json(run)
}

async fn wait(
    State(runs): State<Runs>,
    Path(run): Path<String>,
) -> Result<Json<Answer>, StatusCode> {
    let ended = lock(&runs).get(&run).cloned();
    let mut ended = ended.ok_or(StatusCode::NOT_FOUND)?;
    let answer = ended.wait_for(Option::is_some).await.map_err(|_| StatusCode::GONE)?;
    answer.clone().map(Json).ok_or(StatusCode::GONE)
}
