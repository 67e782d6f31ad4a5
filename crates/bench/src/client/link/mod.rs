//! What carries the messages of the minimal client: as little as possible, so that the measurement shows the programs between.

mod http;
mod program;
mod websocket;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

pub(super) use http::HttpLink;
pub(super) use program::ProgramLink;
pub(super) use websocket::WebSocketLink;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// A connection to an agent.
pub(super) trait MessageLink: Send {
    /// Sends a message, which has no line break.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Waits for the next message, and puts it in place of this one.
    fn receive(&mut self, message: &mut Vec<u8>) -> Result<()>;

    /// Receives the messages of this session from now on.
    fn follow(&mut self, _session: &str) -> Result<()> {
        Ok(())
    }

    /// Ends the connection.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Where an agent is on the network, and the token for it.
#[derive(Clone, Debug)]
pub(super) struct AgentAddress {
    pub(super) server: SocketAddr,
    pub(super) path: String,
    pub(super) token: String,
}

/// The head of a response.
#[derive(Debug)]
struct ResponseHead {
    status: u16,
    /// The line of the status, and those of the headers.
    lines: Vec<String>,
}

// === impl AgentAddress ===

impl AgentAddress {
    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(self.server)?;
        stream.set_nodelay(true)?;
        Ok(BufReader::with_capacity(READ_BYTES, stream))
    }

    /// Sends the head of a request, with further header lines and the body after it.
    fn request(
        &self,
        stream: &mut BufReader<TcpStream>,
        method: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<()> {
        let Self { server, path, token } = self;
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {server}\r\nauthorization: Bearer {token}\r\n"
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        Ok(stream.get_mut().write_all(&bytes)?)
    }
}

// === impl ResponseHead ===

impl ResponseHead {
    fn read(stream: &mut impl BufRead) -> Result<Self> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            ensure!(stream.read_line(&mut line)? > 0, "the server ended the connection");
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let status = lines.first().and_then(|line| line.split(' ').nth(1));
        let status = status.context("no status")?.parse()?;
        Ok(Self { status, lines })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.lines.iter().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}
