//! Shows one event in the forms of all protocols.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Event};
use trilogue_mapping::native::escape_for_message;
use trilogue_mapping::{fidelity, native as mapping};
use trilogue_store::rows::RunRow;
use trilogue_wire::native::{EventForms, Json, ProtocolForm};

use super::{NativeCall, NativeRoute, thread};
use crate::core::log_ref::LogRef;
use crate::http::reply::Reply;
use crate::route::{json_response, of};
use crate::stream::event_forms::wire_events;
use crate::stream::feed;
use crate::stream::log_reader::LogReader;
use crate::stream::view::Data;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(forms(call)))
    .path("/api/v1/threads/{thread_id}/events/{number}/forms")
    .describe(
        "get_event_forms",
        "One event as the clients of each protocol get it, with what becomes of it there; reads its run up to it",
    )
    .answers(&[json_response(200, "The forms.", of::<EventForms>)])
    .errors(&[Code::ThreadNotFound, Code::NotFound, Code::ThreadQuarantined]);

pub(crate) const ROUTES: &[NativeRoute] = &[BASE];

async fn forms(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    let log = LogRef::from(&row);
    let event = event(&call, &log).await?;
    let read = &call.state.read;
    let run: Option<RunRow> = match event.run {
        Some(key) => feed::run_row(read, &log, key).await?,
        None => None,
    };
    let views = call.state.protocol_views.of(&row.id, run.as_ref());
    let wire = wire_events(read, &log, run.as_ref(), &event, &views).await?;
    let forms = views.iter().zip(wire).map(|(view, frames)| ProtocolForm {
        protocol: view.protocol.to_owned(),
        title: view.title.to_owned(),
        frames: frames.iter().filter_map(json).collect(),
        fidelity: fidelity::rows_of(&event, view.protocol),
    });
    let run_id = run.as_ref().map(|run| run.id.as_str());
    Ok(Reply::ok(&EventForms {
        forms: forms.collect(),
        event: mapping::event::event(&event, event.number, run_id, &row.id),
    }))
}

fn json(frame: &Data) -> Option<Json> {
    let text = std::str::from_utf8(frame).ok()?;
    Json::parse(text.trim_end()).ok()
}

/// Returns the thread's event with the number in the path.
async fn event(call: &NativeCall, thread: &LogRef) -> Result<Event> {
    let text = call.param("number");
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("event '{}' not found in the thread", escape_for_message(text)),
        )
    };
    let number: u64 = text.parse().ok().filter(|number| *number > 0).ok_or_else(missing)?;
    let mut log =
        LogReader::new(call.state.read.as_ref(), thread.key, None).after(number - 1).until(number);
    let page = log.next().await?.ok_or_else(missing)?;
    let found = page.events()?.into_iter().find(|event| event.number == number).cloned();
    found.ok_or_else(missing)
}
