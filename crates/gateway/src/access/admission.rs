//! Waits that last no longer than the caller's token.

use std::pin::pin;

use trilogue_domain::error::Result;

use super::authenticator::{Authenticator, Caller, revoked};

/// Waits for something that may take as long as a run, and looks at the caller's token meanwhile and once more at the end.
///
/// Errors: Those of the wait; `unauthenticated` soon after the token was revoked or has expired.
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
