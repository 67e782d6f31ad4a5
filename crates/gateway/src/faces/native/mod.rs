//! The handlers of `/api/v1`, one file a noun, each with its rows of the route table.

pub(crate) mod agents;
pub(crate) mod backup;
pub(crate) mod deliveries;
pub(crate) mod export;
pub(crate) mod interrupts;
pub(crate) mod meta;
mod named_message;
pub(crate) mod run_create;
pub(crate) mod run_log;
pub(crate) mod runs;
pub(crate) mod thread_log;
pub(crate) mod threads;
pub(crate) mod tokens;

use std::sync::Arc;

use http::{HeaderName, header};
use trilogue_domain::error::Result;
use trilogue_store::rows::{RunRow, ThreadRow};

use crate::http::call::{Call, no_run, no_thread};
use crate::http::reply::Reply;
use crate::routes::{Answer, Content, Parameter, Route, SchemaOf};
use crate::stream::cursor::Cursor;
use crate::stream::view::NativeView;
use crate::stream::{page, reader};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const LIMIT: Parameter =
    Parameter { name: "limit", about: "The most items of the page: 1 to 1000, by default 100." };
const AFTER: Parameter = Parameter { name: "after", about: "The `next` of the page before." };
const METADATA: Parameter = Parameter {
    name: "metadata.*",
    about: "Only where the metadata's top-level member of this name equals the value: JSON, or text where it is none.",
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
const EVENTS: Answer = Answer {
    status: 200,
    about: "The events: a page, or a stream where `Accept` asks for `text/event-stream`.",
    content: Content::Json(
        crate::routes::of::<trilogue_wire::native::List<trilogue_wire::native::Event>>,
    ),
};
const EVENT_STREAM: Answer = Answer {
    status: 200,
    about: "The events as they come, as server-sent events: `data` is an `Event`. The named event `gap` carries a `Gap`, `error` a `Problem`.",
    content: Content::Other("text/event-stream"),
};

/// Every route.
pub(crate) fn routes() -> Vec<Route> {
    [
        meta::ROUTES,
        agents::ROUTES,
        threads::ROUTES,
        thread_log::ROUTES,
        export::ROUTES,
        run_create::ROUTES,
        runs::ROUTES,
        run_log::ROUTES,
        interrupts::ROUTES,
        deliveries::ROUTES,
        tokens::ROUTES,
        backup::ROUTES,
    ]
    .concat()
}

const fn answer(status: u16, about: &'static str, schema: SchemaOf) -> Answer {
    Answer { status, about, content: Content::Json(schema) }
}

const fn no_content(about: &'static str) -> Answer {
    Answer { status: 204, about, content: Content::Nothing }
}

/// The thread that the path names.
async fn thread(call: &Call) -> Result<ThreadRow> {
    let id = call.thread_id()?;
    let found = call.shared.read().thread(&call.scope(), &id).await?;
    found.ok_or_else(|| no_thread(id.as_str()))
}

/// The run that the path names.
async fn run(call: &Call) -> Result<RunRow> {
    let id = call.run_id()?;
    let found = call.shared.read().run(&call.scope(), &id).await?;
    found.ok_or_else(|| no_run(id.as_str()))
}

/// The thread of a run that was looked up in the caller's scope.
async fn thread_of(call: &Call, run: &RunRow) -> Result<ThreadRow> {
    let scope = trilogue_domain::Scope { tenant: run.tenant.clone(), owner: None };
    let found = call.shared.read().thread(&scope, &run.thread_id).await?;
    found.ok_or_else(|| no_run(run.id.as_str()))
}

/// Events of a thread, or of a run: a page, or a stream where the client accepts one.
async fn events(call: &Call, thread: ThreadRow, run: Option<&RunRow>) -> Result<Reply> {
    events_after(call, thread, run, after(call)?).await
}

/// The same behind this position.
async fn events_after(
    call: &Call,
    thread: ThreadRow,
    run: Option<&RunRow>,
    cursor: Cursor,
) -> Result<Reply> {
    if wants_stream(call) {
        let view = Arc::new(NativeView);
        return reader::open(&call.shared, &call.caller, thread, run, view, cursor);
    }
    let limit = call.limit()?;
    let bytes = page::page(&call.shared, &call.caller, &thread, run, cursor, limit).await?;
    Ok(Reply::json_bytes(http::StatusCode::OK, bytes))
}

/// The position that a client asks for, `Last-Event-ID` before `after`; the beginning where it names none.
///
/// # Errors
/// `invalid_cursor`.
pub(crate) fn after(call: &Call) -> Result<Cursor> {
    asked_position(call).map_or(Ok(Cursor::START), Cursor::parse)
}

/// The position that a client names, where it names one.
fn asked_position(call: &Call) -> Option<&str> {
    call.header(&LAST_EVENT_ID).filter(|id| !id.is_empty()).or(call.query("after"))
}

/// Whether the client accepts a stream.
pub(crate) fn wants_stream(call: &Call) -> bool {
    call.header(&header::ACCEPT).is_some_and(|accept| {
        accept.split(',').any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("text/event-stream")
        })
    })
}
