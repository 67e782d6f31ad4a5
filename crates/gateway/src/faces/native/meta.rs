//! Health, status, metrics, the table of fidelity and the document.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};
use trilogue_mapping::native::fidelity;
use trilogue_wire::native::{FidelityRow, List, RuntimeState, Status, StoreState};

use super::answer;
use crate::http::body::ReplyBody;
use crate::http::call::Call;
use crate::http::reply::Reply;
use crate::routes::{Access, Answer, Content, Route, Verb, of};
use crate::shared::Shared;
use crate::{metrics, openapi};

const ALIVE: &str = "get_health";
const READY: &str = "get_readiness";

pub(crate) const ROUTES: &[Route] = &[
    public("/healthz", ALIVE, "Whether the process lives"),
    public(
        "/readyz",
        READY,
        "Whether the server takes work: fails while the store takes no writes and while it shuts down",
    ),
    Route {
        operation: "get_metrics",
        summary: "Metrics in the exposition format of Prometheus",
        answers: &[Answer {
            status: 200,
            about: "The metrics.",
            content: Content::Other("text/plain"),
        }],
        handler: |call| Box::pin(async move { metrics_text(&call) }),
        ..read("/metrics")
    },
    Route {
        operation: "get_status",
        summary: "What the server is and does",
        answers: &[answer(200, "The status.", of::<Status>)],
        handler: |call| Box::pin(status(call)),
        ..read("/api/v1/status")
    },
    Route {
        operation: "list_fidelity",
        summary: "What each protocol carries of what an agent does, and what is lost because of what",
        answers: &[answer(200, "All rows, on one page.", of::<List<FidelityRow>>)],
        handler: |_| {
            Box::pin(async { Ok(Reply::ok(&List { items: fidelity::rows(), next: None })) })
        },
        ..read("/api/v1/fidelity")
    },
    Route {
        operation: "get_document",
        summary: "This document",
        answers: &[Answer {
            status: 200,
            about: "An OpenAPI 3.1 document.",
            content: Content::Other("application/json"),
        }],
        handler: |call| Box::pin(async move { Ok(document(&call)) }),
        ..read("/api/v1/openapi.json")
    },
];

/// A route that answers everybody with nothing but a word.
const fn public(path: &'static str, operation: &'static str, summary: &'static str) -> Route {
    Route {
        access: Access::Public,
        operation,
        summary,
        answers: &[Answer { status: 200, about: "Yes.", content: Content::Other("text/plain") }],
        ..read(path)
    }
}

/// A route that needs the right to read and takes nothing.
const fn read(path: &'static str) -> Route {
    Route {
        verb: Verb::Get,
        path,
        access: Access::Right(Right::Read),
        operation: "",
        summary: "",
        query: &[],
        headers: &[],
        request: None,
        answers: &[],
        errors: &[],
        handler: |call| Box::pin(async move { public_answer(&call.shared, ALIVE) }),
    }
}

/// Answers a route that needs no caller.
///
/// # Errors
/// Never; the type is that of every handler.
pub(crate) fn public_answer(shared: &Arc<Shared>, operation: &'static str) -> Result<Reply> {
    let ready = operation != READY
        || (!shared.is_draining()
            && !shared.runtime().status().draining
            && shared.ports.admin.health().is_ok());
    let (status, word) = if ready {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    };
    Ok(text(status, "text/plain; charset=utf-8", word))
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<bytes::Bytes>) -> Reply {
    Reply::new(status, ReplyBody::whole(body))
        .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
}

fn metrics_text(_: &Call) -> Result<Reply> {
    let rendered = metrics::render().ok_or_else(|| {
        Error::new(Code::NotFound, "another recorder than ours was installed in this process")
    })?;
    Ok(text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", rendered))
}

fn document(call: &Call) -> Reply {
    Reply::json_bytes(StatusCode::OK, openapi::document(call.shared.router.own_routes()))
}

async fn status(call: Call) -> Result<Reply> {
    Ok(Reply::ok(&state(&call.shared).await?))
}

/// What the server is and does.
///
/// # Errors
/// When the store cannot count.
pub(crate) async fn state(shared: &Arc<Shared>) -> Result<Status> {
    let admin = &shared.ports.admin;
    let (stats, runtime) = (admin.stats().await?, shared.runtime().status());
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: shared.started_at.to_string(),
        durability: admin.durability().to_owned(),
        store_problem: admin.health().err().map(|error| error.code().as_str().to_owned()),
        store: StoreState {
            threads: stats.threads,
            runs: stats.runs,
            bytes: stats.bytes,
            cache_bytes: stats.cache_bytes,
            quarantined: stats.quarantined,
            commits: stats.commits,
            frames: stats.frames,
            schema_version: stats.schema_version,
        },
        runtime: RuntimeState {
            running: runtime.running as u64,
            owners: runtime.owners as u64,
            draining: runtime.draining || shared.is_draining(),
        },
        connections: shared.meters.connections.get(),
        streams: shared.meters.streams.get(),
        dangerously: shared.options.dangerously.clone(),
    })
}
