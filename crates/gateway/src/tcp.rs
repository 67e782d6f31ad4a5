//! The listener for HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::agent_check::CallerConnection;
use crate::access::peer_filter::PeerFilter;
use crate::core::descriptors;
use crate::core::log_throttle::LogThrottle;
use crate::http::connection::ConnectionServer;
use crate::http::connections::{ConnectionPlace, Connections};
use crate::local::ACCEPT_PAUSE;
use crate::pipeline::Pipeline;

/// The most connections that are taken from the listener's queue when it closes: more than the queue holds.
const MAX_WAITING_CONNECTIONS: usize = 4_096;

/// Accepts connections on one address.
pub(crate) struct TcpAcceptor {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) server: ConnectionServer,
    pub(crate) connections: Arc<Connections>,
    /// Set if only some peers can connect.
    pub(crate) peers: Option<Arc<PeerFilter>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) accept_end: CancellationToken,
    pub(crate) drop_connections: CancellationToken,
    pub(crate) failures: LogThrottle,
    pub(crate) refusals: LogThrottle,
}

// === impl TcpAcceptor ===

impl TcpAcceptor {
    pub(crate) async fn run(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.accept_end.cancelled() => break,
                accepted = self.accept(&listener) => accepted,
            };
            if let Some((stream, place)) = accepted {
                self.serve(stream, place);
            }
        }
        for (stream, peer) in waiting_connections(listener) {
            if let Some((stream, place)) = self.admit(stream, peer).await {
                self.serve(stream, place);
            }
        }
    }

    fn serve(&self, stream: TcpStream, place: ConnectionPlace) {
        let (pipeline, server) = (Arc::clone(&self.pipeline), self.server.clone());
        let dropped = self.drop_connections.clone();
        self.tasks.spawn(async move {
            let _held = pipeline.meters.connections.hold();
            let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
            let connection = ends.map(CallerConnection::new);
            let answer = |mut request: Request<Incoming>| {
                let (pipeline, connection) = (Arc::clone(&pipeline), connection.clone());
                request.extensions_mut().insert(place.to_use());
                async move { pipeline.answer(request, connection).await }
            };
            tokio::select! {
                () = server.serve(stream, &place.activity, answer) => {}
                () = dropped.cancelled() => {}
            }
        });
    }

    /// Returns the next connection when there is room for it; `None` if it is not allowed to connect, or broke.
    async fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, ConnectionPlace)> {
        match listener.accept().await {
            Ok((stream, peer)) => self.admit(stream, peer).await,
            Err(error) => {
                self.recover(&error).await;
                None
            }
        }
    }

    async fn admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<(TcpStream, ConnectionPlace)> {
        let meters = &self.pipeline.meters;
        if !self.peers.as_ref().is_none_or(|it| it.admits(peer, meters)) {
            return None;
        }
        let place = self.connections.place(peer).await;
        if place.is_none() {
            self.note_refusal(peer);
        }
        place.map(|place| (stream, place))
    }

    async fn recover(&self, error: &io::Error) {
        self.pipeline.meters.accept_failures.increment(1);
        if let Some(failures) = self.failures.count() {
            tracing::warn!(%error, failures, "connections could not be accepted");
        }
        if descriptors::is_exhausted(error) {
            self.connections.end_any();
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn note_refusal(&self, peer: SocketAddr) {
        self.pipeline.meters.refused_connections.increment(1);
        if let Some(refused) = self.refusals.count() {
            tracing::warn!(
                peer = %peer.ip().to_canonical(),
                refused,
                "connections were closed: their peer has `server.limits.max_connections_per_peer`, all in use"
            );
        }
    }
}

/// Closes a listener and returns the connections in its queue: their clients have connected and would otherwise be cut off.
fn waiting_connections(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let accept = || {
        let (stream, peer) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    };
    std::iter::from_fn(accept).take(MAX_WAITING_CONNECTIONS).collect()
}
