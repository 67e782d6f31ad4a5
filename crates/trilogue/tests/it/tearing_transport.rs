//! A transport whose event streams break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use trilogue::sdk::async_trait;
use trilogue::sdk::client::{HttpTransport, Request, Response, Transport, TransportError};

/// A transport to a server. Its first event stream breaks after this many bytes, the second after twice as many, and so on: even an event as long as the run gets through.
#[derive(Debug)]
pub(crate) struct TearingTransport {
    http: HttpTransport,
    bytes: usize,
    streams: AtomicUsize,
}

impl TearingTransport {
    pub(crate) fn new(address: SocketAddr, bytes: usize) -> Arc<Self> {
        let http = HttpTransport::to(&format!("http://{address}")).unwrap();
        Arc::new(Self { http, bytes, streams: AtomicUsize::new(0) })
    }

    /// The number of opened streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Transport for TearingTransport {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let response = self.http.send(request).await?;
        let kind = response.content_type.as_deref().unwrap_or_default();
        if !kind.contains("event-stream") {
            return Ok(response);
        }
        let left = self.bytes.saturating_mul(self.streams.fetch_add(1, Ordering::Relaxed) + 1);
        let pieces = stream::try_unfold((response.body, left), |(mut body, left)| async move {
            if left == 0 {
                return Err(TransportError::new("torn"));
            }
            let piece = body.next().await.transpose()?;
            Ok(piece.map(|piece: Bytes| {
                let piece = piece.slice(..piece.len().min(left));
                let left = left - piece.len();
                (piece, (body, left))
            }))
        });
        Ok(Response { body: Box::pin(pieces), ..response })
    }
}
