//! Events are kept for as long as the schema says, then they go, a few at a time.

use crate::Outside;
use model::{Schema, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// Events removed in one commit: it is shared by everyone who writes.
const BATCH: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);
const INTERVAL: Duration = Duration::from_secs(60);

/// Runs until the task is dropped.
pub async fn run(schema: Arc<Schema>, store: Arc<dyn Store>, outside: Arc<dyn Outside>) {
    let kept = i64::try_from(schema.events.retention.as_millis()).unwrap_or(i64::MAX);
    loop {
        let moment = Timestamp(outside.now().0.saturating_sub(kept));
        let wait = match store.expire(moment, BATCH).await {
            Ok(removed) if removed >= BATCH => PAUSE,
            Ok(_) => INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "old events cannot be removed");
                INTERVAL
            }
        };
        tokio::time::sleep(wait).await;
    }
}
