//! The listener for programs on the same machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use memchr::memchr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Principal};
use trilogue_wire::native::local::{Hello, MAX_HELLO_BYTES, Opened, VERSION, Welcome, Wish};

use super::connection::ClientConnection;
use super::serve::serve;
use super::state::State;
use super::wire::socket::{LocalReader, LocalWriter, split_local};
use super::wrap::Wrap;
use crate::http::problem;
use crate::http::stall::Stall;

/// The pause after a connection could not be accepted: the process may be out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts local connections.
pub(crate) struct ClientListener {
    pub(crate) state: Arc<State>,
    pub(crate) owner: Arc<Principal>,
    pub(crate) wrap: Arc<dyn Wrap>,
    pub(crate) connections: Arc<watch::Sender<usize>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) accept_end: CancellationToken,
    pub(crate) connections_end: CancellationToken,
    pub(crate) drop_connections: CancellationToken,
}

/// Counts a connection until it is dropped.
struct ConnectionGuard(Arc<watch::Sender<usize>>);

// === impl ClientListener ===

impl ClientListener {
    pub(crate) async fn run(self, listener: UnixListener) {
        let room = Arc::new(Semaphore::new(self.state.options.max_connections));
        let this = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                () = this.accept_end.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a local connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let permit = Arc::clone(&room).try_acquire_owned();
            let (of_task, guard) = (Arc::clone(&this), ConnectionGuard::new(&this.connections));
            this.tasks.spawn(async move {
                let dropped = of_task.drop_connections.clone();
                let is_full = permit.is_err();
                tokio::select! {
                    () = of_task.serve(stream, is_full) => {}
                    () = dropped.cancelled() => {}
                }
                drop((permit, guard));
            });
        }
    }

    async fn serve(&self, stream: UnixStream, is_full: bool) {
        if !is_same_user(&stream) {
            tracing::warn!("refused a local connection of another user");
            return;
        }
        let (mut reader, writer) = match split_local(stream) {
            Ok(halves) => halves,
            Err(error) => {
                tracing::warn!(%error, "a local connection could not be registered");
                return;
            }
        };
        let mut writer = Stall::new(writer, self.state.write_timeout);
        let mut received = BytesMut::new();
        let within = self.state.options.hello_timeout;
        let hello = async {
            if is_full {
                let most = self.state.options.max_connections;
                let message = format!("{most} programs are connected, which is the most");
                return Err(Error::new(Code::Overloaded, message));
            }
            let line = first_line(&mut reader, &mut received);
            let line = tokio::time::timeout(within, line).await.map_err(|_| {
                Error::new(Code::InvalidRequest, "the first line did not come in time")
            })??;
            self.accept(&line).await
        };
        match hello.await {
            Ok((connection, welcome)) => {
                if write(&mut writer, &welcome).await.is_err() {
                    return;
                }
                let stop = &self.connections_end;
                Box::pin(serve(Arc::new(connection), reader, writer, &received, stop)).await;
            }
            Err(error) => {
                let refused = Welcome::refused(&problem::describe(&error, None));
                // The program may be gone.
                drop(write(&mut writer, &refused).await);
            }
        }
    }

    /// Reads the program's first line. Returns its connection, and the response.
    async fn accept(&self, line: &[u8]) -> Result<(ClientConnection, Welcome)> {
        let hello: Hello = serde_json::from_slice(line).map_err(|error| {
            Error::new(Code::InvalidRequest, format!("the first line does not fit: {error}"))
        })?;
        if hello.trilogue != VERSION {
            let message = format!("version {} of the local protocol is unknown", hello.trilogue);
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("use the same version of the program as the server's"));
        }
        if self.state.is_draining() {
            return Err(Error::new(Code::ShuttingDown, "the server is shutting down"));
        }
        let (agent, folder) = match hello.wish {
            Wish::Attach(attach) => (AgentName::parse(&attach.agent)?, attach.cwd),
            // A wrapped command has its own working directory.
            Wish::Wrap(command) => (self.wrap.wrap(command).await?, None),
        };
        self.state.runtime.agent(&agent)?;
        let (state, owner) = (Arc::clone(&self.state), Arc::clone(&self.owner));
        let mut connection = ClientConnection::new(state, owner, agent.clone());
        connection.numbered = hello.numbered;
        connection.folder = folder.map(PathBuf::from).filter(|folder| folder.is_absolute());
        connection.client = hello.client.filter(|_| hello.numbered);
        let welcome = Welcome::Open(Opened {
            trilogue: VERSION,
            agent: agent.as_str().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            life: self.state.life.clone(),
            max_line: Some(self.state.options.max_line_bytes),
            max_sent: Some(self.state.options.max_sent_bytes),
        });
        Ok((connection, welcome))
    }
}

/// Whether the program at the other end runs as the same user as this server.
fn is_same_user(stream: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == ours)
}

/// Reads the first line. What came after it stays in `read`.
async fn first_line(stream: &mut LocalReader, read: &mut BytesMut) -> Result<BytesMut> {
    let broken = |what: &str| Error::new(Code::InvalidRequest, format!("the first line {what}"));
    loop {
        if let Some(end) = memchr(b'\n', read) {
            let mut line = read.split_to(end + 1);
            line.truncate(end);
            return Ok(line);
        }
        if read.len() > MAX_HELLO_BYTES {
            return Err(broken(&format!("is longer than {MAX_HELLO_BYTES} bytes")));
        }
        match stream.read_buf(read).await {
            Ok(0) => return Err(broken("breaks off")),
            Ok(_) => {}
            Err(error) => return Err(broken(&format!("cannot be read: {error}"))),
        }
    }
}

async fn write(stream: &mut Stall<LocalWriter>, welcome: &Welcome) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(welcome).unwrap_or_default();
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    fn new(connections: &Arc<watch::Sender<usize>>) -> Self {
        connections.send_modify(|count| *count += 1);
        Self(Arc::clone(connections))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
