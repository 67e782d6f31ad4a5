//! The way of a child to the broker. With namespaces, the stage of the child listens in the child's own network, and passes the listener to the server. Without them, the server listens, and gives the listener to a stage that holds the child.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::getuid;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use trilogue_domain::lock;
use trilogue_sandbox::BrokerSettings;
use trilogue_sandbox::broker::{NetworkNamespace, PassedListener, StageMessage};
use uuid::Uuid;

use crate::network::BrokerPlace;

/// The port of the broker in a network in which nothing else listens.
const PRIVATE_PORT: u16 = 3128;
/// How long the stage may take.
const PASS_TIME: Duration = Duration::from_secs(10);

/// How the listener gets to the server, or from it.
#[derive(Debug)]
pub(super) struct BrokerPassage {
    place: BrokerPlace,
    secret: String,
    /// The listener of the server itself.
    own: Option<TcpListener>,
    /// Where the stage connects. `None` if nothing is passed.
    socket: Option<(UnixListener, PathBuf)>,
}

/// The broker of a child.
#[derive(Debug)]
pub(super) struct ChildBroker {
    listener: Mutex<Option<TcpListener>>,
    place: BrokerPlace,
    /// The network of the child, which its commands join.
    pub(super) namespace: Option<NetworkNamespace>,
}

/// The listener of the broker of a child, and where its programs find it.
#[derive(Debug)]
pub(crate) struct BrokerListener {
    pub(crate) listener: TcpListener,
    pub(crate) place: BrokerPlace,
}

// === impl BrokerPassage ===

impl BrokerPassage {
    /// Prepares the passage for a new child. Its socket is in this folder.
    pub(super) fn prepare(
        folder: &Path,
        instance: Uuid,
        (has_namespaces, is_held): (bool, bool),
    ) -> io::Result<Self> {
        let secret = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string());
        let own = match has_namespaces {
            true => None,
            false => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                listener.set_nonblocking(true)?;
                Some(listener)
            }
        };
        let port = match &own {
            Some(listener) => listener.local_addr()?.port(),
            None => PRIVATE_PORT,
        };
        let socket = match has_namespaces || is_held {
            true => Some(bind(folder, &format!("{instance}.broker"))?),
            false => None,
        };
        let place = BrokerPlace { port, is_private: has_namespaces };
        Ok(Self { place, secret: secret.concat(), own, socket })
    }

    pub(super) fn place(&self) -> BrokerPlace {
        self.place
    }

    pub(super) fn settings(&self) -> BrokerSettings {
        BrokerSettings {
            port: self.place.port,
            secret: self.secret.clone(),
            socket: self.socket.as_ref().map(|(_, path)| path.clone()),
        }
    }

    /// Waits for the stage, and passes the listener.
    pub(super) async fn finish(mut self) -> io::Result<ChildBroker> {
        let passed = match &self.socket {
            None => None,
            Some((socket, _)) => {
                let passing = pass(socket, &self.secret, self.own.as_ref());
                timeout(PASS_TIME, passing).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?
            }
        };
        let missing = || io::Error::other("the stage has passed no listener");
        match (self.own.take(), passed) {
            (Some(own), _) => Ok(ChildBroker::new(own, None, self.place)),
            (None, Some(passed)) => {
                Ok(ChildBroker::new(passed.listener, passed.namespace, self.place))
            }
            (None, None) => Err(missing()),
        }
    }
}

impl Drop for BrokerPassage {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.socket {
            // It is of no use any more.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds a socket for this user only: its folder is. Its own path can be too long.
fn bind(folder: &Path, name: &str) -> io::Result<(UnixListener, PathBuf)> {
    let opened = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(name);
    Ok((UnixListener::bind(short)?, folder.join(name)))
}

/// Waits for the stage that knows the secret. Sends it the listener of the server, or receives its own.
async fn pass(
    socket: &UnixListener,
    secret: &str,
    own: Option<&TcpListener>,
) -> io::Result<Option<PassedListener>> {
    loop {
        let (stream, _) = socket.accept().await?;
        if stream.peer_cred()?.uid() != getuid().as_raw() {
            continue;
        }
        let message = receive(&stream, |stream| StageMessage::receive(stream)).await?;
        if !message.has_secret(secret) {
            continue;
        }
        if let Some(own) = own {
            let passed = PassedListener { listener: own.try_clone()?, namespace: None };
            passed.send(&stream)?;
        }
        return Ok(message.listener);
    }
}

/// Receives a message with descriptors.
async fn receive<T>(
    stream: &UnixStream,
    take: impl Fn(&UnixStream) -> io::Result<T>,
) -> io::Result<T> {
    stream.async_io(Interest::READABLE, || take(stream)).await
}

/// Takes the listener from the holder of a child, over a connection on which it was asked for. `None` if the child has no broker.
pub(super) async fn take_from_holder(stream: &UnixStream) -> io::Result<Option<ChildBroker>> {
    let taking = receive(stream, |stream| PassedListener::receive(stream));
    let passed = timeout(PASS_TIME, taking).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
    let Some(PassedListener { listener, namespace }) = passed else { return Ok(None) };
    let port = listener.local_addr()?.port();
    let place = BrokerPlace { port, is_private: namespace.is_some() };
    Ok(Some(ChildBroker::new(listener, namespace, place)))
}

// === impl ChildBroker ===

impl ChildBroker {
    fn new(listener: TcpListener, namespace: Option<NetworkNamespace>, place: BrokerPlace) -> Self {
        Self { listener: Mutex::new(Some(listener)), place, namespace }
    }

    /// Returns the listener, once.
    pub(super) fn take(&self) -> Option<BrokerListener> {
        let listener = lock(&self.listener).take()?;
        Some(BrokerListener { listener, place: self.place })
    }
}
