//! All clients reconnect at once, each from another position among the last events: none may miss
//! an event or get one twice, and the server must not read the log for it.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::Value;

use crate::http::Client;
use crate::report::Bar;

use super::subject::{Channel, Subject};
use super::{Bench, LOG_READS, figure};

const CLIENTS: usize = 10_000;
const QUICK_CLIENTS: usize = 2_000;
/// The oldest position, in events.
const BACK: usize = 100;
const LIMIT: Duration = Duration::from_secs(60);

struct Returning {
    stream: TcpStream,
    request: Vec<u8>,
    /// Bytes of an incomplete block.
    held: Vec<u8>,
    /// Index of the next expected message.
    next: usize,
    connected: bool,
    faults: Faults,
}

/// Errors in the received events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Faults {
    lost: u64,
    repeated: u64,
}

pub fn run(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.count(CLIENTS, QUICK_CLIENTS);
    println!("==> reconnect: {count} clients, up to {BACK} events back");
    let subject = bench.restive("reconnect")?;
    let mut publisher = Client::connect(subject.address())?;
    let mut places = Vec::new();
    for _ in 0..=BACK {
        places.push(publish(&subject, &mut publisher)?);
    }
    let reads = figure(&subject, LOG_READS)?;
    let (began, before) = (Instant::now(), subject.service.cpu()?);
    let mut storm = Storm::begin(&subject, &places, count)?;
    storm.run(&places)?;
    let (elapsed, cpu) = (began.elapsed(), subject.service.cpu()?.saturating_sub(before));
    // The next event must arrive at everyone: the transition from memory to live.
    places.push(publish(&subject, &mut publisher)?);
    storm.run(&places)?;
    let reads = figure(&subject, LOG_READS)? - reads;
    let resumed = figure(&subject, "restive_live_resumes_total{from=\"memory\"}")?;
    ensure!(resumed == count as u64, "{resumed} were resumed from memory");
    let faults = storm.faults();
    let report = &mut bench.stage.report;
    report.bar("reconnect", Bar::at_most("reads of the log", reads as f64, 0.0, ""));
    report.bar("reconnect", Bar::at_most("lost", faults.lost as f64, 0.0, "events"));
    report.bar("reconnect", Bar::at_most("repeated", faults.repeated as f64, 0.0, "events"));
    report.bar("reconnect", Bar::shown("everyone is back after", elapsed.as_secs_f64(), "s"));
    let each = cpu.as_secs_f64() * 1e6 / count as f64;
    report.bar("reconnect", Bar::shown("CPU per client", each, "µs, its events included"));
    report.note(format!(
        "reconnect: {count} connects without waiting for one another; each client checks the \
         number of every event it gets, {} in all",
        storm.events
    ));
    drop((storm, publisher));
    subject.service.stop()
}

/// The number of a new message, which is its position in the log.
pub fn publish(subject: &Subject, client: &mut Client) -> Result<u64> {
    let answer = client.expect(201, &subject.publish(Channel::Sse, 0))?;
    let record: Value = serde_json::from_slice(&answer.body)?;
    record["id"].as_u64().context("a message without a number")
}

struct Storm {
    poll: Poll,
    clients: Vec<Returning>,
    /// Clients that have everything.
    done: usize,
    events: u64,
}

impl Storm {
    /// All clients connect without waiting.
    fn begin(subject: &Subject, places: &[u64], count: usize) -> Result<Storm> {
        let poll = Poll::new()?;
        let address = subject.address().parse()?;
        let mut clients = Vec::with_capacity(count);
        for number in 0..count {
            let next = places.len() - 1 - number % BACK;
            let place = places[next - 1];
            let fields = format!("Accept: text/event-stream\r\nLast-Event-ID: {place}\r\n");
            let request = subject.get("/api/events", &fields);
            let mut stream = TcpStream::connect(address)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(number), interest)?;
            let (held, connected, faults) = (Vec::new(), false, Faults::default());
            clients.push(Returning { stream, request, held, next, connected, faults });
        }
        Ok(Storm { poll, clients, done: 0, events: 0 })
    }

    fn faults(&self) -> Faults {
        let each = self.clients.iter().map(|client| client.faults);
        each.fold(Faults::default(), |sum, one| Faults {
            lost: sum.lost + one.lost,
            repeated: sum.repeated + one.repeated,
        })
    }

    /// Runs until all clients have the last message.
    fn run(&mut self, places: &[u64]) -> Result<()> {
        let began = Instant::now();
        let mut events = Events::with_capacity(4096);
        let mut buffer = vec![0; 256 << 10];
        self.done = self.clients.iter().filter(|client| client.next == places.len()).count();
        while self.done < self.clients.len() {
            self.poll.poll(&mut events, Some(Duration::from_millis(100)))?;
            for event in &events {
                let client = &mut self.clients[event.token().0];
                if event.is_writable() && !client.connected {
                    if let Some(error) = client.stream.take_error()? {
                        bail!("a client could not connect: {error}");
                    }
                    client.connected = true;
                    client.stream.write_all(&client.request)?;
                }
                let before = client.next;
                client.hear(&mut buffer, places)?;
                self.events += (client.next - before) as u64;
                self.done += usize::from(before < places.len() && client.next == places.len());
            }
            let (done, all) = (self.done, self.clients.len());
            ensure!(began.elapsed() < LIMIT, "after {LIMIT:?} {done} of {all} are back");
        }
        Ok(())
    }
}

impl Returning {
    fn hear(&mut self, buffer: &mut [u8], places: &[u64]) -> Result<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => bail!("the server closed a stream"),
                Ok(count) => self.held.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::NotConnected => break,
                Err(error) => return Err(error).context("a stream broke"),
            }
        }
        let mut done = 0;
        while let Some(length) = block(&self.held[done..]) {
            if let Some(number) = message(&self.held[done..done + length]) {
                (self.next, self.faults) = account_for(number, places, self.next, self.faults)?;
            }
            done += length;
        }
        self.held.drain(..done);
        Ok(())
    }
}

/// The position of a client after an event, and the errors: a later event than expected means that
/// those in between are lost, an earlier one that it was repeated.
fn account_for(
    number: u64,
    places: &[u64],
    next: usize,
    mut faults: Faults,
) -> Result<(usize, Faults)> {
    let Ok(place) = places.binary_search(&number) else {
        bail!("event {number}, which nobody published");
    };
    match place.checked_sub(next) {
        Some(lost) => {
            faults.lost += lost as u64;
            Ok((place + 1, faults))
        }
        None => {
            faults.repeated += 1;
            Ok((next, faults))
        }
    }
}

/// Length of the first block, if it is complete. The head of the response ends like a block, except
/// for its line ends.
fn block(bytes: &[u8]) -> Option<usize> {
    let end = |end: &[u8]| memchr::memmem::find(bytes, end).map(|place| place + end.len());
    match bytes.starts_with(b"HTTP/") {
        true => end(b"\r\n\r\n"),
        false => end(b"\n\n"),
    }
}

/// The number of the message that a block carries.
fn message(block: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(block).ok()?;
    let (id, _) = text.strip_prefix("event: message\nid: ")?.split_once('\n')?;
    id.split_once('.')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_lost_or_come_twice_are_counted() {
        let places = [3, 5, 8, 9];
        let check = |numbers: &[u64]| {
            let start = (1, Faults::default());
            numbers.iter().try_fold(start, |(next, faults), number| {
                account_for(*number, &places, next, faults)
            })
        };
        assert_eq!(check(&[5, 8, 9]).unwrap(), (4, Faults::default()));
        assert_eq!(check(&[9]).unwrap(), (4, Faults { lost: 2, repeated: 0 }));
        assert_eq!(check(&[5, 5, 3, 8]).unwrap(), (3, Faults { lost: 0, repeated: 2 }));
        assert!(check(&[6]).is_err());
    }

    #[test]
    fn blocks_are_found_and_messages_have_numbers() {
        let bytes = b"event: message\nid: 000000ab.17\ndata: {}\n\nevent";
        let length = block(bytes).unwrap();
        assert_eq!(message(&bytes[..length]), Some(17));
        assert_eq!(block(&bytes[length..]), None);
        assert_eq!(message(b"retry: 1000\nid: 000000ab.16\n\n"), None);
        assert_eq!(block(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nid: 1\n\n"), Some(25));
    }
}
