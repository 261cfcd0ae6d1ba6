//! The follower: holds the position, connects, reconnects, and returns updates in order. The
//! channels are in `stream` and `poll`.

mod poll;
mod reread;
mod stream;

use self::poll::Poll;
use self::reread::Reread;
use self::stream::Stream;
use super::backoff::{Backoff, FIRST, LONGEST};
use super::event::Recent;
use super::position::InMemory;
use super::{Channel, Checkpoint, Error, Event, Gap, PositionStore, Status, Update, is_final};
use crate::client::{self, Client, Request};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

type OnStatus = Box<dyn FnMut(Status<'_>) + Send>;

/// Builds a [`Follower`].
#[must_use]
pub struct Builder {
    client: Client,
    settings: Settings,
    store: Box<dyn PositionStore>,
    on_status: OnStatus,
    since: Option<String>,
    since_time: Option<u64>,
}

struct Settings {
    channel: Channel,
    types: Vec<String>,
    resource: Option<String>,
    parent: Option<String>,
    idle_timeout: Duration,
    max_event_bytes: usize,
}

impl Builder {
    /// Only these types, patterns such as `order.*`, or live names of feeds. Without it, everything
    /// except events of the service's own objects. Polls have the type of their feed.
    pub fn types(mut self, types: &[&str]) -> Builder {
        self.settings.types = types.iter().map(|kind| (*kind).to_owned()).collect();
        self
    }

    /// Only events of the record with this id.
    pub fn resource(mut self, id: &str) -> Builder {
        self.settings.resource = Some(id.to_owned());
        self
    }

    /// Only events of the children of the record with this id.
    pub fn parent(mut self, id: &str) -> Builder {
        self.settings.parent = Some(id.to_owned());
        self
    }

    /// Continues after this position, if the store has none. Without both, it starts now.
    pub fn since(mut self, position: &str) -> Builder {
        self.since = Some(position.to_owned());
        self
    }

    /// Begins with the events of this time (Unix seconds), if the store has no position: reads the
    /// list of events, then continues live. For streams, not for polls.
    pub fn since_time(mut self, unix_seconds: u64) -> Builder {
        self.since_time = Some(unix_seconds);
        self
    }

    /// Keeps the position here, so that the next process continues where this one ended. An event
    /// counts as processed when the caller asks for the next one.
    pub fn store(mut self, store: impl PositionStore + 'static) -> Builder {
        self.store = Box::new(store);
        self
    }

    /// Reconnects if nothing arrives for this time. The server sends a sign of life every 25 or
    /// 30 s, so the default, 60 s, detects networks that are gone, also after a sleep.
    pub fn idle_timeout(mut self, timeout: Duration) -> Builder {
        self.settings.idle_timeout = timeout;
        self
    }

    /// Maximum size of one event; 16 MiB by default.
    pub fn max_event_bytes(mut self, bytes: usize) -> Builder {
        self.settings.max_event_bytes = bytes;
        self
    }

    /// Called when the connection is established or lost.
    pub fn on_status(mut self, on_status: impl FnMut(Status<'_>) + Send + 'static) -> Builder {
        self.on_status = Box::new(on_status);
        self
    }

    pub fn build(self) -> Follower {
        Follower {
            client: self.client,
            settings: self.settings,
            store: self.store,
            on_status: self.on_status,
            since: self.since,
            since_time: self.since_time,
            loaded: false,
            processed: Checkpoint::default(),
            returned: None,
            unsaved: false,
            received: None,
            ready: VecDeque::new(),
            recent: Recent::default(),
            backoff: Backoff::default(),
            refreshed: false,
            floor: None,
            state: State::Waiting(None),
        }
    }
}

/// Receives events; see the [module](super).
pub struct Follower {
    client: Client,
    settings: Settings,
    store: Box<dyn PositionStore>,
    on_status: OnStatus,
    since: Option<String>,
    since_time: Option<u64>,
    loaded: bool,
    /// Everything up to here was processed by the caller.
    processed: Checkpoint,
    /// The update that the caller works on.
    returned: Option<Checkpoint>,
    unsaved: bool,
    /// The position up to which events were received: where to continue.
    received: Option<String>,
    ready: VecDeque<Item>,
    recent: Recent,
    backoff: Backoff,
    /// A token was refused and replaced, and the new one not accepted yet.
    refreshed: bool,
    /// Polls after a gap: older records, by their Unix seconds, were received before it.
    floor: Option<u64>,
    state: State,
}

/// What the follower does next.
enum State {
    /// Connects at this time.
    Waiting(Option<Instant>),
    Streaming(Box<Stream>),
    Polling(Poll),
    /// Reads the list of events after a gap.
    Rereading(Box<Reread>),
}

enum Item {
    Update(Update),
    Event(Event),
    /// The position moved without an event.
    Position(String),
}

impl Follower {
    pub fn builder(client: Client, channel: Channel) -> Builder {
        Builder {
            client,
            settings: Settings {
                channel,
                types: Vec::new(),
                resource: None,
                parent: None,
                idle_timeout: Duration::from_secs(60),
                max_event_bytes: 16 << 20,
            },
            store: Box::new(InMemory),
            on_status: Box::new(|_| {}),
            since: None,
            since_time: None,
        }
    }

    /// The next update. It waits as long as necessary; the caller may stop waiting at any time
    /// without losing one. The call also stores the position of the update before.
    pub async fn next(&mut self) -> Result<Update, Error> {
        self.load().await?;
        if let Some(checkpoint) = self.returned.take() {
            (self.processed, self.unsaved) = (checkpoint, true);
        }
        loop {
            self.save().await?;
            match self.ready.pop_front() {
                Some(Item::Event(event)) => {
                    self.returned = Some(Checkpoint {
                        position: event.position().to_owned(),
                        event: Some(event.mark()),
                        created: event.created().or(self.processed.created),
                    });
                    return Ok(Update::Event(event));
                }
                Some(Item::Update(update)) => return Ok(update),
                Some(Item::Position(position)) => {
                    self.unsaved = self.processed.position != position;
                    self.processed.position = position;
                }
                None => self.advance().await?,
            }
        }
    }

    /// The position after the last event that was processed.
    pub fn position(&self) -> Option<&str> {
        Some(&*self.processed.position).filter(|position| !position.is_empty())
    }

    async fn load(&mut self) -> Result<(), Error> {
        if self.loaded {
            return Ok(());
        }
        let stored = self.store.load().await.map_err(Error::Store)?;
        if let Some(checkpoint) = stored.or(self.since.take().map(Checkpoint::new)) {
            self.recent.insert(checkpoint.event.clone().unwrap_or_default());
            self.processed = checkpoint;
        }
        let Checkpoint { position, event, created } = self.processed.clone();
        if !position.is_empty() {
            self.received = Some(position);
        } else if let Some(created) = created.or(self.since_time) {
            // Also if the last process ended while it read the list.
            self.state = State::Rereading(Box::new(Reread::since(created, event)));
        }
        self.loaded = true;
        Ok(())
    }

    async fn save(&mut self) -> Result<(), Error> {
        if self.unsaved {
            self.store.save(&self.processed).await.map_err(Error::Store)?;
            self.unsaved = false;
        }
        Ok(())
    }

    /// Does one step: waits, connects or reads.
    async fn advance(&mut self) -> Result<(), Error> {
        match &mut self.state {
            State::Waiting(until) => {
                if let Some(until) = *until {
                    tokio::time::sleep_until(until).await; // waits for: the next attempt
                }
                self.begin().await
            }
            State::Streaming(_) => self.read_stream().await,
            State::Polling(_) => self.poll().await,
            State::Rereading(_) => self.reread().await,
        }
    }

    async fn begin(&mut self) -> Result<(), Error> {
        match self.settings.channel {
            Channel::ShortPoll { .. } | Channel::LongPoll { .. } => {
                self.state = State::Polling(Poll::default());
                Ok(())
            }
            Channel::ServerSentEvents | Channel::WebSocket => self.connect().await,
        }
    }

    /// Adds the parameters of the subscription, except the position.
    fn subscribe(&self, mut request: Request) -> Request {
        let settings = &self.settings;
        if !settings.types.is_empty() {
            request = request.query("types", &settings.types.join(","));
        }
        for (name, value) in [("resource", &settings.resource), ("parent", &settings.parent)] {
            if let Some(value) = value {
                request = request.query(name, value);
            }
        }
        request
    }

    /// The server accepted the request.
    fn succeeded(&mut self) {
        self.backoff.reset();
        self.refreshed = false;
    }

    /// Queues an event, unless it was returned before.
    fn push_event(&mut self, event: Event) {
        self.received = Some(event.position().to_owned());
        let old = self.floor.is_some_and(|floor| event.created().is_some_and(|at| at < floor));
        let item = match !old && self.recent.insert(event.mark()) {
            true => Item::Event(event),
            false => Item::Position(event.position().to_owned()),
        };
        self.ready.push_back(item);
    }

    fn push_position(&mut self, position: String) {
        if self.received.as_ref() != Some(&position) {
            self.received = Some(position.clone());
            self.ready.push_back(Item::Position(position));
        }
    }

    fn push_message(&mut self, kind: String, text: String) {
        self.ready.push_back(Item::Update(Update::Message { kind, text }));
    }

    /// The server cannot continue: reports it, and reads the list of events.
    fn push_gap(&mut self, gap: Gap) {
        self.state = State::Rereading(Box::new(Reread::new(&gap, &self.last_received())));
        self.ready.push_back(Item::Update(Update::Gap(gap)));
    }

    /// The same for a feed, whose records are read again from the first one.
    fn push_gap_of_feed(&mut self, gap: Gap) {
        self.floor = self.last_received().created;
        self.received = match self.floor {
            Some(_) => Some("0".to_owned()),
            None => gap.resumed_at.clone(),
        };
        self.ready.push_back(Item::Update(Update::Gap(gap)));
    }

    /// The last event that was received, which may still wait for the caller.
    fn last_received(&self) -> Checkpoint {
        let last = self.ready.iter().rev().find_map(|item| match item {
            Item::Event(event) => Some(Checkpoint {
                position: event.position().to_owned(),
                event: Some(event.mark()),
                created: event.created(),
            }),
            _ => None,
        });
        last.or(self.returned.clone()).unwrap_or_else(|| self.processed.clone())
    }

    /// Whether the token was refused and replaced, so that the request is sent again: once.
    fn has_new_token(&mut self, error: &client::Error) -> bool {
        let is_refused = error.api().is_some_and(|api| api.status == 401);
        let is_new = is_refused && !self.refreshed && self.client.has_token_callback();
        self.refreshed |= is_new;
        is_new
    }

    /// A request failed: an error if it always will, or else waits.
    async fn failed(&mut self, error: client::Error) -> Result<(), Error> {
        if self.has_new_token(&error) {
            self.lost("the token was refused", Duration::ZERO);
            return Ok(());
        }
        if is_final(&error) {
            return Err(Error::Refused(error));
        }
        let asked = error.api().and_then(|api| api.retry_after);
        let delay = self.backoff.next_asked(asked);
        self.lost(&error.to_string(), delay);
        Ok(())
    }

    /// The connection ended: connects again after this time.
    fn lost(&mut self, reason: &str, retry_in: Duration) {
        (self.on_status)(Status::Disconnected { reason, retry_in });
        self.state = State::Waiting(Some(Instant::now() + retry_in));
    }

    /// The same, after the next delay, or the one that the server wishes.
    fn lost_with_backoff(&mut self, reason: &str, wish: Option<Duration>) {
        let delay = self.backoff.next();
        // A server that wishes for no delay would get hundreds of connections in a second.
        self.lost(reason, wish.map_or(delay, |wish| wish.clamp(FIRST, LONGEST)));
    }
}
