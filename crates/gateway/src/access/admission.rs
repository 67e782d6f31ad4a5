//! Waits that end when the caller's token stops working.

use std::pin::pin;

use tokio::time::error::Elapsed;
use tokio::time::timeout;
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
        let waited = timeout(authenticator.recheck, &mut wait).await;
        if !authenticator.still_admits(caller).await {
            return Err(revoked());
        }
        if let Ok(waited) = waited {
            return waited;
        }
    }
}

/// Completes once the caller's token was revoked on this node, and soon after it was revoked on another one or has expired.
pub(crate) async fn until_revoked(authenticator: &Authenticator, caller: &Caller) {
    if !caller.is_known() {
        return std::future::pending().await;
    }
    loop {
        // Before the check, so that no revocation is missed.
        let revoked = authenticator.revoked.notified();
        // Boxed, because every open connection waits here between two checks.
        if !Box::pin(authenticator.still_admits(caller)).await {
            return;
        }
        // Another node may have revoked it.
        let _: Result<(), Elapsed> = timeout(authenticator.recheck, revoked).await;
    }
}
