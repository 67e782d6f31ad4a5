//! The streams of the proxy.

use std::io::IsTerminal as _;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};
use trilogue_domain::Error;
use trilogue_wire::agent_client::Json;
use trilogue_wire::jsonrpc::{Code, Decoder, ErrorObject};

use super::MAX_LINE_BYTES;
use super::server_link::{ServerConnection, ServerLink, ServerReader, ServerWriter, max_sent};
use super::state::Proxy;
use super::stdio::Stdio;

/// How many bytes may wait for one side. Beyond that, the other side is not read.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;
const LAST_BYTES: Duration = Duration::from_secs(1);
/// How long an editor that gets no agent may take to send its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// Something that the user may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProxyNotice {
    /// Connected to an agent.
    Connected {
        /// The agent's name.
        agent: String,
        /// The server's version.
        version: String,
        /// Whether this is a reconnect.
        is_again: bool,
    },
    /// The connection is lost. The proxy tries to reconnect.
    Lost,
    /// A message of the server was longer than this many bytes and is dropped.
    TooLong(usize),
    /// The agent could not be started, with the error that the editor received. It may try again.
    Refused(Error),
}

type Connecting = Pin<Box<dyn Future<Output = Result<ServerConnection, Error>> + Send>>;

enum ServerEnd {
    Connected(Box<ConnectedServer>),
    Connecting(Connecting),
}

struct ConnectedServer {
    reader: ServerReader,
    writer: ServerWriter,
    decoder: Decoder,
    is_on_demand: bool,
    is_remote: bool,
}

enum RelayEvent {
    ReadEditor(usize),
    EditorGone,
    WroteEditor(usize),
    ReadServer(usize),
    ServerGone,
    WroteServer(usize),
    Connected(Box<Result<ServerConnection, Error>>),
    Deadline,
}

/// Relays until the editor is gone. Calls `notify` with news for the user.
///
/// # Errors Returns an error if no server or agent of this name exists, if the agent never started, or if responses are missing after the editor has closed its
/// output. Open requests get an error response first.
pub async fn run(
    link: ServerLink,
    mut stdio: Stdio,
    mut notify: impl FnMut(&ProxyNotice) + Send,
) -> Result<(), Error> {
    let Stdio { input, output, .. } = &mut stdio;
    let mut proxy = Proxy::new();
    let mut editor = Decoder::new(MAX_LINE_BYTES);
    let mut server = ServerEnd::Connecting(Box::pin(link.clone().connect()));
    let mut is_again = false;
    while !proxy.has_ended(Instant::now()) {
        match next(&mut proxy, &mut editor, input, output, &mut server).await {
            RelayEvent::EditorGone => proxy.on_editor_gone(),
            RelayEvent::ReadEditor(0) => {
                read_editor(&mut proxy, &mut editor);
                if let Some(last) = editor.finish() {
                    proxy.on_editor_frame(last);
                }
                proxy.on_input_end(Instant::now());
            }
            RelayEvent::ReadEditor(_) => read_editor(&mut proxy, &mut editor),
            RelayEvent::WroteEditor(count) => proxy.editor_bytes().advance(count),
            RelayEvent::WroteServer(count) => proxy.server_bytes().advance(count),
            RelayEvent::Deadline => proxy.on_deadline(Instant::now()),
            RelayEvent::ReadServer(0) | RelayEvent::ServerGone => {
                disconnect(&mut proxy, &mut server, &link, &mut notify)
            }
            RelayEvent::ReadServer(_) => {
                let is_usable = read_server(&mut proxy, &mut server);
                if let Some(limit) = proxy.take_too_long() {
                    notify(&ProxyNotice::TooLong(limit));
                }
                if let Some(error) = proxy.take_refusal() {
                    notify(&ProxyNotice::Refused(error));
                }
                if !is_usable {
                    disconnect(&mut proxy, &mut server, &link, &mut notify);
                }
            }
            RelayEvent::Connected(connected) => match *connected {
                Ok(connection) => {
                    let opened = connection.opened.clone();
                    notify(&ProxyNotice::Connected {
                        agent: opened.agent,
                        version: opened.version,
                        is_again,
                    });
                    is_again = true;
                    editor.set_max_line_bytes(connection.opened.max_line.unwrap_or(MAX_LINE_BYTES));
                    let opened = &connection.opened;
                    proxy.on_connect(max_sent(opened), &opened.life, Instant::now());
                    server = ServerEnd::connected(connection);
                }
                Err(error) => {
                    if !is_again {
                        // An editor that gets no answer does not learn why.
                        notify(&ProxyNotice::Refused(error.clone()));
                        await_request(&mut proxy, &mut editor, input).await;
                    }
                    read_editor(&mut proxy, &mut editor);
                    proxy.fail_all(&error_object(&error));
                    finish(output, proxy.editor_bytes()).await;
                    return Err(error);
                }
            },
        }
    }
    let ended = proxy.conclude(error_object);
    if let ServerEnd::Connected(up) = &mut server {
        finish(&mut up.writer, proxy.server_bytes()).await;
        if up.is_remote {
            await_sent(up).await;
        }
    }
    finish(output, proxy.editor_bytes()).await;
    ended.and_then(|()| proxy.startup_result())
}

async fn next(
    proxy: &mut Proxy,
    editor: &mut Decoder,
    input: &mut (impl AsyncRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
    server: &mut ServerEnd,
) -> RelayEvent {
    let deadline = proxy.deadline();
    let (to_server, to_editor) = proxy.outgoing();
    let may_read_editor = proxy.is_listening() && to_server.len() < MAX_WAITING_BYTES;
    let may_read_server = to_editor.len() < MAX_WAITING_BYTES;
    let from_editor = editor.buffer_for(PIECE_BYTES);
    tokio::select! {
        read = input.read_buf(from_editor), if may_read_editor => read.map_or(RelayEvent::EditorGone, RelayEvent::ReadEditor),
        written = output.write(to_editor), if !to_editor.is_empty() => match written {
            Ok(count) if count > 0 => RelayEvent::WroteEditor(count),
            _ => RelayEvent::EditorGone,
        },
        event = server.next(to_server, may_read_server) => event,
        () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => RelayEvent::Deadline,
    }
}

/// Reads until the editor has sent a request, has ended its input, or is a person at a terminal.
async fn await_request(
    proxy: &mut Proxy,
    editor: &mut Decoder,
    input: &mut (impl AsyncRead + Unpin),
) {
    if std::io::stdin().is_terminal() {
        return;
    }
    let first = async {
        loop {
            read_editor(proxy, editor);
            if proxy.has_requests() {
                return;
            }
            match input.read_buf(editor.buffer_for(PIECE_BYTES)).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    // An editor that sends nothing needs no answer.
    let _ = timeout(FIRST_REQUEST, first).await;
}

fn read_editor(proxy: &mut Proxy, editor: &mut Decoder) {
    while let Some(frame) = editor.next() {
        proxy.on_editor_frame(frame);
    }
}

/// Takes what was read from the server. Returns `false` if the connection is unusable.
fn read_server(proxy: &mut Proxy, server: &mut ServerEnd) -> bool {
    let ServerEnd::Connected(up) = server else { return true };
    while let Some(frame) = up.decoder.next() {
        if proxy.on_server_frame(frame).is_err() {
            return false;
        }
    }
    true
}

fn disconnect(
    proxy: &mut Proxy,
    server: &mut ServerEnd,
    link: &ServerLink,
    notify: &mut impl FnMut(&ProxyNotice),
) {
    notify(&ProxyNotice::Lost);
    let failures = proxy.on_disconnect(Instant::now());
    let may_start = matches!(server, ServerEnd::Connected(up) if up.is_on_demand);
    *server = ServerEnd::Connecting(Box::pin(link.clone().reconnect(may_start, failures)));
}

/// Writes the last bytes, if the other side takes them.
async fn finish(to: &mut (impl AsyncWrite + Unpin), bytes: &BytesMut) {
    let write = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    // The other side may be gone.
    let _ = timeout(LAST_BYTES, write).await;
}

/// Waits until the task of a WebSocket has sent the last bytes: it then ends the stream.
async fn await_sent(up: &mut ConnectedServer) {
    let sent = async {
        up.writer.shutdown().await?;
        tokio::io::copy(&mut up.reader, &mut tokio::io::sink()).await
    };
    // The network may be gone.
    let _ = timeout(LAST_BYTES, sent).await;
}

fn error_object(error: &Error) -> ErrorObject {
    let mut data = serde_json::json!({ "code": error.code().as_str() });
    if let Some(hint) = error.hint_text() {
        data["hint"] = hint.into();
    }
    ErrorObject::new(Code::INTERNAL_ERROR, error.message()).data(Json::from_value(&data))
}

// === impl ServerEnd ===

impl ServerEnd {
    fn connected(connection: ServerConnection) -> Self {
        let ServerConnection { reader, writer, decoder, is_on_demand, is_remote, .. } = connection;
        let up = ConnectedServer { reader, writer, decoder, is_on_demand, is_remote };
        Self::Connected(Box::new(up))
    }

    async fn next(&mut self, to_server: &[u8], may_read_server: bool) -> RelayEvent {
        let up = match self {
            Self::Connecting(connecting) => {
                return RelayEvent::Connected(Box::new(connecting.await));
            }
            Self::Connected(up) => up,
        };
        let from_server = up.decoder.buffer_for(PIECE_BYTES);
        tokio::select! {
            read = up.reader.read_buf(from_server), if may_read_server => read.map_or(RelayEvent::ServerGone, RelayEvent::ReadServer),
            written = up.writer.write(to_server), if !to_server.is_empty() => match written {
                Ok(count) if count > 0 => RelayEvent::WroteServer(count),
                _ => RelayEvent::ServerGone,
            },
            else => std::future::pending().await,
        }
    }
}
