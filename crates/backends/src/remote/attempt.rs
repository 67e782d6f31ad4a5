//! Retries a request while it has certainly not reached the server.

use std::time::Duration;

use trilogue_runtime::RunContext;
use trilogue_sdk::client::ClientError;

use super::server::AgentServer;

/// How many times a request is sent at most.
const ATTEMPTS: u32 = 3;
/// The delay before the second attempt. It doubles with each attempt.
const DELAY: Duration = Duration::from_millis(200);

/// Sends a request, and retries it while it has certainly not reached the server and the server is not known to be out of reach.
/// Returns `None` if the run here is cancelled between two attempts.
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

/// Returns whether the request has certainly not reached the server, so that a retry cannot execute it twice.
pub(crate) fn is_unreached(error: &ClientError) -> bool {
    matches!(error, ClientError::Transport(error) if error.is_unreached)
}
