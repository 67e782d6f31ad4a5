//! A load generator over raw sockets: as little between the server and the figure as possible.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BytesMut};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// One connection that stays open.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

/// The result of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadResult {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
}

// === impl Connection ===

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::with_capacity(16 * 1024) })
    }

    /// Sends a whole request and reads the whole answer. Gives status and length of the body.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<(u16, usize)> {
        self.stream.write_all(request).await?;
        let (status, head, length) = loop {
            if let Some(found) = head(&self.buffer)? {
                break found;
            }
            self.fill().await?;
        };
        while self.buffer.len() < head + length {
            self.fill().await?;
        }
        self.buffer.advance(head + length);
        Ok((status, length))
    }

    /// The same, with the body, which may come in chunks.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        self.stream.write_all(request).await?;
        let (status, head, framed) = loop {
            if let Some(found) = framing(&self.buffer)? {
                break found;
            }
            self.fill().await?;
        };
        self.buffer.advance(head);
        let body = match framed {
            Framing::Length(length) => self.take(length).await?,
            Framing::Chunks => self.chunks().await?,
        };
        Ok((status, body))
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                    break end;
                }
                self.fill().await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..end])?, 16)?;
            self.buffer.advance(end + 2);
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill().await?;
        }
        Ok(self.buffer.split_to(length).to_vec())
    }

    /// Sends a request and returns the socket, for a response that is read in another way.
    pub(crate) async fn send(mut self, request: &[u8]) -> Result<TcpStream> {
        self.stream.write_all(request).await?;
        Ok(self.stream)
    }

    async fn fill(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }
}

// === impl LoadResult ===

impl LoadResult {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// How an answer's body is delimited.
enum Framing {
    Length(usize),
    Chunks,
}

/// Status, length of the head, and the body's framing, once the head is whole.
fn framing(buffer: &[u8]) -> Result<Option<(u16, usize, Framing)>> {
    let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&buffer[..end])?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
    let mut framing = Framing::Length(0);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(value.trim().parse()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunks;
        }
    }
    Ok(Some((status.parse()?, end + 4, framing)))
}

/// Status, length of the head, and length of the body, once the head is whole.
fn head(buffer: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&buffer[..end])?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, value)| value.trim().parse())
        .context("the answer has no length")??;
    Ok(Some((status.parse()?, end + 4, length)))
}

/// A POST of JSON over a connection that stays open.
pub(crate) fn post(address: SocketAddr, path: &str, token: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends the same request over `connections` connections until `total` were answered.
pub(crate) async fn hammer(
    address: SocketAddr,
    request: Vec<u8>,
    connections: usize,
    total: u64,
) -> Result<LoadResult> {
    let request: Arc<[u8]> = request.into();
    let left = Arc::new(AtomicU64::new(total));
    let mut tasks = Vec::new();
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let begun = Instant::now();
    for mut connection in open {
        let (request, left) = (Arc::clone(&request), Arc::clone(&left));
        tasks.push(tokio::spawn(async move {
            let take = |left: u64| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                let (status, _) = connection.exchange(&request).await?;
                if !(200..300).contains(&status) {
                    bail!("the server answered with {status}");
                }
            }
            Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(LoadResult { requests: total, elapsed: begun.elapsed() })
}

/// Sends the same request over `connections` connections for this long; returns the number of responses.
pub(crate) async fn hammer_for(
    address: SocketAddr,
    request: Vec<u8>,
    connections: usize,
    time: Duration,
) -> Result<LoadResult> {
    let request: Arc<[u8]> = request.into();
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for mut connection in open {
        let request = Arc::clone(&request);
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            loop {
                let left = time.saturating_sub(begun.elapsed());
                let Ok(answer) = timeout(left, connection.exchange(&request)).await else {
                    return Ok(count);
                };
                let (status, _) = answer?;
                ensure!((200..300).contains(&status), "the server answered with {status}");
                count += 1;
            }
        }));
    }
    let mut requests = 0;
    for task in tasks {
        requests += task.await??;
    }
    Ok(LoadResult { requests, elapsed: begun.elapsed() })
}

/// Lets this process and its children open as many files as the system allows.
pub(crate) fn raise_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
