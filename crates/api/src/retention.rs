//! Removes events that are older than the schema keeps them, in slices that the store bounds.
//! Events that an enabled endpoint has not received yet are kept longer; if they are then removed
//! undelivered, an event reports it.

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

/// Maximum events removed in one commit; the store ends a slice earlier when its time is up.
const BATCH: usize = 1_000;
/// Pause between two slices while more events are due, for other commits; as long as the last slice
/// took, if that is longer. This leaves the writer about half its time.
const PAUSE: Duration = Duration::from_millis(3);
const INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a failure. Short, because on a full disk the removal of old events makes room.
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
        let began = Instant::now();
        let wait = match store.expire(before(retention), before(longest), BATCH).await {
            Ok(expired) => {
                repeats.clear();
                skipped.add(expired.skipped);
                if expired.events == 0 || skipped.waits_long() {
                    for range in skipped.take() {
                        report_skipped(&schema, &*store, &*outside, &range).await;
                    }
                }
                if expired.events > 0 { PAUSE.max(began.elapsed()) } else { INTERVAL }
            }
            Err(error) => {
                if let Some(times) = repeats.note(&error.to_string()) {
                    tracing::warn!(%error, times, "old events could not be removed");
                }
                FAILED
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Undelivered ranges that are not reported yet: each endpoint gets one report for all slices of a
/// sweep. A crash loses the report, but the deliveries of the endpoint still show the range.
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

    /// Whether a sweep that does not end has delayed a report for too long.
    fn waits_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > INTERVAL)
    }

    fn take(&mut self) -> impl Iterator<Item = SkippedRange> + use<> {
        self.since = None;
        std::mem::take(&mut self.ranges).into_values()
    }
}

/// Reports to the owner of an endpoint, by an event, that other events were not delivered.
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
        Ok(Err(problem)) => tracing::warn!(?problem, "skipped events could not be reported"),
        Err(error) => tracing::warn!(%error, "skipped events could not be reported"),
    }
}
