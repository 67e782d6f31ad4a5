//! SOCKS5 (RFC 1928, RFC 1929): CONNECT with names and addresses.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::SecretText;
use crate::decision::Decisions;
use crate::host_rules::HostPort;
use crate::observer::ConnectionKind;
use crate::state::{BrokerState, HEAD_TIMEOUT};
use crate::tunnel::OpenConnection;

pub(crate) const VERSION: u8 = 5;
const NO_METHOD: u8 = 0;
const PASSWORD_METHOD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const ADDRESS_V4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_V6: u8 = 4;

/// The replies that a client can get.
#[derive(Clone, Copy)]
enum SocksReply {
    Done = 0,
    NotAllowed = 2,
    Unreachable = 4,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

/// Serves a connection whose first byte is [`VERSION`].
pub(crate) async fn serve(mut stream: TcpStream, broker: &BrokerState, decisions: &Arc<Decisions>) {
    let access = decisions.access();
    let reading = handshake(&mut stream, access.secret.as_ref());
    let Ok(Ok(Some(target))) = timeout(HEAD_TIMEOUT, reading).await else { return };
    let opening = OpenConnection::open(broker, decisions, target, ConnectionKind::Socks5);
    let opened = tokio::select! {
        opened = opening => opened,
        // Its question stays open for the next connection.
        () = client_end(&stream) => return,
    };
    match opened {
        Ok((open, host)) => {
            if reply(&mut stream, SocksReply::Done).await.is_ok() {
                open.carry(stream, host, broker.idle).await;
            }
        }
        Err(refusal) => {
            let code = match refusal.is_forbidden() {
                true => SocksReply::NotAllowed,
                false => SocksReply::Unreachable,
            };
            // The client may be gone.
            let _ = reply(&mut stream, code).await;
        }
    }
}

/// Waits until the client ends a connection that waits for its reply.
async fn client_end(stream: &TcpStream) {
    if stream.peek(&mut [0]).await.is_ok_and(|count| count > 0) {
        // It sends before the reply: its end is behind these bytes.
        std::future::pending::<()>().await;
    }
}

/// Reads what the client wants. `None` after a refusal.
async fn handshake(
    stream: &mut TcpStream,
    secret: Option<&SecretText>,
) -> io::Result<Option<HostPort>> {
    let [_, count] = read_array(stream).await?;
    let mut methods = vec![0; usize::from(count)];
    stream.read_exact(&mut methods).await?;
    let method = if secret.is_some() { PASSWORD_METHOD } else { NO_METHOD };
    if !methods.contains(&method) {
        stream.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Ok(None);
    }
    stream.write_all(&[VERSION, method]).await?;
    if let Some(secret) = secret {
        let is_right = read_password(stream).await?.is_some_and(|password| secret.is(&password));
        stream.write_all(&[PASSWORD_VERSION, u8::from(!is_right)]).await?;
        if !is_right {
            return Ok(None);
        }
    }
    let [version, command, _, kind] = read_array(stream).await?;
    if version != VERSION || command != CONNECT {
        reply(stream, SocksReply::NoSuchCommand).await?;
        return Ok(None);
    }
    let host = match kind {
        ADDRESS_V4 => Some(Ipv4Addr::from(read_array::<4>(stream).await?).to_string()),
        ADDRESS_V6 => Some(Ipv6Addr::from(read_array::<16>(stream).await?).to_string()),
        ADDRESS_NAME => read_text(stream).await?,
        _ => None,
    };
    let target = match host {
        Some(host) => {
            let port = u16::from_be_bytes(read_array(stream).await?);
            HostPort::new(&host, port)
        }
        None => None,
    };
    if target.is_none() {
        reply(stream, SocksReply::NoSuchAddress).await?;
    }
    Ok(target)
}

/// Reads a name and a password. Returns the password: the name is any.
async fn read_password(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let [version] = read_array(stream).await?;
    if version != PASSWORD_VERSION {
        return Ok(None);
    }
    read_text(stream).await?;
    read_text(stream).await
}

/// Reads a text of at most 255 bytes behind its length. `None` if it is not UTF-8.
async fn read_text(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let [length] = read_array(stream).await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    Ok(String::from_utf8(bytes).ok())
}

async fn read_array<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn reply(stream: &mut TcpStream, reply: SocksReply) -> io::Result<()> {
    // Clients do not use the address of the connection.
    stream.write_all(&[VERSION, reply as u8, 0, ADDRESS_V4, 0, 0, 0, 0, 0, 0]).await
}
