//! The way to the server: found, started where none runs, and asked for an agent.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until, timeout_at};
use trilogue_domain::error::Class;
use trilogue_domain::{Code, Error};
use trilogue_gateway::{LocalReader, LocalWriter, split_local};
use trilogue_wire::jsonrpc::{Decoder, Frame};
use trilogue_wire::native::local::{Hello, MAX_HELLO_BYTES, Opened, VERSION, Welcome, Wish};

use super::super::start::{Starter, ensure, knock};
use super::super::{Place, Record};

/// How long a server that is gone is waited for, by default.
pub const GIVE_UP: Duration = Duration::from_secs(60);
/// How long the first of several attempts is apart from the next; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long a server may take to say whether it has the agent. One that starts recovers its store first.
const WELCOME_LIMIT: Duration = Duration::from_secs(60);
/// The longest line of a server that does not say how long its lines are, in bytes.
pub(super) const MAX_SENT_BYTES: usize = 32 * 1024 * 1024;
/// The longest that a server may say, in bytes: a proxy holds two.
const MOST_SENT_BYTES: usize = 1024 * 1024 * 1024;
/// How long the first connection after one on which nothing was told is waited with; doubled with each more.
const FIRST_REST: Duration = Duration::from_millis(100);
/// The longest of these waits.
const MAX_REST: Duration = Duration::from_secs(5);

/// Which server is spoken to, and which agent there.
#[derive(Clone, Debug)]
pub struct Link {
    /// Where the server is found.
    pub place: Place,
    /// How one is started.
    pub starter: Starter,
    /// What is asked for.
    pub wish: Wish,
    /// How long a server that is gone is waited for.
    pub give_up: Duration,
    /// Names this program to the servers that it connects to, one after the other. A UUID.
    pub client: String,
}

/// A connection on which messages may be sent.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reader: LocalReader,
    pub(super) writer: LocalWriter,
    /// May hold what came behind the welcome.
    pub(super) decoder: Decoder,
    pub(super) opened: Opened,
    /// The server was started because somebody needed one; so may be the next.
    pub(super) is_on_demand: bool,
}

/// Why there is no connection.
#[derive(Debug)]
enum Missed {
    /// It may be different in a moment.
    Now(Error),
    /// It will stay like that.
    Forever(Error),
}

// === impl Link ===

impl Link {
    /// The first connection: to the server that runs, or to one that is started.
    pub(super) async fn first(self) -> Result<Connection, Error> {
        self.connect(true, true).await
    }

    /// The next connection, after one was lost.
    ///
    /// A server that its user started is waited for: another one in its place would have other threads.
    /// `in_vain` is how many connections were lost one after the other on which nothing was told: the next is not hurried.
    pub(super) async fn again(self, may_start: bool, in_vain: u32) -> Result<Connection, Error> {
        if let Some(doubled) = in_vain.checked_sub(1) {
            let rest = FIRST_REST.saturating_mul(1 << doubled.min(16)).min(MAX_REST);
            tokio::time::sleep(rest).await;
        }
        self.connect(may_start, false).await
    }

    async fn connect(self, may_start: bool, is_first: bool) -> Result<Connection, Error> {
        let deadline = Instant::now() + self.give_up;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.attempt(may_start, is_first).await {
                Ok(connection) => return Ok(connection),
                Err(Missed::Forever(error)) => return Err(error),
                Err(Missed::Now(error)) => error,
            };
            if Instant::now() >= deadline {
                return Err(error);
            }
            sleep_until(deadline.min(Instant::now() + pause)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(&self, may_start: bool, is_first: bool) -> Result<Connection, Missed> {
        let stream = if may_start {
            // What keeps a server from starting is not waited for by somebody who has none yet.
            let missed = if is_first { Missed::Forever } else { Missed::Now };
            ensure(&self.place, &self.starter).await.map_err(missed)?
        } else {
            knock(&self.place).await.map_err(|error| Missed::Now(self.absent(&error)))?
        };
        let deadline = Instant::now() + WELCOME_LIMIT;
        match timeout_at(deadline, self.introduce(stream)).await {
            Ok(Ok((stream, mut decoder, welcome))) => {
                // A server listens before it says what it is, and welcomes nobody before it has.
                let record = Record::read(&self.place.record());
                let is_on_demand = record.is_some_and(|record| record.on_demand);
                let opened = judge(welcome)?;
                decoder.set_max_line_bytes(max_sent(&opened));
                let halves = split_local(stream);
                let (reader, writer) = halves.map_err(|error| Missed::Now(self.absent(&error)))?;
                Ok(Connection { reader, writer, decoder, opened, is_on_demand })
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(Missed::Forever(Error::new(Code::InvalidRequest, error.to_string())))
            }
            Ok(Err(error)) => Err(Missed::Now(self.absent(&error))),
            Err(_) => Err(Missed::Now(self.absent(&io::ErrorKind::TimedOut.into()))),
        }
    }

    async fn introduce(
        &self,
        mut stream: UnixStream,
    ) -> io::Result<(UnixStream, Decoder, Welcome)> {
        let client = Some(self.client.clone());
        let hello = Hello { client, ..Hello::new(self.wish.clone(), true) };
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

    fn absent(&self, error: &io::Error) -> Error {
        Error::new(
            Code::PeerUnavailable,
            format!("the server cannot be reached at {}: {error}", self.place.socket().display()),
        )
        .hint("start it again as it was started before, or another: trilogue demo")
    }
}

/// The longest line that this server sends, in bytes.
pub(super) fn max_sent(opened: &Opened) -> usize {
    opened.max_sent.unwrap_or(MAX_SENT_BYTES).clamp(MAX_SENT_BYTES, MOST_SENT_BYTES)
}

fn judge(welcome: Welcome) -> Result<Opened, Missed> {
    match welcome {
        Welcome::Open(opened) if opened.trilogue == VERSION => Ok(opened),
        Welcome::Open(opened) => Err(Missed::Forever(
            Error::new(
                Code::PeerUnavailable,
                format!(
                    "the server has version {}, which this program cannot speak to",
                    opened.version
                ),
            )
            .hint("stop the server, so that the next start is of this version"),
        )),
        Welcome::Refused(refused) => {
            let code = Code::from_text(&refused.error.code).unwrap_or(Code::Internal);
            let error = Error::new(code, refused.error.message);
            let error = match refused.error.hint {
                Some(hint) => error.hint(hint),
                None => error,
            };
            match code.class() {
                Class::Unavailable | Class::TooMany | Class::NoSpace => Err(Missed::Now(error)),
                _ => Err(Missed::Forever(error)),
            }
        }
    }
}
