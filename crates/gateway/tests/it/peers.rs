//! Connections to a server that only proxies may reach.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;
use trilogue_gateway::{Exposure, Options, Proxies, Server};
use trilogue_store::memory::MemoryStore;

use crate::rig::{LIMIT, ports};

/// Sends a request from this address; returns the first line of the response, or an empty text without a response.
async fn ask(server: SocketAddr, from: Ipv4Addr) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let mut stream = socket.connect(target).await.unwrap();
    let request = "GET /api/v1/agents HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    // The server may close the connection before it reads anything.
    drop(stream.write_all(request.as_bytes()).await);
    let mut answer = Vec::new();
    drop(timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap());
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn only_proxies_reach_a_public_listener_and_they_need_a_token_too() {
    let blocks = vec!["127.0.0.3/32".parse().unwrap()];
    let start = async |loopback: bool, addresses: &[&str]| {
        let proxies = Proxies { blocks: blocks.clone(), loopback };
        let exposure = Exposure::BehindProxy(proxies);
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.push(TcpListener::bind(address).await.unwrap());
        }
        let ports = ports(std::sync::Arc::new(MemoryStore::default())).await;
        let options = Options { exposure, ..Options::default() };
        Server::start(options, &[], ports, listeners).unwrap()
    };
    let (proxy, other) = (Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 2));
    let refused = "HTTP/1.1 401 Unauthorized";
    let server = start(false, &["0.0.0.0:0", "127.0.0.1:0"]).await;
    let (public, private) = (server.addresses()[0], server.addresses()[1]);
    assert_eq!(ask(public, proxy).await, refused);
    assert_eq!(ask(public, other).await, "", "closed before a request was read");
    assert_eq!(ask(public, proxy).await, refused, "others are served still");
    assert_eq!(ask(private, other).await, refused, "a loopback listener is reached from here only");

    let server = start(true, &["0.0.0.0:0"]).await;
    assert_eq!(ask(server.addresses()[0], other).await, refused, "this machine may connect");
}
