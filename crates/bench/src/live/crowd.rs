//! The load: thousands of subscribers and a few publishers on one thread, so that one clock
//! measures both ends. Subscribers do not parse: each message contains one byte that nothing else
//! on the connection has, and that byte is counted.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use memchr::{memchr_iter, memmem};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::histogram::Histogram;
use crate::http::Head;

/// Once in every message, and nowhere else: neither in heads and comments nor as the length of a
/// WebSocket frame.
pub const MARKER: u8 = b'^';
/// A ping without payload, and its masked answer. In ASCII text with short messages, these two
/// bytes cannot occur otherwise.
const PING: &[u8] = &[0x89, 0];
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];
/// Tokens from here on belong to publishers.
const PUBLISHERS: usize = 1 << 20;
const READ_BYTES: usize = 256 << 10;
/// Time limit of the response to a subscription.
const OPEN_LIMIT: Duration = Duration::from_secs(20);

pub struct Crowd {
    poll: Poll,
    events: Events,
    members: Vec<Member>,
    publishers: Vec<Publisher>,
    buffer: Vec<u8>,
    /// The time of each message, in the order of sending.
    sent: Vec<Instant>,
    answered: usize,
    delivered: u64,
    pub figures: Figures,
}

/// The figures since the last call.
#[derive(Default)]
pub struct Figures {
    pub latency: Histogram,
    pub reads: u64,
    pub bytes: u64,
}

struct Member {
    stream: TcpStream,
    seen: usize,
}

struct Publisher {
    stream: TcpStream,
    said: Vec<u8>,
    busy: bool,
}

impl Crowd {
    /// Opens this many subscriptions one after the other; each has its response before the next
    /// begins.
    pub fn open(address: &str, request: &[u8], count: usize) -> Result<Crowd> {
        let poll = Poll::new()?;
        let mut members = Vec::with_capacity(count);
        for number in 0..count {
            let stream = subscribe(address, request).with_context(|| format!("number {number}"))?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
            members.push(Member { stream, seen: 0 });
        }
        let crowd = Crowd {
            poll,
            events: Events::with_capacity(4096),
            members,
            publishers: Vec::new(),
            buffer: vec![0; READ_BYTES],
            sent: Vec::new(),
            answered: 0,
            delivered: 0,
            figures: Figures::default(),
        };
        Ok(crowd)
    }

    pub fn publishers(mut self, address: &str, count: usize) -> Result<Crowd> {
        let address: SocketAddr = address.parse()?;
        for number in 0..count {
            let mut stream = TcpStream::from_std({
                let stream = std::net::TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                stream
            });
            let token = Token(PUBLISHERS + number);
            self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
            self.publishers.push(Publisher { stream, said: Vec::new(), busy: false });
        }
        Ok(self)
    }

    /// Sends a request through a publisher without outstanding responses; false if there is none.
    pub fn publish(&mut self, request: &[u8]) -> Result<bool> {
        let Some(publisher) = self.publishers.iter_mut().find(|one| !one.busy) else {
            return Ok(false);
        };
        self.sent.push(Instant::now());
        publisher.stream.write_all(request).context("cannot publish")?;
        publisher.busy = true;
        Ok(true)
    }

    /// Waits until every published message has arrived at every subscriber and has its response.
    pub fn catch_up(&mut self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        let wanted = (self.sent.len() * self.members.len()) as u64;
        while self.delivered < wanted || self.answered < self.sent.len() {
            self.turn(Duration::from_millis(100))?;
            if Instant::now() > until {
                let (delivered, answered) = (self.delivered, self.answered);
                let messages = self.sent.len();
                bail!(
                    "after {limit:?} {delivered} of {wanted} arrived, {answered} of {messages} \
                     were answered"
                );
            }
        }
        ensure!(self.delivered == wanted, "{} arrived instead of {wanted}", self.delivered);
        Ok(())
    }

    /// Checks that every subscriber got every message exactly once.
    pub fn check(&self) -> Result<()> {
        let wanted = self.sent.len();
        let wrong = self.members.iter().filter(|member| member.seen != wanted).count();
        ensure!(wrong == 0, "{wrong} members did not get exactly {wanted} messages");
        Ok(())
    }

    /// Handles what has arrived, or waits for it.
    pub fn turn(&mut self, wait: Duration) -> Result<()> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match event.token().0.checked_sub(PUBLISHERS) {
                None => {
                    let member = &mut self.members[event.token().0];
                    let (sent, figures) = (&self.sent, &mut self.figures);
                    let count = member.hear(&mut self.buffer, sent, figures)?;
                    self.delivered += count as u64;
                }
                Some(number) => {
                    let publisher = &mut self.publishers[number];
                    self.answered += publisher.hear(&mut self.buffer)?;
                }
            }
        }
        Ok(())
    }
}

impl Member {
    /// Reads what has arrived; returns the number of messages.
    fn hear(
        &mut self,
        buffer: &mut [u8],
        sent: &[Instant],
        figures: &mut Figures,
    ) -> Result<usize> {
        let mut found = 0;
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => bail!("the server closed a subscription"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("a subscription broke"),
            };
            let now = Instant::now();
            let bytes = &buffer[..count];
            let messages = memchr_iter(MARKER, bytes).count();
            for number in self.seen..self.seen + messages {
                let sent = sent.get(number).context("more messages than were sent")?;
                figures.latency.record(now.saturating_duration_since(*sent));
            }
            self.seen += messages;
            found += messages;
            figures.reads += u64::from(messages > 0);
            figures.bytes += if messages > 0 { count as u64 } else { 0 };
            if memmem::find(bytes, PING).is_some() {
                self.stream.write_all(PONG)?;
            }
            // A short read has emptied the socket; the system reports later data again.
            if count < buffer.len() {
                break;
            }
        }
        Ok(found)
    }
}

impl Publisher {
    /// The number of responses, 0 or 1.
    fn hear(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => bail!("the server closed the publisher's connection"),
                Ok(count) => self.said.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("the publisher's connection broke"),
            }
        }
        match Head::parse(&self.said)? {
            Some(head) if self.said.len() >= head.total_bytes() => {
                let said = String::from_utf8_lossy(&self.said);
                ensure!((200..300).contains(&head.status), "publishing was answered {said}");
                self.said.clear();
                self.busy = false;
                Ok(1)
            }
            _ => Ok(0),
        }
    }
}

/// Opens one subscription and reads the head of the response.
pub fn subscribe(address: &str, request: &[u8]) -> Result<std::net::TcpStream> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(OPEN_LIMIT))?;
    stream.write_all(request)?;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).context("no answer in time")?;
        ensure!(count > 0, "it was closed");
        head.extend_from_slice(&chunk[..count]);
    }
    let status = head.get(9..12).unwrap_or_default();
    ensure!(matches!(status, b"200" | b"101"), "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}
