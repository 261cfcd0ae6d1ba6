//! The log: every event, in the order of commits.

use crate::{BoxFuture, Error};
use model::event::Event;
use model::{Scope, Timestamp};
use tokio::sync::watch;

/// Reads of the log. Only `Records::commit` appends to it.
pub trait Log: Send + Sync + 'static {
    /// Up to `max` events after `after`, oldest first; of one scope or of all.
    fn events(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Event>, Error>> {
        let page = self.events_within(scope, after, max, usize::MAX);
        Box::pin(async move { page.await.map(|page| page.events) })
    }

    /// Like `events`, but ends before the event that exceeds `bytes` (see `event_bytes`). Always
    /// returns the first event.
    fn events_within(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<EventPage, Error>>;

    /// Sequence of the newest durable event; changes with each commit.
    fn position(&self) -> watch::Receiver<i64>;

    /// Sequence of the newest event before a moment; 0 if there is none.
    fn before(&self, moment: Timestamp) -> BoxFuture<'_, Result<i64, Error>>;

    /// Sequence of the oldest event that is kept; 0 in an empty log.
    fn oldest(&self) -> BoxFuture<'_, Result<i64, Error>>;

    /// The number of this log, created once. A position belongs to this log only if it names the
    /// same number. A copy of the database is another log.
    fn epoch(&self) -> u32;
}

/// Events in the order of the log.
#[derive(Clone, Debug, Default)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// A limit ended the read: more may follow.
    pub more: bool,
}

/// Events that are read on the calling thread; larger ranges wait for a thread that reads.
pub const EVENTS_INLINE: usize = 256;

/// What an event takes in memory besides its texts, roughly.
pub(crate) const EVENT_OVERHEAD_BYTES: usize = 256;

/// About how much memory an event takes.
pub fn event_bytes(event: &Event) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    event.object.len() + optional(&event.previous) + optional(&event.hidden) + EVENT_OVERHEAD_BYTES
}
