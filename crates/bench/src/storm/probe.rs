//! The well-behaved account: it reads a record, lists, creates, and waits for each created record
//! at its webhook receiver and on its event stream, at a fixed rate on a separate thread. Every
//! latency counts from the time at which the request was due, so that a stall counts for all
//! requests that it delayed and not only for the first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::histogram::Histogram;

use super::client::{Account, Connection};
use super::receiver::Receiver;

/// Time limit of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// Interval at which a caller that waits for the probe checks.
const LOOK: Duration = Duration::from_millis(20);
/// Connections of each kind of request: while one waits for its response the others continue.
const CONNECTIONS: u32 = 4;

/// The measured kinds, in the order of the table.
pub const KINDS: [&str; 5] = ["GET", "list", "create", "webhook", "SSE"];
const GET: usize = 0;
const LIST: usize = 1;
const CREATE: usize = 2;
const WEBHOOK: usize = 3;
const SSE: usize = 4;
/// Requests a second of each kind that sends requests.
const RATES: [(usize, u32); 3] = [(GET, 40), (LIST, 20), (CREATE, 40)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is sent.
    Rest,
    /// Requests are sent and do not count.
    WarmUp,
    Quiet,
    Storm,
}

/// The figures of one phase.
#[derive(Clone, Default)]
pub struct Figures {
    pub latency: [Histogram; 5],
    /// How late this thread woke up for a request: the delay of the machine, independent of the
    /// server.
    pub lateness: Histogram,
    pub failures: u64,
    pub first_failure: Option<String>,
}

/// A created record that has not arrived everywhere yet.
struct Pending {
    phase: Phase,
    since: Instant,
    webhook: bool,
    sse: bool,
}

struct Shared {
    phase: AtomicU8,
    next: AtomicU64,
    figures: Mutex<[Figures; 4]>,
    pending: Mutex<HashMap<u64, Pending>>,
}

pub struct Probe {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Creates what it needs in the account and rests.
    pub fn start(account: Account) -> Result<Self> {
        let shared = Arc::new(Shared {
            phase: AtomicU8::new(Phase::Rest as u8),
            next: AtomicU64::new(1),
            figures: Mutex::default(),
            pending: Mutex::default(),
        });
        let (end, mut ended) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(begin(&account, &shared)).context("the account that behaves")?;
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(ended.wait_for(|ended| *ended));
        });
        Ok(Self { shared, end, thread: Some(thread) })
    }

    pub fn set(&self, phase: Phase) {
        self.shared.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Waits until every record created in this phase has arrived everywhere. Missing ones at the
    /// time limit are failures.
    pub async fn settle(&self, phase: Phase, limit: Duration) {
        let until = Instant::now() + limit;
        while self.shared.waits(phase) {
            if Instant::now() >= until {
                return self.shared.give_up(phase);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub fn figures(&self, phase: Phase) -> Figures {
        lock(&self.shared.figures)[phase as usize].clone()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Relaxed);
        [Phase::Rest, Phase::WarmUp, Phase::Quiet, Phase::Storm][usize::from(phase)]
    }

    fn record(&self, phase: Phase, kind: usize, latency: Duration) {
        lock(&self.figures)[phase as usize].latency[kind].record(latency);
    }

    fn fail(&self, phase: Phase, kind: usize, why: &str) {
        let figures = &mut lock(&self.figures)[phase as usize];
        figures.failures += 1;
        figures.first_failure.get_or_insert_with(|| format!("{}: {why}", KINDS[kind]));
    }

    /// A record with this number was seen at the receiver or on the stream.
    fn arrived(&self, number: u64, kind: usize, at: Instant) {
        let mut pending = lock(&self.pending);
        let Some(one) = pending.get_mut(&number) else { return };
        let seen = if kind == WEBHOOK { &mut one.webhook } else { &mut one.sse };
        if std::mem::replace(seen, true) {
            return;
        }
        let (phase, latency) = (one.phase, at.saturating_duration_since(one.since));
        if one.webhook && one.sse {
            pending.remove(&number);
        }
        drop(pending);
        self.record(phase, kind, latency);
    }

    fn waits(&self, phase: Phase) -> bool {
        lock(&self.pending).values().any(|one| one.phase == phase)
    }

    fn give_up(&self, phase: Phase) {
        let mut pending = lock(&self.pending);
        let (lost, kept) = pending.drain().partition(|(_, one)| one.phase == phase);
        *pending = kept;
        drop(pending);
        let lost: HashMap<u64, Pending> = lost;
        for one in lost.values() {
            for (kind, seen) in [(WEBHOOK, one.webhook), (SSE, one.sse)] {
                if !seen {
                    self.record(phase, kind, one.since.elapsed());
                    self.fail(phase, kind, "a created record did not arrive");
                }
            }
        }
    }
}

/// Creates the record, the endpoint and the stream, and starts the senders.
async fn begin(account: &Account, shared: &Arc<Shared>) -> Result<()> {
    let observer = Arc::clone(shared);
    let receiver = Receiver::observed(move |request, at| {
        if let Some(number) = number_in(request) {
            observer.arrived(number, WEBHOOK, at);
        }
    })?;
    let endpoint = json!({ "url": receiver.url(0), "enabled_events": ["note.created"] });
    account.make("/v1/webhook-endpoints", &endpoint).await?;
    let record = account.make("/v1/notes", &json!({ "number": 0, "text": "read" })).await?;
    let stream = subscribe(account, None).await?;
    tokio::spawn(listen(account.clone(), Arc::clone(shared), stream));
    for (kind, rate) in RATES {
        let interval = Duration::from_secs(1) * CONNECTIONS / rate;
        for number in 0..CONNECTIONS {
            let sender = Sender {
                account: account.clone(),
                shared: Arc::clone(shared),
                kind,
                interval,
                record: record.clone(),
            };
            tokio::spawn(sender.run(interval * number / CONNECTIONS));
        }
    }
    Ok(())
}

/// Sends the requests of one kind over one connection.
struct Sender {
    account: Account,
    shared: Arc<Shared>,
    kind: usize,
    interval: Duration,
    /// The record that is read.
    record: String,
}

impl Sender {
    async fn run(self, first: Duration) {
        let mut connection = None;
        let mut due = Instant::now() + first;
        loop {
            let in_time = Instant::now() < due;
            tokio::time::sleep_until(due.into()).await;
            let phase = self.shared.phase();
            if in_time {
                lock(&self.shared.figures)[phase as usize].lateness.record(due.elapsed());
            }
            if phase == Phase::Rest {
                // The server closes idle connections after a while.
                connection = None;
                due = Instant::now() + self.interval;
                continue;
            }
            let exchange = self.exchange(&mut connection, phase, due);
            let sent = tokio::time::timeout(REQUEST_LIMIT, exchange).await;
            let sent = sent.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time")));
            // While it rested, the server may have been suspended.
            if self.shared.phase() != Phase::Rest || sent.is_ok() {
                self.shared.record(phase, self.kind, due.elapsed());
            }
            if let Err(error) = sent {
                connection = None;
                if self.shared.phase() != Phase::Rest {
                    self.shared.fail(phase, self.kind, &format!("{error:#}"));
                }
            }
            due += self.interval;
        }
    }

    async fn exchange(
        &self,
        connection: &mut Option<Connection>,
        phase: Phase,
        due: Instant,
    ) -> Result<()> {
        if connection.is_none() {
            *connection = Some(self.account.connect().await?);
        }
        let connection = connection.as_mut().context("it was opened above")?;
        let (request, status) = match self.kind {
            GET => (self.account.get(&format!("/v1/notes/{}", self.record)), 200),
            LIST => (self.account.get("/v1/notes?limit=10"), 200),
            _ => {
                let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
                let pending = Pending { phase, since: due, webhook: false, sse: false };
                lock(&self.shared.pending).insert(number, pending);
                let body = json!({ "number": number, "text": "created" });
                let request = self.account.post("/v1/notes", &body.to_string());
                let made = connection.expect(201, &request).await;
                if made.is_err() {
                    lock(&self.shared.pending).remove(&number);
                }
                return made.map(drop);
            }
        };
        connection.expect(status, &request).await.map(drop)
    }
}

/// Opens the event stream after the given position and reads the head of the response.
async fn subscribe(account: &Account, position: Option<&str>) -> Result<TcpStream> {
    let last = position.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
    let headers = format!("Accept: text/event-stream\r\n{last}");
    let mut stream = TcpStream::connect(&account.address).await?;
    let request = account.get_with("/api/events?types=note.created", &headers);
    stream.write_all(&request).await?;
    let mut head = Vec::new();
    while memmem::find(&head, b"\r\n\r\n").is_none() {
        ensure!(stream.read_buf(&mut head).await? > 0, "the stream was closed");
    }
    ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// Follows the stream; opens it again if it was cut, which is a failure.
async fn listen(account: Account, shared: Arc<Shared>, mut stream: TcpStream) {
    let mut position = None;
    loop {
        let error = follow(&shared, &mut stream, &mut position).await.err();
        let phase = shared.phase();
        if phase != Phase::Rest {
            let why = error.map_or(String::new(), |error| format!("{error:#}"));
            shared.fail(phase, SSE, &why);
        }
        stream = loop {
            tokio::time::sleep(LOOK).await;
            if let Ok(stream) = subscribe(&account, position.as_deref()).await {
                break stream;
            }
        };
    }
}

async fn follow(
    shared: &Shared,
    stream: &mut TcpStream,
    position: &mut Option<String>,
) -> Result<()> {
    let mut buffer = Vec::new();
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            bail!("the stream was closed");
        }
        let at = Instant::now();
        while let Some(end) = memmem::find(&buffer, b"\n\n") {
            let block = &buffer[..end];
            if let Some(number) = number_in(block) {
                shared.arrived(number, SSE, at);
            }
            if let Some(id) = memmem::find(block, b"id: ") {
                let id = block[id + 4..].split(|byte| *byte == b'\n').next().unwrap_or_default();
                *position = Some(String::from_utf8_lossy(id).into_owned());
            }
            buffer.drain(..end + 2);
        }
    }
}

/// The value of the field `number`.
fn number_in(text: &[u8]) -> Option<u64> {
    let begin = memmem::find(text, b"\"number\":")? + 9;
    let digits = text[begin..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0')))
}

/// A thread that panicked leaves no inconsistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        Shared {
            phase: AtomicU8::new(Phase::Quiet as u8),
            next: AtomicU64::new(1),
            figures: Mutex::default(),
            pending: Mutex::default(),
        }
    }

    #[test]
    fn the_number_of_a_record_is_found_in_its_event() {
        assert_eq!(number_in(b"{\"object\":{\"number\":417,\"text\":\"x\"}}"), Some(417));
        assert_eq!(number_in(b"{\"type\":\"ping\"}"), None);
    }

    #[test]
    fn a_record_that_never_arrives_is_a_failure_of_its_phase() {
        let shared = shared();
        let since = Instant::now();
        for number in [1, 2] {
            let pending = Pending { phase: Phase::Quiet, since, webhook: false, sse: false };
            lock(&shared.pending).insert(number, pending);
        }
        for kind in [WEBHOOK, SSE, SSE] {
            shared.arrived(1, kind, Instant::now());
        }
        assert!(shared.waits(Phase::Quiet) && !shared.waits(Phase::Storm));
        shared.arrived(2, WEBHOOK, Instant::now());
        shared.give_up(Phase::Quiet);
        assert!(!shared.waits(Phase::Quiet));
        let figures = &lock(&shared.figures)[Phase::Quiet as usize];
        assert_eq!(figures.failures, 1);
        assert_eq!(figures.latency[WEBHOOK].count(), 2);
        assert_eq!(figures.latency[SSE].count(), 2);
    }
}
