//! Binds the addresses that a server listens on.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use trilogue_domain::{Code, Error};

use crate::config;

const BACKLOG: u32 = 1_024;

/// Bound addresses.
#[derive(Debug)]
pub struct Listeners {
    /// The listeners, in the order of the configuration.
    pub listeners: Vec<TcpListener>,
    /// Their addresses, with the ports that replaced port 0.
    pub addresses: Vec<SocketAddr>,
    /// Default addresses that this machine does not have, and why.
    pub left_out: Vec<(SocketAddr, String)>,
}

// === impl Listeners ===

impl Listeners {
    /// Binds every address. A default address that the machine does not have is left out.
    ///
    /// # Errors
    /// `already_exists` when an address is in use, `invalid_request` when it cannot be bound; the message names the address.
    pub async fn bind(server: &config::Server) -> Result<Self, Error> {
        let chosen = server.listen != config::Server::default().listen;
        let mut bound = Self { listeners: Vec::new(), addresses: Vec::new(), left_out: Vec::new() };
        for address in &server.listen.0 {
            match bind(*address) {
                Ok((listener, address)) => {
                    bound.listeners.push(listener);
                    bound.addresses.push(address);
                }
                Err(error) if !chosen && is_absent(&error) && address.is_ipv6() => {
                    bound.left_out.push((*address, error.to_string()));
                }
                Err(error) => return Err(bind_error(*address, &error)),
            }
        }
        if bound.listeners.is_empty() {
            return Err(Error::new(Code::InvalidRequest, "no listen address is configured")
                .hint("set server.listen, for example to \"127.0.0.1:7878\""));
        }
        Ok(bound)
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait until the system has forgotten old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Whether the machine does not have the address, as opposed to another program using it.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_error(address: SocketAddr, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::AddrInUse {
        return Error::new(
            Code::AlreadyExists,
            format!("the address {address} is in use by another program"),
        )
        .hint(format!(
            "see if it is a Trilogue server: trilogue status --url http://{address}; or pass another address with --listen"
        ));
    }
    Error::new(Code::InvalidRequest, format!("cannot listen on {address}: {error}"))
        .hint("choose an address of this machine with server.listen or --listen")
}
