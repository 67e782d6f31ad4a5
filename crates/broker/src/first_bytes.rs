//! The first bytes of a tunnel, which may name its host: a handshake of TLS, or a request over HTTP.

use std::time::Duration;

use bytes::BytesMut;
use http::uri::Authority;
use httparse::Status;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most first bytes that are read before the tunnel carries anything.
const MAX_FIRST_BYTES: usize = 16 * 1024;
/// How long the first bytes may take from the first one until they are complete.
const FIRST_BYTES_TIME: Duration = Duration::from_secs(5);
/// How a handshake of TLS begins: its kind, and the first number of its version.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 3];
/// The most fields of a request that are read.
const MAX_FIELDS: usize = 64;

/// What the first bytes of a tunnel say about their host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NamedHost {
    Incomplete,
    /// They are of a protocol that names no host here.
    Hidden,
    /// They begin a handshake or a request that cannot be read, or takes too long.
    Unreadable,
    /// All names in them.
    Named(Vec<String>),
}

/// Reads the first bytes of a client, until they show their host or cannot. They are empty if the host speaks first. `None` if the client is gone, or both are silent for `idle`.
pub(crate) async fn first_bytes(
    client: &mut (impl AsyncRead + Unpin),
    host: &TcpStream,
    idle: Duration,
) -> Option<(BytesMut, NamedHost)> {
    let mut first = BytesMut::with_capacity(1024);
    // Without a shorter limit: a client that waits must not get around the check.
    let has_begun = timeout(idle, async {
        tokio::select! {
            biased;
            read = client.read_buf(&mut first) => read.is_ok_and(|count| count > 0),
            _ = host.readable() => true,
        }
    });
    if !has_begun.await.unwrap_or(false) {
        return None;
    }
    if first.is_empty() {
        return Some((first, NamedHost::Hidden));
    }
    let reading = async {
        loop {
            match named_host(&first) {
                NamedHost::Incomplete if first.len() >= MAX_FIRST_BYTES => return None,
                NamedHost::Incomplete => {}
                named => return Some(named),
            }
            if client.read_buf(&mut first).await.is_ok_and(|count| count > 0) {
                continue;
            }
            return None;
        }
    };
    let named = timeout(FIRST_BYTES_TIME, reading).await.unwrap_or(None);
    let named = named.unwrap_or(NamedHost::Unreadable);
    Some((first, named))
}

/// Finds the hosts that the first bytes of a tunnel name.
fn named_host(first: &[u8]) -> NamedHost {
    match first {
        [] => NamedHost::Incomplete,
        [byte] if *byte == TLS_HANDSHAKE[0] => NamedHost::Incomplete,
        _ if first.starts_with(&TLS_HANDSHAKE) => host_of_handshake(first),
        [byte, ..] if byte.is_ascii_uppercase() => hosts_of_request(first),
        _ => NamedHost::Hidden,
    }
}

fn host_of_handshake(first: &[u8]) -> NamedHost {
    let mut acceptor = Acceptor::default();
    let mut rest = first;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return NamedHost::Unreadable;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                return name.map_or(NamedHost::Hidden, |name| NamedHost::Named(vec![name]));
            }
            Ok(None) => {}
            Err(_) => return NamedHost::Unreadable,
        }
    }
    NamedHost::Incomplete
}

/// Finds the hosts in the address and in all fields `Host`: servers differ about which one counts.
fn hosts_of_request(first: &[u8]) -> NamedHost {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(first) {
        // A protocol of lines, such as IRC, has its end here.
        Ok(Status::Partial) => return NamedHost::Incomplete,
        // Without a version, it is another protocol.
        Err(_) if request.version.is_none() => return NamedHost::Hidden,
        Err(_) => return NamedHost::Unreadable,
        Ok(Status::Complete(_)) => {}
    }
    let path = request.path.unwrap_or_default();
    let in_path = path.split_once("://").filter(|(scheme, _)| !scheme.contains('/'));
    let in_path = in_path.and_then(|(_, rest)| rest.split(['/', '?']).next());
    let fields = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let texts = fields.map(|field| std::str::from_utf8(field.value).ok()).chain(in_path.map(Some));
    let names: Option<Vec<_>> =
        texts.map(|text| Some(text?.trim().parse::<Authority>().ok()?.host().to_owned())).collect();
    match names {
        None => NamedHost::Unreadable,
        Some(names) if names.is_empty() => NamedHost::Hidden,
        Some(names) => NamedHost::Named(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_of_a_request_is_found() {
        let hosts = |text: &str| named_host(text.as_bytes());
        let named = |names: &[&str]| {
            NamedHost::Named(names.iter().map(|name| (*name).to_owned()).collect())
        };
        assert_eq!(hosts("GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n"), named(&["a.example"]));
        let two = "GET http://b.example/x HTTP/1.1\r\nhost: a.example\r\nHOST: c.example\r\n\r\n";
        assert_eq!(hosts(two), named(&["a.example", "c.example", "b.example"]));
        assert_eq!(hosts("GET /?u=http://b.example HTTP/1.1\r\n\r\n"), NamedHost::Hidden);
        for (text, expected) in [
            ("", NamedHost::Incomplete),
            ("GET / HTTP/1.1\r\nHo", NamedHost::Incomplete),
            ("SSH-2.0-x\r\n", NamedHost::Hidden),
            ("NICK ada\r\n", NamedHost::Hidden),
            ("\u{5}abc", NamedHost::Hidden),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", NamedHost::Unreadable),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", NamedHost::Unreadable),
            ("\u{16}", NamedHost::Incomplete),
            ("\u{16}\u{3}\u{1}\0\u{5}abcde", NamedHost::Unreadable),
            ("\u{16}abc", NamedHost::Hidden),
        ] {
            assert_eq!(hosts(text), expected, "{text:?}");
        }
    }
}
