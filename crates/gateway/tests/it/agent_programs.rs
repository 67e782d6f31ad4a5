//! Requests of agents' programs: what is known of a connection counts for all its requests, and what a proxy says only for one.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rig::{AgentPrograms, LIMIT, Rig, Setup};
use crate::websocket::{PUPPET, exchange};

async fn rig() -> (Arc<AgentPrograms>, Rig) {
    let peers = Arc::new(AgentPrograms::default());
    let agent_processes = Some(Arc::clone(&peers) as _);
    (peers, Rig::of(Setup { agent_processes, ..Setup::default() }).await)
}

/// Ends a connection that does not exist, which only a person may do. Returns the status.
async fn status(stream: &mut TcpStream, header: &str) -> u16 {
    let request = format!(
        "DELETE {PUPPET} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\nacp-connection-id: none\r\n{header}\r\n"
    );
    let head = exchange(stream, &request).await;
    let length: usize = head.headers["content-length"].parse().unwrap();
    let mut rest = vec![0; length - head.rest.len()];
    timeout(LIMIT, stream.read_exact(&mut rest)).await.unwrap().unwrap();
    head.status
}

#[tokio::test]
async fn every_request_on_the_connection_of_an_agents_program_is_refused() {
    let (peers, rig) = rig().await;
    let mut own = TcpStream::connect(rig.address).await.unwrap();
    let mut of_agent = TcpStream::connect(rig.address).await.unwrap();
    let peer = of_agent.local_addr().unwrap();
    peers.add(peer);
    for _ in 0..3 {
        assert_eq!(status(&mut of_agent, "").await, 403);
        assert_eq!(status(&mut own, "").await, 404);
    }
    // Once for each connection.
    assert_eq!(peers.take_looks(), [peer, own.local_addr().unwrap()]);
    // What a proxy says changes nothing.
    assert_eq!(
        status(&mut of_agent, "trilogue-proxied-caller: 10.0.0.1 1 10.0.0.2 2\r\n").await,
        403
    );
    drop(of_agent);
    let mut next = TcpStream::connect(rig.address).await.unwrap();
    assert_eq!(status(&mut next, "").await, 404);
    assert_eq!(peers.take_looks(), [next.local_addr().unwrap()]);
}

#[tokio::test]
async fn each_request_through_a_proxy_is_looked_at_although_they_share_a_connection() {
    let (peers, rig) = rig().await;
    let mut proxy = TcpStream::connect(rig.address).await.unwrap();
    let (one, two) = (SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 1], 2)));
    let of = |peer: SocketAddr| {
        format!("trilogue-proxied-caller: {} {} 10.0.0.2 80\r\n", peer.ip(), peer.port())
    };
    peers.add(two);
    assert_eq!(status(&mut proxy, &of(one)).await, 404);
    assert_eq!(status(&mut proxy, &of(two)).await, 403);
    assert_eq!(status(&mut proxy, "").await, 404);
    assert_eq!(peers.take_looks(), [proxy.local_addr().unwrap(), one, two]);
    // A caller may become an agent's program, as when it is another one with the same address.
    peers.add(one);
    assert_eq!(status(&mut proxy, &of(one)).await, 403);
    assert_eq!(peers.take_looks(), [one]);
}
