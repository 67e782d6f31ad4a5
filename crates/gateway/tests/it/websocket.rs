//! A WebSocket client whose handshake and frames a test can choose.

use std::collections::HashMap;
use std::fmt::Write as _;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use trilogue_testkit::Editor;

use crate::rig::{LIMIT, Rig};

/// The path of the puppet's endpoint.
pub(crate) const PUPPET: &str = "/client/puppet";
/// The bytes that [`bridge`] holds.
const BRIDGE_BYTES: usize = 64 * 1024;

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    /// What came with the head.
    pub(crate) rest: Vec<u8>,
}

/// Sends a request head, and reads the head of the response.
pub(crate) async fn exchange(stream: &mut TcpStream, request: &str) -> Head {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|it| it == b"\r\n\r\n") {
            break end + 4;
        }
        let more = timeout(LIMIT, stream.read_buf(&mut read)).await.unwrap().unwrap();
        assert!(more > 0, "{}", String::from_utf8_lossy(&read));
    };
    let head = String::from_utf8(read[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Head { status, headers, rest: read[end..].to_vec() }
}

/// The head of a request for a WebSocket, with alice's token unless `changes` says otherwise. A header with an empty value is left out.
pub(crate) fn upgrade(path: &str, changes: &[(&str, &str)]) -> String {
    let mut headers = vec![
        ("host", "localhost"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("authorization", "Bearer alpha-alice"),
    ];
    headers.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    headers.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    let mut request = format!("GET {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        write!(request, "{name}: {value}\r\n").unwrap();
    }
    request + "\r\n"
}

/// Opens a WebSocket. Its frames are the test's.
pub(crate) async fn open_raw(rig: &Rig, changes: &[(&str, &str)]) -> (Head, TcpStream) {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let head = exchange(&mut stream, &upgrade(PUPPET, changes)).await;
    (head, stream)
}

pub(crate) async fn open(
    rig: &Rig,
    changes: &[(&str, &str)],
) -> (Head, WebSocketStream<TcpStream>) {
    let (head, stream) = open_raw(rig, changes).await;
    assert_eq!(head.status, 101, "{head:?}");
    let rest = head.rest.clone();
    (head, WebSocketStream::from_partially_read(stream, rest, Role::Client, None).await)
}

/// An editor on a WebSocket that has sent nothing.
pub(crate) async fn editor(rig: &Rig) -> Editor {
    editor_as(rig, "alpha-alice").await
}

pub(crate) async fn editor_as(rig: &Rig, token: &str) -> Editor {
    let (_, socket) = open(rig, &[("authorization", &format!("Bearer {token}"))]).await;
    bridge(socket)
}

/// A numbered client that speaks the local socket's protocol over a WebSocket.
pub(crate) async fn numbered(rig: &Rig, client: &str) -> Editor {
    numbered_by(rig, "alpha-alice", client).await
}

pub(crate) async fn numbered_by(rig: &Rig, token: &str, client: &str) -> Editor {
    let token = format!("Bearer {token}");
    let changes = [("sec-websocket-protocol", "x, trilogue.local"), ("authorization", &*token)];
    let (head, socket) = open(rig, &changes).await;
    assert_eq!(head.headers["sec-websocket-protocol"], "trilogue.local");
    let mut editor = bridge(socket);
    let attach = json!({"agent": "puppet", "cwd": "/w"});
    let hello = json!({"trilogue": 1, "attach": attach, "numbered": true, "client": client});
    editor.raw(format!("{hello}\n").as_bytes()).await;
    let welcome: Value = serde_json::from_str(&editor.line().await.unwrap()).unwrap();
    assert_eq!(welcome["agent"], "puppet", "{welcome}");
    editor.initialize(json!({})).await;
    editor
}

/// Reads frames as lines, and writes lines as frames.
pub(crate) fn bridge(socket: WebSocketStream<TcpStream>) -> Editor {
    let (ours, theirs) = tokio::io::duplex(BRIDGE_BYTES);
    tokio::spawn(carry(socket, theirs));
    let (reader, writer) = tokio::io::split(ours);
    Editor::from_streams(reader, writer)
}

async fn carry(socket: WebSocketStream<TcpStream>, lines: DuplexStream) {
    let (mut frames_out, mut frames_in) = socket.split();
    let (reader, mut writer) = tokio::io::split(lines);
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    loop {
        tokio::select! {
            frame = frames_in.next() => match frame {
                Some(Ok(Message::Text(text))) => {
                    assert!(!text.contains('\n'), "a frame contains several lines: {text}");
                    if writer.write_all(format!("{text}\n").as_bytes()).await.is_err() {
                        return;
                    }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return,
            },
            // What a dropped call has read stays in `line`.
            read = reader.read_line(&mut line) => {
                if read.unwrap_or(0) == 0 {
                    drop(frames_out.close().await);
                    return;
                }
                let text = std::mem::take(&mut line);
                drop(frames_out.send(Message::text(text.trim_end())).await);
            }
        }
    }
}
