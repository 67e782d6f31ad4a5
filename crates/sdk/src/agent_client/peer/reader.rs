//! Reads the input: splits it into lines, parses each message and passes it to its receiver.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;
use trilogue_wire::agent_client::{method, splice};
use trilogue_wire::jsonrpc::{
    self, Code, Decoder, ErrorObject, Frame, Id, Incoming, Invalid, LinePiece, Reason, Response,
};

use super::{
    Backpressure, CANCEL_REQUEST, CallFailure, Handler, IgnoredInput, IgnoredReason, Notification,
    Peer, RawJson, Request, RequestInWork, lock,
};

const READ_BYTES: usize = 64 * 1024;
/// The maximum number of messages of one batch. The rest is refused as one message.
const MAX_BATCH_ITEMS: usize = 1_024;

/// Reads until the stream ends or the connection is aborted.
pub(super) async fn read<R>(peer: Peer, mut from: R, handler: Arc<dyn Handler>)
where
    R: AsyncRead + Send + Unpin,
{
    let aborted = peer.0.aborted.clone();
    tokio::select! {
        biased;
        () = aborted.cancelled() => {}
        () = lines(&peer, &mut from, handler.as_ref()) => {}
    }
    peer.end();
}

async fn lines<R: AsyncRead + Unpin>(peer: &Peer, from: &mut R, handler: &dyn Handler) {
    let mut decoder = Decoder::new(peer.0.options.max_line_bytes);
    let mut received = peer.0.options.first_byte;
    loop {
        let read = from.read_buf(decoder.buffer_for(READ_BYTES)).await;
        let is_over = !matches!(read, Ok(1..));
        received += read.map_or(0, |count| count as u64);
        while let Some(frame) = decoder.next() {
            handler.on_line_end(received - decoder.held_bytes() as u64);
            take(peer, frame, handler).await;
        }
        if is_over {
            if let Some(frame) = decoder.finish() {
                take(peer, frame, handler).await;
            }
            lock(&peer.0.tally).lines = decoder.counts();
            return;
        }
        lock(&peer.0.tally).lines = decoder.counts();
    }
}

async fn take(peer: &Peer, frame: Frame, handler: &dyn Handler) {
    match frame {
        Frame::Line(line) => message(peer, &line, handler).await,
        Frame::Oversize(oversize) => {
            refuse(peer, &oversize.invalid()).await;
            handler.on_oversize(oversize).ready().await;
        }
        Frame::Noise(line) if peer.0.options.answers_nameless => {
            message(peer, &line, handler).await
        }
        Frame::Noise(line) => {
            if !recover(peer, &line, handler).await {
                ignore(IgnoredReason::Noise, &line, handler).await;
            }
        }
    }
}

async fn message(peer: &Peer, line: &Bytes, handler: &dyn Handler) {
    let Err(wrong) = handle_message(peer, line, handler).await else { return };
    match wrong.reason {
        Reason::Batch if !peer.0.options.answers_nameless => {
            batch(peer, line, &wrong, handler).await
        }
        Reason::NotUtf8 | Reason::NotJson if recover(peer, line, handler).await => {}
        _ => invalid(peer, line, &wrong, handler).await,
    }
}

/// Some agents answer in batches. Each message of a batch is handled separately, so that no caller misses its response.
async fn batch(peer: &Peer, line: &Bytes, wrong: &Invalid<'_>, handler: &dyn Handler) {
    let text = std::str::from_utf8(line).unwrap_or_default();
    lock(&peer.0.tally).invalid += 1;
    let mut items = splice::items(text);
    for item in items.by_ref().take(MAX_BATCH_ITEMS) {
        let item = line.slice_ref(item.as_bytes());
        if let Err(wrong) = handle_message(peer, &item, handler).await {
            invalid(peer, &item, &wrong, handler).await;
        }
    }
    if items.next().is_some() {
        invalid(peer, line, wrong, handler).await;
    }
}

/// Takes the messages of a line that is not exactly one message. Returns `false` if it has none.
async fn recover(peer: &Peer, line: &Bytes, handler: &dyn Handler) -> bool {
    let Some(recovered) = jsonrpc::recover(line) else { return false };
    if recovered.is_repaired {
        ignore(IgnoredReason::ReplacedBytes, line, handler).await;
    }
    for piece in recovered.pieces {
        match piece {
            LinePiece::Message(message) => {
                if let Err(wrong) = handle_message(peer, &message, handler).await {
                    invalid(peer, &message, &wrong, handler).await;
                }
            }
            LinePiece::Noise(noise) => ignore(IgnoredReason::Noise, &noise, handler).await,
        }
    }
    true
}

async fn ignore(reason: IgnoredReason, bytes: &Bytes, handler: &dyn Handler) {
    handler.on_ignored(IgnoredInput { reason, bytes }).ready().await;
}

async fn handle_message<'a>(
    peer: &Peer,
    line: &'a Bytes,
    handler: &dyn Handler,
) -> Result<(), Invalid<'a>> {
    match jsonrpc::parse_within(line, peer.0.options.max_depth)? {
        Incoming::Request(request) => {
            let params = within(line, request.params);
            handle_request(peer, request.id.into_owned(), name(request.method), params, handler)
                .await;
        }
        Incoming::Notification(said) if said.method == CANCEL_REQUEST => {
            cancel(peer, within(line, said.params).as_str());
        }
        Incoming::Notification(said) => {
            let params = within(line, said.params);
            handler
                .on_notification(Notification { method: name(said.method), params })
                .ready()
                .await;
        }
        Incoming::Response(response) => {
            // The handler takes everything before the response first; only then the caller gets it.
            handler.on_response().ready().await;
            handle_response(peer, line, response);
        }
    }
    Ok(())
}

async fn handle_request(
    peer: &Peer,
    id: Id<'static>,
    method: Cow<'static, str>,
    params: RawJson,
    handler: &dyn Handler,
) {
    let cancelled = CancellationToken::new();
    if let Err(error) = admit(peer, &id, &cancelled, params.as_bytes().len()) {
        lock(&peer.0.tally).refused += 1;
        // If the connection has ended, the response is not needed.
        let _: Result<(), CallFailure> = peer.respond(&id, Err(&error)).await;
        return;
    }
    let room: Backpressure =
        handler.on_request(Request::new(peer.clone(), id, method, params, cancelled));
    room.ready().await;
}

/// Admits a request. Only one open request may have an id, because responses and cancellations refer to the id.
fn admit(
    peer: &Peer,
    id: &Id<'static>,
    cancelled: &CancellationToken,
    bytes: usize,
) -> Result<(), ErrorObject> {
    let mut requests = lock(&peer.0.requests);
    if requests.in_work.contains_key(id) {
        let message = "a request with this id is in work";
        return Err(ErrorObject::new(Code::INVALID_REQUEST, message));
    }
    if requests.len() >= peer.0.options.max_requests {
        return Err(ErrorObject::new(Code::INTERNAL_ERROR, "too many requests are in work"));
    }
    if requests.bytes > 0 && requests.bytes + bytes > peer.0.options.max_request_bytes {
        return Err(ErrorObject::new(Code::INTERNAL_ERROR, "too large requests are in work"));
    }
    requests.bytes += bytes;
    requests.in_work.insert(id.clone(), RequestInWork { cancelled: cancelled.clone(), bytes });
    Ok(())
}

fn cancel(peer: &Peer, params: &str) {
    let id = splice::get(params, &["requestId"]).and_then(Id::of).map(Id::into_owned);
    // Ignores a cancellation of an unknown or already answered request.
    if let Some(request) = id.and_then(|id| {
        lock(&peer.0.requests).in_work.get(&id).map(|request| request.cancelled.clone())
    }) {
        request.cancel();
    }
}

fn handle_response(peer: &Peer, line: &Bytes, response: Response<'_>) {
    let answer = match response.outcome {
        Ok(result) => Ok(RawJson::within(line, result)),
        Err(error) => Err(CallFailure::Refused(error)),
    };
    peer.answer(&response.id, answer);
}

async fn invalid(peer: &Peer, line: &Bytes, wrong: &Invalid<'_>, handler: &dyn Handler) {
    ignore(IgnoredReason::Invalid(wrong.reason), line, handler).await;
    refuse(peer, wrong).await;
}

async fn refuse(peer: &Peer, wrong: &Invalid<'_>) {
    lock(&peer.0.tally).invalid += 1;
    let answered = wrong.answers().or_else(|| wrong.may_answer().filter(|id| peer.awaits(id)));
    if let Some(id) = answered {
        let why = match wrong.reason {
            Reason::NoMethod => "it has neither a result nor an error".to_owned(),
            _ => wrong.to_string(),
        };
        peer.answer(id, Err(CallFailure::Unreadable(why)));
    } else if let Some((id, error)) = wrong.reply()
        && (peer.0.options.answers_nameless || !id.is_null())
    {
        // If the connection has ended, the response is not needed.
        let _: Result<(), CallFailure> = peer.respond(&id, Err(&error)).await;
    }
}

fn within(line: &Bytes, json: Option<&RawValue>) -> RawJson {
    json.map_or(RawJson::EMPTY, |json| RawJson::within(line, json))
}

/// Returns the name of a method. Names of the protocol are not copied.
fn name(name: Cow<'_, str>) -> Cow<'static, str> {
    match method(&name) {
        Some(known) => Cow::Borrowed(known.name),
        None => Cow::Owned(name.into_owned()),
    }
}
