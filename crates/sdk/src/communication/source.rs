//! Where the events of a run come from.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use trilogue_wire::agent_communication::Event;
use trilogue_wire::sse::{Decoder, Item};

use super::read;
use crate::client::call::collect;
use crate::client::events::EVENT_STREAM;
use crate::client::{Body, ClientError, Options, Response};

/// Where events come from.
pub(super) enum Source {
    Live {
        body: Body,
        decoder: Box<Decoder>,
        ready: VecDeque<Item>,
        /// Whether it shows what happens from now on: then a run that awaits is one that still does.
        is_present: bool,
    },
    Listed(VecDeque<Box<RawValue>>),
}

/// What a source gives.
pub(super) enum Given {
    Event { id: String, json: String },
    Retry(Duration),
    SignOfLife,
    End,
    Torn(ClientError),
}

/// The list of a run's events, as the server wrote them.
#[derive(Deserialize)]
struct List {
    events: Vec<Box<RawValue>>,
}

/// Whether an event of a list is a run's last.
pub(super) fn ends_run(event: &RawValue) -> bool {
    read::<Event>(event.get().as_bytes()).is_ok_and(|event| event.kind().ends_run())
}

/// Reads a list of events, at most this many bytes of it.
pub(super) async fn list(
    response: Response,
    limit: usize,
) -> Result<Vec<Box<RawValue>>, ClientError> {
    let body = collect(response.body, limit).await?;
    let list: Result<List, _> = serde_json::from_slice(&body);
    list.map(|list| list.events)
        .map_err(|error| ClientError::Unexpected(format!("no list of events: {error}")))
}

pub(super) fn is_stream(response: &Response) -> bool {
    response.content_type.as_deref().is_some_and(|kind| kind.starts_with(EVENT_STREAM))
}

pub(super) fn no_stream(response: &Response) -> ClientError {
    ClientError::Unexpected(format!("no event stream but {:?}", response.content_type))
}

// === impl Source ===

impl Source {
    pub(super) fn live(body: Body, options: &Options, is_present: bool) -> Self {
        let decoder = Box::new(Decoder::new(options.stream_limits));
        Self::Live { body, decoder, ready: VecDeque::new(), is_present }
    }

    /// Cancel-safe: what was read is in the decoder or in the queue.
    pub(super) async fn next(&mut self) -> Given {
        let (body, decoder, ready) = match self {
            Self::Listed(events) => {
                return events.pop_front().map_or(Given::End, |event| Given::Event {
                    id: String::new(),
                    json: event.get().to_owned(),
                });
            }
            Self::Live { body, decoder, ready, .. } => (body, decoder, ready),
        };
        loop {
            match ready.pop_front() {
                Some(Item::Event { id, data, .. }) => return Given::Event { id, json: data },
                Some(Item::Retry(millis)) => return Given::Retry(Duration::from_millis(millis)),
                Some(Item::Comment(_)) => return Given::SignOfLife,
                None => {}
            }
            match body.next().await {
                None => return Given::End,
                Some(Err(error)) => return Given::Torn(error.into()),
                Some(Ok(piece)) => decoder.push(&piece),
            }
            loop {
                match decoder.next() {
                    Ok(Some(item)) => ready.push_back(item),
                    Ok(None) => break,
                    Err(error) => return Given::Torn(ClientError::Unexpected(error.to_string())),
                }
            }
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Live { .. } => "Live",
            Self::Listed(_) => "Listed",
        })
    }
}
