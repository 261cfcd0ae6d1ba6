//! Events are kept for as long as the schema says, then they go, in slices that the store bounds.
//! Those that an enabled endpoint has not been delivered are kept longer, and then it is reported.

use crate::Outside;
use model::record::Fields;
use model::schema::Builtin;
use model::webhook::pattern::EVENTS_SKIPPED;
use model::write::{Cause, Change, Precondition, Write};
use model::{Schema, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Repeats, SkippedRange, Store};

/// Events removed in one commit at most; the store ends a slice earlier when its time is up.
const BATCH: usize = 1_000;
/// Between two slices while more is due: commits come in between. Slices that adapt to 4 ms and
/// this pause leave the writer about half its time.
const PAUSE: Duration = Duration::from_millis(3);
const INTERVAL: Duration = Duration::from_secs(60);
/// After a failure: on a full disk, removing old events is what makes room.
const FAILED: Duration = Duration::from_secs(5);

/// Runs until the task is dropped.
pub async fn run(schema: Arc<Schema>, store: Arc<dyn Store>, outside: Arc<dyn Outside>) {
    let before = |kept: Duration| {
        let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        Timestamp(outside.now().0.saturating_sub(kept))
    };
    let (retention, longest) =
        (schema.events.retention, schema.events.retention + schema.events.max_backlog);
    let repeats = Repeats::new();
    let mut skipped = Skipped::default();
    loop {
        let wait = match store.expire(before(retention), before(longest), BATCH).await {
            Ok(expired) => {
                repeats.clear();
                skipped.add(expired.skipped);
                if expired.events == 0 || skipped.waits_long() {
                    for range in skipped.take() {
                        report_skipped(&schema, &*store, &*outside, &range).await;
                    }
                }
                if expired.events > 0 { PAUSE } else { INTERVAL }
            }
            Err(error) => {
                if let Some(times) = repeats.note(&error.to_string()) {
                    tracing::warn!(%error, times, "old events cannot be removed");
                }
                FAILED
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Ranges that are not reported yet: each endpoint has one report for all slices of a sweep. What a
/// crash keeps from being reported stands among the endpoint's deliveries all the same.
#[derive(Default)]
struct Skipped {
    since: Option<Instant>,
    ranges: BTreeMap<(i64, String), SkippedRange>,
}

impl Skipped {
    fn add(&mut self, ranges: Vec<SkippedRange>) {
        for mut range in ranges {
            self.since.get_or_insert_with(Instant::now);
            let key = (range.scope.0, range.endpoint.clone());
            if let Some(known) = self.ranges.get(&key) {
                range.first = range.first.min(known.first);
            }
            self.ranges.insert(key, range);
        }
    }

    /// Whether a sweep that does not end keeps a report back for too long.
    fn waits_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > INTERVAL)
    }

    fn take(&mut self) -> impl Iterator<Item = SkippedRange> + use<> {
        self.since = None;
        std::mem::take(&mut self.ranges).into_values()
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
