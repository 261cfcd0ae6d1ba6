//! Calls the store until it answers. A caller that waits here holds nothing that others need.

use crate::limits::Limits;
use std::future::Future;
use store::Error;

/// Calls again after each failure, with a growing pause. Logs the first failure.
pub async fn until_answered<T, F>(
    what: &'static str,
    limits: &Limits,
    mut ask: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Result<T, Error>>,
{
    let mut wait = limits.store_wait;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if wait == limits.store_wait => {
                tracing::warn!(%error, what, "webhooks: the store does not answer; trying again");
            }
            Err(_) => {}
        }
        // waits for: the store to recover
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(limits.store_wait_longest);
    }
}
