//! Health, status, metrics, the fidelity table and the OpenAPI document.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal, Right};
use trilogue_mapping::fidelity;
use trilogue_mapping::native::escape_for_message;
use trilogue_runtime::Availability;
use trilogue_store::NodeRow;
use trilogue_wire::native::{
    AgentDifference, AgentProcess, AgentState, FidelityRow, List, Node, ProcessStderr,
    RuntimeState, Status, StoreState,
};

use super::document::openapi_document;
use super::{NativeCall, NativeRoute, State};
use crate::core::{descriptors, meters};
use crate::http::body::ReplyBody;
use crate::http::reply::Reply;
use crate::route::{Access, Parameter, ResponseContent, RouteResponse, json_response, of};

const METRICS: NativeRoute =
    NativeRoute::base(|call| Box::pin(metrics(call))).path("/metrics").answers(&[RouteResponse {
        status: 200,
        about: "The metrics.",
        content: ResponseContent::Other("text/plain"),
    }]);

pub(crate) const ROUTES: &[NativeRoute] = &[
    open("/healthz").describe("get_health", "Whether the process lives"),
    open("/readyz").handler(|call| Box::pin(async move { Ok(readiness(&call.state)) })).describe(
        "get_readiness",
        "Whether the server takes work: fails while the store takes no writes, while no \
             file can be opened, while a long log of the last life is moved, and while it \
             shuts down, and says which",
    ),
    METRICS.describe("get_metrics", "Metrics in the exposition format of Prometheus"),
    METRICS
        .at("/api/v1/metrics", |call| Box::pin(metrics(call)))
        .describe("get_api_metrics", "The same metrics, where a browser's session counts"),
    read("/api/v1/status")
        .handler(|call| Box::pin(async move { Ok(Reply::ok(&call.state.status().await?)) }))
        .access(Access::Right(Right::Server))
        .describe("get_status", "What the server is and does")
        .answers(&[json_response(200, "The status.", of::<Status>)]),
    read("/api/v1/processes/{pid}/stderr")
        .handler(|call| Box::pin(stderr(call)))
        .access(Access::Right(Right::Server))
        .describe(
            "get_process_stderr",
            "The end of what a process of a hosted agent wrote to its standard error, without secrets",
        )
        .answers(&[json_response(200, "The end.", of::<ProcessStderr>)])
        .errors(&[Code::NotFound]),
    read("/api/v1/fidelity")
        .handler(|call| Box::pin(async move { fidelity_rows(&call) }))
        .describe(
            "list_fidelity",
            "What each protocol carries of what an agent does, and what is lost because of \
             what; with `from` or `to`, the same of the way from one protocol to another",
        )
        .query(&[
            Parameter { name: "from", about: "The protocol where the way begins: `native`, `communication`, `connect` or `client`. All others than `to` when absent." },
            Parameter { name: "to", about: "The protocol where the way ends. All others than `from` when absent." },
        ])
        .answers(&[json_response(200, "All rows, on one page.", of::<List<FidelityRow>>)])
        .errors(&[Code::InvalidRequest]),
    read("/api/v1/openapi.json")
        .handler(|_| Box::pin(async { Ok(document()) }))
        .describe("get_document", "This document")
        .answers(&[RouteResponse {
            status: 200,
            about: "An OpenAPI 3.1 document.",
            content: ResponseContent::Other("application/json"),
        }]),
];

async fn metrics(call: NativeCall) -> Result<Reply> {
    metrics_text(&call.state, call.principal()).await
}

async fn stderr(call: NativeCall) -> Result<Reply> {
    let text = call.param("pid");
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("no agent has the process '{}'", escape_for_message(text)),
        )
        .hint("the status lists the processes that run")
    };
    let pid: u32 = text.parse().map_err(|_| missing())?;
    let agent_processes = Arc::clone(&call.state.agent_processes);
    let found = tokio::task::spawn_blocking(move || agent_processes.stderr(pid)).await;
    Ok(Reply::ok(&found.ok().flatten().ok_or_else(missing)?))
}

/// Returns the fidelity table, or the part of it from one protocol to another.
fn fidelity_rows(call: &NativeCall) -> Result<Reply> {
    let items = fidelity::rows_between(call.query("from"), call.query("to"))?;
    Ok(Reply::ok(&List { items, next: None }))
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// Returns a route that answers every caller with a short text.
const fn open(path: &'static str) -> NativeRoute {
    read(path).access(Access::Open).answers(&[RouteResponse {
        status: 200,
        about: "Yes.",
        content: ResponseContent::Other("text/plain"),
    }])
}

const fn read(path: &'static str) -> NativeRoute {
    NativeRoute {
        path,
        ..NativeRoute::base(|_| Box::pin(async { Ok(text(StatusCode::OK, PLAIN, "ok\n")) }))
    }
}

fn readiness(state: &State) -> Reply {
    let (status, word) = match state.unready_reason() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    };
    text(status, PLAIN, word)
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    Reply::new(status, ReplyBody::whole(body))
        .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
}

async fn metrics_text(state: &State, caller: &Principal) -> Result<Reply> {
    if caller.own {
        return Err(Error::new(
            Code::Forbidden,
            "a token that sees only its own things does not see the figures of the whole server",
        ));
    }
    for card in state.runtime.listed_agents() {
        if let Some(availability) = state.runtime.availability(&card.name) {
            meters::set_available(card.name.as_str(), availability == Availability::Available);
        }
    }
    meters::set_open_runs(&state.runtime.open_runs());
    meters::set_processes(&state.agent_process_list().await);
    // If the store fails, `trilogue_ready` reports it.
    if let Ok(stats) = state.admin.stats().await {
        meters::set_store(&stats);
    }
    meters::set_start_time(state.lifecycle.started_at);
    let bodies = state.body_budget.held_bytes() + state.open_request_budget.held_bytes();
    let responses = state.response_budget.held_bytes();
    let rendered = meters::render(state.unready_reason().is_none(), bodies, responses);
    let rendered = rendered.ok_or_else(|| {
        Error::new(Code::NotFound, "another recorder than ours was installed in this process")
    })?;
    Ok(text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", rendered))
}

fn document() -> Reply {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| openapi_document().into());
    Reply::json_bytes(StatusCode::OK, document.clone())
}

pub(super) fn node(row: NodeRow) -> Node {
    Node {
        name: row.name,
        address: row.address,
        version: row.version,
        alive: row.is_alive,
        draining: row.is_draining,
        this: row.is_this,
        silent_ms: u64::try_from(row.silent_for.as_millis()).unwrap_or(u64::MAX),
        open_threads: row.open_threads,
        agents: row.agents.into_iter().flatten().map(|agent| agent.name).collect(),
    }
}

fn agent_difference(found: trilogue_store::AgentDifference) -> AgentDifference {
    let trilogue_store::AgentDifference { agent, variants, missing_on } = found;
    AgentDifference { agent, variants, missing_on }
}

// === impl State ===

impl State {
    /// Returns why the server accepts no work, in a few words for every caller; paths and details are in the status.
    fn unready_reason(&self) -> Option<String> {
        let is_draining = self.lifecycle.is_draining() || self.runtime.status().draining;
        match self.admin.health() {
            _ if is_draining => Some("the server shuts down".to_owned()),
            Err(error) => Some(error.code().as_str().to_owned()),
            Ok(()) if !descriptors::is_one_free() => Some("no file can be opened".to_owned()),
            Ok(()) => self.admin.waits_for(),
        }
    }

    async fn agent_process_list(&self) -> Vec<AgentProcess> {
        let agent_processes = Arc::clone(&self.agent_processes);
        // A panic there is a bug that must not hide the rest of the status.
        let list = tokio::task::spawn_blocking(move || agent_processes.list()).await;
        list.unwrap_or_default()
    }

    /// Returns the status of the server.
    pub(crate) async fn status(&self) -> Result<Status> {
        let (stats, runtime) = (self.admin.stats().await?, self.runtime.status());
        let (processes, idle) = self.agent_processes.counts();
        let list = self.agent_process_list().await;
        let nodes = self.admin.nodes().await?;
        let differences = trilogue_store::agent_differences(&nodes);
        Ok(Status {
            agent_differences: differences.into_iter().map(agent_difference).collect(),
            nodes: nodes.into_iter().map(node).collect(),
            agents: AgentState { processes: processes as u64, idle: idle as u64, list },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.lifecycle.started_at.to_string(),
            durability: self.admin.durability().to_owned(),
            store_problem: self.admin.health().err().map(|error| error.code().as_str().to_owned()),
            pid: std::process::id(),
            clients: self.connected_clients.list(),
            store: StoreState {
                url: self.store_url.clone(),
                threads: stats.threads,
                runs: stats.runs,
                bytes: stats.bytes,
                cache_bytes: stats.cache_bytes,
                quarantined: stats.quarantined,
                lost_commits: stats.lost_commits,
                lost_at: stats.lost_at.map(|time| time.to_string()),
                commits: stats.commits,
                frames: stats.frames,
                schema_version: stats.schema_version,
            },
            runtime: RuntimeState {
                running: runtime.running as u64,
                owners: runtime.owners as u64,
                draining: runtime.draining || self.lifecycle.is_draining(),
            },
            connections: self.meters.connections.get(),
            streams: self.meters.streams.get(),
            dangerously: self.dangerously.clone(),
        })
    }
}
