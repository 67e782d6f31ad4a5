//! Sends a request again, as long as it has certainly not reached the server.

use std::time::Duration;

use trilogue_runtime::RunContext;
use trilogue_sdk::client::ClientError;

use super::server::AgentServer;

/// How often a request that has not reached the server is sent.
const ATTEMPTS: u32 = 3;
/// How long to wait before the second attempt; doubles with each.
const DELAY: Duration = Duration::from_millis(200);

/// Sends again what has certainly not reached the server, unless that is known to be out of reach; `None` where the run here was stopped before.
pub(crate) async fn attempt<T, F: Future<Output = Result<T, ClientError>>>(
    send: impl Fn() -> F,
    server: &AgentServer,
    context: &RunContext,
) -> Option<Result<T, ClientError>> {
    let mut delay = DELAY;
    for _ in 1..ATTEMPTS {
        match send().await {
            Err(error) if is_unreached(&error) && server.check().is_ok() => {}
            sent => return Some(sent),
        }
        tokio::select! {
            () = context.cancelled() => return None,
            () = tokio::time::sleep(delay) => delay *= 2,
        }
    }
    Some(send().await)
}

/// Whether the server has certainly not begun what it was asked for.
pub(crate) fn is_unreached(error: &ClientError) -> bool {
    matches!(error, ClientError::Transport(error) if error.is_unreached)
}
