//! Finds events that webhooks did not deliver: reads the provider's list of events from time to
//! time and hands each of them to a [`Sink`], which knows those that arrived.
//!
//! ```no_run
//! use restive_kit::client::Client;
//! use restive_kit::reconcile::{Event, Offered, Reconciler, Restive, Sink};
//!
//! struct Printer;
//!
//! impl Sink for Printer {
//!     type Error = std::convert::Infallible;
//!     async fn offer(&self, event: &Event) -> Result<Offered, Self::Error> {
//!         println!("{} {}", event.kind, event.id);
//!         Ok(Offered::New)
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("https://api.example.com").key("sk_live_…").build()?;
//! let mut reconciler = Reconciler::new(Restive::new(client).types(&["order.*"]), Printer);
//! let report = reconciler.run_once().await?;
//! println!("{} of {} events were missing", report.missed, report.checked);
//! # Ok(())
//! # }
//! ```
//!
//! A run reads the events since the previous run, and some time before it (`overlap`), oldest
//! first. It leaves out the newest ones (`min_age`), whose webhooks may still be on their way. An
//! error ends the run; the next run begins where the last complete one ended, so nothing is
//! skipped. A run ends at the newest event that the provider showed, by the provider's clock: a
//! wrong clock here delays events, or fetches them early, but skips none.

mod restive;
mod stripe;

pub use self::restive::Restive;
pub use self::stripe::Stripe;
pub use crate::client::{BoxError, Client};

use crate::client;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pages of one run, a bound against a provider whose pages never end: with 100 events each, a
/// million events.
const MAX_PAGES: usize = 10_000;

/// An event of the provider's list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    pub id: String,
    /// The `type`.
    pub kind: String,
    /// Unix seconds.
    pub created: u64,
    /// The whole event as JSON, as the provider sent it.
    pub text: String,
}

/// A provider's list of events.
pub trait Provider: Send {
    /// Events that were created at `since` (Unix seconds) or later, oldest first. `cursor` is the
    /// `next` of the previous page.
    fn page(
        &mut self,
        since: u64,
        cursor: Option<&str>,
    ) -> impl Future<Output = Result<EventPage, client::Error>> + Send;
}

/// One page of events, oldest first.
#[derive(Debug, Default)]
pub struct EventPage {
    pub events: Vec<Event>,
    pub next: Option<String>,
}

/// Receives events, and knows which of them it already has.
pub trait Sink: Send + Sync {
    type Error: Into<BoxError>;

    /// Takes the event unless it is known. It must be durable before this returns: the next run
    /// may begin after it.
    fn offer(&self, event: &Event) -> impl Future<Output = Result<Offered, Self::Error>> + Send;
}

/// What a sink did with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It was missing, and is taken.
    New,
    /// It arrived before.
    Known,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    pub checked: u64,
    pub missed: u64,
    /// Everything created before this time (Unix seconds, by the provider's clock) was checked.
    /// Store it, and give it to [`Reconciler::since`] after a restart. None until a run has found
    /// an event.
    pub through: Option<u64>,
}

/// Why a run ended early. The next run repeats it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The provider did not return its events.
    Provider(client::Error),
    /// The sink did not take an event.
    Sink(BoxError),
    /// The provider returned more pages than a run reads.
    TooManyPages,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Provider(error) => write!(out, "cannot read the provider's events: {error}"),
            Error::Sink(error) => write!(out, "cannot store a missed event: {error}"),
            Error::TooManyPages => write!(out, "the list of events has over {MAX_PAGES} pages"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Provider(error) => Some(error),
            Error::Sink(error) => Some(&**error),
            Error::TooManyPages => None,
        }
    }
}

/// Compares a provider's events with those of a sink.
#[must_use]
pub struct Reconciler<P, S> {
    provider: P,
    sink: S,
    interval: Duration,
    overlap: Duration,
    min_age: Duration,
    lookback: Duration,
    /// The newest event of the complete runs, by the provider's clock.
    through: Option<u64>,
    /// Where the first run begins, until it has found an event.
    begin: Option<u64>,
}

impl<P: Provider, S: Sink> Reconciler<P, S> {
    pub fn new(provider: P, sink: S) -> Reconciler<P, S> {
        Reconciler {
            provider,
            sink,
            interval: Duration::from_secs(300),
            overlap: Duration::from_secs(600),
            min_age: Duration::from_secs(60),
            lookback: Duration::from_secs(3 * 24 * 3600),
            through: None,
            begin: None,
        }
    }

    /// Time between two runs; 5 minutes by default.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How far a run goes back behind the previous one, for events that the provider lists late
    /// and for clocks that differ; 10 minutes by default.
    pub fn overlap(mut self, overlap: Duration) -> Self {
        self.overlap = overlap;
        self
    }

    /// Younger events are left to the next run; 1 minute by default.
    pub fn min_age(mut self, age: Duration) -> Self {
        self.min_age = age;
        self
    }

    /// How far the first run goes back; 3 days by default.
    pub fn lookback(mut self, lookback: Duration) -> Self {
        self.lookback = lookback;
        self
    }

    /// Begins after an earlier process's runs: its [`Report::through`].
    pub fn since(mut self, through: u64) -> Self {
        self.through = Some(through);
        self
    }

    /// Compares now.
    pub async fn run_once(&mut self) -> Result<Report, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.run_at(now).await
    }

    /// Compares at this time (Unix seconds).
    pub async fn run_at(&mut self, now: u64) -> Result<Report, Error> {
        let until = now.saturating_sub(self.min_age.as_secs());
        let since = self.begin_of_run(now);
        let mut report = Report { through: self.through, ..Report::default() };
        let mut cursor: Option<String> = None;
        let mut newest = since;
        for _ in 0..MAX_PAGES {
            let page = self.provider.page(since, cursor.as_deref()).await;
            let page = page.map_err(Error::Provider)?;
            for event in &page.events {
                if event.created > until {
                    continue;
                }
                let offered = self.sink.offer(event).await;
                newest = newest.max(event.created);
                report.checked += 1;
                match offered.map_err(|error| Error::Sink(error.into()))? {
                    Offered::New => report.missed += 1,
                    Offered::Known => {}
                }
            }
            // Oldest first: what follows is younger still.
            let young = page.events.last().is_some_and(|event| event.created > until);
            match page.next {
                Some(next) if !young => cursor = Some(next),
                _ => {
                    // Not to `until`, which is as wrong as the clock here: what the provider
                    // creates later must not be before it.
                    if report.checked > 0 {
                        report.through = report.through.max(Some(newest));
                        self.through = report.through;
                    }
                    return Ok(report);
                }
            }
        }
        if newest <= since {
            return Err(Error::TooManyPages);
        }
        // The next run goes on where this one ends.
        let end = newest.saturating_add(self.overlap.as_secs());
        report.through = report.through.max(Some(end));
        self.through = report.through;
        Ok(report)
    }

    /// Not later than the clock here allows. A position from the future says nothing about what was
    /// read: the run begins as the first one, and the position is forgotten.
    fn begin_of_run(&mut self, now: u64) -> u64 {
        let latest = now.saturating_add(self.overlap.as_secs());
        self.through = self.through.filter(|through| *through <= latest);
        if let Some(through) = self.through {
            return through.min(now).saturating_sub(self.overlap.as_secs());
        }
        // A clock that is set back between two runs was wrong before.
        let begin = now.saturating_sub(self.lookback.as_secs());
        let begin = self.begin.map_or(begin, |earlier| earlier.min(begin));
        self.begin = Some(begin);
        begin
    }

    /// Compares every `interval`, for ever. `done` receives the result of each run.
    pub async fn run(&mut self, mut done: impl FnMut(Result<Report, Error>)) {
        loop {
            done(self.run_once().await);
            tokio::time::sleep(self.interval).await; // waits for: the next run
        }
    }
}

/// The members that every event has.
#[derive(Deserialize)]
struct Envelope {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    created: u64,
}

/// An event from its text in a list.
fn event(text: &RawValue) -> Result<Event, client::Error> {
    let envelope: Envelope = serde_json::from_str(text.get()).map_err(|error| {
        client::Error::Unexpected(format!("an event without id, type or created: {error}"))
    })?;
    let Envelope { id, kind, created } = envelope;
    Ok(Event { id, kind, created, text: text.get().to_owned() })
}

#[cfg(test)]
mod tests;
