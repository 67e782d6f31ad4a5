//! A scripted transport.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use trilogue_sdk::async_trait;
use trilogue_sdk::client::{Request, Response, Transport, TransportError};

#[derive(Debug, Default)]
pub(crate) struct Script {
    responses: Mutex<VecDeque<Result<Scripted, TransportError>>>,
    requests: Mutex<Vec<Request>>,
}

#[derive(Debug)]
pub(crate) struct Scripted {
    status: u16,
    content_type: &'static str,
    run_id: Option<String>,
    pieces: Vec<Result<Bytes, TransportError>>,
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.requests.lock().unwrap().push(request);
        let next = self.responses.lock().unwrap().pop_front();
        let Scripted { status, content_type, run_id, pieces } =
            next.unwrap_or_else(|| Err(TransportError::new("the script has ended")))?;
        let content_type = Some(content_type.to_owned());
        let body = Box::pin(stream::iter(pieces));
        Ok(Response { status, content_type, run_id, warning: None, body })
    }
}

impl Script {
    pub(crate) fn new(responses: Vec<Result<Scripted, TransportError>>) -> Arc<Self> {
        Arc::new(Self { responses: Mutex::new(responses.into()), requests: Mutex::default() })
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) fn json(status: u16, body: &str) -> Result<Scripted, TransportError> {
    let pieces = body.as_bytes().chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece)));
    Ok(Scripted {
        status,
        content_type: "application/json",
        run_id: None,
        pieces: pieces.collect(),
    })
}

/// Returns a stream in chunks of 5 bytes. With `torn` it ends with an error, otherwise cleanly.
pub(crate) fn events(text: &str, torn: bool) -> Result<Scripted, TransportError> {
    let pieces = text.as_bytes().chunks(5).map(|piece| Ok(Bytes::copy_from_slice(piece)));
    let tear = torn.then(|| Err(TransportError::new("the connection was reset")));
    let content_type = "text/event-stream; charset=utf-8";
    Ok(Scripted { status: 200, content_type, run_id: None, pieces: pieces.chain(tear).collect() })
}

/// Reads what `next` reads, for a minute of the paused clock, from a server that ends each connection after an event. Returns the events in it.
pub(crate) async fn events_of_a_minute(mut next: impl AsyncFnMut() -> bool) -> usize {
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut events = 0;
    while let Ok(has_more) = tokio::time::timeout_at(end, next()).await {
        assert!(has_more, "the stream ended after {events} events");
        events += 1;
    }
    events
}

/// Returns the same response with the id of its run.
pub(crate) fn of_run(
    response: Result<Scripted, TransportError>,
    run: &str,
) -> Result<Scripted, TransportError> {
    response.map(|response| Scripted { run_id: Some(run.to_owned()), ..response })
}

pub(crate) fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let found = request.headers.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value.as_str())
}
