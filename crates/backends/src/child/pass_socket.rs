//! The socket over which the listener of a broker is passed between this server and the stage of a child.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use trilogue_sandbox::broker::PassedListener;

use super::holder::path_below;

/// The socket of one child. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct PassSocket {
    path: PathBuf,
    listener: UnixListener,
}

// === impl PassSocket ===

impl PassSocket {
    pub(super) fn bind(path: PathBuf) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = File::open(folder)?;
        let listener = UnixListener::bind(path_below(&folder, name.as_ref()))?;
        listener.set_nonblocking(true)?;
        Ok(Self { path, listener })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the stage with this secret, among other connections. Gives it the listener of this server, or gets one from it.
    #[cfg(target_os = "linux")]
    pub(super) async fn pass(
        &self,
        own: Option<TcpListener>,
        secret: &str,
    ) -> io::Result<PassedListener> {
        let stage = stage::accept(self.listener.try_clone()?, secret).await?;
        match own.map(|listener| PassedListener { listener, namespace: None }) {
            Some(own) => {
                own.send(&stage.stream)?;
                Ok(own)
            }
            None => {
                let missing = || network_error("it has passed no listener");
                stage.message.listener.ok_or_else(missing)
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) async fn pass(&self, _: Option<TcpListener>, _: &str) -> io::Result<PassedListener> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for PassSocket {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The error of a sandbox through which its program does not reach the broker.
pub(super) fn network_error(why: &str) -> io::Error {
    let why = format!("its sandbox has no way to the network: {why}");
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

#[cfg(target_os = "linux")]
mod stage {
    use std::io;

    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;
    use tokio::io::Interest;
    use tokio::net::{UnixListener, UnixStream};
    use trilogue_sandbox::broker::StageMessage;

    /// The connections that wait to prove that they come from the stage. Programs of this user that see the socket can open others.
    const MAX_CONNECTIONS: usize = 64;

    /// A connection from the stage of a child.
    pub(super) struct StageConnection {
        pub(super) stream: UnixStream,
        pub(super) message: StageMessage,
    }

    /// Waits for the connection of the stage. Others end without an answer.
    pub(super) async fn accept(
        listener: std::os::unix::net::UnixListener,
        secret: &str,
    ) -> io::Result<StageConnection> {
        let listener = UnixListener::from_std(listener)?;
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(stage) = connections.next() => if let Ok(stage) = stage { return Ok(stage) },
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    connections.push(StageConnection::prove(accepted?.0, secret));
                }
            }
        }
    }

    // === impl StageConnection ===

    impl StageConnection {
        async fn prove(stream: UnixStream, secret: &str) -> io::Result<Self> {
            let is_own = stream.peer_cred()?.uid() == rustix::process::getuid().as_raw();
            let receive = || StageMessage::receive(&stream);
            let message = stream.async_io(Interest::READABLE, receive).await?;
            if !is_own || !message.has_secret(secret) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(Self { stream, message })
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn only_the_stage_gets_the_listener_and_others_do_not_keep_it_out() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let folder = folder.path().join("long".repeat(40));
        std::fs::create_dir(&folder).unwrap();
        let socket = PassSocket::bind(folder.join("socket")).unwrap();
        let opened = File::open(&folder).unwrap();
        let connect = || UnixStream::connect(path_below(&opened, "socket".as_ref())).unwrap();
        let silent: Vec<_> = (0..3).map(|_| connect()).collect();
        let mut stranger = connect();
        stranger.write_all(b"another secret").unwrap();
        let mut stage = connect();
        stage.write_all(b"the secret").unwrap();
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = own.local_addr().unwrap();
        drop(socket.pass(Some(own), "the secret").await.unwrap());
        let passed = PassedListener::receive(&stage).unwrap().unwrap();
        assert_eq!(passed.listener.local_addr().unwrap(), address);
        assert!(passed.namespace.is_none());
        // They are closed, and have got nothing.
        for mut other in silent.into_iter().chain([stranger]) {
            assert!(!matches!(other.read(&mut [0]), Ok(1..)));
        }
        drop(socket);
        assert!(!folder.join("socket").exists());
    }
}
