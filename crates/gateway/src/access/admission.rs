//! Waits that end when the caller's token stops working.

use std::pin::pin;

use trilogue_domain::error::Result;

use super::authenticator::{Authenticator, Caller, revoked};

/// Waits for work that may take as long as a run. Checks the caller's token during the wait and once more at the end.
///
/// Errors: those of the wait; `unauthenticated` soon after the token was revoked or has expired.
pub(crate) async fn while_admitted<T>(
    authenticator: &Authenticator,
    caller: &Caller,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut wait = pin!(wait);
    loop {
        let waited = tokio::time::timeout(authenticator.recheck, &mut wait).await;
        if !authenticator.still_admits(caller).await {
            return Err(revoked());
        }
        if let Ok(waited) = waited {
            return waited;
        }
    }
}

/// Completes soon after the caller's token was revoked or has expired.
pub(crate) async fn until_revoked(authenticator: &Authenticator, caller: &Caller) {
    if !caller.is_known() {
        return std::future::pending().await;
    }
    // Boxed, because every open connection waits here between two checks.
    while Box::pin(authenticator.still_admits(caller)).await {
        tokio::time::sleep(authenticator.recheck).await;
    }
}
