//! Server-sent events and WebSockets: one connection that delivers events as they are committed.

use super::{Follower, State};
use crate::client::{self, between};
use crate::follow::sse::{Block, Parser};
use crate::follow::websocket::{self, Message, Socket};
use crate::follow::{Channel, Error, Event, Gap, Status};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout};

/// A connection that ends sooner, with a request to reconnect at once, is treated as a failure.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// After 1012: all clients of a server that restarts come back within this time.
const DRAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// How often a waiting connection checks whether the machine slept: then the server has probably
/// closed it, and the network may be another one.
const LOOK: Duration = Duration::from_secs(5);
const SLEPT: Duration = Duration::from_secs(10);

pub(super) struct Stream {
    source: Source,
    since: Instant,
    last_data: Instant,
    /// The server has sent a position: the subscription is in force.
    accepted: bool,
    /// The delay that the server wishes, from `retry:`.
    retry: Option<Duration>,
}

enum Source {
    Events(Box<(Incoming, Parser)>),
    Socket(Box<Socket>),
}

/// A message of a WebSocket.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: String,
    position: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Closing {
    #[serde(default)]
    reason: String,
}

/// What a read returned.
enum Read {
    Blocks,
    Text(String),
    End(String),
    Close(u16, String),
    TooLarge,
}

impl Follower {
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        let opened = match self.settings.channel {
            Channel::WebSocket => self.open_socket().await,
            _ => self.open_events().await,
        };
        match opened {
            Ok(source) => {
                let since = Instant::now();
                let stream =
                    Stream { source, since, last_data: since, accepted: false, retry: None };
                self.state = State::Streaming(Box::new(stream));
                Ok(())
            }
            Err(error) => self.failed(error).await,
        }
    }

    async fn open_events(&self) -> Result<Source, client::Error> {
        let mut request = self.subscribe(self.client.get("/api/events"));
        request = request.header("accept", "text/event-stream");
        if let Some(position) = &self.received {
            request = request.header("last-event-id", position);
        }
        let response = request.open().await?;
        let kind = response.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let why = format!("status {} with `{kind}`, not a stream", response.status());
            return Err(client::Error::Unexpected(why));
        }
        let parser = Parser::new(self.settings.max_event_bytes);
        Ok(Source::Events(Box::new((response.into_body(), parser))))
    }

    async fn open_socket(&self) -> Result<Source, client::Error> {
        let mut request = self.subscribe(websocket::request(&self.client));
        if let Some(position) = &self.received {
            request = request.query("since", position);
        }
        let socket = websocket::open(request, self.settings.max_event_bytes).await?;
        Ok(Source::Socket(Box::new(socket)))
    }

    pub(super) async fn read_stream(&mut self) -> Result<(), Error> {
        let State::Streaming(stream) = &mut self.state else { return Ok(()) };
        let read = stream.read(self.settings.idle_timeout).await;
        match read {
            Read::TooLarge => Err(Error::TooLarge { limit_bytes: self.settings.max_event_bytes }),
            Read::Blocks => self.take_blocks().await,
            Read::Text(text) => self.take_text(&text),
            Read::End(reason) => {
                let State::Streaming(stream) = &self.state else { return Ok(()) };
                // A `retry:` without a position means that the server had no room.
                let wish = stream.retry.filter(|_| stream.accepted);
                self.lost_with_backoff(&reason, wish);
                Ok(())
            }
            Read::Close(code, reason) => self.closed(code, &reason).await,
        }
    }

    async fn take_blocks(&mut self) -> Result<(), Error> {
        while let State::Streaming(stream) = &mut self.state
            && let Source::Events(events) = &mut stream.source
            && let Some(block) = events.1.next()
        {
            if let Some(retry_ms) = block.retry_ms {
                stream.retry = Some(Duration::from_millis(retry_ms));
            }
            self.take_block(block).await?;
        }
        Ok(())
    }

    async fn take_block(&mut self, block: Block) -> Result<(), Error> {
        let kind = block.event.unwrap_or_else(|| "message".to_owned());
        let (id, data) = (block.id.filter(|id| !id.is_empty()), block.data);
        if id.is_some() {
            self.accepted();
        }
        match (&*kind, id, data) {
            ("stream.reset", _, Some(data)) => self.push_gap(gap(&data)),
            ("stream.closing", _, Some(data)) => {
                let closing: Closing = serde_json::from_str(&data).unwrap_or_default();
                // The codes that a WebSocket gets for the same reasons.
                let code = match &*closing.reason {
                    "key_revoked" => 4001,
                    "token_expired" => 4201,
                    _ => 4102,
                };
                return self.closed(code, &closing.reason).await;
            }
            (_, Some(id), Some(data)) => self.push_event(Event::new(kind, data, id)),
            (_, Some(id), None) => self.push_position(id),
            (_, None, Some(data)) => self.push_message(kind, data),
            (_, None, None) => {}
        }
        Ok(())
    }

    fn take_text(&mut self, text: &str) -> Result<(), Error> {
        let message: Envelope<'_> = match serde_json::from_str(text) {
            Ok(message) => message,
            Err(error) => {
                self.lost_with_backoff(&format!("not a message: {error}"), None);
                return Ok(());
            }
        };
        if message.position.is_some() {
            self.accepted();
        }
        let data = message.data.map(RawValue::get).unwrap_or_default().to_owned();
        match (&*message.kind, message.position) {
            ("ack" | "pong", _) => {}
            ("stream.reset", _) => self.push_gap(gap(&data)),
            ("welcome", Some(position)) => self.push_position(position),
            (_, Some(position)) => self.push_event(Event::new(message.kind, data, position)),
            (_, None) => self.push_message(message.kind, text.to_owned()),
        }
        Ok(())
    }

    /// The subscription is in force.
    fn accepted(&mut self) {
        let State::Streaming(stream) = &mut self.state else { return };
        if !std::mem::replace(&mut stream.accepted, true) {
            self.succeeded();
            (self.on_status)(Status::Connected);
        }
    }

    /// The server said why it ends the connection. The range of the code tells what to do.
    async fn closed(&mut self, code: u16, reason: &str) -> Result<(), Error> {
        let lived = match &self.state {
            State::Streaming(stream) => stream.since.elapsed(),
            _ => Duration::ZERO,
        };
        let told = format!("closed: {code} {reason}");
        match code {
            // The token belonged to a key that was revoked; another token may not.
            4001 if self.client.renew_token().await => self.lost_with_backoff(&told, None),
            4000..=4099 | 1002 | 1003 | 1007..=1010 => {
                return Err(Error::Closed { code, reason: reason.to_owned() });
            }
            4200..=4299 => {
                let renewed = self.client.renew_token().await;
                if code == 4201 && !renewed {
                    return Err(Error::Closed { code, reason: reason.to_owned() });
                }
                match lived >= SHORT_LIFE {
                    true => self.lost(&told, Duration::ZERO),
                    false => self.lost_with_backoff(&told, None),
                }
            }
            1012 => self.lost(&told, between(DRAIN.0, DRAIN.1)),
            _ => self.lost_with_backoff(&told, None),
        }
        Ok(())
    }
}

impl Stream {
    /// Waits for data, up to the limit. The caller may stop waiting at any time.
    async fn read(&mut self, idle_timeout: Duration) -> Read {
        loop {
            let (begin, wall) = (Instant::now(), SystemTime::now());
            let slice = LOOK.min(idle_timeout);
            if let Ok(read) = timeout(slice, self.source.read()).await {
                self.last_data = Instant::now();
                return read;
            }
            // The clock of timeouts stands still while a machine sleeps.
            let slept = wall.elapsed().unwrap_or_default().saturating_sub(begin.elapsed());
            if slept > SLEPT {
                return Read::End(format!("the machine slept for {} s", slept.as_secs()));
            }
            if self.last_data.elapsed() >= idle_timeout {
                return Read::End(format!("nothing arrived in {idle_timeout:?}"));
            }
        }
    }
}

impl Source {
    /// Waits for data. The caller may stop waiting at any time.
    async fn read(&mut self) -> Read {
        match self {
            Source::Events(events) => {
                let (body, parser) = &mut **events;
                match body.frame().await {
                    Some(Ok(frame)) => match frame.data_ref().map(|data| parser.push(data)) {
                        Some(Err(_)) => Read::TooLarge,
                        _ => Read::Blocks,
                    },
                    Some(Err(error)) => Read::End(error.to_string()),
                    None => Read::End("the server ended the stream".to_owned()),
                }
            }
            Source::Socket(socket) => match socket.next().await {
                Ok(Message::Text(text)) => Read::Text(text),
                Ok(Message::Close(code, reason)) => Read::Close(code, reason),
                Ok(Message::TooLarge) => Read::TooLarge,
                Ok(Message::End) => Read::End("the server ended the connection".to_owned()),
                Err(error) => Read::End(error.to_string()),
            },
        }
    }
}

fn gap(data: &str) -> Gap {
    serde_json::from_str(data).unwrap_or_default()
}
