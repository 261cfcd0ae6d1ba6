//! Polling a feed: one request after the other.

use super::{Follower, State};
use crate::client::{self, Response};
use crate::follow::backoff::LONGEST_ASKED;
use crate::follow::{Channel, Error, Event, Gap, Status};
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::Instant;

/// Records of one response; the server's maximum by default.
const PAGE: usize = 100;
/// The server answers a long poll after 25 s by default; this is for slower ones.
const HELD: Duration = Duration::from_secs(90);
/// The pause of a long poll after a network error (the specification's "about 3 s").
const AFTER_ERROR: Duration = Duration::from_secs(3);
/// An empty response to a long poll that comes sooner is not a timeout of the server: it is
/// stopping, or a proxy answered.
const SOON: Duration = Duration::from_secs(1);

/// Ahead of every log: the server answers with its current position, where a follower without one
/// begins.
const AHEAD: &str = "9007199254740991";

#[derive(Default)]
pub(super) struct Poll {
    /// When the next request is sent.
    next: Option<Instant>,
    accepted: bool,
}

impl Follower {
    pub(super) async fn poll(&mut self) -> Result<(), Error> {
        let State::Polling(poll) = &self.state else { return Ok(()) };
        if let Some(next) = poll.next {
            tokio::time::sleep_until(next).await; // waits for: the time of the next request
        }
        let (feed, interval) = match &self.settings.channel {
            Channel::ShortPoll { feed, interval } => (feed.clone(), Some(*interval)),
            Channel::LongPoll { feed } => (feed.clone(), None),
            _ => return Ok(()),
        };
        let begin = Instant::now();
        let mut request = self.client.get(&format!("/api/{feed}"));
        request = request.query("limit", &PAGE.to_string());
        request = request.query("since", self.received.as_deref().unwrap_or(AHEAD));
        if interval.is_none() {
            request = request.query("wait", "true").timeout(HELD);
        }
        let response = match request.send_attempt().await {
            Ok(response) => response,
            Err(error) => return self.poll_failed(error, interval).await,
        };
        match self.take_records(&feed, &response) {
            Ok(0) => {
                let wish = client::retry_after(response.headers());
                let pause = match interval {
                    Some(interval) => interval,
                    None if begin.elapsed() < SOON => {
                        wish.unwrap_or(SOON).clamp(SOON, LONGEST_ASKED)
                    }
                    None => Duration::ZERO,
                };
                self.schedule(pause);
            }
            Ok(records) if interval.is_some() && records < PAGE => {
                self.schedule(interval.unwrap_or_default());
            }
            Ok(_) => self.schedule(Duration::ZERO),
            Err(error) => return self.poll_failed(error, interval).await,
        }
        Ok(())
    }

    fn schedule(&mut self, pause: Duration) {
        if let State::Polling(poll) = &mut self.state {
            poll.next = Some(Instant::now() + pause);
        }
    }

    async fn poll_failed(
        &mut self,
        error: client::Error,
        interval: Option<Duration>,
    ) -> Result<(), Error> {
        let network = matches!(error, client::Error::Network { .. } | client::Error::Timeout(_));
        if network && interval.is_none() {
            self.lost(&error.to_string(), AFTER_ERROR);
            return Ok(());
        }
        self.failed(error).await
    }

    /// Queues the records of a response; returns their number.
    fn take_records(&mut self, feed: &str, response: &Response) -> Result<usize, client::Error> {
        let records: Vec<Box<RawValue>> = response.json()?;
        let unexpected = || client::Error::Unexpected("no X-Stream-Position".to_owned());
        let position = response.position().ok_or_else(unexpected)?.to_owned();
        if let State::Polling(poll) = &mut self.state
            && !std::mem::replace(&mut poll.accepted, true)
        {
            self.succeeded();
            (self.on_status)(Status::Connected);
        }
        self.backoff.reset();
        let gap = response.header("x-stream-gap") == Some("true");
        if gap && self.received.is_none() {
            self.push_position(position);
            return Ok(0);
        }
        if gap {
            let gap = Gap {
                // The response does not tell which of the two.
                reason: "other_epoch".to_owned(),
                requested: self.received.clone(),
                resumed_at: Some(position),
                refetch: vec![format!("/v1/{feed}")],
            };
            self.push_gap_of_feed(gap);
            return Ok(0);
        }
        let epoch = position.split_once('.').map(|(epoch, _)| epoch.to_owned());
        let count = records.len();
        for (at, record) in records.into_iter().enumerate() {
            let mut event = Event::new(feed.to_owned(), record.get().to_owned(), position.clone());
            // The number of a record is its position; after the last one, other events may follow.
            if at + 1 < count
                && let (Some(epoch), Some(number)) = (&epoch, event.number())
            {
                event.move_to(format!("{epoch}.{number}"));
            }
            self.push_event(event);
        }
        if count < PAGE {
            self.floor = None;
        }
        if count == 0 {
            self.push_position(position);
        }
        Ok(count)
    }
}
