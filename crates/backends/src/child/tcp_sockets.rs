//! Finds the TCP socket of this machine that has given ends.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::sock_diag;

/// The kernel's tables of TCP sockets.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The part of a table that is in memory, in bytes: what one read returns.
const TABLE_BUFFER_BYTES: usize = 8 * 1024;
/// The most bytes of a row that are read. A row has about 150.
const MAX_ROW_BYTES: u64 = 1024;

/// Who has a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SocketOwner {
    pub(super) uid: u32,
    pub(super) inode: u64,
}

/// Whether a socket is one of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TcpSocket {
    Open(SocketOwner),
    /// It had an address of this machine, and is closed.
    Closed,
    Elsewhere,
    /// It is probably elsewhere: the tables cannot be read.
    Unknown,
}

/// Finds the socket with the local end `local`, which is connected to `remote`.
pub(super) fn find(local: SocketAddr, remote: SocketAddr) -> TcpSocket {
    let asked = sock_diag::find(local, remote);
    if let Ok(Some(owner)) = asked {
        return TcpSocket::Open(owner);
    }
    let is_here = is_own_address(local.ip().to_canonical());
    // The kernel does not show a socket that is bound to an interface to a request that does not name it. The tables do.
    let is_certain = asked.is_ok() && !is_here && !is_link_local(local.ip());
    match if is_certain { Ok(None) } else { find_in_tables(local, remote) } {
        Ok(Some(owner)) => TcpSocket::Open(owner),
        Ok(None) | Err(_) if is_here => TcpSocket::Closed,
        Ok(None) => TcpSocket::Elsewhere,
        Err(_) => TcpSocket::Unknown,
    }
}

/// Returns whether two pairs of ends are those of one socket: the kernel may list an IPv4 connection with IPv6 addresses.
pub(super) fn has_ends(found: (SocketAddr, SocketAddr), ends: (SocketAddr, SocketAddr)) -> bool {
    let is_same = |one: SocketAddr, other: SocketAddr| {
        one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
    };
    is_same(found.0, ends.0) && is_same(found.1, ends.1)
}

/// Returns whether this machine has an address. A socket can be bound to its own addresses only.
fn is_own_address(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Returns whether an address belongs to an interface, so that no socket can be bound to it alone.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Errors: a table cannot be read.
fn find_in_tables(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    let mut failure = None;
    for table in TABLES {
        match find_in_table(table, (local, remote)) {
            Ok(None) => {}
            // A machine without IPv6 has no table for it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failure = Some(error),
            found => return found,
        }
    }
    failure.map_or(Ok(None), Err)
}

fn find_in_table(table: &str, ends: (SocketAddr, SocketAddr)) -> io::Result<Option<SocketOwner>> {
    let mut reader = BufReader::with_capacity(TABLE_BUFFER_BYTES, File::open(table)?);
    let mut row = String::new();
    loop {
        row.clear();
        if reader.by_ref().take(MAX_ROW_BYTES).read_line(&mut row)? == 0 {
            return Ok(None);
        }
        if let Some(owner) = owner_of(&row, ends) {
            return Ok(Some(owner));
        }
    }
}

/// Returns the owner of the socket in a row, or `None` if the row has other ends.
fn owner_of(row: &str, ends: (SocketAddr, SocketAddr)) -> Option<SocketOwner> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    let found = (read_end(fields.next()?)?, read_end(fields.next()?)?);
    if !has_ends(found, ends) {
        return None;
    }
    let (uid, inode) = (fields.nth(4)?.parse().ok()?, fields.nth(1)?.parse().ok()?);
    (inode != 0).then_some(SocketOwner { uid, inode })
}

/// Reads an address as the kernel writes it: each word of four bytes in the byte order of this machine, and the port.
fn read_end(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let mut bytes = [0; 16];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(host.as_bytes().chunks(8)) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let ip = match (host.len(), bytes) {
        (8, [a, b, c, d, ..]) => IpAddr::from([a, b, c, d]),
        (32, bytes) => IpAddr::from(bytes),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use rustix::fs::fstat;
    use rustix::net::{AddressFamily, SocketType, connect, getsockname, socket};

    use super::*;

    type Look = fn(SocketAddr, SocketAddr) -> io::Result<Option<SocketOwner>>;

    const LOOKS: [(&str, Look); 2] = [("netlink", sock_diag::find), ("tables", find_in_tables)];

    fn own(inode: u64) -> Option<SocketOwner> {
        Some(SocketOwner { uid: rustix::process::geteuid().as_raw(), inode })
    }

    #[test]
    fn a_connection_is_found_in_both_ways_by_its_ends_in_either_family() {
        let mapped = |it: SocketAddr| match it.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), it.port()),
            IpAddr::V6(_) => it,
        };
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let server = listener.accept().unwrap().0;
            let (near, far) = (peer.local_addr().unwrap(), peer.peer_addr().unwrap());
            let (peer_inode, server_inode) =
                (fstat(&peer).unwrap().st_ino, fstat(&server).unwrap().st_ino);
            for (name, find) in LOOKS {
                assert_eq!(find(near, far).unwrap(), own(peer_inode), "{name} {address}");
                assert_eq!(find(mapped(near), mapped(far)).unwrap(), own(peer_inode), "{name}");
                assert_eq!(find(near, mapped(far)).unwrap(), own(peer_inode), "{name} {address}");
                assert_eq!(find(far, near).unwrap(), own(server_inode), "{name} {address}");
            }
        }
    }

    #[test]
    fn an_ipv6_socket_with_an_ipv4_connection_is_found_in_both_ways() {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        let far = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port));
        connect(&peer, &far).unwrap();
        let near: SocketAddr = getsockname(&peer).unwrap().try_into().unwrap();
        let (server, seen) = listener.accept().unwrap();
        assert!(near.is_ipv6() && seen.is_ipv6());
        let canonical = |it: SocketAddr| SocketAddr::new(it.ip().to_canonical(), it.port());
        let inode = fstat(&peer).unwrap().st_ino;
        for (name, find) in LOOKS {
            assert_eq!(find(seen, server.local_addr().unwrap()).unwrap(), own(inode), "{name}");
            assert_eq!(find(canonical(near), canonical(far)).unwrap(), own(inode), "{name}");
        }
    }

    #[test]
    fn a_closed_end_and_a_listener_are_not_taken_for_a_connection() {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let far = listener.local_addr().unwrap();
            let peer = TcpStream::connect(far).unwrap();
            let near = peer.local_addr().unwrap();
            let server = listener.accept().unwrap().0;
            drop(peer);
            let other = SocketAddr::new(address, 1);
            for (name, find) in LOOKS {
                // The end that was closed has no process.
                assert_eq!(find(near, far).unwrap(), None, "{name} {address}");
                // The listener has the same local end.
                assert_eq!(find(far, other).unwrap(), None, "{name} {address}");
            }
            assert_eq!(super::find(near, far), TcpSocket::Closed);
            // The other end closes too, so that what is left waits for late packets.
            drop(server);
            assert_eq!(super::find(near, far), TcpSocket::Closed);
            assert_eq!(super::find(far, near), TcpSocket::Closed);
        }
        let (far, near) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
        assert_eq!(find(far, near), TcpSocket::Elsewhere);
    }

    #[tokio::test]
    async fn a_socket_that_is_bound_to_an_interface_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let far = listener.local_addr().unwrap();
        let peer = tokio::net::TcpSocket::new_v4().unwrap();
        match peer.bind_device(Some(b"lo")) {
            // Some systems let only an administrator do this.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
            bound => bound.unwrap(),
        }
        let peer = peer.connect(far).await.unwrap();
        let owner = own(fstat(&peer).unwrap().st_ino).unwrap();
        assert_eq!(find(peer.local_addr().unwrap(), far), TcpSocket::Open(owner));
    }
}
