//! An agent behind a WebSocket.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail, ensure};

use super::{AgentAddress, MessageLink, ResponseHead};

const TEXT: u8 = 0x81;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
/// The bit of a frame's second byte that says that a mask follows.
const MASKED: u8 = 0x80;

#[derive(Debug)]
pub(in super::super) struct WebSocketLink {
    stream: BufReader<TcpStream>,
    frame: Vec<u8>,
}

// === impl WebSocketLink ===

impl WebSocketLink {
    pub(in super::super) fn open(agent: &AgentAddress) -> Result<Self> {
        let mut stream = agent.connect()?;
        let headers = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        agent.request(&mut stream, "GET", &headers, b"")?;
        let head = ResponseHead::read(&mut stream)?;
        ensure!(head.status == 101, "the server opens no WebSocket: {:?}", head.lines);
        Ok(Self { stream, frame: Vec::new() })
    }

    /// Sends a frame with a mask of zeros, which leaves its content as it is.
    fn send_frame(&mut self, kind: u8, content: &[u8]) -> Result<()> {
        self.frame.clear();
        self.frame.push(kind);
        match content.len() {
            length @ 0..=125 => self.frame.push(MASKED | u8::try_from(length)?),
            length @ 126..=65_535 => {
                self.frame.push(MASKED | 126);
                self.frame.extend(u16::try_from(length)?.to_be_bytes());
            }
            length => {
                self.frame.push(MASKED | 127);
                self.frame.extend(u64::try_from(length)?.to_be_bytes());
            }
        }
        self.frame.extend([0; 4]);
        self.frame.extend_from_slice(content);
        Ok(self.stream.get_mut().write_all(&self.frame)?)
    }
}

impl MessageLink for WebSocketLink {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_frame(TEXT, message)
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<()> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head)?;
            let length = match head[1] {
                126 => {
                    let mut length = [0; 2];
                    self.stream.read_exact(&mut length)?;
                    u16::from_be_bytes(length).into()
                }
                127 => {
                    let mut length = [0; 8];
                    self.stream.read_exact(&mut length)?;
                    u64::from_be_bytes(length)
                }
                length => length.into(),
            };
            message.clear();
            self.stream.by_ref().take(length).read_to_end(message)?;
            match head[0] {
                TEXT => return Ok(()),
                PING => self.send_frame(PONG, message)?,
                PONG => {}
                kind => bail!("a frame of kind {kind:#x}: {}", String::from_utf8_lossy(message)),
            }
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
