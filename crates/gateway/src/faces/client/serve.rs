//! Reads a client's lines and dispatches each message.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use trilogue_domain::Json;
use trilogue_runtime::CallError;
use trilogue_wire::jsonrpc::{
    Code, Decoder, ErrorObject, Frame, Id, Incoming, Invalid, LinePiece, Notification, Reason,
    Request, parse, recover,
};
use trilogue_wire::native::local::Extras;

use super::asking::{agent_calls, question};
use super::connection::ClientConnection;
use super::connection::pending::{PendingQuestion, PendingReply};
use super::methods::backlog::Backlog;
use super::methods::dispatch;
use super::methods::request::IncomingRequest;
use super::wire::transport::{LineSink, MessageSource};

/// Serves a client until it disconnects or the server stops. `decoder` contains the bytes that were already read. Returns the sink.
pub(super) async fn serve<S: LineSink + 'static>(
    connection: &Arc<ClientConnection>,
    source: &mut impl MessageSource,
    mut sink: S,
    mut decoder: Decoder,
    stop: &CancellationToken,
) -> Option<S> {
    let mut sending = {
        let connection = Arc::clone(connection);
        tokio::spawn(async move {
            let sent = connection.outbox.send_to(&mut sink, &connection.closed).await;
            if let Err(error) = sent {
                tracing::debug!(%error, "a client reads nothing any more");
            }
            connection.closed.cancel();
            sink
        })
    };
    let stopped = tokio::select! {
        () = read(connection, source, &mut decoder) => false,
        () = connection.closed.cancelled() => false,
        () = stop.cancelled() => true,
    };
    let questions = connection.pending.close();
    if !stopped {
        Box::pin(leave(connection, &questions)).await;
    }
    // Their tickets count this client among those that can answer.
    drop(questions);
    if stopped {
        // The pumps render the events that the shutdown itself logged, and end.
        connection.tasks.close();
        drop(
            tokio::time::timeout(connection.state.connection_grace / 2, connection.tasks.wait())
                .await,
        );
    }
    connection.outbox.close();
    // After this time the connection is closed, even if the client has not read all lines.
    let sent = tokio::time::timeout(connection.state.connection_grace / 2, &mut sending).await;
    connection.closed.cancel();
    let sink = match sent {
        Ok(sink) => sink.ok(),
        Err(_) => sending.await.ok(),
    };
    connection.queues.clear();
    let counts = decoder.counts();
    tracing::debug!(
        agent = %connection.agent, lines = counts.lines, noise = counts.noise, oversize = counts.oversize,
        "client disconnected"
    );
    sink
}

/// Removes the client from the questions that it was asked.
async fn leave(connection: &ClientConnection, questions: &[Arc<PendingQuestion>]) {
    for question in questions {
        question::leave(connection, question).await;
    }
    for session in connection.queues.open_sessions() {
        question::leave_text(connection, &session).await;
    }
}

/// Reads until the client disconnects.
async fn read(
    connection: &Arc<ClientConnection>,
    source: &mut impl MessageSource,
    decoder: &mut Decoder,
) {
    let mut backlog = Backlog::default();
    loop {
        while let Some(frame) = decoder.next() {
            // Boxed, so that a connection that waits for a message holds no memory for handling one.
            Box::pin(take_frame(connection, &mut backlog, frame)).await;
        }
        let received = tokio::select! {
            () = connection.requests.has_room.notified(), if !backlog.is_empty() => None,
            received = source.receive(decoder) => Some(received),
        };
        match received {
            None => Box::pin(backlog.admit(connection)).await,
            Some(Ok(false)) => break,
            Some(Ok(true)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "a client's connection failed");
                break;
            }
        }
    }
    if let Some(frame) = decoder.finish() {
        Box::pin(take_frame(connection, &mut backlog, frame)).await;
    }
}

async fn take_frame(connection: &Arc<ClientConnection>, backlog: &mut Backlog, frame: Frame) {
    match frame {
        Frame::Line(line) => {
            // This starts the waiting time of its questions: a client that shows them and sends nothing does not keep them open.
            connection.queues.open_sessions().iter().for_each(|session| session.touch());
            connection.children.touch();
            take_line(connection, backlog, &line).await;
        }
        // A scalar is JSON but not a message; other noise is not JSON.
        Frame::Noise(line) => take_line(connection, backlog, &line).await,
        Frame::Oversize(oversize) => {
            tracing::debug!(limit = oversize.limit, "a client's line was too long");
            refuse(connection, &oversize.invalid()).await;
        }
    }
}

async fn take_line(connection: &Arc<ClientConnection>, backlog: &mut Backlog, line: &Bytes) {
    let Err(invalid) = take_message(connection, backlog, line).await else { return };
    let may_recover = matches!(invalid.reason, Reason::NotUtf8 | Reason::NotJson);
    let Some(recovered) = may_recover.then(|| recover(line)).flatten() else {
        return refuse(connection, &invalid).await;
    };
    let (agent, reason) = (&connection.agent, invalid.reason);
    tracing::debug!(%agent, %reason, "recovered the messages of a client's line");
    for piece in recovered.pieces {
        if let LinePiece::Message(message) = piece
            && let Err(invalid) = take_message(connection, backlog, &message).await
        {
            refuse(connection, &invalid).await;
        }
    }
}

async fn take_message<'a>(
    connection: &Arc<ClientConnection>,
    backlog: &mut Backlog,
    line: &'a Bytes,
) -> Result<(), Invalid<'a>> {
    match parse(line)? {
        Incoming::Request(request) => take_request(connection, backlog, request, line.len()).await,
        Incoming::Notification(it) => take_notification(connection, backlog, &it).await,
        Incoming::Response(response) => {
            let outcome = response.outcome.map(|raw| raw.get().to_owned());
            take_response(connection, &response.id, outcome);
        }
    }
    Ok(())
}

async fn refuse(connection: &Arc<ClientConnection>, invalid: &Invalid<'_>) {
    if let Some(id) = invalid.answers() {
        take_response(connection, id, Err(invalid.error()));
    }
    if let Some((id, error)) = invalid.reply() {
        connection.respond_unadmitted(&id.into_owned(), Err(error)).await;
    }
}

async fn take_request(
    connection: &Arc<ClientConnection>,
    backlog: &mut Backlog,
    request: Request<'_>,
    bytes: usize,
) {
    let id = request.id.clone().into_owned();
    let params = match request.params {
        Some(params) if params.get().starts_with('[') => {
            let error = ErrorObject::new(Code::INVALID_PARAMS, "Invalid params: must be an object");
            return connection.respond_unadmitted(&id, Err(error)).await;
        }
        params => params.map(RawValue::get),
    };
    let held = match IncomingRequest::hold(connection, bytes) {
        Ok(held) => held,
        Err(error) => return connection.respond_unadmitted(&id, Err(error)).await,
    };
    let (params, extras) = match params {
        Some(params) if connection.numbered => Extras::take(params),
        params => (params.unwrap_or("{}").into(), Extras::default()),
    };
    let method = request.method.into_owned();
    let params = params.into_owned();
    let request = IncomingRequest { id, method, params, extras, bytes, snapshot: None, held };
    backlog.take(connection, request).await;
}

async fn take_notification(
    connection: &Arc<ClientConnection>,
    backlog: &mut Backlog,
    it: &Notification<'_>,
) {
    let params = it.params.map_or("{}", RawValue::get);
    backlog.on_notification(connection, &it.method, params).await;
    dispatch::on_notification(connection, &it.method, params);
}

/// Passes a client's response to its receiver.
fn take_response(
    connection: &Arc<ClientConnection>,
    id: &Id<'_>,
    outcome: Result<String, ErrorObject>,
) {
    match id.as_number().and_then(|number| connection.pending.take(number)) {
        None => {
            tracing::debug!(id = %id.as_str().escape_debug(), "unexpected response")
        }
        Some(PendingReply::Call(caller)) => {
            let outcome = match outcome {
                Ok(result) => Json::parse_mended(result).map_err(|error| {
                    CallError::new(CallError::INTERNAL, error.message().to_owned())
                }),
                Err(error) => Err(agent_calls::call_error(&error)),
            };
            // The caller may be gone.
            drop(caller.send(outcome));
        }
        Some(PendingReply::Question(question)) => {
            let connection = Arc::clone(connection);
            connection.tasks.clone().spawn(async move {
                question::take_reply(&connection, &question, outcome.ok()).await;
            });
        }
    }
}
