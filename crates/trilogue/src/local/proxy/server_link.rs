//! Connections to the server: finds or starts it, and asks for an agent.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until, timeout_at};
use trilogue_domain::error::Class;
use trilogue_domain::{Code, Error};
use trilogue_gateway::split_local;
use trilogue_wire::jsonrpc::{Decoder, Frame};
use trilogue_wire::native::local::{
    AgentTarget, Hello, HelloAccepted, HelloReply, MAX_HELLO_BYTES, VERSION,
};

use super::super::start::{Starter, connect, connect_or_start};
use super::super::{ServerRecord, StartedBy, UserServerDir};
use super::remote_endpoint::RemoteEndpoint;

/// The default time to wait for a server of this machine that is gone.
pub const RECONNECT_LIMIT: Duration = Duration::from_secs(60);
/// The same for a server elsewhere: a laptop sleeps, and is without a network for hours.
pub const REMOTE_RECONNECT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after the first attempt. Doubled after each further one, up to a limit.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// An attempt to reach a server elsewhere costs little, so the pause before the next one is at most this part of the outage so far: an outage of 1 s lasts at most 63 ms longer.
const OUTAGE_PARTS: u32 = 16;
/// How long a server may take to send its welcome, and one elsewhere for its part of the handshake of the WebSocket. A starting server recovers its store first.
const WELCOME_LIMIT: Duration = Duration::from_secs(60);
/// The same for the first attempt to reconnect to a server elsewhere: what the network has swallowed never comes. Doubled with each further one.
const FIRST_WELCOME_LIMIT: Duration = Duration::from_secs(5);
/// The longest line of a server that does not announce a limit, in bytes.
pub(super) const MAX_SENT_BYTES: usize = 32 * 1024 * 1024;
/// The greatest limit that a server may announce, in bytes. A proxy buffers two lines.
const MAX_ANNOUNCED_BYTES: usize = 1024 * 1024 * 1024;
/// The delay before the connection after one without any message. Doubled with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Which server and agent to connect to.
#[derive(Clone, Debug)]
pub struct ServerLink {
    /// Where the server is.
    pub server: ServerPlace,
    /// The agent to ask for.
    pub wish: AgentTarget,
    /// How long to wait for a server that is gone.
    pub reconnect_limit: Duration,
    /// Identifies this program over its connections. A UUID.
    pub client: String,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum ServerPlace {
    /// This user's, on this machine.
    User {
        /// Where to find it.
        dir: UserServerDir,
        /// How to start it.
        starter: Starter,
    },
    /// Elsewhere.
    Remote(RemoteEndpoint),
}

pub(super) type ServerReader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type ServerWriter = Box<dyn AsyncWrite + Send + Unpin>;

pub(super) struct ServerConnection {
    pub(super) reader: ServerReader,
    pub(super) writer: ServerWriter,
    /// May hold bytes that came after the welcome.
    pub(super) decoder: Decoder,
    pub(super) opened: HelloAccepted,
    /// Whether the server was started on demand, so that the next one may be too.
    pub(super) is_on_demand: bool,
    /// Whether another task sends what was written, so that the last bytes need time.
    pub(super) is_remote: bool,
}

#[derive(Debug)]
enum ConnectFailure {
    Transient(Error),
    Permanent(Error),
}

// === impl ServerLink ===

impl ServerLink {
    /// Asks a running server, or one that is started, for the agent, and leaves. The server keeps a command that it was given.
    ///
    /// # Errors
    /// When no server can be reached, or it refuses the agent.
    pub async fn register(self) -> Result<HelloAccepted, Error> {
        Ok(self.connect().await?.opened)
    }

    /// A connection to the agent without control lines, for a program that speaks the protocol itself.
    ///
    /// # Errors
    /// As [`ServerLink::register`].
    pub async fn open(&self) -> Result<UnixStream, Error> {
        let ServerPlace::User { dir, starter } = &self.server else {
            let message = "this needs the user's server on this machine";
            return Err(Error::new(Code::InvalidRequest, message).hint("leave --url out"));
        };
        let stream = connect_or_start(dir, starter).await?;
        let deadline = Instant::now() + WELCOME_LIMIT;
        let opened = timeout_at(deadline, self.send_hello(stream, false)).await;
        let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (stream, _, welcome) = opened.map_err(|error| self.unreachable(&error))?;
        match check_welcome(welcome) {
            Ok(_) => Ok(stream),
            Err(ConnectFailure::Transient(error) | ConnectFailure::Permanent(error)) => Err(error),
        }
    }

    /// The first connection: to a running server, or to one that is started.
    pub(super) async fn connect(self) -> Result<ServerConnection, Error> {
        self.retry(true, true).await
    }

    /// The next connection, after one was lost.
    ///
    /// Waits for a server that its user started: another one in its place would have other threads.
    /// `failures` counts the connections in a row that were lost without any message. They delay the next one.
    pub(super) async fn reconnect(
        self,
        may_start: bool,
        failures: u32,
    ) -> Result<ServerConnection, Error> {
        if let Some(doubled) = failures.checked_sub(1) {
            let backoff = FIRST_BACKOFF.saturating_mul(1 << doubled.min(16)).min(MAX_BACKOFF);
            tokio::time::sleep(backoff).await;
        }
        self.retry(may_start, false).await
    }

    async fn retry(self, may_start: bool, is_first: bool) -> Result<ServerConnection, Error> {
        let begun = Instant::now();
        let deadline = begun + self.reconnect_limit;
        let mut pause = FIRST_PAUSE;
        let is_remote = matches!(self.server, ServerPlace::Remote(_));
        let mut limit = if is_remote && !is_first { FIRST_WELCOME_LIMIT } else { WELCOME_LIMIT };
        loop {
            let error = match self.attempt(may_start, is_first, limit).await {
                Ok(connection) => return Ok(connection),
                Err(ConnectFailure::Permanent(error)) => return Err(error),
                Err(ConnectFailure::Transient(error)) => error,
            };
            if Instant::now() >= deadline {
                return Err(error);
            }
            sleep_until(deadline.min(Instant::now() + pause)).await;
            let most = match &self.server {
                ServerPlace::User { .. } => MAX_PAUSE,
                ServerPlace::Remote(_) => {
                    (begun.elapsed() / OUTAGE_PARTS).clamp(FIRST_PAUSE, MAX_PAUSE)
                }
            };
            pause = (pause * 2).min(most);
            limit = (limit * 2).min(WELCOME_LIMIT);
        }
    }

    async fn attempt(
        &self,
        may_start: bool,
        is_first: bool,
        limit: Duration,
    ) -> Result<ServerConnection, ConnectFailure> {
        // An editor that just starts learns at once why it reaches no server.
        let failure = if is_first { ConnectFailure::Permanent } else { ConnectFailure::Transient };
        match &self.server {
            ServerPlace::User { dir, starter } => {
                let stream = if may_start {
                    connect_or_start(dir, starter).await.map_err(failure)?
                } else {
                    connect(dir)
                        .await
                        .map_err(|error| ConnectFailure::Transient(self.unreachable(&error)))?
                };
                let (stream, decoder, opened) = self.greet(stream, limit).await?;
                // A server writes its record before its first welcome.
                let record = ServerRecord::read(&dir.record());
                let is_on_demand =
                    record.is_some_and(|record| record.started_by == StartedBy::OnDemand);
                let halves = split_local(stream);
                let (reader, writer) =
                    halves.map_err(|error| ConnectFailure::Transient(self.unreachable(&error)))?;
                let (reader, writer) = (Box::new(reader), Box::new(writer));
                let is_remote = false;
                Ok(ServerConnection { reader, writer, decoder, opened, is_on_demand, is_remote })
            }
            ServerPlace::Remote(server) => {
                let agent = match &self.wish {
                    AgentTarget::Attach(attach) => attach.agent.as_str(),
                    AgentTarget::Wrap(_) => return Err(ConnectFailure::Permanent(no_wrap())),
                };
                let opened = server.open(agent, MAX_ANNOUNCED_BYTES, limit).await;
                let stream = opened.map_err(|refused| match refused.is_transient {
                    true => failure(refused.error),
                    false => ConnectFailure::Permanent(refused.error),
                })?;
                let (stream, decoder, opened) = self.greet(stream, limit).await?;
                let (reader, writer) = stream.into_inner();
                let (reader, writer) = (Box::new(reader), Box::new(writer));
                let (is_on_demand, is_remote) = (false, true);
                Ok(ServerConnection { reader, writer, decoder, opened, is_on_demand, is_remote })
            }
        }
    }

    /// Sends the first line, and checks the server's.
    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        limit: Duration,
    ) -> Result<(S, Decoder, HelloAccepted), ConnectFailure> {
        let deadline = Instant::now() + limit;
        match timeout_at(deadline, self.send_hello(stream, true)).await {
            Ok(Ok((stream, mut decoder, welcome))) => {
                let opened = check_welcome(welcome)?;
                decoder.set_max_line_bytes(max_sent(&opened));
                Ok((stream, decoder, opened))
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(ConnectFailure::Permanent(Error::new(Code::InvalidRequest, error.to_string())))
            }
            Ok(Err(error)) => Err(ConnectFailure::Transient(self.unreachable(&error))),
            Err(_) => {
                Err(ConnectFailure::Transient(self.unreachable(&io::ErrorKind::TimedOut.into())))
            }
        }
    }

    async fn send_hello<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        numbered: bool,
    ) -> io::Result<(S, Decoder, HelloReply)> {
        let client = Some(self.client.clone());
        let hello = Hello { client, ..Hello::new(self.wish.clone(), numbered) };
        let mut hello = serde_json::to_vec(&hello)?;
        if hello.len() > MAX_HELLO_BYTES {
            let message =
                format!("the command and its environment are more than {MAX_HELLO_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        hello.push(b'\n');
        stream.write_all(&hello).await?;
        let mut decoder = Decoder::new(MAX_SENT_BYTES);
        loop {
            match decoder.next() {
                Some(Frame::Line(line)) => {
                    return Ok((stream, decoder, serde_json::from_slice(&line)?));
                }
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => {}
            }
            if stream.read_buf(decoder.buffer()).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> Error {
        let dir = match &self.server {
            ServerPlace::User { dir, .. } => dir,
            ServerPlace::Remote(server) => return server.lost(&error.to_string()),
        };
        Error::new(
            Code::PeerUnavailable,
            format!("the server cannot be reached at {}: {error}", dir.socket().display()),
        )
        .hint("start it again as it was started before, or another: trilogue demo")
    }
}

pub(super) fn max_sent(opened: &HelloAccepted) -> usize {
    opened.max_sent.unwrap_or(MAX_SENT_BYTES).clamp(MAX_SENT_BYTES, MAX_ANNOUNCED_BYTES)
}

/// The error for a command that a server elsewhere cannot start here.
fn no_wrap() -> Error {
    let message =
        "a command runs on the machine of its server, and cannot be wrapped for a server elsewhere";
    Error::new(Code::InvalidRequest, message)
        .hint("leave --url out, or connect to one of that server's agents: trilogue connect AGENT --url URL")
}

fn check_welcome(welcome: HelloReply) -> Result<HelloAccepted, ConnectFailure> {
    match welcome {
        HelloReply::Open(opened) if opened.trilogue == VERSION => Ok(opened),
        HelloReply::Open(opened) => Err(ConnectFailure::Permanent(
            Error::new(
                Code::PeerUnavailable,
                format!(
                    "the server has version {}, which this program cannot speak to",
                    opened.version
                ),
            )
            .hint("stop the server, so that the next start is of this version"),
        )),
        HelloReply::Refused(refused) => {
            let code = Code::from_text(&refused.error.code).unwrap_or(Code::Internal);
            let error = Error::new(code, refused.error.message);
            let error = match refused.error.hint {
                Some(hint) => error.hint(hint),
                None => error,
            };
            match code.class() {
                Class::Unavailable | Class::TooMany | Class::NoSpace => {
                    Err(ConnectFailure::Transient(error))
                }
                _ => Err(ConnectFailure::Permanent(error)),
            }
        }
    }
}
