//! Shows a thread's metadata and state at any of its events.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, RunEvent, StateEvent, ThreadEvent};
use trilogue_domain::{CheckpointId, Code, Error, Event, Json, Outcome, RunKey};
use trilogue_mapping::native::{self as mapping, escape_for_message};
use trilogue_store::PathReader;
use trilogue_store::rows::ThreadRow;
use trilogue_wire::native::ThreadState;

use super::{NativeCall, NativeRoute, thread};
use crate::core::log_ref::LogRef;
use crate::http::reply::Reply;
use crate::route::{Parameter, json_response, of};
use crate::stream::feed;
use crate::stream::log_reader::LogReader;

const AT: Parameter = Parameter {
    name: "at",
    about: "The number of an event: the state as it was when that had happened. The newest when absent.",
};

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(state(call)))
    .path("/api/v1/threads/{thread_id}/state")
    .describe(
        "get_thread_state",
        "A thread's metadata and state as of any of its events; reads its log up to there",
    )
    .query(&[AT])
    .answers(&[json_response(200, "The state.", of::<ThreadState>)])
    .errors(&[Code::ThreadNotFound, Code::ThreadQuarantined]);

pub(crate) const ROUTES: &[NativeRoute] = &[BASE];

/// The metadata and state of a thread, folded from its events.
#[derive(Debug, Default)]
struct StateFold {
    number: u64,
    metadata: Option<Json>,
    set: Option<StateSource>,
    /// The values set by open runs, in order.
    open: Vec<(RunKey, Json)>,
}

#[derive(Debug)]
enum StateSource {
    /// A completed run has set this value.
    Value(Json),
    /// The newest value on the path to this checkpoint.
    Path(CheckpointId),
}

async fn state(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    let until = at(&call)?;
    let mut fold = StateFold::default();
    let mut log = LogReader::new(call.state.read.as_ref(), row.key, None).until(until);
    while let Some(page) = log.next().await? {
        page.events()?.into_iter().for_each(|event| fold.push(event));
    }
    let StateFold { number, metadata, set, mut open } = fold;
    let mut state = ThreadState {
        number,
        metadata: metadata.as_ref().map(mapping::json),
        values: None,
        run_id: None,
    };
    if let Some((run, values)) = open.pop() {
        let run = feed::run_row(&call.state.read, &LogRef::from(&row), run).await?;
        state.run_id = run.map(|run| run.id.as_str().to_owned());
        state.values = Some(mapping::json(&values));
    } else {
        state.values = match set {
            None => None,
            Some(StateSource::Value(values)) => Some(mapping::json(&values)),
            Some(StateSource::Path(head)) => {
                values_at(&call, &row, &head).await?.as_ref().map(mapping::json)
            }
        };
    }
    Ok(Reply::ok(&state))
}

fn at(call: &NativeCall) -> Result<u64> {
    let Some(text) = call.query("at") else { return Ok(u64::MAX) };
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
        let message =
            format!("'at' is '{}', and not the number of an event", escape_for_message(text));
        Error::new(Code::InvalidRequest, message).hint("events are numbered from 1 on")
    })
}

async fn values_at(
    call: &NativeCall,
    row: &ThreadRow,
    head: &CheckpointId,
) -> Result<Option<Json>> {
    let (read, scope) = (call.state.read.as_ref(), call.scope());
    // The run may have been removed meanwhile, together with the checkpoint.
    let Some(head) = read.checkpoint(&scope, &row.id, head).await? else { return Ok(None) };
    let mut path = PathReader::new(read, &scope, &row.id, Some(head.key));
    while let Some(checkpoint) = path.next().await? {
        if checkpoint.value.is_some() {
            return Ok(checkpoint.value);
        }
    }
    Ok(None)
}

// === impl StateFold ===

impl StateFold {
    fn push(&mut self, event: &Event) {
        self.number = event.number;
        match &event.body {
            Body::Thread(
                ThreadEvent::Created { metadata, .. } | ThreadEvent::Metadata(metadata),
            ) => {
                self.metadata = Some(metadata.clone());
            }
            Body::Thread(ThreadEvent::HeadMoved { checkpoint, .. }) => {
                self.set = Some(StateSource::Path(checkpoint.clone()));
            }
            Body::State(StateEvent::Values(values)) => {
                if let Some(run) = event.run {
                    self.open.retain(|(open, _)| *open != run);
                    self.open.push((run, values.clone()));
                }
            }
            Body::Run(RunEvent::Ended(outcome)) => {
                let place = self.open.iter().position(|(open, _)| Some(*open) == event.run);
                let values = place.map(|place| self.open.remove(place).1);
                if let (Some(values), Outcome::Completed) = (values, outcome) {
                    self.set = Some(StateSource::Value(values));
                }
            }
            _ => {}
        }
    }
}
