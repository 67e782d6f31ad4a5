//! Bounded waiting for a condition.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(10);

/// Calls `look` until it finds something, or until `limit` has passed.
pub async fn until<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Option<T>>,
{
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if begun.elapsed() >= limit {
            bail!("waited {limit:?} for {what}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_what_was_found_and_names_what_was_not() {
        let mut looks = 0;
        let found = until("the third look", Duration::from_secs(5), || {
            looks += 1;
            let looks = looks;
            async move { (looks == 3).then_some(looks) }
        });
        assert_eq!(found.await.unwrap(), 3);
        let missed = until::<(), _>("godot", Duration::from_millis(20), || async { None }).await;
        assert!(missed.unwrap_err().to_string().contains("godot"));
    }
}
