//! Connections of programs on the same machine, and of `trilogue connect` on others: the first line of each states its purpose.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use memchr::memchr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_wire::jsonrpc::Decoder;
use trilogue_wire::native::ConnectedClient;
use trilogue_wire::native::local::{
    AgentTarget, Hello, HelloAccepted, HelloReply, MAX_HELLO_BYTES, VERSION,
};

use super::connection::ClientConnection;
use super::connection::origin::{ClientOrigin, ClientTransport};
use super::serve::serve;
use super::state::State;
use super::wire::socket::{LocalReader, LocalWriter, split_local};
use super::wire::transport::{LineReader, LineWriter};
use crate::face::{LocalConnection, LocalFace};
use crate::http::problem;
use crate::http::stall::Stall;

// === impl State ===

#[async_trait]
impl LocalFace for State {
    fn max_connections(&self) -> usize {
        self.options.max_connections
    }

    async fn serve(self: Arc<Self>, local: LocalConnection) {
        let LocalConnection { stream, principal, is_full, is_agent, stop } = local;
        let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
        let (mut reader, writer) = match split_local(stream) {
            Ok(halves) => halves,
            Err(error) => {
                tracing::warn!(%error, "a local connection could not be registered");
                return;
            }
        };
        let mut writer = Stall::new(writer, self.write_timeout);
        let mut received = BytesMut::new();
        let within = self.options.hello_timeout;
        let hello = async {
            if is_agent {
                let message = "programs of a hosted agent cannot act for the server's user";
                return Err(Error::new(Code::Forbidden, message)
                    .hint("give the agent a token of its own in `env`, and use another protocol"));
            }
            if is_full {
                let most = self.options.max_connections;
                let message = format!("{most} programs are connected, which is the most");
                return Err(Error::new(Code::Overloaded, message));
            }
            let line = first_line(&mut reader, &mut received);
            let line = tokio::time::timeout(within, line).await.map_err(|_| {
                Error::new(Code::InvalidRequest, "the first line did not come in time")
            })??;
            self.accept(&line, ClientOrigin::Local { principal, pid: peer }).await
        };
        match hello.await {
            Ok((connection, welcome)) => {
                if write(&mut writer, &welcome).await.is_err() {
                    return;
                }
                let mut decoder = Decoder::new(self.options.max_line_bytes);
                decoder.push(&received);
                let (mut source, sink) = (LineReader(reader), LineWriter::new(writer));
                let connection = Arc::new(connection);
                Box::pin(serve(&connection, &mut source, sink, decoder, &stop)).await;
            }
            Err(error) => {
                let refused = HelloReply::from_problem(&problem::describe(&error, None));
                // The program may be gone.
                drop(write(&mut writer, &refused).await);
            }
        }
    }
}

impl State {
    /// Reads the program's first line. Returns its connection, and the response.
    pub(super) async fn accept(
        self: &Arc<Self>,
        line: &[u8],
        origin: ClientOrigin,
    ) -> Result<(ClientConnection, HelloReply)> {
        let hello: Hello = serde_json::from_slice(line).map_err(|error| {
            Error::new(Code::InvalidRequest, format!("the first line does not fit: {error}"))
        })?;
        if hello.trilogue != VERSION {
            let message = format!("version {} of the local protocol is unknown", hello.trilogue);
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("use the same version of the program as the server's"));
        }
        if self.is_draining() {
            return Err(Error::new(Code::ShuttingDown, "the server is shutting down"));
        }
        let (agent, folder) = match hello.target {
            AgentTarget::Attach(attach) => (AgentName::parse(&attach.agent)?, attach.cwd),
            // A wrapped command has its own working directory.
            AgentTarget::Wrap(command) => (self.wrap()?.wrap(command).await?, None),
        };
        self.runtime.agent(&agent)?;
        // A folder of another machine says nothing about this one.
        let folder = folder.filter(|_| origin.is_local());
        let mut connection = ClientConnection::new(Arc::clone(self), origin, agent.clone());
        connection.numbered = hello.numbered;
        connection.folder = folder.map(PathBuf::from).filter(|folder| folder.is_absolute());
        if let Some(folder) = &connection.folder {
            self.opened_folders.add(&connection.principal, folder);
        }
        connection.client = hello.client.filter(|_| hello.numbered);
        // A program elsewhere speaks this protocol on a WebSocket.
        let transport = match connection.origin.is_local() {
            true => ClientTransport::LocalSocket,
            false => ClientTransport::WebSocket,
        };
        self.list(&mut connection, transport);
        let welcome = HelloReply::Open(HelloAccepted {
            trilogue: VERSION,
            agent: agent.as_str().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            life: self.life.clone(),
            max_line: Some(self.options.max_line_bytes),
            max_sent: Some(self.options.max_sent_bytes),
        });
        Ok((connection, welcome))
    }

    /// Adds a connection to the list of connected clients, until it is dropped.
    pub(super) fn list(&self, connection: &mut ClientConnection, transport: ClientTransport) {
        connection.listing = Some(self.connected_clients.add(ConnectedClient {
            agent: connection.agent.as_str().to_owned(),
            cwd: connection.folder.as_ref().map(|folder| folder.display().to_string()),
            pid: connection.origin.pid(),
            transport: transport.as_str().to_owned(),
            principal: connection.principal.id.as_str().to_owned(),
            since: self.clock.now().to_string(),
            ..ConnectedClient::default()
        }));
    }
}

/// Reads the first line. Later bytes stay in `read`.
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

async fn write(stream: &mut Stall<LocalWriter>, welcome: &HelloReply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(welcome).unwrap_or_default();
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}
