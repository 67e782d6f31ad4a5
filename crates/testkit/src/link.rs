//! A TCP connection that can be cut: the path from a node to its database when the network fails.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to an address until it is dropped.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    target: watch::Sender<SocketAddr>,
    state: watch::Sender<LinkState>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkState {
    Whole,
    /// No data passes, and the connections stay open.
    Held,
    Cut,
}

// === impl Link ===

impl Link {
    /// Listens on a free port.
    pub async fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, state) = watch::channel(LinkState::Whole);
        let (target_sender, target) = watch::channel(target);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, target.clone(), state.clone()));
            }
        });
        Ok(Self { address, target: target_sender, state: sender, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and refuses each new one at once.
    pub fn cut(&self) {
        self.state.send_replace(LinkState::Cut);
    }

    /// Stops all data, like a network that drops every packet; connections stay open.
    pub fn hold(&self) {
        self.state.send_replace(LinkState::Held);
    }

    /// Ends all connections, and passes new ones on to another address: what a proxy does in front of a primary after a failover.
    pub fn redirect(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    pub fn mend(&self) {
        self.state.send_replace(LinkState::Whole);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    mut near: TcpStream,
    mut target: watch::Receiver<SocketAddr>,
    mut state: watch::Receiver<LinkState>,
) {
    let address = *target.borrow_and_update();
    let passing = async {
        let mut far = TcpStream::connect(address).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        copy_bidirectional(&mut near, &mut far).await
    };
    let mut passing = std::pin::pin!(passing);
    loop {
        let now = *state.borrow_and_update();
        if now == LinkState::Cut {
            return;
        }
        tokio::select! {
            // Data that arrives while the link is cut or held must not reach the target.
            biased;
            changed = state.changed() => {
                // The link was dropped.
                if changed.is_err() {
                    return;
                }
            }
            // The link leads elsewhere, or is gone.
            _ = target.changed() => return,
            // The ends see what became of their connection.
            _ = &mut passing, if now == LinkState::Whole => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// How long the test checks for data that passes.
    const HELD: std::time::Duration = std::time::Duration::from_millis(100);

    #[tokio::test]
    async fn a_cut_ends_what_is_open_and_a_mended_link_passes_again() {
        let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::to(far.local_addr().unwrap()).await.unwrap();
        let mut near = TcpStream::connect(link.address()).await.unwrap();
        let (mut peer, _) = far.accept().await.unwrap();
        peer.write_all(b"one").await.unwrap();
        let mut word = [0; 3];
        near.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"one");

        link.cut();
        assert!(matches!(near.read(&mut word).await, Ok(0) | Err(_)));
        let mut refused = TcpStream::connect(link.address()).await.unwrap();
        assert!(matches!(refused.read(&mut word).await, Ok(0) | Err(_)));

        link.mend();
        let mut near = TcpStream::connect(link.address()).await.unwrap();
        let (mut peer, _) = far.accept().await.unwrap();
        near.write_all(b"two").await.unwrap();
        peer.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"two");

        link.hold();
        near.write_all(b"six").await.unwrap();
        let early = tokio::time::timeout(HELD, peer.read_exact(&mut word)).await;
        assert!(early.is_err(), "a link that is held passes nothing");
        link.mend();
        // The connection that the time-out cut off had read nothing.
        peer.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"six");

        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        link.redirect(other.local_addr().unwrap());
        assert!(matches!(near.read(&mut word).await, Ok(0) | Err(_)));
        let mut near = TcpStream::connect(link.address()).await.unwrap();
        let (mut peer, _) = other.accept().await.unwrap();
        near.write_all(b"ten").await.unwrap();
        peer.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"ten");
    }
}
