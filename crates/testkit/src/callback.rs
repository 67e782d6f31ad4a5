//! A receiver of callbacks on a real loopback socket.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::any;
use http::{HeaderMap, StatusCode, Uri};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use trilogue_domain::lock;

use crate::wait::until;

#[derive(Clone, Debug)]
pub struct Delivery {
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Debug)]
pub struct Receiver {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    deliveries: Mutex<Vec<Delivery>>,
    /// The statuses of the next responses; 204 once the queue is empty.
    answers: Mutex<VecDeque<StatusCode>>,
}

// === impl Receiver ===

impl Receiver {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let router = Router::new().fallback(any(receive)).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            // Ends with the runtime, or when the handle is dropped and aborts it.
            let _ = serve(listener, router).await;
        });
        Ok(Self { address, shared, task })
    }

    pub fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    pub fn answer_next(&self, statuses: impl IntoIterator<Item = StatusCode>) {
        lock(&self.shared.answers).extend(statuses);
    }

    pub fn deliveries(&self) -> Vec<Delivery> {
        lock(&self.shared.deliveries).clone()
    }

    pub async fn wait_for(&self, count: usize, limit: Duration) -> Result<Vec<Delivery>> {
        until(&format!("{count} callbacks"), limit, || {
            let deliveries = self.deliveries();
            async move { (deliveries.len() >= count).then_some(deliveries) }
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    target: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    lock(&shared.deliveries).push(Delivery { target: target.to_string(), headers, body });
    lock(&shared.answers).pop_front().unwrap_or(StatusCode::NO_CONTENT)
}

async fn serve(listener: TcpListener, router: Router) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let service = hyper_util::service::TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let io = hyper_util::rt::TokioIo::new(stream);
            // The sender handles a broken connection.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    #[tokio::test]
    async fn keeps_what_arrives_and_answers_as_told() {
        let receiver = Receiver::start().await.unwrap();
        receiver.answer_next([StatusCode::SERVICE_UNAVAILABLE]);
        let client = Client::new(receiver.address);
        for expected in [503, 204] {
            let reply = client.post("/callback?x=1", &serde_json::json!({"a": 1})).await.unwrap();
            assert_eq!(reply.status, expected);
        }
        let seen = receiver.wait_for(2, Duration::from_secs(60)).await.unwrap();
        assert_eq!(seen[1].target, "/callback?x=1");
        assert_eq!(&seen[0].body[..], br#"{"a":1}"#);
    }
}
