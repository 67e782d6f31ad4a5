//! A client on a WebSocket: one message in each text frame, both ways.
//!
//! Without a subprotocol these are the protocol's messages, as the official SDKs send them. With [`SUBPROTOCOL`] they are the lines of the
//! local socket: the first frame of each side is the handshake, and control lines are frames of their own.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_egress::CloseCode;
use trilogue_wire::jsonrpc::{Decoder, Frame};
use trilogue_wire::native::local::{HelloReply, MAX_HELLO_BYTES, SUBPROTOCOL};
use uuid::Uuid;

use super::super::connection::ClientConnection;
use super::super::connection::origin::{ClientOrigin, ClientTransport};
use super::super::serve::serve;
use super::super::state::State;
use super::super::wire::outbox::Batch;
use super::super::wire::transport::{LineSink, MessageSource};
use super::admission::{Admission, CONNECTION_ID, ClientCall};
use super::continuation::Socket;
use super::counted::ArrivingBytes;
use super::frames::{self, CloseReason, FrameRead, FrameSink, FrameSource, close};
use super::handshake::Handshake;
use super::resume::{self, FirstRequest};
use crate::access::admission::until_revoked;
use crate::access::authenticator::Caller;
use crate::http::problem;
use crate::http::reply::Reply;
use crate::http::upgrade::UpgradedConnection;

const NOT_INITIALIZED: &str = "`initialize` did not come in time";
const REVOKED: &str = "the token was revoked or has expired";
const ENDED_BY_SERVER: &str = "the server ends the connection";

/// What is known of a WebSocket before its first message.
struct NewSocket {
    caller: Caller,
    agent: AgentName,
    /// The id of the connection.
    id: String,
    is_local_protocol: bool,
    admission: Admission,
}

/// Returns the response that makes the connection a WebSocket.
pub(super) fn accept(
    call: &ClientCall,
    agent: AgentName,
    handshake: &Handshake,
    admission: Admission,
) -> Reply {
    let (state, caller) = (Arc::clone(&call.state), call.caller.clone());
    let is_local_protocol = handshake.is_local_protocol;
    let id = Uuid::new_v4().to_string();
    let candidate = NewSocket { caller, agent, id: id.clone(), is_local_protocol, admission };
    let reply = Reply::switch_protocol(Box::new(move |upgraded| {
        Box::pin(serve_socket(state, candidate, upgraded))
    }));
    let reply = reply
        .header(header::CONNECTION, HeaderValue::from_static("Upgrade"))
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
        .header_text(header::SEC_WEBSOCKET_ACCEPT, &handshake.accept)
        .header_text(CONNECTION_ID, &id);
    match (is_local_protocol, &handshake.ticket) {
        (true, _) => {
            reply.header(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL))
        }
        (false, Some(ticket)) => reply.header_text(header::SEC_WEBSOCKET_PROTOCOL, ticket),
        (false, None) => reply,
    }
}

/// Serves a client until it disconnects, its token no longer works, or the server stops.
async fn serve_socket(state: Arc<State>, new: NewSocket, upgraded: UpgradedConnection) {
    let NewSocket { caller, agent, id, is_local_protocol, admission } = new;
    let UpgradedConnection { stream, stop } = upgraded;
    let options = &state.options;
    let arriving = ArrivingBytes::new(&state.body_budget, &caller.principal);
    let (mut source, mut sink) = frames::open(stream, arriving, options).await;
    let mut decoder = Decoder::new(options.max_line_bytes);
    let connection = match is_local_protocol {
        true => {
            let halves = (&mut source, &mut sink);
            // Boxed like the other steps of the opening, so that an open connection holds no memory for them.
            Box::pin(hello(&state, &caller, &agent, halves, &mut decoder)).await
        }
        false => {
            let halves = (&mut source, &mut sink);
            let first = Box::pin(first_message(&state, &caller, halves, &stop)).await;
            let first = match first {
                Ok(first) => first,
                Err(reason) => return close(source, sink, reason).await,
            };
            let request = FirstRequest::read(&first);
            source.take(&first, &mut decoder);
            match request {
                FirstRequest::Other => {}
                FirstRequest::Initialize => {
                    let connection = network_connection(&state, &caller, agent);
                    let socket = (Socket { caller, source, sink }, stop);
                    let serving = (decoder, admission);
                    let begun = resume::begin(&state, id, connection, socket, serving);
                    return Box::pin(begun).await;
                }
                FirstRequest::Attach(id, params) => {
                    // The connection counts already.
                    drop(admission);
                    let socket = (Socket { caller, source, sink }, stop);
                    let resumed = resume::resume(&state, &agent, socket, id, params);
                    return Box::pin(resumed).await;
                }
            }
            Some(Arc::new(network_connection(&state, &caller, agent)))
        }
    };
    let Some(connection) = connection else {
        let reason = source.close.unwrap_or((CloseCode::Policy, "the handshake was refused"));
        return close(source, sink, reason).await;
    };
    // A connection of the local socket's protocol has had its first frame in time.
    let hello_timeout = (!is_local_protocol).then_some(options.hello_timeout);
    let halves = (&mut source, sink);
    let served = serve_admitted(connection, &caller, halves, decoder, &stop, hello_timeout);
    // Boxed, because a future that is awaited after it has moved takes its room twice.
    let Some((sink, reason)) = Box::pin(served).await else { return };
    let reason = source.close.unwrap_or(reason);
    close(source, sink, reason).await;
    drop(admission);
}

/// Creates a connection whose client uses the protocol's messages.
pub(super) fn network_connection(
    state: &Arc<State>,
    caller: &Caller,
    agent: AgentName,
) -> ClientConnection {
    let origin = ClientOrigin::Network(caller.clone());
    let mut connection = ClientConnection::new(Arc::clone(state), origin, agent);
    connection.attach = Some(state.attach_capability(None));
    state.list(&mut connection, ClientTransport::WebSocket);
    connection
}

/// Waits for the first message. Returns why the connection is closed if it does not come.
async fn first_message(
    state: &State,
    caller: &Caller,
    (source, sink): (&mut FrameSource, &mut FrameSink),
    stop: &CancellationToken,
) -> Result<Bytes, CloseReason> {
    let pinging = async { while sink.keep_alive().await.is_ok() {} };
    let read = tokio::select! {
        read = timeout(state.options.hello_timeout, source.read_frame()) => read,
        () = until_revoked(&state.authenticator, caller) => {
            return Err((CloseCode::Policy, REVOKED));
        }
        () = pinging => Ok(FrameRead::Lost),
        () = stop.cancelled() => return Err((CloseCode::Away, ENDED_BY_SERVER)),
    };
    match read {
        Ok(FrameRead::Message(message)) => Ok(message),
        Ok(FrameRead::Closed | FrameRead::Lost) => {
            Err(source.close.unwrap_or((CloseCode::Normal, "")))
        }
        Err(_) => Err((CloseCode::Policy, NOT_INITIALIZED)),
    }
}

/// Serves a connection until it ends, the token of its caller no longer works, or the server stops. Returns the sink, and why the server ends the connection if its source gives no reason.
pub(super) async fn serve_admitted<K: LineSink + 'static>(
    connection: Arc<ClientConnection>,
    caller: &Caller,
    (source, sink): (&mut impl MessageSource, K),
    decoder: Decoder,
    stop: &CancellationToken,
    hello_timeout: Option<Duration>,
) -> Option<(K, CloseReason)> {
    let is_revoked = AtomicBool::new(false);
    let revocation = async {
        until_revoked(&connection.state.authenticator, caller).await;
        is_revoked.store(true, Ordering::Relaxed);
        connection.closed.cancel();
    };
    let is_silent = AtomicBool::new(false);
    let silence = async {
        if let Some(limit) = hello_timeout {
            sleep(limit).await;
            // The response can take longer, because an agent has to start.
            if !connection.has_sent_initialize.load(Ordering::Relaxed) {
                is_silent.store(true, Ordering::Relaxed);
                return connection.closed.cancel();
            }
        }
        std::future::pending().await
    };
    let sink = {
        // Pinned here, so that none of them takes its room twice.
        let (revocation, silence) = (pin!(revocation), pin!(silence));
        let mut serving = pin!(serve(&connection, source, sink, decoder, stop));
        tokio::select! {
            sink = &mut serving => sink,
            () = revocation => serving.await,
            () = silence => serving.await,
        }
    }?;
    let reason = if is_revoked.into_inner() {
        (CloseCode::Policy, REVOKED)
    } else if connection.outbox.is_over_budget() {
        (CloseCode::Again, "too many bytes of messages are not read")
    } else if is_silent.into_inner() {
        (CloseCode::Policy, NOT_INITIALIZED)
    } else if stop.is_cancelled() {
        (CloseCode::Away, ENDED_BY_SERVER)
    } else {
        (CloseCode::Normal, "")
    };
    Some((sink, reason))
}

/// Reads the first frame of the local socket's protocol and responds to it. Returns `None` if the client is refused.
async fn hello(
    state: &Arc<State>,
    caller: &Caller,
    agent: &AgentName,
    (source, sink): (&mut FrameSource, &mut FrameSink),
    decoder: &mut Decoder,
) -> Option<Arc<ClientConnection>> {
    let accepted = async {
        let line = timeout(state.options.hello_timeout, first_line(source, decoder)).await;
        let line = line.map_err(|_| {
            Error::new(Code::InvalidRequest, "the first frame did not come in time")
        })??;
        let origin = ClientOrigin::Network(caller.clone());
        let (connection, reply) = state.accept(&line, origin).await?;
        if connection.agent != *agent {
            let message = format!("the first frame names the agent '{}'", connection.agent);
            return Err(Error::new(Code::InvalidRequest, message)
                .hint(format!("name '{agent}', the agent of the address")));
        }
        Ok((connection, reply))
    };
    let (connection, reply) = match accepted.await {
        Ok((connection, reply)) => (Some(Arc::new(connection)), reply),
        Err(error) => (None, HelloReply::from_problem(&problem::describe(&error, None))),
    };
    let lines = serde_json::to_vec(&reply).unwrap_or_default();
    sink.send(vec![Batch::new(lines, 1)]).await.ok()?;
    connection
}

async fn first_line(source: &mut FrameSource, decoder: &mut Decoder) -> Result<Bytes> {
    let broken = |what: &str| Error::new(Code::InvalidRequest, format!("the first frame {what}"));
    loop {
        match decoder.next() {
            Some(Frame::Line(line)) if line.len() <= MAX_HELLO_BYTES => return Ok(line),
            Some(Frame::Line(_) | Frame::Oversize(_)) => return Err(broken("is too long")),
            Some(Frame::Noise(_)) => return Err(broken("is no JSON object")),
            None => {}
        }
        match source.receive(decoder).await {
            Ok(true) => {}
            Ok(false) => return Err(broken("is missing")),
            Err(error) => return Err(broken(&format!("cannot be read: {error}"))),
        }
    }
}
