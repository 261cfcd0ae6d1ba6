//! A service that says what it saw, and a client that sends exactly the bytes a test names.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use tokio::sync::Semaphore;
use wire::{
    Answer, EarlyHints, Exchange, Fault, Holder, Limits, Listener, Response, Running, Service,
    Shutdown, Tls, Usage,
};

/// Longer than anything here takes; a test that reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(10);
pub const BODY_LIMIT: usize = 1024;

pub struct Server {
    pub address: SocketAddr,
    pub trigger: wire::Trigger,
    /// One permit lets one request for `/wait` go on.
    pub gate: Arc<Semaphore>,
    /// What the service saw, as it began and as it ended.
    pub seen: mpsc::Receiver<String>,
    running: Running,
}

struct Echo {
    gate: Arc<Semaphore>,
    seen: mpsc::Sender<String>,
}

impl Service for Echo {
    fn call(&self, mut exchange: Exchange) -> Answer<'_> {
        let account = exchange.headers.get("account").and_then(|value| value.to_str().ok());
        let account = account.and_then(|account| account.parse().ok());
        let holder = match (account, exchange.uri.path()) {
            (_, "/operator") => Holder::Operator,
            (Some(account), _) => Holder::Account(account),
            (None, _) => Holder::Client,
        };
        if account.is_some_and(|account| !exchange.body.charge_to(account)) {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Box::pin(async move { Response::new(status, "no room") });
        }
        Box::pin(async move { Response { holder, ..self.answer(exchange).await } })
    }

    fn refuse(&self, fault: Fault) -> Response {
        if fault == Fault::OverloadedStream {
            return Response::new(StatusCode::OK, "an event stream may come again");
        }
        json(fault.status(), format!("{{\"refused\":\"{}\"}}", fault.message()))
    }
}

impl Echo {
    async fn answer(&self, mut exchange: Exchange) -> Response {
        let line = format!("{} {}", exchange.method, exchange.uri);
        let _ = self.seen.send(line.clone());
        match exchange.uri.path() {
            "/wait" => self.gate.acquire().await.unwrap().forget(),
            "/panic" => panic!("the service fails on purpose"),
            "/host" => {
                let host = exchange.headers[http::header::HOST].to_str().unwrap();
                return Response::new(StatusCode::OK, host.to_owned());
            }
            "/client" => return Response::new(StatusCode::OK, exchange.client.to_string()),
            "/empty" => return Response::new(StatusCode::NO_CONTENT, ""),
            "/interim" => return Response::new(StatusCode::PROCESSING, ""),
            "/unread" => return Response::new(StatusCode::OK, "unread"),
            "/operator" => return Response::new(StatusCode::OK, vec![b'o'; 100 << 10]),
            "/large" => return Response::new(StatusCode::OK, vec![b'x'; 8 << 20]),
            "/large-refusal" => {
                return Response::new(StatusCode::UNPROCESSABLE_ENTITY, vec![b'x'; 8 << 20]);
            }
            _ => {}
        }
        match exchange.body.read(BODY_LIMIT).await {
            Ok(body) => {
                let body = String::from_utf8_lossy(&body).into_owned();
                json(StatusCode::OK, format!("{{\"saw\":\"{line}\",\"body\":\"{body}\"}}"))
            }
            Err(fault) => {
                let _ = self.seen.send(format!("{fault:?}"));
                json(StatusCode::BAD_REQUEST, format!("{{\"fault\":\"{fault:?}\"}}"))
            }
        }
    }
}

fn json(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(status, body);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Server {
    pub fn start() -> Server {
        Server::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Server {
        Server::serving(limits, EarlyHints::Asked, |gate, seen| Arc::new(Echo { gate, seen }))
    }

    /// Serves what is made with the gate and the sender of what was seen.
    pub fn serving(
        limits: Limits,
        early_hints: EarlyHints,
        service: impl FnOnce(Arc<Semaphore>, mpsc::Sender<String>) -> Arc<dyn Service>,
    ) -> Server {
        Server::listening(|listener| listener.early_hints(early_hints), limits, service)
    }

    /// The same for clients of HTTP/1.x only.
    pub fn without_http_2() -> Server {
        let echo = |gate, seen| -> Arc<dyn Service> { Arc::new(Echo { gate, seen }) };
        let prepare = |listener: Listener| listener.prior_knowledge(false);
        Server::listening(prepare, Limits::default(), echo)
    }

    /// The same under TLS.
    pub fn secured(limits: Limits, tls: Tls) -> Server {
        Server::on(limits, |listener| listener.tls(tls))
    }

    /// The same on a listener with terms of its own.
    pub fn on(limits: Limits, prepare: impl FnOnce(Listener) -> Listener) -> Server {
        Server::listening(prepare, limits, |gate, seen| Arc::new(Echo { gate, seen }))
    }

    /// The same with HTTP/3 beside it.
    pub fn quic(limits: Limits, tls: Tls) -> Server {
        let echo = |gate, seen| -> Arc<dyn Service> { Arc::new(Echo { gate, seen }) };
        Server::quic_serving(limits, tls, echo)
    }

    pub fn quic_serving(
        limits: Limits,
        tls: Tls,
        service: impl FnOnce(Arc<Semaphore>, mpsc::Sender<String>) -> Arc<dyn Service>,
    ) -> Server {
        let two = NonZeroUsize::new(2).unwrap();
        // The UDP port of the same number may be somebody else's.
        let listener = (0..100).find_map(|_| {
            let listener = Listener::bind_threads(([127, 0, 0, 1], 0).into(), two).unwrap();
            listener.tls(tls.clone()).http3().ok()
        });
        Server::running(listener.expect("a free port"), limits, service)
    }

    fn listening(
        prepare: impl FnOnce(Listener) -> Listener,
        limits: Limits,
        service: impl FnOnce(Arc<Semaphore>, mpsc::Sender<String>) -> Arc<dyn Service>,
    ) -> Server {
        let two = NonZeroUsize::new(2).unwrap();
        let listener = Listener::bind_threads(([127, 0, 0, 1], 0).into(), two).unwrap();
        Server::running(prepare(listener), limits, service)
    }

    /// On this listener.
    pub fn of(listener: Listener, limits: Limits) -> Server {
        Server::running(listener, limits, |gate, seen| Arc::new(Echo { gate, seen }))
    }

    fn running(
        listener: Listener,
        limits: Limits,
        service: impl FnOnce(Arc<Semaphore>, mpsc::Sender<String>) -> Arc<dyn Service>,
    ) -> Server {
        let (trigger, shutdown) = Shutdown::channel();
        let gate = Arc::new(Semaphore::new(0));
        let (sender, seen) = mpsc::channel();
        let service = service(gate.clone(), sender);
        let address = listener.local_addr();
        let running = listener.run(service, limits, shutdown).unwrap();
        Server { address, trigger, gate, seen, running }
    }

    pub fn connect(&self) -> Wire {
        Wire::new(TcpStream::connect(self.address).unwrap())
    }

    /// Sends the bytes, keeps the sending side open, and reads until the server closes.
    pub fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut wire = self.connect();
        wire.send(bytes);
        wire.rest()
    }

    pub fn saw(&self, expected: &str) {
        let seen = self.seen.recv_timeout(PATIENCE).expect("the service sees something");
        assert_eq!(seen, expected);
    }

    pub fn saw_nothing(&self) {
        assert_eq!(self.seen.try_recv().ok(), None);
    }

    pub fn usage(&self) -> Usage {
        self.running.usage()
    }

    /// Waits until nothing is in use: every connection, request and byte is given back.
    pub async fn is_unused(&self) {
        let deadline = Instant::now() + PATIENCE / 2;
        while self.usage() != Usage::default() {
            assert!(Instant::now() < deadline, "{:?}", self.usage());
            // waits for: the next look at the condition
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the threads; the signal must have been given.
    pub fn join(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let joined = async { tokio::time::timeout(PATIENCE, self.running.join()).await };
        runtime.block_on(joined).expect("the threads end").expect("the threads end well");
    }
}

pub struct Wire {
    pub stream: TcpStream,
    held: Vec<u8>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Wire {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Wire { stream, held: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The server may answer and close before it has read everything.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Half::Write).unwrap();
    }

    /// The same towards a server that may have closed already.
    pub fn finish_sending_if_open(&mut self) {
        let _ = self.stream.shutdown(Half::Write);
    }

    /// One response with a Content-Length, or an interim one, as text.
    pub fn response(&mut self) -> String {
        let end = loop {
            if let Some(end) = find(&self.held, b"\r\n\r\n") {
                break end + 4;
            }
            self.more();
        };
        let head = String::from_utf8_lossy(&self.held[..end]).to_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        while self.held.len() < end + length {
            self.more();
        }
        let rest = self.held.split_off(end + length);
        let response = std::mem::replace(&mut self.held, rest);
        String::from_utf8(response).unwrap()
    }

    /// Reads until this has come; everything up to its end.
    pub fn until(&mut self, what: &str) -> String {
        let end = loop {
            if let Some(start) = find(&self.held, what.as_bytes()) {
                break start + what.len();
            }
            self.more();
        };
        let rest = self.held.split_off(end);
        String::from_utf8(std::mem::replace(&mut self.held, rest)).unwrap()
    }

    /// The same, or none if the other side closes before.
    pub fn try_until(&mut self, what: &str) -> Option<String> {
        while find(&self.held, what.as_bytes()).is_none() {
            if !self.try_more().unwrap_or(false) {
                return None;
            }
        }
        Some(self.until(what))
    }

    fn more(&mut self) {
        let came = self.try_more().expect("the server answers");
        assert!(came, "closed after {:?}", String::from_utf8_lossy(&self.held));
    }

    fn try_more(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer)?;
        self.held.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> String {
        let mut bytes = std::mem::take(&mut self.held);
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("still open after {:?}", String::from_utf8_lossy(&bytes));
            }
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
