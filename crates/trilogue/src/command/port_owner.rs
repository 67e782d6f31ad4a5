//! Whose programs listen on a port of this machine.
//!
//! A saved token must reach only the server that wrote it. While that server is stopped, any other user of the machine can listen on its port.
//! So the command line looks who listens, before each request that carries such a token.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use trilogue::local::{UserServerDir, start};

use crate::terminal::safe;

/// The kernel's tables of TCP sockets. Other systems than Linux have none.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a socket that listens.
const LISTEN: &str = "0A";
const ROOT: u32 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortOwner {
    /// This user, or root, who can read the token anyway.
    Trusted,
    /// No program listens.
    Nobody,
    /// Another user, by number.
    Other(u32),
    /// The system does not say.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Listener {
    address: SocketAddr,
    user: u32,
    /// Identifies the socket.
    inode: u64,
}

// === impl PortOwner ===

impl PortOwner {
    /// Who takes connections to one of these loopback addresses.
    pub(crate) fn of(addresses: &[SocketAddr]) -> Self {
        if let Some(listeners) = all_listeners() {
            return Self::among(&listeners, addresses, rustix::process::geteuid().as_raw());
        }
        // The record is in a folder that only this user can write, and its server is alive.
        if is_of_users_server(addresses) { Self::Trusted } else { Self::Unknown }
    }

    fn among(listeners: &[Listener], addresses: &[SocketAddr], user: u32) -> Self {
        let takers = addresses.iter().flat_map(|address| takers(listeners, *address));
        let mut owner = Self::Nobody;
        for taker in takers {
            if taker.user != user && taker.user != ROOT {
                return Self::Other(taker.user);
            }
            owner = Self::Trusted;
        }
        owner
    }
}

/// The program that listens on an address, as far as the system says: its process, or its user.
pub(crate) fn program_at(address: SocketAddr) -> Option<String> {
    let taker = *takers(&all_listeners()?, address).first()?;
    let process = fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        has_socket(pid, taker.inode).then_some(pid)
    });
    let Some(pid) = process else { return Some(format!("a program of user {}", taker.user)) };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", safe::line(name.trim())))
}

/// Whether a process has a socket open. Processes of other users do not say.
fn has_socket(pid: u32, inode: u64) -> bool {
    let wanted = format!("socket:[{inode}]");
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.flatten().any(|file| {
        fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str())
    })
}

/// All listeners of the machine; `None` if the system has no table of them.
fn all_listeners() -> Option<Vec<Listener>> {
    let tables: Vec<String> =
        TABLES.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let found = tables.iter().flat_map(|table| listeners(table)).collect();
    (!tables.is_empty()).then_some(found)
}

/// Returns the listeners that may get a connection to this address: those on it, otherwise those on any address.
fn takers(listeners: &[Listener], address: SocketAddr) -> Vec<Listener> {
    let on = |is_fitting: &dyn Fn(IpAddr) -> bool| -> Vec<Listener> {
        let same_port = listeners.iter().filter(|it| it.address.port() == address.port());
        same_port.filter(|it| is_fitting(it.address.ip().to_canonical())).copied().collect()
    };
    let exact = on(&|ip| ip == address.ip());
    if exact.is_empty() { on(&|ip| ip.is_unspecified()) } else { exact }
}

/// The listeners in a table of the kernel.
fn listeners(table: &str) -> impl Iterator<Item = Listener> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, user, _, inode, ..] = fields.as_slice() else {
            return None;
        };
        let (ip, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let address = SocketAddr::new(ip_of(ip)?, port);
        let (user, inode) = (user.parse().ok()?, inode.parse().ok()?);
        (*state == LISTEN).then_some(Listener { address, user, inode })
    })
}

/// An address as the kernel prints it: words of 32 bits, each in the machine's byte order.
fn ip_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let octets: [u8; 16] = words.as_flattened().try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// Whether this user's running server says that it listens on one of these addresses.
fn is_of_users_server(addresses: &[SocketAddr]) -> bool {
    let Ok(dir) = UserServerDir::of_user() else { return false };
    let Some(record) = start::running(&dir) else { return false };
    record.addresses.iter().filter_map(|text| text.parse::<SocketAddr>().ok()).any(|served| {
        let covers = |ip: IpAddr| served.ip() == ip || served.ip().is_unspecified();
        addresses.iter().any(|it| it.port() == served.port() && covers(it.ip()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_listener_decides() {
        let listener =
            |address: &str, user| Listener { address: address.parse().unwrap(), user, inode: 0 };
        let owner = |listeners: &[Listener], to: &[&str]| {
            let to: Vec<SocketAddr> = to.iter().map(|it| it.parse().unwrap()).collect();
            PortOwner::among(listeners, &to, 1000)
        };
        let (v4, v6) = ("127.0.0.1:7878", "[::1]:7878");
        assert_eq!(owner(&[], &[v4]), PortOwner::Nobody);
        assert_eq!(owner(&[listener("127.0.0.1:7879", 1)], &[v4]), PortOwner::Nobody);
        for (address, user, expected) in [
            (v4, 1000, PortOwner::Trusted),
            (v4, 0, PortOwner::Trusted),
            (v4, 1001, PortOwner::Other(1001)),
            ("0.0.0.0:7878", 1001, PortOwner::Other(1001)),
            ("[::]:7878", 1001, PortOwner::Other(1001)),
            ("[::ffff:127.0.0.1]:7878", 1001, PortOwner::Other(1001)),
        ] {
            assert_eq!(owner(&[listener(address, user)], &[v4]), expected, "{address} {user}");
        }
        let any = listener("0.0.0.0:7878", 1001);
        assert_eq!(owner(&[listener(v4, 1000), any], &[v4]), PortOwner::Trusted);
        // `localhost` is both addresses, and the client chooses.
        let both = [listener(v4, 1000), listener(v6, 1001)];
        assert_eq!(owner(&both, &[v4, v6]), PortOwner::Other(1001));
        assert_eq!(owner(&both, &[v4]), PortOwner::Trusted);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_who_listens() {
        let user = rustix::process::geteuid().as_raw();
        for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = std::net::TcpListener::bind(at) else { continue };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip(match address.ip() {
                    IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                });
            }
            assert_eq!(PortOwner::of(&[address]), PortOwner::Trusted, "{at}");
            let named = program_at(address).unwrap();
            assert!(named.starts_with(&format!("process {} (", std::process::id())), "{named}");
            let taker = takers(&all_listeners().unwrap(), address);
            assert!(taker.iter().all(|it| it.user == user) && !taker.is_empty(), "{taker:?}");
            drop(listener);
            assert_eq!(PortOwner::of(&[address]), PortOwner::Nobody, "{at}");
        }
    }
}
