//! Pieces of work of one or two requests, done over many connections at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::timeout;

use crate::load::{Connection, LoadResult, post};

/// One piece of work: a request, and perhaps a second one that its answer leads to.
#[derive(Clone)]
pub(crate) struct Flow {
    address: SocketAddr,
    first: Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>,
    then: Option<Then>,
}

/// Makes the second request from the body of the first answer.
type Then = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

// === impl Flow ===

impl Flow {
    /// One request, which may differ from number to number.
    pub(crate) fn new(
        address: SocketAddr,
        first: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self { address, first: Arc::new(first), then: None }
    }

    /// A run of the Agent Connect Protocol is created, and its output waited for.
    pub(crate) fn create_and_wait(
        address: SocketAddr,
        base: &str,
        token: &str,
        body: &str,
    ) -> Self {
        let create = post(address, &format!("{base}/runs"), token, body);
        let (base, token) = (base.to_owned(), token.to_owned());
        let then = move |body: &[u8]| {
            let id = member(body, "\"run_id\":\"")?;
            Some(
                format!(
                    "GET {base}/runs/{id}/wait HTTP/1.1\r\nhost: {address}\r\n\
                     authorization: Bearer {token}\r\n\r\n"
                )
                .into_bytes(),
            )
        };
        Self { then: Some(Arc::new(then)), ..Self::new(address, move |_| create.clone()) }
    }

    /// Does one piece of work.
    async fn work(&self, connection: &mut Connection, number: u64) -> Result<()> {
        let (status, body) = connection.ask(&(self.first)(number)).await?;
        ensure!((200..300).contains(&status), "{status} {}", String::from_utf8_lossy(&body));
        let Some(then) = &self.then else { return Ok(()) };
        let next = then(&body).context("the answer leads nowhere")?;
        let (status, body) = connection.ask(&next).await?;
        ensure!((200..300).contains(&status), "{status} {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}

/// Returns the text after a mark, up to the next quotation mark.
fn member<'a>(body: &'a [u8], mark: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(body).ok()?;
    text.split_once(mark)?.1.split_once('"').map(|(value, _)| value)
}

/// Does a piece of work over `connections` connections until it was done `total` times.
pub(crate) async fn times(flow: &Flow, connections: usize, total: u64) -> Result<LoadResult> {
    let next = Arc::new(AtomicU64::new(0));
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(flow.address).await?);
    }
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for mut connection in open {
        let (flow, next) = (flow.clone(), Arc::clone(&next));
        tasks.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= total {
                    return anyhow::Ok(());
                }
                flow.work(&mut connection, number).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(LoadResult { requests: total, elapsed: begun.elapsed() })
}

/// Repeats a piece of work over `connections` connections for this long; returns the number of
/// completed pieces.
pub(crate) async fn for_time(
    flow: &Flow,
    connections: usize,
    time: Duration,
) -> Result<LoadResult> {
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(flow.address).await?);
    }
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for mut connection in open {
        let flow = flow.clone();
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            loop {
                let left = time.saturating_sub(begun.elapsed());
                match timeout(left, flow.work(&mut connection, count)).await {
                    Ok(done) => done?,
                    Err(_) => return anyhow::Ok(count),
                }
                count += 1;
            }
        }));
    }
    let mut requests = 0;
    for task in tasks {
        requests += task.await??;
    }
    Ok(LoadResult { requests, elapsed: begun.elapsed() })
}
