use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;

use super::message::send;
use super::{NetworkNamespace, PassedListener};
use crate::BrokerSettings;

/// How long the server may take to pass its listener.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The connection of a stage to its server, over which the listener of the broker is passed.
pub(crate) struct ServerLink<'a> {
    stream: UnixStream,
    settings: &'a BrokerSettings,
}

// === impl ServerLink ===

impl<'a> ServerLink<'a> {
    /// Connects, if a listener is passed. Call it before the namespaces, which hide the socket.
    /// Errors: the server does not listen, or another user does.
    pub(crate) fn connect(settings: &'a BrokerSettings) -> io::Result<Option<Self>> {
        let Some(socket) = &settings.socket else { return Ok(None) };
        let stream = connect_to(socket)?;
        if socket_peercred(&stream)?.uid != getuid() {
            return Err(io::Error::other("another user listens for the stage"));
        }
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        stream.set_write_timeout(Some(ANSWER_TIME))?;
        Ok(Some(Self { stream, settings }))
    }

    /// Listens in the network of this process, and passes the listener to the server.
    pub(crate) fn send_own(self) -> io::Result<PassedListener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.settings.port))?;
        // The server and the holder share this mode.
        listener.set_nonblocking(true)?;
        let namespace = Some(NetworkNamespace::of_this_process()?);
        let passed = PassedListener { listener, namespace };
        passed.send_with(&self.stream, self.settings.secret.as_bytes())?;
        Ok(passed)
    }

    /// Gets the listener of the server.
    pub(crate) fn receive_from_server(self) -> io::Result<PassedListener> {
        send(&self.stream, self.settings.secret.as_bytes(), &[])?;
        let missing = || io::Error::other("the server has passed no listener");
        PassedListener::receive(&self.stream)?.ok_or_else(missing)
    }
}

/// Connects to a socket below an open folder: the path of a socket is short.
fn connect_to(socket: &Path) -> io::Result<UnixStream> {
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::other("invalid policy: the socket of the broker has no file name"));
    };
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    UnixStream::connect(short.join(name))
}
