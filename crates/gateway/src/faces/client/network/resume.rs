//! Serves connections that their clients can continue on another WebSocket.
//!
//! A client asks for it with [`Extras::attach`] on `initialize`, and continues with [`ATTACH_METHOD`] as the first message of the next
//! WebSocket.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_egress::CloseCode;
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::jsonrpc::{Decoder, Id, Incoming, parse};
use trilogue_wire::native::local::{ATTACH_METHOD, ContinueParams, Extras};

use super::admission::Admission;
use super::continuation::{Continuation, NewContinuation, Socket, close_last};
use super::frames::close;
use super::mailbox::KeptBudget;
use super::websocket::serve_admitted;
use crate::faces::client::connection::ClientConnection;
use crate::faces::client::state::State;
use crate::faces::client::wire::lines::OutgoingLines;
use crate::faces::client::wire::outbox::Batch;
use crate::faces::client::wire::transport::LineSink;

/// What the first message of a WebSocket asks for.
#[derive(Debug)]
pub(super) enum FirstRequest {
    /// A new connection that outlives this WebSocket.
    Initialize,
    /// To continue a connection, if its parameters are valid.
    Attach(Id<'static>, Result<ContinueParams>),
    /// Nothing of this module.
    Other,
}

/// Serves a new connection until it ends. Its first message is in the decoder. Returns when its first WebSocket has ended.
pub(super) async fn begin(
    state: &Arc<State>,
    id: String,
    mut connection: ClientConnection,
    (socket, stop): (Socket, CancellationToken),
    (decoder, admission): (Decoder, Admission),
) {
    connection.attach = Some(state.attach_capability(Some(&id)));
    let (agent, caller) = (connection.agent.clone(), socket.caller.clone());
    let kept_budget = KeptBudget::new(&state.kept_budget, &caller);
    let end = (state.options.idle_timeout, state.streams_end.child_token());
    let begun = Continuation::begin(id, agent, socket, end, &kept_budget);
    let NewContinuation { continuation, reading, mut source, sink, ended } = begun;
    state.continuations.add(&continuation);
    let (state, served) = (Arc::clone(state), Arc::clone(&continuation));
    let connection = Arc::new(connection);
    tokio::spawn(async move {
        let (halves, stop) = ((&mut source, sink), served.stop_token());
        let serving = serve_admitted(connection, &caller, halves, decoder, stop, None);
        let closing = Box::pin(serving).await;
        served.give_up();
        state.continuations.remove(&served);
        if let Some((sink, reason)) = closing {
            close_last(reading, sink, reason).await;
        }
        drop(admission);
    });
    continuation.wait_for_socket(&ended, &stop).await;
}

/// Continues a connection on this WebSocket. Returns when the WebSocket has ended.
pub(super) async fn resume(
    state: &Arc<State>,
    agent: &AgentName,
    (socket, stop): (Socket, CancellationToken),
    request: Id<'static>,
    params: Result<ContinueParams>,
) {
    let found = params.and_then(|params| {
        let found = state.continuations.find(&params.connection_id, &socket.caller, agent)?;
        found.check(params.received).map(|()| (found, params.received))
    });
    let (continuation, received) = match found {
        Ok(found) => found,
        Err(error) => {
            let Socket { source, mut sink, .. } = socket;
            let mut lines = OutgoingLines::default();
            lines.response(&request, &Err(mapping::error_object(&error)));
            drop(sink.send(vec![Batch::new(lines.bytes, 1)]).await);
            let reason = (CloseCode::Policy, "the connection cannot be continued");
            return close(source, sink, reason).await;
        }
    };
    let ended = continuation.hand_over(socket, request, received).await;
    continuation.wait_for_socket(&ended, &stop).await;
}

// === impl FirstRequest ===

impl FirstRequest {
    pub(super) fn read(message: &[u8]) -> Self {
        let Ok(Incoming::Request(request)) = parse(message) else { return Self::Other };
        let params = request.params.map_or("{}", |params| params.get());
        match &*request.method {
            "initialize" if Extras::take(params).1.attach == Some(true) => Self::Initialize,
            ATTACH_METHOD => {
                let params = serde_json::from_str(params).map_err(|error| {
                    Error::new(Code::InvalidRequest, format!("the parameters do not fit: {error}"))
                        .hint("send `connectionId` and `received`")
                });
                Self::Attach(request.id.into_owned(), params)
            }
            _ => Self::Other,
        }
    }
}
