//! After a gap: hands over the events that the list `/v1/events` still has, from the last event
//! that was received on, and then continues the stream where the list ends.

use super::{Follower, State};
use crate::client;
use crate::follow::{Checkpoint, Error, Event, Gap, Status, is_final};
use crate::own::{includes, is_own};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Events of one page.
const PAGE: &str = "100";
/// Events of the second of the last event that are held back until that event is found in it. More
/// are handed over, and may then be repeated.
const MAX_HELD: usize = 10_000;

pub(super) struct Reread {
    /// Where the stream continues if the list cannot be read.
    resumed_at: Option<String>,
    /// Unix seconds; `None` if there is nothing to read.
    since: Option<u64>,
    /// The last event that was received.
    last: Option<String>,
    held: Vec<Event>,
    cursor: Option<String>,
    /// After a failure: when the page is read again.
    not_before: Option<Instant>,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Box<RawValue>>,
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    next_cursor: Option<String>,
    has_more: bool,
}

impl Reread {
    /// Everything from this time on, for a follower that begins in the past.
    pub(super) fn since(created: u64, last: Option<String>) -> Reread {
        Reread {
            resumed_at: None,
            since: Some(created),
            last,
            held: Vec::new(),
            cursor: None,
            not_before: None,
        }
    }

    pub(super) fn new(gap: &Gap, last: &Checkpoint) -> Reread {
        // After an expired position, everything that the server still has is new. In another
        // database that cannot be known without a time.
        let all = (gap.reason == "expired").then_some(0);
        Reread {
            resumed_at: gap.resumed_at.clone(),
            since: last.created.or(all),
            last: last.event.clone(),
            held: Vec::new(),
            cursor: None,
            not_before: None,
        }
    }
}

impl Follower {
    pub(super) async fn reread(&mut self) -> Result<(), Error> {
        let State::Rereading(reread) = &self.state else { return Ok(()) };
        let readable = self.settings.parent.is_none();
        let Some(since) = reread.since.filter(|_| readable) else {
            self.resume();
            return Ok(());
        };
        if let Some(not_before) = reread.not_before {
            tokio::time::sleep_until(not_before).await; // waits for: the next attempt
        }
        let mut request = self.client.get("/v1/events");
        request = request
            .query("sort", "created")
            .query("limit", PAGE)
            .query("min_created", &since.to_string());
        if let Some(resource) = &self.settings.resource {
            request = request.query("resource", resource);
        }
        if let Some(cursor) = &reread.cursor {
            request = request.query("after", cursor);
        }
        // Once: the pauses are those of the follower, which a caller that stops waiting keeps.
        let read = match request.send_attempt().await {
            Ok(response) => {
                let position = response.position().map(str::to_owned);
                response.json::<List>().map(|list| (list, position))
            }
            Err(error) => Err(error),
        };
        match read {
            Ok((list, position)) => self.take_page(list, position, since),
            Err(error) if self.has_new_token(&error) => {}
            // A token or a restricted key may follow streams and not read the list.
            Err(error) if is_final(&error) => {
                if !self.can_resume() {
                    return Err(Error::Refused(error));
                }
                (self.on_status)(Status::RereadRefused { reason: &error.to_string() });
                self.resume();
            }
            Err(error) => self.reread_later(&error),
        }
        Ok(())
    }

    /// Reads the same page again after a delay. The time is kept: the caller may stop waiting.
    fn reread_later(&mut self, error: &client::Error) {
        let asked = error.api().and_then(|api| api.retry_after);
        let delay = self.backoff.next_asked(asked);
        if let State::Rereading(reread) = &mut self.state {
            reread.not_before = Some(Instant::now() + delay);
        }
        let reason = error.to_string();
        (self.on_status)(Status::Disconnected { reason: &reason, retry_in: delay });
    }

    fn take_page(&mut self, list: List, position: Option<String>, since: u64) {
        self.succeeded();
        let State::Rereading(reread) = &mut self.state else { return };
        reread.not_before = None;
        let next = list.pagination.next_cursor.filter(|_| list.pagination.has_more);
        let ended = next.is_none();
        reread.cursor = next;
        let mut held = std::mem::take(&mut reread.held);
        let mut events = Vec::new();
        // These events have no position of their own. Until the list is read to its end, a process
        // that starts again reads it again.
        let before = self.processed.position.clone();
        for text in &list.data {
            let event = Event::listed(text.get().to_owned(), before.clone());
            if event.created() == Some(since) && held.len() < MAX_HELD {
                let found = reread.last.as_deref() == Some(&*event.mark());
                // The list has the order of the log: what stands before it was received too.
                if found {
                    held.clear();
                } else {
                    held.push(event);
                }
            } else {
                events.append(&mut held);
                events.push(event);
            }
        }
        if ended {
            // All events of the second, if it is the last one.
            held.append(&mut events);
            events = held;
        } else {
            reread.held = held;
        }
        for event in events {
            if self.is_wanted(event.kind()) {
                self.push_event(event);
            }
        }
        if ended {
            // The server reads the position before the records: the stream repeats at most what
            // was committed in between, which is recognised.
            self.received = None;
            match position {
                Some(position) => self.push_position(position),
                None => self.resume(),
            }
            self.state = State::Waiting(None);
        }
    }

    /// Whether the stream has told where it continues. A follower that begins in the past needs
    /// the list.
    fn can_resume(&self) -> bool {
        matches!(&self.state, State::Rereading(reread) if reread.resumed_at.is_some())
    }

    /// Continues where the stream begins, without the list.
    fn resume(&mut self) {
        let State::Rereading(reread) = &self.state else { return };
        let resumed_at = reread.resumed_at.clone();
        self.received = None;
        if let Some(position) = resumed_at {
            self.push_position(position);
        }
        self.state = State::Waiting(None);
    }

    /// Whether the subscription includes this type.
    fn is_wanted(&self, kind: &str) -> bool {
        let types = &self.settings.types;
        if types.is_empty() {
            return !is_own(kind);
        }
        let is_feed = |wanted: &str| kind.strip_suffix(".created") == Some(wanted);
        types.iter().any(|wanted| includes(wanted, kind) || is_feed(wanted))
    }
}
