//! The memory of many WebSockets that are open and say nothing.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trilogue_testkit::{Server, ServerOptions};

use crate::memory::{mib, resident};
use crate::report::{self, Report};

const CONNECTIONS: u64 = 10_000;
/// How many are opened at a time.
const OPENING: usize = 64;
/// The most memory for [`CONNECTIONS`] connections, in KiB.
const MOST_KIB: u64 = 200 * 1024;
/// The most memory for one, in KiB.
const MOST_EACH_KIB: f64 = 20.0;
/// The limits of the server, in times of these connections: one principal may use three quarters of them.
const LIMIT_TIMES: u64 = 2;
/// The first message, in a frame with a mask of zeros: its second byte has the length.
const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    let count = report.scale(CONNECTIONS);
    let most = LIMIT_TIMES * count;
    let dir = tempfile::tempdir_in(report::folder())?;
    let options = ServerOptions {
        // These clients do not answer pings.
        settings: format!("[client]\nmax_network_connections = {most}\nping_interval = \"1h\"\n"),
        server_settings: format!(
            "limits.max_connections = {most}\nlimits.max_connections_per_peer = {most}\nlimits.max_connections_per_principal = {most}\n"
        ),
        ..report::server_options(super::STORE)?
    };
    let server = Server::start(dir.path(), &options).await?;
    let address = server.home().address();
    let _first = open(address, server.token()).await?;
    let (before, files_before) = (resident(&server)?, files(&server)?);
    let open = |_| open(address, server.token());
    let sockets: Vec<TcpStream> =
        stream::iter(0..count).map(open).buffer_unordered(OPENING).try_collect().await?;
    let (after, files) = (resident(&server)?, files(&server)?);
    let added = after.saturating_sub(before);
    let what = format!("memory that {count} idle WebSockets add");
    report.target(&what, &mib(added), added < MOST_KIB, "< 200 MiB");
    let each = added as f64 / count as f64;
    let what = "memory of one of them";
    report.target(what, &format!("{each:.1} KiB"), each < MOST_EACH_KIB, "< 20 KiB");
    let each = files.saturating_sub(files_before) as f64 / count as f64;
    report.line("file descriptors of one of them", &format!("{each:.2}"));
    drop(sockets);
    server.stop().await?;
    Ok(())
}

/// Opens a WebSocket, and waits for the response to `initialize`.
async fn open(address: SocketAddr, token: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let mut bytes = format!(
        "GET /client/echo HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes();
    stream.write_all(&bytes).await?;
    bytes.clear();
    read_until(&mut stream, &mut bytes, b"\r\n\r\n").await?;
    ensure!(bytes.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&bytes));
    let mut frame = vec![0x81, 0x80 | u8::try_from(INITIALIZE.len())?, 0, 0, 0, 0];
    frame.extend_from_slice(INITIALIZE.as_bytes());
    stream.write_all(&frame).await?;
    bytes.clear();
    read_until(&mut stream, &mut bytes, br#""agentCapabilities""#).await?;
    Ok(stream)
}

async fn read_until(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: &[u8]) -> Result<()> {
    while memchr::memmem::find(bytes, end).is_none() {
        let read = stream.read_buf(bytes).await?;
        ensure!(read > 0, "the server ended the connection: {}", String::from_utf8_lossy(bytes));
    }
    Ok(())
}

/// How many files a server has open.
fn files(server: &Server) -> Result<usize> {
    let pid = server.pid().context("the server is gone")?;
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}
