//! The webhook receiver: a lean HTTP/1.1 server on a separate thread that records each request and
//! answers 200. It can refuse connections, hold its responses back, or never answer some endpoints.
//! Reads of a request only its end, its event and its endpoint.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::http::header;

use super::arrivals::{Arrival, EventKey};

/// The response to every delivery.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n\
      {\"received\":true}";
/// More than the connections of any scenario, so that none waits to be accepted.
const BACKLOG: u32 = 4_096;
/// Events have 1 KB; a request beyond this is an error.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Twice the largest scenario; at 32 bytes each it is 64 MB.
const MAX_ARRIVALS: usize = 2_000_000;
/// Interval at which a waiting caller checks.
const LOOK: Duration = Duration::from_millis(2);
/// Nothing is in progress if nothing has arrived for this long.
const QUIET: Duration = Duration::from_millis(500);
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Whether there is a listener, and whether it responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The port is bound, but nothing listens: connections are refused.
    Refuse,
    Hold,
    Answer,
    End,
}

struct Shared {
    mode: watch::Sender<Mode>,
    /// Endpoints with a lower number get no response.
    hanging: AtomicU32,
    requests: AtomicU64,
    answered: AtomicU64,
    body_bytes: AtomicU64,
    arrivals: Mutex<Vec<Arrival>>,
    fault: Mutex<Option<String>>,
}

pub struct Sink {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// A sink that responds.
    pub fn start() -> Result<Self> {
        Self::new(Mode::Answer)
    }

    /// A sink whose port refuses connections until `hold` or `release`.
    pub fn refusing() -> Result<Self> {
        Self::new(Mode::Refuse)
    }

    fn new(mode: Mode) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        let shared = Arc::new(Shared {
            mode: watch::Sender::new(mode),
            hanging: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            arrivals: Mutex::new(Vec::with_capacity(1 << 16)),
            fault: Mutex::new(None),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Here and not in the thread, because the caller may connect at once.
        let ready = match mode {
            Mode::Refuse => Socket::Bound(socket),
            _ => Socket::Listening(runtime.block_on(async { socket.listen(BACKLOG) })?),
        };
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            if let Err(error) = runtime.block_on(serve(ready, &own)) {
                own.tell(&error);
            }
        });
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The URL of one endpoint.
    pub fn url(&self, endpoint: u32) -> String {
        format!("http://{}/e/{endpoint}", self.address)
    }

    /// Accepts connections and reads requests, without responding yet.
    pub fn hold(&self) {
        self.shared.mode.send_replace(Mode::Hold);
    }

    /// Responds to everything, including held requests.
    pub fn release(&self) {
        self.shared.mode.send_replace(Mode::Answer);
    }

    /// From now on the endpoints below this number get no response.
    pub fn hang(&self, below: u32) {
        self.shared.hanging.store(below, Ordering::Relaxed);
    }

    /// Requests so far, duplicates included.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// How many of them got their response.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// The mean size of the bodies so far.
    pub fn body_bytes(&self) -> u64 {
        self.shared.body_bytes.load(Ordering::Relaxed) / self.requests().max(1)
    }

    /// Everything since the last call, in order of arrival.
    pub fn take(&self) -> Result<Vec<Arrival>> {
        let taken = std::mem::take(&mut *lock(&self.shared.arrivals));
        ensure!(taken.len() < MAX_ARRIVALS, "the sink got more than it can take down");
        self.check()?;
        Ok(taken)
    }

    /// Waits for a condition; false if the time is over first.
    pub fn wait(&self, limit: Duration, so: impl Fn(&Self) -> bool) -> Result<bool> {
        let until = Instant::now() + limit;
        while !so(self) {
            self.check()?;
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Waits for this many answered deliveries; fewer within the time are an error.
    pub fn expect(&self, answered: u64, limit: Duration) -> Result<()> {
        if self.wait(limit, |sink| sink.answered() >= answered)? {
            return Ok(());
        }
        let seconds = limit.as_secs();
        match self.requests() {
            0 => bail!("no delivery arrived within {seconds} s"),
            _ => bail!("{} of {answered} deliveries within {seconds} s", self.answered()),
        }
    }

    /// Waits until nothing has arrived for a while, so that the next arrival is known to be new.
    pub fn settle(&self) -> Result<()> {
        let until = Instant::now() + SETTLE_LIMIT;
        let (mut seen, mut since) = (self.requests(), Instant::now());
        while since.elapsed() < QUIET {
            self.check()?;
            ensure!(Instant::now() < until, "deliveries do not end that should have ended");
            std::thread::sleep(LOOK);
            let now = self.requests();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// The first error of a request, if there was one.
    fn check(&self) -> Result<()> {
        match lock(&self.shared.fault).take() {
            Some(fault) => bail!("the sink: {fault}"),
            None => Ok(()),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.mode.send_replace(Mode::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn tell(&self, error: &anyhow::Error) {
        lock(&self.fault).get_or_insert_with(|| format!("{error:#}"));
    }

    fn take_down(&self, arrival: Arrival, body_bytes: usize) {
        let mut arrivals = lock(&self.arrivals);
        if arrivals.len() < MAX_ARRIVALS {
            arrivals.push(arrival);
        }
        drop(arrivals);
        self.body_bytes.fetch_add(body_bytes as u64, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

enum Socket {
    Bound(TcpSocket),
    Listening(TcpListener),
}

async fn serve(socket: Socket, shared: &Arc<Shared>) -> Result<()> {
    let mut mode = shared.mode.subscribe();
    let listener = match socket {
        Socket::Listening(listener) => listener,
        Socket::Bound(socket) => {
            let found = mode.wait_for(|mode| *mode != Mode::Refuse).await;
            if found.is_ok_and(|mode| *mode == Mode::End) {
                return Ok(());
            }
            socket.listen(BACKLOG)?
        }
    };
    loop {
        let mut stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            // Ends the runtime and with it every connection.
            _ = mode.wait_for(|mode| *mode == Mode::End) => return Ok(()),
        };
        stream.set_nodelay(true)?;
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            // Recorded before the connection is closed, so that a caller that sees its end can ask
            // why.
            if let Err(error) = connection(&mut stream, &shared).await {
                shared.tell(&error);
            }
        });
    }
}

/// One request after the other, until the sender closes.
async fn connection(stream: &mut TcpStream, shared: &Shared) -> Result<()> {
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; 8 << 10];
    let mut filled = 0;
    let mut began: Option<Instant> = None;
    loop {
        if let Some(request) = Request::parse(&buffer[..filled])? {
            let at = began.take().unwrap_or_else(Instant::now);
            let (event, endpoint) = (request.event, request.endpoint);
            shared.take_down(Arrival { event, endpoint, at }, request.body_bytes);
            buffer.copy_within(request.total_bytes..filled, 0);
            filled -= request.total_bytes;
            if endpoint < shared.hanging.load(Ordering::Relaxed) {
                return until_closed(stream).await;
            }
            if *mode.borrow_and_update() == Mode::Hold {
                mode.wait_for(|mode| *mode != Mode::Hold).await?;
            }
            if stream.write_all(ANSWER).await.is_err() {
                return Ok(());
            }
            shared.answered.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if filled == buffer.len() {
            ensure!(filled < MAX_REQUEST_BYTES, "a request of more than {filled} bytes");
            buffer.resize(filled * 2, 0);
        }
        // A sender may close a connection at any time; an incomplete request is not a delivery.
        let Ok(count @ 1..) = stream.read(&mut buffer[filled..]).await else { return Ok(()) };
        began.get_or_insert_with(Instant::now);
        filled += count;
    }
}

/// Reads everything and sends nothing.
async fn until_closed(stream: &mut TcpStream) -> Result<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    Ok(())
}

/// The parsed parts of a delivery.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    event: EventKey,
    endpoint: u32,
    body_bytes: usize,
    total_bytes: usize,
}

impl Request {
    /// None until it is complete.
    fn parse(buffer: &[u8]) -> Result<Option<Self>> {
        let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else { return Ok(None) };
        let head = &buffer[..end];
        let shown = || format!("in {:?}", String::from_utf8_lossy(&head[..head.len().min(500)]));
        let length = header(head, b"content-length").and_then(|digits| digits.parse().ok());
        let body_bytes: usize = length.context("no Content-Length").with_context(shown)?;
        let total_bytes = end + 4 + body_bytes;
        ensure!(total_bytes <= MAX_REQUEST_BYTES, "a request of {total_bytes} bytes");
        if buffer.len() < total_bytes {
            return Ok(None);
        }
        let path = head.strip_prefix(b"POST /e/").context("not a POST").with_context(shown)?;
        let digits = path.iter().take_while(|byte| byte.is_ascii_digit());
        let endpoint = digits.fold(0_u32, |number, digit| {
            number.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        });
        let id = header(head, b"webhook-id").context("no webhook-id").with_context(shown)?;
        let event = EventKey::of(id.as_bytes());
        Ok(Some(Self { event, endpoint, body_bytes, total_bytes }))
    }
}

/// A thread that panicked leaves no inconsistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use crate::http::Client;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn delivery(endpoint: u32, id: &str) -> Vec<u8> {
        let head = format!("POST /e/{endpoint} HTTP/1.1\r\nHost: x\r\nWebhook-Id: {id}\r\n");
        format!("{head}Content-Length: 2\r\n\r\n{{}}").into_bytes()
    }

    fn connect(sink: &Sink) -> Result<Client> {
        Client::connect(&sink.address.to_string())
    }

    #[test]
    fn deliveries_are_answered_and_recorded_by_event_and_endpoint() {
        let sink = Sink::start().unwrap();
        let mut client = connect(&sink).unwrap();
        for (endpoint, id) in [(7, "evt_1"), (12, "evt_2")] {
            client.expect(200, &delivery(endpoint, id)).unwrap();
        }
        assert_eq!((sink.requests(), sink.body_bytes()), (2, 2));
        let taken: Vec<_> =
            sink.take().unwrap().iter().map(|one| (one.event, one.endpoint)).collect();
        assert_eq!(taken, [(EventKey::of(b"evt_1"), 7), (EventKey::of(b"evt_2"), 12)]);
        assert!(sink.take().unwrap().is_empty());
        sink.expect(2, SOON).unwrap();
        let error = sink.expect(3, Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "2 of 3 deliveries within 0 s");
    }

    #[test]
    fn a_sink_refuses_then_holds_then_answers() {
        let sink = Sink::refusing().unwrap();
        assert!(connect(&sink).is_err());
        let error = sink.expect(1, Duration::ZERO).unwrap_err().to_string();
        assert_eq!(error, "no delivery arrived within 0 s");
        sink.hold();
        let until = Instant::now() + SOON;
        let mut client = loop {
            match connect(&sink) {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < until, "{error:#}"),
            }
        };
        std::thread::scope(|scope| {
            let answered = scope.spawn(move || client.expect(200, &delivery(1, "evt_1")));
            assert!(sink.wait(SOON, |sink| sink.requests() == 1).unwrap());
            assert!(!answered.is_finished());
            sink.release();
            answered.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_hanging_endpoint_gets_no_answer_and_the_others_do() {
        let sink = Sink::start().unwrap();
        sink.hang(10);
        let mut others = connect(&sink).unwrap();
        let mut hung = connect(&sink).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || hung.send(&delivery(9, "evt_1")));
            assert!(sink.wait(SOON, |sink| sink.requests() == 1).unwrap());
            others.expect(200, &delivery(10, "evt_1")).unwrap();
            assert!(!waiting.is_finished());
            drop(sink);
            assert!(waiting.join().unwrap().is_err());
        });
    }

    #[test]
    fn a_request_that_is_not_a_delivery_is_an_error() {
        let sink = Sink::start().unwrap();
        let request = b"GET /e/1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
        assert!(connect(&sink).unwrap().send(request).is_err());
        let error = sink.take().unwrap_err().to_string();
        assert!(error.contains("not a POST"), "{error}");
    }
}
