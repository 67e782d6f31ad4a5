//! A connection over WebSockets, one after the other: if the server keeps the connection when one is lost, the next continues it.
//!
//! Both sides count the messages of the connection. The first message of a later WebSocket is a request with the number of those that
//! arrived here; the response has the number of those that arrived there.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::time::timeout;
use trilogue_domain::lock;
use trilogue_egress::{WebSocket, WebSocketClosed};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, Id, Incoming};
use trilogue_wire::native::local::{
    ATTACH_METHOD, AttachCapability, ContinueParams, ContinueResult, Extras,
};

use super::end::{StreamEnd, StreamEnder};
use super::pauses::Pauses;
use super::unconfirmed::Unconfirmed;
use super::{AgentUrl, ConnectError, Connection, ConnectionEnd, ConnectionOptions, EndKind};

/// The size of the pipes between a connection and its owner, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// How long one attempt to continue may take.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);
const INITIALIZE: &str = "initialize";
/// The id of the request that continues. Requests of the owner have numbers.
const ATTACH_ID: &str = "trilogue-attach";
/// How a server of Trilogue begins a notification.
const NOTIFICATION: &[u8] = br#"{"jsonrpc":"2.0","method""#;
const CLOSED_HERE: &str = "was closed by this side";

/// A connection, and what it needs to continue.
struct ContinuedConnection {
    agent: AgentUrl,
    options: ConnectionOptions,
    state: Mutex<MessageState>,
    /// What the server announced. Not set before the response to `initialize`.
    attach: OnceLock<Option<AttachCapability>>,
}

#[derive(Default)]
struct MessageState {
    unconfirmed: Unconfirmed,
    /// How many messages have arrived.
    received: u64,
    /// The id of `initialize`, as JSON, while it is open.
    initialize: Option<String>,
    has_sent: bool,
}

/// The owner's side.
struct OwnerPipes {
    outgoing: BufReader<DuplexStream>,
    /// The beginning of the owner's next line.
    partial: Vec<u8>,
    incoming: DuplexStream,
}

/// Why a WebSocket is not used any more.
enum SocketEnd {
    /// The owner has closed the connection.
    Owner,
    /// The WebSocket has ended.
    Socket(WebSocketClosed),
}

/// Why an attempt to continue has failed.
enum AttachFailure {
    Transient,
    Permanent(String),
}

pub(super) async fn connect(
    agent: &AgentUrl,
    options: &ConnectionOptions,
) -> Result<Connection, ConnectError> {
    let socket = super::websocket::open(agent, options).await?;
    let (read, incoming) = duplex(PIPE_BYTES);
    let (write, outgoing) = duplex(PIPE_BYTES);
    let (ender, end) = StreamEnd::new();
    let connection = ContinuedConnection {
        agent: agent.clone(),
        options: options.clone(),
        state: Mutex::default(),
        attach: OnceLock::new(),
    };
    let pipes = OwnerPipes { outgoing: BufReader::new(outgoing), partial: Vec::new(), incoming };
    tokio::spawn(run(connection, socket, pipes, ender));
    Ok(Connection { read, write, end: ConnectionEnd(EndKind::Stream(end)) })
}

/// Carries messages until the connection ends.
async fn run(
    connection: ContinuedConnection,
    socket: WebSocket,
    mut pipes: OwnerPipes,
    ender: StreamEnder,
) {
    let reason = tokio::select! {
        reason = connection.carry_all(socket, &mut pipes) => reason,
        () = ender.ended.cancelled() => CLOSED_HERE.to_owned(),
    };
    // Before the pipes close, so that their owner finds the reason.
    ender.end(reason);
    drop(pipes);
}

// === impl ContinuedConnection ===

impl ContinuedConnection {
    /// Carries messages over one WebSocket after the other. Returns why the connection has ended.
    async fn carry_all(&self, mut socket: WebSocket, pipes: &mut OwnerPipes) -> String {
        loop {
            let lost = match self.carry(socket, pipes).await {
                SocketEnd::Owner => return CLOSED_HERE.to_owned(),
                SocketEnd::Socket(why) => why,
            };
            let is_lost = matches!(
                lost,
                WebSocketClosed::Lost(_) | WebSocketClosed::Silent(_) | WebSocketClosed::Stalled(_)
            );
            let (Some(attach), true) = (self.attach(), is_lost) else { return lost.to_string() };
            let continued = tokio::select! {
                continued = self.open_again(&attach, &lost) => continued,
                () = self.watch_owner(pipes) => return CLOSED_HERE.to_owned(),
            };
            socket = match continued {
                Ok(socket) => socket,
                Err(reason) => return reason,
            };
        }
    }

    /// Returns what the server announced, if it keeps this connection.
    fn attach(&self) -> Option<AttachCapability> {
        self.attach.get()?.clone().filter(|attach| attach.connection_id.is_some())
    }

    /// Carries messages over this WebSocket until it ends.
    async fn carry(&self, socket: WebSocket, pipes: &mut OwnerPipes) -> SocketEnd {
        let WebSocket { read, mut write, end } = socket;
        let OwnerPipes { outgoing, partial, incoming } = pipes;
        let mut read = BufReader::new(read);
        let receiving = async {
            let mut line = Vec::new();
            while let Ok(true) = next_line(&mut read, &mut line).await {
                self.on_received(&line);
                if incoming.write_all(&line).await.is_err() {
                    return SocketEnd::Owner;
                }
                line.clear();
            }
            SocketEnd::Socket(end.wait().await)
        };
        let sending = async {
            let again = lock(&self.state).unconfirmed.lines();
            let mut is_open = write.write_all(&again).await.is_ok();
            while let Ok(true) = next_line(outgoing, partial).await {
                let line = self.on_sending(std::mem::take(partial));
                is_open = is_open && write.write_all(&line).await.is_ok();
                if !is_open {
                    // The other direction knows why.
                    return SocketEnd::Socket(end.wait().await);
                }
            }
            // What the server has sent before is still read.
            drop(write.shutdown().await);
            SocketEnd::Owner
        };
        let (mut receiving, mut sending) = (std::pin::pin!(receiving), std::pin::pin!(sending));
        tokio::select! {
            ended = &mut receiving => return ended,
            ended = &mut sending => {
                if let SocketEnd::Socket(_) = ended {
                    return ended;
                }
            }
        }
        receiving.await;
        SocketEnd::Owner
    }

    /// Reads the owner's messages between two WebSockets. Completes when the owner has closed the connection.
    async fn watch_owner(&self, pipes: &mut OwnerPipes) {
        let OwnerPipes { outgoing, partial, .. } = pipes;
        while let Ok(true) = next_line(outgoing, partial).await {
            drop(self.on_sending(std::mem::take(partial)));
            if lock(&self.state).unconfirmed.is_full() {
                return std::future::pending().await;
            }
        }
    }

    /// Opens the next WebSocket, and continues on it.
    async fn open_again(
        &self,
        attach: &AttachCapability,
        lost: &WebSocketClosed,
    ) -> Result<WebSocket, String> {
        let mut pauses = Pauses::within(Duration::from_millis(attach.grace_ms));
        let connect_timeout = self.options.connect_timeout.min(ATTEMPT_TIME);
        let options = ConnectionOptions { connect_timeout, ..self.options.clone() };
        loop {
            match super::websocket::open(&self.agent, &options).await {
                Ok(socket) => match timeout(ATTEMPT_TIME, self.attach_to(attach, socket)).await {
                    Ok(Ok(socket)) => return Ok(socket),
                    Ok(Err(AttachFailure::Permanent(why))) => {
                        return Err(format!("{lost}, and cannot be continued: {why}"));
                    }
                    Ok(Err(AttachFailure::Transient)) | Err(_) => {}
                },
                Err(error) if matches!(error.status, Some(400..=428 | 430..=499 | 501)) => {
                    return Err(format!("{lost}, and cannot be continued: {}", error.message));
                }
                Err(_) => {}
            }
            if !pauses.pause().await {
                return Err(lost.to_string());
            }
        }
    }

    /// Asks the server to continue on this WebSocket.
    async fn attach_to(
        &self,
        attach: &AttachCapability,
        socket: WebSocket,
    ) -> Result<WebSocket, AttachFailure> {
        let WebSocket { read, mut write, end } = socket;
        let params = ContinueParams {
            connection_id: attach.connection_id.clone().unwrap_or_default(),
            received: lock(&self.state).received,
        };
        let params = serde_json::to_value(&params).unwrap_or_default();
        let mut request = Vec::new();
        jsonrpc::write_request(&mut request, &Id::text(ATTACH_ID), ATTACH_METHOD, &params);
        request.push(b'\n');
        let transient = |_| AttachFailure::Transient;
        write.write_all(&request).await.map_err(transient)?;
        let mut reader = BufReader::with_capacity(1, read);
        let mut line = Vec::new();
        if !next_line(&mut reader, &mut line).await.map_err(transient)? {
            return Err(AttachFailure::Transient);
        }
        let permanent = |why: &str| AttachFailure::Permanent(why.to_owned());
        let received = match jsonrpc::parse_within(line.trim_ascii_end(), usize::MAX) {
            Ok(Incoming::Response(response)) => match response.outcome {
                Ok(result) => {
                    serde_json::from_str::<ContinueResult>(result.get())
                        .map_err(|_| permanent("the answer of the server does not fit"))?
                        .received
                }
                Err(error) => return Err(permanent(&error.message)),
            },
            _ => return Err(permanent("the server does not answer")),
        };
        if !lock(&self.state).unconfirmed.confirm(received) {
            return Err(permanent("messages that the server needs again are not kept"));
        }
        // Nothing was read beyond the line.
        Ok(WebSocket { read: reader.into_inner(), write, end })
    }

    /// Records a message of the owner. Returns it as it is sent.
    fn on_sending(&self, line: Vec<u8>) -> Vec<u8> {
        let mut state = lock(&self.state);
        let is_first = !std::mem::replace(&mut state.has_sent, true);
        let line = match is_first.then(|| ask_to_keep(&line)).flatten() {
            Some((id, asking)) => {
                state.initialize = Some(id);
                asking
            }
            None => line,
        };
        // Without the announcement nothing is sent again.
        if self.attach.get().is_none_or(Option::is_some) {
            state.unconfirmed.push(line.clone());
        }
        line
    }

    fn on_received(&self, line: &[u8]) {
        let mut state = lock(&self.state);
        state.received += 1;
        let has_no_effect = match self.attach.get() {
            None => false,
            Some(None) => true,
            Some(Some(_)) => line.starts_with(NOTIFICATION),
        };
        if has_no_effect {
            return;
        }
        let Ok(Incoming::Response(response)) =
            jsonrpc::parse_within(line.trim_ascii_end(), usize::MAX)
        else {
            return;
        };
        state.unconfirmed.on_response(response.id.as_str());
        if state.initialize.as_deref() == Some(response.id.as_str()) {
            state.initialize = None;
            let result = response.outcome.ok();
            let attach = result.and_then(|result| AttachCapability::read(result.get()));
            // The first response counts.
            drop(self.attach.set(attach.filter(|attach| attach.connection_id.is_some())));
        }
    }
}

/// Returns `initialize` with the request to keep the connection, and its id. `None` for another message.
fn ask_to_keep(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let text = std::str::from_utf8(line.trim_ascii_end()).ok()?;
    let Ok(Incoming::Request(request)) = jsonrpc::parse_within(text.as_bytes(), usize::MAX) else {
        return None;
    };
    if request.method != INITIALIZE {
        return None;
    }
    let extras = Extras { attach: Some(true), ..Extras::default() };
    let params = extras.put(request.params?.get()).into_owned();
    let asking = splice::set(text, &["params"], &params)?;
    Some((request.id.as_str().to_owned(), format!("{asking}\n").into_bytes()))
}

/// Adds the next line with its end. Returns `false` at the end; an incomplete line does not count. A call can be dropped without a loss.
async fn next_line<R: tokio::io::AsyncRead + Unpin>(
    from: &mut BufReader<R>,
    line: &mut Vec<u8>,
) -> std::io::Result<bool> {
    from.read_until(b'\n', line).await?;
    Ok(line.ends_with(b"\n"))
}
