//! Clients for storm tests: requests that are started and not read, many at once, and a webhook
//! receiver that counts and can hang.

use crate::harness::PATIENCE;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use ureq::http::Request;

/// Statuses that a client can act on: success, or a refusal with a reason.
pub const ACTIONABLE: [u16; 8] = [200, 201, 204, 408, 413, 422, 429, 503];

/// One API key and the server that knows it.
#[derive(Clone)]
pub struct Account {
    pub address: SocketAddr,
    pub key: String,
}

impl Account {
    pub fn request(&self, method: &str, target: &str, body: &str) -> Vec<u8> {
        let (key, length) = (&self.key, body.len());
        format!(
            "{method} {target} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Sends bytes on a new connection, and does not read the response.
    pub fn begin(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    #[track_caller]
    fn send(&self, method: &str, target: &str, body: &str) -> (u16, Value) {
        answer(self.begin(&self.request(method, target, body)))
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> (u16, Value) {
        self.send("GET", target, "")
    }

    #[track_caller]
    pub fn post(&self, target: &str, body: &Value) -> (u16, Value) {
        self.send("POST", target, &body.to_string())
    }

    #[track_caller]
    pub fn patch(&self, target: &str, body: &Value) -> (u16, Value) {
        self.send("PATCH", target, &body.to_string())
    }

    /// Creates a record; returns its id.
    #[track_caller]
    pub fn make(&self, target: &str, body: &Value) -> String {
        let (status, made) = self.post(target, body);
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    /// Creates an endpoint for created notes; returns its id.
    #[track_caller]
    pub fn endpoint(&self, receiver: &Receiver, number: u32, with: Value) -> String {
        let url = format!("http://{}/{number}", receiver.address);
        let mut body = json!({ "url": url, "enabled_events": ["note.created"] });
        body.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        self.make("/v1/webhook-endpoints", &body)
    }

    /// Runs an action this often on this many threads, each time with another number.
    pub fn many(&self, threads: usize, count: u64, act: impl Fn(&Account, u64) + Sync) {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return;
                        }
                        act(self, number);
                    }
                });
            }
        });
    }

    /// Uploads over HTTP/2 that stall until the given time. Returns how many of them got a response
    /// or a refusal, and how many requests next to them succeeded in the meantime.
    pub fn stalled_streams(&self, connections: u64, each: u64, until: Instant) -> (u64, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut uploads, mut others) = (Vec::new(), Vec::new());
            for _ in 0..connections {
                let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
                let (requests, connection) = h2::client::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                for _ in 0..each {
                    uploads.push(tokio::spawn(upload(requests.clone(), self.clone(), until)));
                }
                others.push(tokio::spawn(beside(requests, self.clone())));
            }
            let (mut answered, mut in_time) = (0, 0);
            for other in others {
                in_time += u64::from(other.await.unwrap());
            }
            for upload in uploads {
                answered += u64::from(upload.await.unwrap());
            }
            (answered, in_time)
        })
    }
}

fn over_http2(account: &Account, method: &str, target: &str) -> Request<()> {
    Request::builder()
        .method(method)
        .uri(format!("http://{}{target}", account.address))
        .header("authorization", format!("Bearer {}", account.key))
        .header("content-type", "application/json")
        .body(())
        .unwrap()
}

type Requests = h2::client::SendRequest<Bytes>;

async fn upload(requests: Requests, account: Account, until: Instant) -> bool {
    let request = over_http2(&account, "POST", "/v1/notes");
    let mut requests = requests.ready().await.unwrap();
    let (response, mut stream) = requests.send_request(request, false).unwrap();
    let body = Bytes::from(json!({ "number": 1, "text": "x".repeat(8_000) }).to_string());
    stream.send_data(body.slice(..4_000), false).unwrap();
    tokio::time::sleep_until(until.into()).await;
    // The response shows a stream that the server has reset.
    let _ = stream.send_data(body.slice(4_000..), true);
    match tokio::time::timeout(PATIENCE, response).await {
        Ok(Ok(response)) => ACTIONABLE.contains(&response.status().as_u16()),
        Ok(Err(error)) => error.is_reset(),
        Err(_) => false,
    }
}

/// A read next to stalled uploads.
async fn beside(requests: Requests, account: Account) -> bool {
    tokio::time::sleep(Duration::from_millis(300)).await; // waits for: the uploads to stall
    let request = over_http2(&account, "GET", "/v1/notes?limit=1");
    let mut requests = requests.ready().await.unwrap();
    let (response, _) = requests.send_request(request, true).unwrap();
    let response = tokio::time::timeout(Duration::from_secs(5), response).await;
    response.is_ok_and(|response| response.is_ok_and(|response| response.status() == 200))
}

/// Status of the response on a connection.
#[track_caller]
pub fn status(stream: TcpStream) -> u16 {
    answer(stream).0
}

/// Status and body of the response on a connection.
#[track_caller]
fn answer(stream: TcpStream) -> (u16, Value) {
    let mut reader = BufReader::new(stream);
    let (first, headers) = head(&mut reader).expect("an answer");
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let length = headers.get("content-length").map_or(0, |bytes| bytes.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the whole answer");
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// First line and headers of a request or a response.
fn head(reader: &mut BufReader<TcpStream>) -> Option<(String, HashMap<String, String>)> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            None => return Some((first, headers)),
        }
    }
}

/// Counts arrivals: an event at an endpoint once its request has a response.
#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    hangs: Arc<AtomicBool>,
    /// Event types by endpoint and id of the event.
    arrived: Arc<Mutex<HashMap<(String, String), String>>>,
}

impl Receiver {
    pub fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Receiver { address, hangs: Arc::default(), arrived: Arc::default() };
        let shared = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let receiver = shared.clone();
                std::thread::spawn(move || receiver.serve(stream));
            }
        });
        receiver
    }

    /// While it hangs, it reads requests and does not respond.
    pub fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Different deliveries that arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived.lock().unwrap().len() as u64
    }

    /// Those of one event type.
    pub fn of(&self, kind: &str) -> usize {
        self.arrived.lock().unwrap().values().filter(|other| *other == kind).count()
    }

    fn serve(&self, stream: TcpStream) {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        while let Some((first, headers)) = head(&mut reader) {
            let length = headers.get("content-length").map_or(0, |bytes| bytes.parse().unwrap());
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            while self.hangs.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20)); // waits for: the test to release it
            }
            if writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").is_err() {
                return;
            }
            let event: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let id = headers.get("webhook-id").cloned().unwrap_or_default();
            let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
            let kind = event["type"].as_str().unwrap_or("?").to_owned();
            self.arrived.lock().unwrap().insert((path, id), kind);
        }
    }
}
