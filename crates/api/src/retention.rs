//! Events are kept for as long as the schema says, then they go, in slices that the store bounds.
//! Those that an enabled endpoint has not been delivered are kept longer, and then it is reported.

use crate::Outside;
use model::record::Fields;
use model::schema::Builtin;
use model::webhook::pattern::EVENTS_SKIPPED;
use model::write::{Cause, Change, Precondition, Write};
use model::{Schema, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use store::{SkippedRange, Store};

/// Events removed in one commit at most; the store ends a slice earlier when its time is up.
const BATCH: usize = 1_000;
/// Between two slices while more is due: commits come in between. Slices that adapt to 4 ms and
/// this pause leave the writer about half its time.
const PAUSE: Duration = Duration::from_millis(3);
const INTERVAL: Duration = Duration::from_secs(60);

/// Runs until the task is dropped.
pub async fn run(schema: Arc<Schema>, store: Arc<dyn Store>, outside: Arc<dyn Outside>) {
    let before = |kept: Duration| {
        let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        Timestamp(outside.now().0.saturating_sub(kept))
    };
    let (retention, longest) =
        (schema.events.retention, schema.events.retention + schema.events.max_backlog);
    loop {
        let wait = match store.expire(before(retention), before(longest), BATCH).await {
            Ok(expired) => {
                for range in &expired.skipped {
                    report_skipped(&schema, &*store, &*outside, range).await;
                }
                if expired.events > 0 { PAUSE } else { INTERVAL }
            }
            Err(error) => {
                tracing::warn!(%error, "old events cannot be removed");
                INTERVAL
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// The owner of an endpoint learns by an event that others were not delivered.
async fn report_skipped(
    schema: &Schema,
    store: &dyn Store,
    outside: &dyn Outside,
    range: &SkippedRange,
) {
    let SkippedRange { endpoint, first, last, .. } = range;
    tracing::warn!(%endpoint, first, last, "events were removed before they could be delivered");
    let mut fields = Fields::new();
    fields.insert("skipped_until".to_owned(), range.until.to_iso().into());
    let write = Write {
        scope: range.scope,
        collection: schema.own(Builtin::Endpoint),
        id: Some(endpoint.clone()),
        parent: None,
        change: Change::Assign { fields, event: Some(EVENTS_SKIPPED.to_owned()) },
        view: None,
        precondition: Precondition::None,
        idempotency: None,
        cause: Cause::default(),
        now: outside.now(),
        entropy: outside.entropy(),
    };
    match store.commit(write).await {
        Ok(Ok(_)) => {}
        Ok(Err(problem)) => tracing::warn!(?problem, "skipped events cannot be reported"),
        Err(error) => tracing::warn!(%error, "skipped events cannot be reported"),
    }
}
