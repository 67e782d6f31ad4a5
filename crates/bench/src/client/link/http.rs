//! An agent behind a server, over posts and server-sent events.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

use super::{AgentAddress, MessageLink, ResponseHead};

const CONNECTION_ID: &str = "acp-connection-id";
const SESSION_ID: &str = "acp-session-id";
const DATA: &[u8] = b"data:";

#[derive(Debug)]
pub(in super::super) struct HttpLink {
    agent: AgentAddress,
    posts: BufReader<TcpStream>,
    /// `None` before the response to the first message.
    connection: Option<String>,
    session: Option<String>,
    /// The response to the first message, which no stream has.
    first: Option<Vec<u8>>,
    /// The stream of the connection, and then the stream of the session. The server ends neither.
    streams: Vec<EventStream>,
}

/// The data of server-sent events in a body of chunks.
#[derive(Debug)]
struct EventStream {
    stream: BufReader<TcpStream>,
    /// How many bytes of the chunk are left.
    left: usize,
    is_first: bool,
    line: Vec<u8>,
}

// === impl HttpLink ===

impl HttpLink {
    pub(in super::super) fn open(agent: &AgentAddress) -> Result<Self> {
        let posts = agent.connect()?;
        Ok(Self {
            agent: agent.clone(),
            posts,
            connection: None,
            session: None,
            first: None,
            streams: Vec::new(),
        })
    }

    fn open_stream(&mut self) -> Result<()> {
        let mut stream = self.agent.connect()?;
        let connection = self.connection.as_deref().context("no connection")?;
        let mut headers = vec![("accept", "text/event-stream"), (CONNECTION_ID, connection)];
        headers.extend(self.session.as_deref().map(|session| (SESSION_ID, session)));
        self.agent.request(&mut stream, "GET", &headers, b"")?;
        let head = ResponseHead::read(&mut stream)?;
        let is_chunked = head.header("transfer-encoding") == Some("chunked");
        ensure!(head.status == 200 && is_chunked, "no stream: {:?}", head.lines);
        self.streams.push(EventStream { stream, left: 0, is_first: true, line: Vec::new() });
        Ok(())
    }
}

impl MessageLink for HttpLink {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let length = message.len().to_string();
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("content-length", &*length),
        ];
        headers.extend(self.connection.as_deref().map(|it| (CONNECTION_ID, it)));
        headers.extend(self.session.as_deref().map(|it| (SESSION_ID, it)));
        self.agent.request(&mut self.posts, "POST", &headers, message)?;
        let head = ResponseHead::read(&mut self.posts)?;
        ensure!(matches!(head.status, 200 | 202), "the message was refused: {:?}", head.lines);
        let length = head.header("content-length").map_or(Ok(0), str::parse)?;
        let mut body = vec![0; length];
        self.posts.read_exact(&mut body)?;
        if self.connection.is_none() {
            let connection = head.header(CONNECTION_ID).context("no id of a connection")?;
            self.connection = Some(connection.to_owned());
            self.first = Some(body);
            self.open_stream()?;
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<()> {
        if let Some(first) = self.first.take() {
            *message = first;
            return Ok(());
        }
        self.streams.last_mut().context("no stream")?.next(message)
    }

    fn follow(&mut self, session: &str) -> Result<()> {
        self.session = Some(session.to_owned());
        self.open_stream()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

// === impl EventStream ===

impl EventStream {
    /// Waits for the next event with data.
    fn next(&mut self, message: &mut Vec<u8>) -> Result<()> {
        loop {
            self.read_line()?;
            if let Some(data) = self.line.strip_prefix(DATA) {
                message.clear();
                message.extend_from_slice(data.trim_ascii());
                return Ok(());
            }
        }
    }

    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        loop {
            if self.left == 0 {
                self.begin_chunk()?;
            }
            let here = self.stream.fill_buf()?;
            ensure!(!here.is_empty(), "the stream ended");
            let here = here.get(..self.left.min(here.len())).unwrap_or_default();
            let end = memchr::memchr(b'\n', here);
            let taken = end.map_or(here.len(), |end| end + 1);
            self.line.extend_from_slice(here.get(..taken).unwrap_or_default());
            self.stream.consume(taken);
            self.left -= taken;
            if end.is_some() {
                return Ok(());
            }
        }
    }

    fn begin_chunk(&mut self) -> Result<()> {
        let mut size = String::new();
        if !self.is_first {
            self.stream.read_line(&mut size)?;
            size.clear();
        }
        self.is_first = false;
        self.stream.read_line(&mut size)?;
        self.left = usize::from_str_radix(size.trim(), 16).context("no size of a chunk")?;
        if self.left == 0 {
            bail!("the stream ended");
        }
        Ok(())
    }
}
