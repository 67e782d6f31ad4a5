//! The native face, `/api/v1`: one file for each noun, with the rows of its routes.

mod agents;
mod backup;
mod changes;
mod deliveries;
mod document;
mod draw;
mod event_forms;
mod export;
mod interrupts;
mod logins;
mod meta;
mod named_message;
mod nodes;
mod page;
mod rows;
mod run_create;
mod run_log;
mod run_requests;
mod runs;
mod short_ids;
mod sign_in;
mod state;
mod thread_log;
mod threads;
mod tokens;
pub(crate) mod view;

use std::sync::Arc;

use trilogue_domain::Error;
use trilogue_domain::error::Result;
use trilogue_domain::port::Clock;
use trilogue_runtime::Runtime;
use trilogue_store::rows::{RunRow, ThreadRow};
use trilogue_store::{Admin, Queue, Read, Tokens};
use trilogue_wire::native::{Event, List};

pub use document::openapi_document;

use crate::access::logins::Logins;
use crate::core::callback_secrets::CallbackSecrets;
use crate::core::connected_clients::ConnectedClients;
use crate::core::lifecycle::Lifecycle;
use crate::core::log_ref::LogRef;
use crate::core::meters::Meters;
use crate::core::not_found::no_route;
use crate::core::ports::AgentProcesses;
use crate::face::{Face, Services};
use crate::faces::common::look_up;
use crate::faces::common::negotiation::wants_stream;
use crate::http::problem;
use crate::http::receive::BodyBudget;
use crate::http::reply::Reply;
use crate::route::{self, Endpoint, Operation, Parameter, ResponseContent, RouteResponse, bind};
use crate::stream::cursor::Cursor;
use crate::stream::event_forms::ProtocolViews;
use crate::stream::{Streams, reader};

use self::draw::Drawings;
use self::view::NativeView;

type NativeCall = route::Call<State>;
type NativeRoute = route::Route<State>;

#[derive(Debug)]
pub(crate) struct State {
    runtime: Runtime,
    read: Arc<dyn Read>,
    tokens: Arc<dyn Tokens>,
    admin: Arc<dyn Admin>,
    queue: Arc<dyn Queue>,
    agent_processes: Arc<dyn AgentProcesses>,
    clock: Arc<dyn Clock>,
    lifecycle: Arc<Lifecycle>,
    meters: Arc<Meters>,
    body_budget: Arc<BodyBudget>,
    open_request_budget: Arc<BodyBudget>,
    response_budget: Arc<BodyBudget>,
    streams: Arc<Streams>,
    max_output_bytes: usize,
    callback_secrets: CallbackSecrets,
    connected_clients: ConnectedClients,
    logins: Arc<Logins>,
    store_url: String,
    inspector: Option<String>,
    public_url: Option<String>,
    protocol_views: Arc<dyn ProtocolViews>,
    drawings: Arc<Drawings>,
    /// The disabled protections.
    dangerously: Vec<String>,
}

const LIMIT: Parameter =
    Parameter { name: "limit", about: "The most items of the page: 1 to 1000, by default 100." };
const AFTER: Parameter = Parameter { name: "after", about: "The `next` of the page before." };
const METADATA: Parameter = Parameter {
    name: "metadata.*",
    about: "Only where the metadata's top-level member of this name equals the value: JSON, or text if it is not JSON.",
};
const EVENTS_AFTER: Parameter = Parameter {
    name: "after",
    about: "Begin after the event with this id; from the beginning when absent.",
};
const FROM_MESSAGE: Parameter = Parameter {
    name: "from_message",
    about: "Begin with the event by which the message with this id begins; `after` counts before it.",
};
const LAST_EVENT: Parameter = Parameter {
    name: "Last-Event-ID",
    about: "As `after`, and before it: what a reconnecting event stream sends.",
};
const IDEMPOTENCY: Parameter = Parameter {
    name: "Idempotency-Key",
    about: "Chosen by the client: the same request under the same key creates one run, for 24 hours.",
};
const EVENTS: RouteResponse = RouteResponse {
    status: 200,
    about: "The events: a page, or a stream where `Accept` asks for `text/event-stream`.",
    content: ResponseContent::Json(route::of::<List<Event>>),
};
const EVENT_STREAM: RouteResponse = RouteResponse {
    status: 200,
    about: "The events as they come, as server-sent events: `data` is an `Event`. The named event `gap` carries a `Gap`, `error` a `Problem`.",
    content: ResponseContent::Other("text/event-stream"),
};

fn routes() -> Vec<NativeRoute> {
    [
        meta::ROUTES,
        agents::ROUTES,
        threads::ROUTES,
        thread_log::ROUTES,
        event_forms::ROUTES,
        state::ROUTES,
        export::ROUTES,
        run_create::ROUTES,
        runs::ROUTES,
        run_log::ROUTES,
        run_requests::ROUTES,
        interrupts::ROUTES,
        deliveries::ROUTES,
        tokens::ROUTES,
        changes::ROUTES,
        sign_in::ROUTES,
        logins::ROUTES,
        draw::ROUTES,
        backup::ROUTES,
        nodes::ROUTES,
    ]
    .concat()
}

pub(crate) fn operations() -> Vec<Operation> {
    route::operations(&routes())
}

// === impl State ===

impl State {
    pub(crate) fn new(services: &Services, protocol_views: Arc<dyn ProtocolViews>) -> Self {
        let Services { ports, options, .. } = services;
        Self {
            runtime: ports.runtime.clone(),
            read: Arc::clone(&ports.read),
            tokens: Arc::clone(&ports.tokens),
            admin: Arc::clone(&ports.admin),
            queue: Arc::clone(&ports.queue),
            agent_processes: Arc::clone(&ports.agent_processes),
            clock: Arc::clone(&ports.clock),
            lifecycle: Arc::clone(&services.lifecycle),
            meters: Arc::clone(&services.meters),
            body_budget: Arc::clone(&services.body_budget),
            open_request_budget: Arc::clone(&services.open_request_budget),
            response_budget: Arc::clone(&services.response_budget),
            streams: Arc::clone(&services.streams),
            max_output_bytes: options.max_output_bytes,
            callback_secrets: options.callback_secrets.clone(),
            connected_clients: ConnectedClients::clone(&services.common_state()),
            logins: Arc::default(),
            store_url: options.store_url.clone(),
            inspector: options.inspector.clone(),
            public_url: options.public_url.clone(),
            protocol_views,
            drawings: Drawings::new(),
            dangerously: options.dangerously.clone(),
        }
    }
}

impl Face for State {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint> {
        bind(&routes(), &self)
    }

    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply {
        problem::respond(error, request_id)
    }

    fn unknown_path(&self, path: &str) -> Error {
        no_route(path)
    }

    fn takes_cookies(&self) -> bool {
        true
    }
}

async fn thread(call: &NativeCall) -> Result<ThreadRow> {
    look_up::thread(call.state.read.as_ref(), call, call.param("thread_id")).await
}

async fn run(call: &NativeCall) -> Result<RunRow> {
    look_up::run(call.state.read.as_ref(), call, call.param("run_id")).await
}

/// Returns the events of a thread, or of a run, after this position: a page, or a stream if the client accepts one.
async fn events_after(
    call: &NativeCall,
    thread: &LogRef,
    run: Option<&RunRow>,
    cursor: Cursor,
) -> Result<Reply> {
    if wants_stream(call) {
        let view = Arc::new(NativeView);
        let streams = &call.state.streams;
        return reader::open(streams, &call.caller, thread.clone(), run, view, cursor).await;
    }
    let limit = call.limit()?;
    let bytes = page::page(&call.state.streams, &call.caller, thread, run, cursor, limit).await?;
    Ok(Reply::json_bytes(http::StatusCode::OK, bytes))
}
