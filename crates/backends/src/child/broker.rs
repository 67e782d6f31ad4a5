//! The way from a child to the broker: the proxy of this server through which it reaches the network.
//!
//! The listener is passed between this server and the stage of the child before the child starts: with namespaces from the stage, which listens in the child's own network, and without
//! them to the stage, if it holds the child. So a holder keeps the listener while no server runs, and connections wait in it for the next server.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::process::ChildStderr;
use tokio::time::timeout;
use trilogue_sandbox::broker::{NetworkNamespace, PassedListener};
use trilogue_sandbox::{BrokerSettings, Layers, Network, SandboxPolicy};
use trilogue_sdk::Leader;
use uuid::Uuid;

use super::holder::HolderSocket;
use super::pass_socket::{PassSocket, network_error};

/// The port of the broker in a network that only the child has.
const PRIVATE_PORT: u16 = 3128;
/// How long the stage of a child may take to pass the listener.
const PASS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the error of a stage may take to be read.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);
/// The part of the error of a stage that is shown, in bytes.
const MAX_ERROR_BYTES: u64 = 2 * 1024;

/// Where a child reaches the broker. It is known before the child starts.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    /// The port of `127.0.0.1`.
    pub port: u16,
    /// Whether only the child reaches the port. Otherwise, other programs of this machine do too.
    pub is_private: bool,
    /// What the child proves itself by to the broker: 64 hexadecimal digits, which no other agent knows.
    pub secret: String,
}

/// The listener of the broker for one child.
pub struct BrokerListener {
    pub listener: TcpListener,
    /// The port of `127.0.0.1` at which the child reaches it.
    pub port: u16,
    /// Whether only the child reaches the port. Otherwise, other programs of this machine do too, and the child reaches the same port of other machines.
    pub is_private: bool,
    /// What the child proves itself by to the broker.
    pub secret: String,
}

/// Makes the variables by which a child knows the broker, such as those for proxies. They come after all other variables and replace those with the same names. Their values count as
/// secrets in the output of the child.
pub trait BrokerVariables: Sync {
    fn variables(&self, address: &BrokerAddress) -> Vec<(String, String)>;
}

/// How a child gets its listener.
#[derive(Debug)]
pub(super) struct BrokerPlan {
    address: BrokerAddress,
    /// The listener of this server, if the child has no network of its own.
    own: Option<std::net::TcpListener>,
    /// The socket over which the listener is passed, if it is.
    socket: Option<PassSocket>,
}

// === impl BrokerVariables ===

impl<F> BrokerVariables for F
where
    F: Fn(&BrokerAddress) -> Vec<(String, String)> + Sync,
{
    fn variables(&self, address: &BrokerAddress) -> Vec<(String, String)> {
        self(address)
    }
}

impl fmt::Debug for dyn BrokerVariables + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerVariables")
    }
}

// === impl BrokerAddress ===

impl fmt::Debug for BrokerAddress {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut address = f.debug_struct("BrokerAddress");
        address.field("port", &self.port).field("is_private", &self.is_private);
        address.finish_non_exhaustive()
    }
}

// === impl BrokerListener ===

impl BrokerListener {
    fn new(listener: std::net::TcpListener, address: BrokerAddress) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let BrokerAddress { port, is_private, secret } = address;
        Ok(Self { listener: TcpListener::from_std(listener)?, port, is_private, secret })
    }

    /// Gets the listener of a child of a previous server from its holder, with the network of the child. `None` if the policy of the child has no broker.
    pub(super) async fn adopt(
        policy: &Path,
        (socket, secret): (&HolderSocket, &str),
    ) -> io::Result<Option<(Self, Option<NetworkNamespace>)>> {
        let policy = SandboxPolicy::load(policy)?;
        let is_private = policy.layers.namespaces;
        let Some(BrokerSettings { port, secret: of_broker, .. }) = policy.broker else {
            return Ok(None);
        };
        let PassedListener { listener, namespace } = socket.take_broker(secret).await?;
        let address = BrokerAddress { port, is_private, secret: of_broker };
        Ok(Some((Self::new(listener, address)?, namespace)))
    }
}

impl fmt::Debug for BrokerListener {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut listener = f.debug_struct("BrokerListener");
        listener.field("port", &self.port).field("is_private", &self.is_private);
        listener.finish_non_exhaustive()
    }
}

// === impl BrokerPlan ===

impl BrokerPlan {
    /// Listens as the program needs it. `None` if it reaches no broker. `socket` is the path of the socket over which the listener is passed, if it is.
    pub(super) fn create(
        (network, layers): (Network, Layers),
        (socket, is_held): (PathBuf, bool),
    ) -> io::Result<Option<Self>> {
        if network != Network::Broker {
            return Ok(None);
        }
        if !network.is_enforced_by(layers) {
            return Err(network_error("nothing on this machine keeps the agent from the network"));
        }
        let is_private = layers.namespaces;
        let own = match is_private {
            true => None,
            false => Some(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
        };
        let port = match &own {
            Some(own) => own.local_addr()?.port(),
            None => PRIVATE_PORT,
        };
        let secret = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string());
        let address = BrokerAddress { port, is_private, secret: secret.concat() };
        let is_passed = is_private || is_held;
        let socket = is_passed.then(|| PassSocket::bind(socket)).transpose()?;
        Ok(Some(Self { address, own, socket }))
    }

    /// What the stage needs to know.
    pub(super) fn settings(&self) -> BrokerSettings {
        let BrokerAddress { port, secret, .. } = self.address.clone();
        BrokerSettings { port, secret, socket: self.socket.as_ref().map(|it| it.path().to_owned()) }
    }

    /// Adds the variables by which the program knows the broker.
    pub(super) fn add_variables(
        &self,
        variables: &dyn BrokerVariables,
        env: &mut Vec<(String, String)>,
    ) {
        for (name, value) in variables.variables(&self.address) {
            env.retain(|(known, _)| *known != name);
            env.push((name, value));
        }
    }

    /// Passes the listener, with the network of the child. `errors` is the standard error of its stage, which explains why that has exited.
    /// Errors: the stage has exited, or does not pass the listener in time.
    pub(super) async fn pass(
        self,
        leader: &Leader,
        errors: &mut ChildStderr,
    ) -> io::Result<(BrokerListener, Option<NetworkNamespace>)> {
        let Self { address, own, socket } = self;
        let passed = match (socket, own) {
            (None, own) => own.map(|listener| PassedListener { listener, namespace: None }),
            (Some(socket), own) => {
                let passing = timeout(PASS_TIMEOUT, socket.pass(own, &address.secret));
                let passed = tokio::select! {
                    biased;
                    passed = passing => passed.map_err(|_| network_error("it does not answer"))?,
                    _ = leader.wait_for_exit() => Err(network_error(&error_of(errors).await)),
                };
                Some(passed?)
            }
        };
        let passed = passed.ok_or_else(|| network_error("it has no listener"))?;
        Ok((BrokerListener::new(passed.listener, address)?, passed.namespace))
    }
}

/// Reads what a stage that has exited says.
async fn error_of(errors: &mut ChildStderr) -> String {
    let mut text = Vec::new();
    // Without the rest, it says less.
    drop(timeout(ERROR_TIMEOUT, errors.take(MAX_ERROR_BYTES).read_to_end(&mut text)).await);
    let text = String::from_utf8_lossy(&text);
    text.trim().escape_debug().to_string()
}
