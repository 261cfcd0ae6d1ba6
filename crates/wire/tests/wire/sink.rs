//! Servers made of raw sockets for outgoing calls to meet, and a caller with a runtime of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use wire::outgoing::{Call, CallTimeouts, Client, Names, OutgoingLimits, Report, Retry, Target};

use crate::server::PATIENCE;

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// What callers here take of a body.
pub const MAX_BYTES: usize = 100;

/// Gives every connection to the closure, on a thread of its own, with its number.
pub struct Sink {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Sink {
    pub fn new(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = Arc::new(serve);
        let (accepted, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let sink = Sink { address, accepted: accepted.clone(), ended: ended.clone() };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let (serve, ended) = (serve.clone(), ended.clone());
                thread::spawn(move || {
                    serve(number, stream.unwrap());
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        sink
    }

    /// Answers every request with these bytes for as long as the other side stays.
    pub fn answering(bytes: &'static [u8]) -> Sink {
        Sink::new(
            move |_, mut stream| {
                while request(&mut stream).is_some() && stream.write_all(bytes).is_ok() {}
            },
        )
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits until so many connections have ended.
    pub fn ended(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.ended.load(Ordering::SeqCst) < count {
            assert!(Instant::now() < until, "the connections stay open");
            thread::yield_now();
        }
    }
}

/// Reads to the end of one request, whose body is `hello`.
pub fn request(stream: &mut impl Read) -> Option<String> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"hello") {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(request).ok()
}

/// A client and the runtime it runs on.
pub struct Caller {
    pub client: Client,
    pub runtime: Runtime,
}

impl Caller {
    pub fn new() -> Caller {
        Caller::with(OutgoingLimits::default())
    }

    pub fn with(limits: OutgoingLimits) -> Caller {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Caller { client: Client::with_limits(limits), runtime }
    }

    pub fn send(&self, url: &str) -> Report {
        self.runtime.block_on(send(self.client.clone(), url.to_owned(), PATIENCE))
    }

    pub fn send_within(&self, url: &str, within: Duration) -> Report {
        self.runtime.block_on(send(self.client.clone(), url.to_owned(), within))
    }

    pub fn send_vetted(&self, url: &str, vet: impl Fn(IpAddr) -> bool + Sync) -> Report {
        let target = Target::parse(url).unwrap();
        let mut call = Call { vet: &vet, ..call(&target, PATIENCE) };
        self.runtime.block_on(self.client.send(&mut call))
    }
}

pub async fn send(client: Client, url: String, within: Duration) -> Report {
    let target = Target::parse(&url).unwrap();
    client.send(&mut call(&target, within)).await
}

fn call(target: &Target, within: Duration) -> Call<'_> {
    Call {
        headers: target.headers(),
        body: Bytes::from_static(b"hello").into(),
        timeouts: CallTimeouts::until(Instant::now() + within),
        retry: Retry::Replayable,
        max_response_bytes: MAX_BYTES,
        names: Names::Absolute,
        ..Call::new(http::Method::POST, target)
    }
}
