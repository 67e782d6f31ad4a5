//! The streams of the proxy.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};
use trilogue_domain::Error;
use trilogue_gateway::{LocalReader, LocalWriter};
use trilogue_wire::agent_client::Json;
use trilogue_wire::jsonrpc::{Code, Decoder, ErrorObject};

use super::MAX_LINE_BYTES;
use super::link::{Connection, Link, max_sent};
use super::state::Proxy;
use super::stdio::Stdio;

/// How many bytes may wait for one side before the other is not read from.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;
/// How many bytes are read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// How long the last bytes may take when the editor is gone, or told why there is no server.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// What the user may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// There is a connection to an agent of a server of this version.
    Connected {
        /// The agent's name.
        agent: String,
        /// The server's version.
        version: String,
        /// It is not the first one.
        is_again: bool,
    },
    /// The server is gone, and waited for.
    Lost,
    /// A message of the server's was longer than this many bytes, and the editor does not get it.
    TooLong(usize),
    /// The agent does not come to be: why, as the editor was told. It may ask again.
    Refused(Error),
}

/// A connection in the making.
type Connecting = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

/// One end of the relay.
enum Wire {
    Up(Box<Up>),
    Down(Connecting),
}

struct Up {
    reader: LocalReader,
    writer: LocalWriter,
    decoder: Decoder,
    is_on_demand: bool,
}

/// What happened.
enum Event {
    Editor(usize),
    EditorGone,
    ToldEditor(usize),
    Server(usize),
    ServerGone,
    ToldServer(usize),
    Connected(Box<Result<Connection, Error>>),
    Due,
}

/// Relays until the editor is gone. `tell` is called with what the user may want to know.
///
/// # Errors
/// When there is no server, or not that agent; when the agent could not be spoken to at all; or the editor says nothing more, and is not answered in time. What it has asked for is answered with an error before.
pub async fn run(
    link: Link,
    mut stdio: Stdio,
    mut tell: impl FnMut(&Told) + Send,
) -> Result<(), Error> {
    let Stdio { input, output, .. } = &mut stdio;
    let mut proxy = Proxy::new();
    let mut editor = Decoder::new(MAX_LINE_BYTES);
    let mut wire = Wire::Down(Box::pin(link.clone().first()));
    let mut is_again = false;
    while !proxy.has_ended(Instant::now()) {
        match next(&mut proxy, &mut editor, input, output, &mut wire).await {
            Event::EditorGone => proxy.leave(),
            Event::Editor(0) => {
                take_editor(&mut proxy, &mut editor);
                if let Some(last) = editor.finish() {
                    proxy.take_editor(last);
                }
                proxy.end(Instant::now());
            }
            Event::Editor(_) => take_editor(&mut proxy, &mut editor),
            Event::ToldEditor(count) => proxy.editor_bytes().advance(count),
            Event::ToldServer(count) => proxy.server_bytes().advance(count),
            Event::Due => proxy.tick(Instant::now()),
            Event::Server(0) | Event::ServerGone => lose(&mut proxy, &mut wire, &link, &mut tell),
            Event::Server(_) => {
                let is_usable = take_server(&mut proxy, &mut wire);
                if let Some(limit) = proxy.take_too_long() {
                    tell(&Told::TooLong(limit));
                }
                if let Some(error) = proxy.take_refusal() {
                    tell(&Told::Refused(error));
                }
                if !is_usable {
                    lose(&mut proxy, &mut wire, &link, &mut tell);
                }
            }
            Event::Connected(connected) => match *connected {
                Ok(connection) => {
                    let opened = connection.opened.clone();
                    tell(&Told::Connected {
                        agent: opened.agent,
                        version: opened.version,
                        is_again,
                    });
                    is_again = true;
                    editor.set_max_line_bytes(connection.opened.max_line.unwrap_or(MAX_LINE_BYTES));
                    proxy.online(max_sent(&connection.opened), Instant::now());
                    wire = Wire::up(connection);
                }
                Err(error) => {
                    take_editor(&mut proxy, &mut editor);
                    proxy.give_up(&told(&error));
                    finish(output, proxy.editor_bytes()).await;
                    return Err(error);
                }
            },
        }
    }
    let ended = proxy.conclude(told);
    if let Wire::Up(up) = &mut wire {
        finish(&mut up.writer, proxy.server_bytes()).await;
    }
    finish(output, proxy.editor_bytes()).await;
    ended.and_then(|()| proxy.came_to_be())
}

/// Waits for whatever happens next.
async fn next(
    proxy: &mut Proxy,
    editor: &mut Decoder,
    input: &mut (impl AsyncRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
    wire: &mut Wire,
) -> Event {
    let deadline = proxy.deadline();
    let (to_server, to_editor) = proxy.outgoing();
    let may_ask = proxy.is_listening() && to_server.len() < MAX_WAITING_BYTES;
    let may_tell = to_editor.len() < MAX_WAITING_BYTES;
    let from_editor = editor.buffer_for(PIECE_BYTES);
    tokio::select! {
        read = input.read_buf(from_editor), if may_ask => read.map_or(Event::EditorGone, Event::Editor),
        written = output.write(to_editor), if !to_editor.is_empty() => match written {
            Ok(count) if count > 0 => Event::ToldEditor(count),
            _ => Event::EditorGone,
        },
        event = wire.next(to_server, may_tell) => event,
        () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Event::Due,
    }
}

fn take_editor(proxy: &mut Proxy, editor: &mut Decoder) {
    while let Some(frame) = editor.next() {
        proxy.take_editor(frame);
    }
}

/// Takes what came from the server. `false` where the connection cannot be used any more.
fn take_server(proxy: &mut Proxy, wire: &mut Wire) -> bool {
    let Wire::Up(up) = wire else { return true };
    while let Some(frame) = up.decoder.next() {
        if proxy.take_server(frame).is_err() {
            return false;
        }
    }
    true
}

fn lose(proxy: &mut Proxy, wire: &mut Wire, link: &Link, tell: &mut impl FnMut(&Told)) {
    tell(&Told::Lost);
    let in_vain = proxy.offline(Instant::now());
    let may_start = matches!(wire, Wire::Up(up) if up.is_on_demand);
    *wire = Wire::Down(Box::pin(link.clone().again(may_start, in_vain)));
}

/// Writes the last bytes, if the other side takes them.
async fn finish(to: &mut (impl AsyncWrite + Unpin), bytes: &BytesMut) {
    let write = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    // Whoever is gone misses nothing.
    let _ = timeout(LAST_BYTES, write).await;
}

/// Why nothing is answered, for the editor.
fn told(error: &Error) -> ErrorObject {
    let mut data = serde_json::json!({ "code": error.code().as_str() });
    if let Some(hint) = error.hint_text() {
        data["hint"] = hint.into();
    }
    ErrorObject::new(Code::INTERNAL_ERROR, error.message()).data(Json::from_value(&data))
}

// === impl Wire ===

impl Wire {
    fn up(connection: Connection) -> Self {
        let Connection { reader, writer, decoder, is_on_demand, .. } = connection;
        Self::Up(Box::new(Up { reader, writer, decoder, is_on_demand }))
    }

    /// Waits for the server, or for one.
    async fn next(&mut self, to_server: &[u8], may_tell: bool) -> Event {
        let up = match self {
            Self::Down(connecting) => return Event::Connected(Box::new(connecting.await)),
            Self::Up(up) => up,
        };
        let from_server = up.decoder.buffer_for(PIECE_BYTES);
        tokio::select! {
            read = up.reader.read_buf(from_server), if may_tell => read.map_or(Event::ServerGone, Event::Server),
            written = up.writer.write(to_server), if !to_server.is_empty() => match written {
                Ok(count) if count > 0 => Event::ToldServer(count),
                _ => Event::ServerGone,
            },
            else => std::future::pending().await,
        }
    }
}
