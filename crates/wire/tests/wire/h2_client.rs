//! A client of HTTP/2 for tests: the `h2` crate's where a well-behaved one will do, and frames made
//! by hand where it will not.

use std::io::{ErrorKind, Read};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::server::{PATIENCE, Server, Wire};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PROTOCOL_ERROR: u32 = 1;
pub const CALM: u32 = 11;

/// Runs a test on a runtime of its own, within the patience of all tests.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("in time") })
}

pub struct Client {
    pub requests: SendRequest<Bytes>,
    /// Ends with the connection, as it ended.
    pub connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
    pub trailers: Option<HeaderMap>,
}

impl Client {
    pub async fn connect(server: &Server) -> Client {
        Client::with(server, &h2::client::Builder::new()).await
    }

    pub async fn with(server: &Server, builder: &h2::client::Builder) -> Client {
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        Client::over(stream, builder).await
    }

    /// On any stream of bytes.
    pub async fn over<S>(stream: S, builder: &h2::client::Builder) -> Client
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        Client { requests, connection: tokio::spawn(connection) }
    }

    pub async fn send(
        &mut self,
        request: Request<()>,
        ends: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        self.requests = self.requests.clone().ready().await.unwrap();
        self.requests.send_request(request, ends).unwrap()
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        let (response, _) = self.send(request(Method::GET, path), true).await;
        answer(response).await.unwrap()
    }

    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Answer {
        let (response, mut stream) = self.send(request(Method::POST, path), false).await;
        stream.send_data(body.into(), true).unwrap();
        answer(response).await.unwrap()
    }
}

pub fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://test.example{path}")).body(()).unwrap()
}

pub async fn answer(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = next(&mut body).await? {
        bytes.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await?;
    let body = String::from_utf8(bytes).unwrap();
    Ok(Answer { status: head.status, headers: head.headers, body, trailers })
}

/// The next bytes; frames without any, as at the end, are passed over.
pub async fn next(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    while let Some(piece) = body.data().await.transpose()? {
        body.flow_control().release_capacity(piece.len()).unwrap();
        if !piece.is_empty() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// What the service saw next. Waiting for it must not keep the client's connection from its work,
/// which is done on the same thread.
pub async fn seen(server: &Server) -> String {
    loop {
        match server.seen.try_recv() {
            Ok(seen) => return seen,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// A frame as it stands on the wire.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields without any compression.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            integer(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// A length with a prefix of seven bits (RFC 7541 5.1).
fn integer(bytes: &mut Vec<u8>, value: usize) {
    if value < 127 {
        bytes.push(value as u8);
        return;
    }
    bytes.push(127);
    let mut left = value - 127;
    while left >= 128 {
        bytes.push((left % 128) as u8 | 128);
        left /= 128;
    }
    bytes.push(left as u8);
}

pub const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/one")];

/// The preface, our settings and then whatever the test wants to send.
pub fn raw(server: &Server) -> Frames {
    let mut wire = server.connect();
    wire.send(PREFACE);
    wire.send(frame(SETTINGS, 0, 0, &[]));
    Frames { wire, held: Vec::new() }
}

pub struct Frames {
    pub wire: Wire,
    held: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frames {
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.wire.send(frame(kind, flags, stream, payload));
    }

    pub fn get(&mut self, stream: u32) {
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block(&GET));
    }

    /// The next frame; none when the server has closed.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = self.held[..] {
                let end = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
                if self.held.len() >= end {
                    let payload = self.held[9..end].to_vec();
                    self.held.drain(..end);
                    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
                    return Some(Frame { kind, flags, stream, payload });
                }
            }
            let mut buffer = [0; 4096];
            match self.wire.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.held.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}: the server says nothing more"),
            }
        }
    }

    /// Reads until such a frame comes.
    pub fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().unwrap_or_else(|| panic!("closed before a frame {kind}"));
            if frame.kind == kind && frame.flags & ACK != ACK {
                return frame;
            }
            if frame.kind == kind && kind != SETTINGS && kind != PING {
                return frame;
            }
        }
    }

    /// The server says goodbye with this code and closes.
    pub fn goes_away(&mut self, code: u32) {
        let goodbye = self.until(GOAWAY);
        let said = u32::from_be_bytes(goodbye.payload[4..8].try_into().unwrap());
        assert_eq!(said, code, "{}", String::from_utf8_lossy(&goodbye.payload[8..]));
        while self.next().is_some() {}
    }

    /// The server resets the stream with this code; the connection goes on.
    pub fn is_reset(&mut self, stream: u32, code: u32) {
        let reset = self.until(RESET);
        let said = u32::from_be_bytes(reset.payload[..4].try_into().unwrap());
        assert_eq!((reset.stream, said), (stream, code));
    }

    /// The connection still serves.
    pub fn still_serves(&mut self, stream: u32) {
        self.get(stream);
        loop {
            let frame = self.next().expect("it is still open");
            assert!(frame.kind != GOAWAY && frame.kind != RESET, "{frame:?}");
            if frame.kind == DATA && frame.stream == stream {
                assert!(String::from_utf8_lossy(&frame.payload).contains("GET /one"));
                return;
            }
        }
    }
}
