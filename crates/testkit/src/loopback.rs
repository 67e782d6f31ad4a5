//! A router on a real loopback socket.

use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use axum::serve::{Listener, serve};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Serves a router until it is dropped.
#[derive(Debug)]
pub(crate) struct Loopback {
    address: SocketAddr,
    task: JoinHandle<()>,
}

// === impl Loopback ===

impl Loopback {
    /// Serves the router on a free port.
    pub(crate) async fn serve(router: Router) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok(Self::serve_on(listener, address, router))
    }

    /// Serves the router on a listener that has this address.
    pub(crate) fn serve_on<L: Listener>(listener: L, address: SocketAddr, router: Router) -> Self
    where
        L::Addr: std::fmt::Debug,
    {
        let task = tokio::spawn(async move {
            // Ends with the runtime, or when the handle is dropped and aborts it.
            let _ = serve(listener, router).await;
        });
        Self { address, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.task.abort();
    }
}
