//! Tests of WebSockets against a server on a real socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::Request;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::{WebSocketStream, accept_async};
use trilogue_egress::{
    Authorities, Client, Error, Options, Policy, WebSocket, WebSocketClosed, WebSocketOptions,
};

const AUTHORITY: &[u8] = include_bytes!("../../../testkit/fixtures/tls/authority.pem");
const SERVER: &[u8] = include_bytes!("../../../testkit/fixtures/tls/server.pem");

type Accepted = WebSocketStream<TcpStream>;

/// Accepts one connection and runs this on it. Returns the address.
async fn serve<F>(run: impl FnOnce(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        run(stream).await;
    });
    address
}

async fn serve_socket<F>(run: impl FnOnce(Accepted) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send,
{
    serve(async move |stream| run(accept_async(stream).await.unwrap()).await).await
}

fn small() -> WebSocketOptions {
    WebSocketOptions { max_message_bytes: 1_024, ..WebSocketOptions::default() }
}

async fn open_with(url: &str, options: &WebSocketOptions) -> Result<WebSocket, Error> {
    let client = Client::new(Policy::local(), Options::default()).unwrap();
    let request = Request::get(url).body(()).unwrap();
    client.open_websocket(request, options).await.map(|(_, socket)| socket)
}

async fn open(address: SocketAddr) -> WebSocket {
    open_with(&format!("ws://{address}/acp"), &small()).await.unwrap()
}

/// Sends all that it receives back, until the other side closes.
async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>) {
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() {
            socket.send(message).await.unwrap();
        }
    }
}

#[tokio::test]
async fn every_line_is_a_message_and_every_message_a_line() {
    let address = serve_socket(async |mut socket| {
        let first = socket.next().await.unwrap().unwrap();
        assert_eq!(first, Message::text("{\"a\":1}"));
        // One message in three frames, with a line break between tokens.
        for (text, opcode, is_last) in [
            ("{\"b\":", Data::Text, false),
            ("\n ", Data::Continue, false),
            ("2}", Data::Continue, true),
        ] {
            let frame = Frame::message(text, OpCode::Data(opcode), is_last);
            socket.send(Message::Frame(frame)).await.unwrap();
        }
        echo(socket).await;
    })
    .await;
    let WebSocket { read, mut write, end } = open(address).await;
    write.write_all(b"{\"a\":1}\n\n\r\n").await.unwrap();
    let mut lines = BufReader::new(read).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "{\"b\":  2}");
    write.write_all("\"half\u{e9}".as_bytes()).await.unwrap();
    write.write_all(b" and half\"\r\nnext\n").await.unwrap();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "\"half\u{e9} and half\"");
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "next");
    assert_eq!(end.reason(), None);
    drop(write);
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert_eq!(end.wait().await, WebSocketClosed::Here);
}

#[tokio::test]
async fn what_the_server_sent_before_it_closed_is_read() {
    let address = serve_socket(async |mut socket| {
        socket.send(Message::text("last")).await.unwrap();
        let frame = CloseFrame { code: CloseCode::Restart, reason: "bye".into() };
        socket.close(Some(frame)).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let mut socket = open(address).await;
    let mut text = String::new();
    socket.read.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "last\n");
    let closed = WebSocketClosed::There { code: Some(1012), reason: "bye".to_owned() };
    assert_eq!(socket.end.wait().await, closed);
}

#[tokio::test]
async fn an_invalid_message_closes_the_connection_with_the_code_for_it() {
    for (message, expected) in [
        (Message::binary(vec![1_u8]), 1003_u16),
        (Message::text("x".repeat(1_025)), 1009),
        (Message::Frame(Frame::message(vec![0xff_u8], OpCode::Data(Data::Text), true)), 1007),
        (Message::Frame(Frame::message("x", OpCode::Data(Data::Continue), true)), 1002),
    ] {
        let (sender, code) = tokio::sync::oneshot::channel();
        let address = serve_socket(async move |mut socket| {
            socket.send(message).await.unwrap();
            let code = match socket.next().await {
                Some(Ok(Message::Close(Some(frame)))) => u16::from(frame.code),
                _ => 0,
            };
            sender.send(code).unwrap();
        })
        .await;
        let socket = open(address).await;
        let closed = socket.end.wait().await;
        assert!(
            matches!(closed, WebSocketClosed::Invalid { code, .. } if code == expected),
            "{closed:?}"
        );
        assert_eq!(code.await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_ping_is_given_up() {
    let address = serve(async |stream| {
        // The handshake by hand, because the library answers pings.
        let mut stream = BufReader::new(stream);
        let (mut key, mut line) = (String::new(), String::new());
        while stream.read_line(&mut line).await.unwrap() > 2 {
            if let Some(("sec-websocket-key", value)) = line.trim().split_once(": ") {
                key = WebSocket::accept_key(value.as_bytes());
            }
            line.clear();
        }
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {key}\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(!rest.is_empty());
    })
    .await;
    let limit = Duration::from_millis(30);
    let options = WebSocketOptions { ping_interval: limit, pong_timeout: limit, ..small() };
    let socket = open_with(&format!("ws://{address}/"), &options).await.unwrap();
    assert_eq!(socket.end.wait().await, WebSocketClosed::Silent(limit * 2));
}

#[tokio::test]
async fn an_idle_connection_with_a_server_that_answers_pings_stays_open() {
    let address = serve_socket(echo).await;
    let limit = Duration::from_millis(20);
    let options = WebSocketOptions { ping_interval: limit, ..small() };
    let socket = open_with(&format!("http://{address}/"), &options).await.unwrap();
    assert!(tokio::time::timeout(limit * 10, socket.end.wait()).await.is_err());
}

#[tokio::test]
async fn an_answer_other_than_an_upgrade_is_an_error_with_its_status() {
    for (answer, expected, expected_body) in [
        ("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", 401, ""),
        (
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
            302,
            "",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", 200, "hi"),
        // It ends in the middle.
        ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\nbusy", 503, "busy"),
    ] {
        let address = serve(async move |mut stream| {
            let _read = stream.read(&mut [0; 4_096]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let refused = open_with(&format!("ws://{address}/"), &small()).await.unwrap_err();
        let (host, body) = ("127.0.0.1".to_owned(), expected_body.into());
        assert_eq!(refused, Error::NotUpgraded { host, status: expected, body });
    }
}

#[tokio::test]
async fn of_a_long_body_of_a_refusal_the_beginning_is_kept() {
    let address = serve(async |mut stream| {
        let _read = stream.read(&mut [0; 4_096]).await.unwrap();
        let length = 200 * 1_024;
        let head =
            format!("HTTP/1.1 500 Internal Server Error\r\ncontent-length: {length}\r\n\r\n");
        // The client may close before it has read all.
        let _ = stream.write_all(format!("{head}{}", "x".repeat(length)).as_bytes()).await;
    })
    .await;
    let refused = open_with(&format!("ws://{address}/"), &small()).await.unwrap_err();
    let Error::NotUpgraded { status: 500, body, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(body, "x".repeat(64 * 1_024));
}

#[tokio::test]
async fn an_answer_with_another_key_is_refused() {
    let address = serve(async |mut stream| {
        let _read = stream.read(&mut [0; 4_096]).await.unwrap();
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: no\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    })
    .await;
    let refused = open_with(&format!("ws://{address}/"), &small()).await.unwrap_err();
    assert!(matches!(refused, Error::Failed { is_unreached: false, .. }), "{refused:?}");
}

#[tokio::test]
async fn a_slow_handshake_ends_at_its_deadline() {
    let address = serve(async |mut stream| {
        let _read = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let limit = Duration::from_millis(50);
    let options = WebSocketOptions { handshake_timeout: limit, ..small() };
    let refused = open_with(&format!("ws://{address}/"), &options).await.unwrap_err();
    assert!(matches!(refused, Error::TimedOut { .. }), "{refused:?}");
}

#[tokio::test]
async fn an_address_that_may_not_be_reached_gets_no_connection() {
    let client = Client::new(Policy::default(), Options::default()).unwrap();
    for url in ["ws://127.0.0.1:1/", "wss://169.254.169.254/", "ws://[::1]:1/"] {
        let request = Request::get(url).body(()).unwrap();
        let refused = client.open_websocket(request, &small()).await.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{url}: {refused:?}");
    }
}

/// Serves one connection with TLS, which would also speak HTTP/2.
async fn serve_tls() -> SocketAddr {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(SERVER).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(SERVER).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    serve(async move |stream| {
        // A client that does not accept the certificate ends the connection.
        if let Ok(stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
            echo(accept_async(stream).await.unwrap()).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_of_an_own_authority_is_reached_if_the_authority_is_known() {
    let url = format!("wss://localhost:{}/", serve_tls().await.port());
    let untrusted = open_with(&url, &small()).await.unwrap_err();
    assert!(untrusted.to_string().contains("UnknownIssuer"), "{untrusted}");
    let url = format!("wss://localhost:{}/", serve_tls().await.port());
    let authorities = Authorities::from_pem(AUTHORITY).unwrap();
    let options = Options { authorities, ..Options::default() };
    let client = Client::new(Policy::local(), options).unwrap();
    let request = Request::get(url).body(()).unwrap();
    let (_, mut socket) = client.open_websocket(request, &small()).await.unwrap();
    socket.write.write_all(b"hello\n").await.unwrap();
    let mut line = [0; 6];
    socket.read.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"hello\n");
    assert!(Authorities::from_pem(b"no certificate").is_err());
}
