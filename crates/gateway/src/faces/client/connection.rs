//! One client's lines, in and out.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Json, ThreadId};
use trilogue_runtime::CallError;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{
    Code, Decoder, ErrorObject, Frame, Id, Incoming, Invalid, Notification, Request, Response,
    parse,
};
use trilogue_wire::native::local::Extras;

use super::crowd::Crowd;
use super::link::{Answer, Link, lock};
use super::pending::{Asked, Question};
use super::{calls, question, request};

/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Serves a client until it is gone, or the server stops. `begun` is what has come from it already.
pub(super) async fn serve<R, W>(
    link: Arc<Link>,
    mut reader: R,
    writer: W,
    begun: &[u8],
    stop: &CancellationToken,
) where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let writing = {
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            let written = link.outbox.write_to(writer, &link.closed).await;
            if let Err(error) = written {
                tracing::debug!(%error, "a client takes nothing any more");
            }
            link.closed.cancel();
        })
    };
    let mut decoder = Decoder::new(link.options().max_line_bytes);
    decoder.push(begun);
    let stopped = tokio::select! {
        () = read(&link, &mut reader, &mut decoder) => false,
        () = link.closed.cancelled() => false,
        () = stop.cancelled() => true,
    };
    let asked = link.pending.close();
    if !stopped {
        leave(&link, &asked).await;
    }
    drop(asked);
    if stopped {
        // The pumps show what the shutdown itself brought, and end.
        link.tasks.close();
        drop(tokio::time::timeout(link.state.connection_grace / 2, finish(&link)).await);
    }
    link.outbox.close();
    let goodbye = link.state.connection_grace / 2;
    drop(tokio::time::timeout(goodbye, writing).await);
    link.closed.cancel();
    lock(&link.lanes).clear();
    let counts = decoder.counts();
    tracing::debug!(
        agent = %link.agent, lines = counts.lines, noise = counts.noise, oversize = counts.oversize,
        "a client is gone"
    );
}

/// The client is not asked any more, and others may have refused to be.
async fn leave(link: &Link, asked: &[Arc<Question>]) {
    for question in asked {
        question::leave(link, question).await;
    }
    let lanes: Vec<_> = lock(&link.lanes).values().cloned().collect();
    for session in lanes.iter().filter_map(|lane| lane.session()) {
        question::leave_words(link, &session).await;
    }
}

/// Waits until every pump has ended.
async fn finish(link: &Link) {
    link.tasks.wait().await;
}

/// Reads until the client is gone.
async fn read<R: AsyncRead + Unpin>(link: &Arc<Link>, reader: &mut R, decoder: &mut Decoder) {
    let mut crowd = Crowd::default();
    loop {
        while let Some(frame) = decoder.next() {
            take(link, &mut crowd, frame).await;
        }
        let buffer = decoder.buffer_for(READ_BYTES);
        let read = tokio::select! {
            () = link.has_room.notified(), if !crowd.is_empty() => None,
            read = reader.read_buf(buffer) => Some(read),
        };
        match read {
            None => crowd.admit(link).await,
            Some(Ok(0)) => break,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "a client's connection broke");
                break;
            }
        }
    }
    if let Some(frame) = decoder.finish() {
        take(link, &mut crowd, frame).await;
    }
}

async fn take(link: &Arc<Link>, crowd: &mut Crowd, frame: Frame) {
    match frame {
        Frame::Line(line) => message(link, crowd, line).await,
        // A scalar is JSON and no request; anything else is no JSON.
        Frame::Noise(line) => {
            if let Err(invalid) = parse(&line) {
                refuse(link, &invalid).await;
            }
        }
        Frame::Oversize(oversize) => {
            tracing::debug!(limit = oversize.limit, "a client's line was too long");
            refuse(link, &oversize.invalid()).await;
        }
    }
}

async fn message(link: &Arc<Link>, crowd: &mut Crowd, line: Bytes) {
    match parse(&line) {
        Ok(Incoming::Request(request)) => self::request(link, crowd, request, line.len()).await,
        Ok(Incoming::Notification(told)) => notification(link, crowd, &told).await,
        Ok(Incoming::Response(response)) => self::response(link, &response),
        Err(invalid) => refuse(link, &invalid).await,
    }
}

async fn refuse(link: &Arc<Link>, invalid: &Invalid<'_>) {
    if let Some(id) = invalid.answers() {
        answered(link, id, Err(invalid.error()));
    }
    if let Some((id, error)) = invalid.reply() {
        link.answer_at_once(&id.into_owned(), Err(error)).await;
    }
}

async fn request(link: &Arc<Link>, crowd: &mut Crowd, request: Request<'_>, bytes: usize) {
    let id = request.id.clone().into_owned();
    let params = match request.params {
        Some(params) if params.get().starts_with('[') => {
            let error = ErrorObject::new(Code::INVALID_PARAMS, "Invalid params: must be an object");
            return link.answer_at_once(&id, Err(error)).await;
        }
        params => params.map(RawValue::get),
    };
    let (params, extras) = match params {
        Some(params) if link.numbered => Extras::take(params),
        params => (params.unwrap_or("{}").into(), Extras::default()),
    };
    let method = request.method.into_owned();
    let asked = request::Asked { id, method, extras, bytes, heard: None };
    crowd.take(link, asked, params.into_owned()).await;
}

async fn notification(link: &Arc<Link>, crowd: &mut Crowd, told: &Notification<'_>) {
    let params = told.params.map_or("{}", RawValue::get);
    crowd.told(link, &told.method, params).await;
    request::told(link, &told.method, params);
}

fn response(link: &Arc<Link>, response: &Response<'_>) {
    let outcome = response.outcome.clone().map(|raw| raw.get().to_owned());
    answered(link, &response.id, outcome);
}

/// Gives an answer of the client to who waits for it. One that nobody waits for is let go by.
fn answered(link: &Arc<Link>, id: &Id<'_>, outcome: Result<String, ErrorObject>) {
    match id.as_number().and_then(|number| link.pending.take(number)) {
        None => {
            tracing::debug!(id = %id.as_str().escape_debug(), "an answer that nobody waits for")
        }
        Some(Asked::Call(waiting)) => {
            let outcome = match outcome {
                Ok(result) => Json::parse(result).map_err(|error| {
                    CallError::new(CallError::INTERNAL, error.message().to_owned())
                }),
                Err(error) => Err(calls::call_error(&error)),
            };
            // Whoever asked may have gone.
            drop(waiting.send(outcome));
        }
        Some(Asked::Question(asked)) => {
            let link = Arc::clone(link);
            link.tasks.clone().spawn(async move {
                question::answer(&link, &asked, outcome.ok()).await;
            });
        }
    }
}

/// Does the work on a request and answers it. What panics is answered too.
///
/// The work is boxed before anything waits for it: a future that is handed on by value is laid out once for every hand that it goes through.
pub(super) fn answering<'a>(
    link: &'a Arc<Link>,
    id: Id<'static>,
    cancelled: CancellationToken,
    work: impl Future<Output = Option<Answer>> + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a {
    let work = AssertUnwindSafe(calls::on_behalf_of(id.clone(), Box::pin(work))).catch_unwind();
    async move {
        let answer = tokio::select! {
            done = work => done.unwrap_or_else(|_| {
                link.state.panics.increment(1);
                tracing::error!("the work on a client's request panicked");
                Some(Err(ErrorObject::of(Code::INTERNAL_ERROR)))
            }),
            () = cancelled.cancelled() => Some(Err(ErrorObject::of(Code::REQUEST_CANCELLED))),
        };
        if let Some(answer) = answer {
            link.answer(&id, answer).await;
        }
    }
}

/// The session that params name.
pub(super) fn session_in(params: &str) -> Option<ThreadId> {
    splice::get_text(params, &["sessionId"]).and_then(|id| ThreadId::parse(&id).ok())
}
