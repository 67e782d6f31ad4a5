//! A TCP connection that can be cut: the path between programs when the network fails.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The most data that passes at once, in bytes.
const PIECE_BYTES: usize = 16 * 1024;
/// With a limited rate, this many pieces pass each second.
const PIECES_PER_SECOND: u32 = 50;

/// Forwards connections to an address until it is dropped.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<LinkState>,
    task: JoinHandle<()>,
}

/// How fast data passes. The default is as fast as it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// How much later each piece arrives.
    pub delay: Duration,
    /// How much passes in each direction of a connection; `None` for no limit.
    pub bytes_per_second: Option<u32>,
}

/// Which ends of the open connections see that the network has ended them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionBreak {
    Both,
    /// The server's end stays open for this long, and nothing arrives. So a client that connects again has two connections.
    Client(Duration),
    /// The client's end stays open for this long, and nothing arrives.
    Server(Duration),
    /// Both ends stay open for this long, and nothing arrives.
    Neither(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LinkState {
    target: SocketAddr,
    flow: Flow,
    pace: Pace,
    /// How many times all open connections were ended, and how the last time.
    breaks: (u64, ConnectionBreak),
    /// Whether the beginning of a WebSocket reaches the target twice.
    repeats_handshakes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
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
        let (sender, state) = watch::channel(LinkState {
            target,
            flow: Flow::Whole,
            pace: Pace::default(),
            breaks: (0, ConnectionBreak::Both),
            repeats_handshakes: false,
        });
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, state.clone()));
            }
        });
        Ok(Self { address, state: sender, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and refuses each new one at once.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.flow = Flow::Cut);
    }

    /// Stops all data, like a network that drops every packet; connections stay open.
    pub fn hold(&self) {
        self.state.send_modify(|state| state.flow = Flow::Held);
    }

    /// Ends all connections, and passes new ones on to another address: what a proxy does in front of a primary after a failover.
    pub fn redirect(&self, target: SocketAddr) {
        self.state.send_modify(|state| state.target = target);
        self.end(ConnectionBreak::Both);
    }

    /// Ends all connections, and passes new ones on.
    pub fn end(&self, seen: ConnectionBreak) {
        self.state.send_modify(|state| state.breaks = (state.breaks.0 + 1, seen));
    }

    /// Changes how fast data passes, also on open connections.
    pub fn set_pace(&self, pace: Pace) {
        self.state.send_modify(|state| state.pace = pace);
    }

    /// Whether the beginning of each new WebSocket reaches the target twice, on two connections.
    pub fn repeat_handshakes(&self, repeats: bool) {
        self.state.send_modify(|state| state.repeats_handshakes = repeats);
    }

    pub fn mend(&self) {
        self.state.send_modify(|state| state.flow = Flow::Whole);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes one connection on until it ends or the link ends it.
async fn pass(mut near: TcpStream, mut state: watch::Receiver<LinkState>) {
    let begun = *state.borrow();
    let connecting = connect(&mut near, begun);
    let mut far = match while_whole(&mut state, begun, connecting).await {
        Ok(Ok(far)) => far,
        Ok(Err(_)) | Err(_) => return,
    };
    let paces = state.clone();
    let carrying = async {
        let (mut from_near, mut to_near) = near.split();
        let (mut from_far, mut to_far) = far.split();
        tokio::try_join!(
            carry(&mut from_near, &mut to_far, &paces),
            carry(&mut from_far, &mut to_near, &paces)
        )
    };
    match while_whole(&mut state, begun, carrying).await {
        // The ends see what became of their connection.
        Ok(_) | Err(ConnectionBreak::Both) => {}
        Err(ConnectionBreak::Client(lingers)) => {
            drop(near);
            swallow(far, lingers).await;
        }
        Err(ConnectionBreak::Server(lingers)) => {
            drop(far);
            swallow(near, lingers).await;
        }
        Err(ConnectionBreak::Neither(lingers)) => {
            tokio::join!(swallow(near, lingers), swallow(far, lingers));
        }
    }
}

/// Works on a connection that began in this state, while the link lets data pass. Fails when the link ends the connection.
async fn while_whole<T>(
    state: &mut watch::Receiver<LinkState>,
    begun: LinkState,
    work: impl Future<Output = T>,
) -> Result<T, ConnectionBreak> {
    let mut work = std::pin::pin!(work);
    loop {
        let now = *state.borrow_and_update();
        if now.breaks.0 != begun.breaks.0 {
            return Err(now.breaks.1);
        }
        if now.flow == Flow::Cut {
            return Err(ConnectionBreak::Both);
        }
        tokio::select! {
            // Data that arrives while the link is cut or held must not reach the target.
            biased;
            changed = state.changed() => {
                // The link was dropped.
                if changed.is_err() {
                    return Err(ConnectionBreak::Both);
                }
            }
            done = &mut work, if now.flow == Flow::Whole => return Ok(done),
        }
    }
}

async fn connect(near: &mut TcpStream, begun: LinkState) -> io::Result<TcpStream> {
    let mut far = TcpStream::connect(begun.target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    if begun.repeats_handshakes {
        let mut head = vec![0; PIECE_BYTES];
        let read = near.read(&mut head).await?;
        let head = &head[..read];
        far.write_all(head).await?;
        if String::from_utf8_lossy(head).to_ascii_lowercase().contains("upgrade: websocket") {
            let mut second = TcpStream::connect(begun.target).await?;
            second.write_all(head).await?;
            tokio::spawn(swallow(second, Duration::MAX));
        }
    }
    Ok(far)
}

/// Passes one direction on to its end.
async fn carry(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    state: &watch::Receiver<LinkState>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let rate = state.borrow().pace.bytes_per_second;
        let most = rate.map_or(PIECE_BYTES, |rate| (rate / PIECES_PER_SECOND).max(1) as usize);
        let room = &mut piece[..most.min(PIECE_BYTES)];
        let read = from.read(room).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        let pace = state.borrow().pace;
        let passing =
            pace.bytes_per_second.map_or(0.0, |rate| read as f64 / f64::from(rate.max(1)));
        sleep(pace.delay + Duration::from_secs_f64(passing)).await;
        to.write_all(&piece[..read]).await?;
    }
}

/// Keeps one end of a connection open, drops what it sends, and sends nothing.
async fn swallow(mut end: TcpStream, lingers: Duration) {
    let mut dropped = vec![0; PIECE_BYTES];
    let reading = async { while matches!(end.read(&mut dropped).await, Ok(1..)) {} };
    drop(timeout(lingers, reading).await);
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
    #[tokio::test]
    async fn each_end_sees_the_break_that_it_should() {
        const LINGERS: Duration = Duration::from_secs(60);
        let is_open = async |stream: &mut TcpStream| {
            let mut word = [0; 3];
            timeout(HELD, stream.read(&mut word)).await.is_err()
        };
        for (seen, expected) in [
            (ConnectionBreak::Both, (false, false)),
            (ConnectionBreak::Client(LINGERS), (false, true)),
            (ConnectionBreak::Server(LINGERS), (true, false)),
            (ConnectionBreak::Neither(LINGERS), (true, true)),
            (ConnectionBreak::Neither(Duration::ZERO), (false, false)),
        ] {
            let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let link = Link::to(far.local_addr().unwrap()).await.unwrap();
            let mut near = TcpStream::connect(link.address()).await.unwrap();
            let (mut peer, _) = far.accept().await.unwrap();
            peer.write_all(b"one").await.unwrap();
            near.read_exact(&mut [0; 3]).await.unwrap();
            link.end(seen);
            assert_eq!((is_open(&mut near).await, is_open(&mut peer).await), expected, "{seen:?}");
            // The next connection passes.
            let mut near = TcpStream::connect(link.address()).await.unwrap();
            let (mut peer, _) = far.accept().await.unwrap();
            near.write_all(b"two").await.unwrap();
            peer.read_exact(&mut [0; 3]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_slow_link_delays_and_a_repeated_handshake_arrives_twice() {
        let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::to(far.local_addr().unwrap()).await.unwrap();
        link.set_pace(Pace { delay: HELD, bytes_per_second: Some(1_000) });
        link.repeat_handshakes(true);
        let mut near = TcpStream::connect(link.address()).await.unwrap();
        let head = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        near.write_all(head).await.unwrap();
        let mut peers = Vec::new();
        for _ in 0..2 {
            let (mut peer, _) = far.accept().await.unwrap();
            let mut read = vec![0; head.len()];
            peer.read_exact(&mut read).await.unwrap();
            assert_eq!(read, head);
            peers.push(peer);
        }
        let begun = std::time::Instant::now();
        for peer in &mut peers {
            peer.write_all(&[b'x'; 100]).await.unwrap();
        }
        near.read_exact(&mut [0; 100]).await.unwrap();
        assert!(begun.elapsed() >= HELD * 2, "{:?}", begun.elapsed());
        // The answer on the second one is dropped.
        assert!(timeout(HELD, near.read(&mut [0; 1])).await.is_err());
    }
}
