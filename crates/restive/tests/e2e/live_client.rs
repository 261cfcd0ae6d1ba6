//! Clients of the live channels: curl, a reader of event streams, and a WebSocket client that can
//! also violate the protocol, such as sending a frame without a mask.

use crate::carry::{self, Bytewise};
use crate::harness::{PATIENCE, Server};
use bytes::{Buf as _, BytesMut};
use serde_json::{Value, json};
use socket2::{Domain, SockFilter, SockRef, Socket as Socket2, Type};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const TEXT: u8 = 0x1;
pub const BINARY: u8 = 0x2;
pub const CLOSE: u8 = 0x8;
pub const PING: u8 = 0x9;
pub const PONG: u8 = 0xA;
const FIN: u8 = 0x80;

/// The end of a head.
const BLANK: &[u8] = b"\r\n\r\n";

/// A response whose body is still to come.
pub struct Opened {
    pub status: u16,
    pub head: String,
    stream: Box<dyn Bytewise>,
    /// Bytes after the head.
    rest: BytesMut,
}

impl Opened {
    /// Sends a request whose response stays open. Each header is one line.
    pub fn try_get(
        address: SocketAddr,
        target: &str,
        headers: &[String],
        patience: Duration,
    ) -> io::Result<Opened> {
        Opened::try_get_over(carry::try_plain(address, patience)?, address, target, headers)
    }

    /// The same over an existing connection.
    fn try_get_over(
        mut stream: Box<dyn Bytewise>,
        address: SocketAddr,
        target: &str,
        headers: &[String],
    ) -> io::Result<Opened> {
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n");
        headers.iter().for_each(|line| request.push_str(&format!("{line}\r\n")));
        request.push_str("\r\n");
        stream.write_all(request.as_bytes())?;
        let mut bytes = BytesMut::new();
        let end = loop {
            if let Some(end) = bytes.windows(BLANK.len()).position(|four| four == BLANK) {
                break end;
            }
            if fill(&mut stream, &mut bytes)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let rest = bytes.split_off(end + BLANK.len());
        let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Ok(Opened { status, head, stream, rest })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| line.starts_with(&format!("{name}: "));
        let found = self.head.lines().find(|text| line(text))?;
        found.split_once(": ").map(|(_, value)| value)
    }

    /// The rest until the server closes.
    pub fn body(mut self) -> String {
        let mut body = self.rest.to_vec();
        let _ = self.stream.read_to_end(&mut body);
        String::from_utf8_lossy(&body).into_owned()
    }

    /// The complete body, if it has its declared length.
    pub fn try_body(mut self) -> io::Result<String> {
        let length = self.header("content-length").map_or(0, |bytes| bytes.parse().unwrap());
        while self.rest.len() < length {
            if fill(&mut self.stream, &mut self.rest)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        String::from_utf8(self.rest.to_vec()).map_err(io::Error::other)
    }

    /// The body as an event stream, which ends with the connection unless it has a declared length
    /// or comes in chunks, as from a proxy.
    pub fn events(self) -> Events {
        if self.header("transfer-encoding") == Some("chunked") {
            let from = BufReader::new(Read::chain(io::Cursor::new(self.rest), self.stream));
            let from = Box::new(Dechunked { from, left: 0, is_over: false });
            return Events { from, bytes: BytesMut::new(), head: self.head };
        }
        let length = self.header("content-length").map(|bytes| bytes.parse::<u64>().unwrap());
        let left = length.map_or(u64::MAX, |length| length - self.rest.len() as u64);
        Events { from: Box::new(self.stream.take(left)), bytes: self.rest, head: self.head }
    }

    pub fn socket(self) -> Socket {
        Socket { stream: self.stream, bytes: self.rest }
    }
}

/// The data of a body in chunks.
struct Dechunked<R> {
    from: R,
    /// Of the current chunk.
    left: usize,
    is_over: bool,
}

impl<R: BufRead> Read for Dechunked<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 && !self.is_over {
            let mut line = String::new();
            if self.from.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // An empty line ends the chunk before.
            if !line.trim_end().is_empty() {
                self.left = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
                self.is_over = self.left == 0;
            }
        }
        let most = out.len().min(self.left);
        let count = self.from.read(&mut out[..most])?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        Ok(count)
    }
}

fn fill(from: &mut (impl Read + ?Sized), bytes: &mut BytesMut) -> io::Result<usize> {
    let mut piece = [0; 16 << 10];
    let count = from.read(&mut piece)?;
    bytes.extend_from_slice(&piece[..count]);
    Ok(count)
}

/// Sends a request whose response stays open, and does not read it.
pub fn ask_for(server: &Server, target: &str, headers: &[String]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let lines = [&format!("GET {target} HTTP/1.1"), "Host: test", &bearer(&server.key)];
    let request = [&lines.join("\r\n"), &headers.join("\r\n"), "\r\n"].join("\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// From here on the client's system drops all packets, as if its cable had been pulled.
pub fn vanish(stream: &TcpStream) {
    /// The whole program of a filter: keep no byte of any packet.
    const DROP_ALL: SockFilter = SockFilter::new(0x06, 0, 0, 0);
    SockRef::from(stream).attach_filter(&[DROP_ALL]).unwrap();
}

/// A connection with small buffers: a writer soon has to wait for its reader.
fn narrow(server: &Server) -> Box<dyn Bytewise> {
    let address = server.address;
    let socket = Socket2::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    // The server's buffer is a multiple of it.
    socket.set_tcp_mss(1_400).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Box::new(stream)
}

/// One block of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub event: Option<String>,
    pub id: Option<String>,
    pub data: Option<String>,
    pub retry: Option<u64>,
    pub comment: Option<String>,
}

impl Block {
    pub fn json(&self) -> Value {
        serde_json::from_str(self.data.as_deref().unwrap_or("null")).expect("data is JSON")
    }

    pub fn is(&self, name: &str) -> bool {
        self.event.as_deref() == Some(name)
    }

    fn read(text: &str) -> Block {
        let mut block = Block::default();
        let mut data: Vec<&str> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => block.event = Some(value.to_owned()),
                "id" => block.id = Some(value.to_owned()),
                "data" => data.push(value),
                "retry" => block.retry = Some(value.parse().expect("retry is a number")),
                "" => block.comment = Some(value.to_owned()),
                other => panic!("no field of an event stream: {other}"),
            }
        }
        if !data.is_empty() {
            block.data = Some(data.join("\n"));
        }
        block
    }
}

/// Reads an event stream.
pub struct Events {
    from: Box<dyn Read + Send>,
    bytes: BytesMut,
    pub head: String,
}

impl Events {
    /// Opens the stream of a server with its key.
    pub fn open(server: &Server, target: &str) -> Events {
        Events::open_from(server, target, None)
    }

    /// Opens it from a Last-Event-ID.
    pub fn open_from(server: &Server, target: &str, last: Option<&str>) -> Events {
        let (address, key) = (server.address, server.key.as_str());
        Events::try_open(address, key, target, last, PATIENCE).expect("the stream opens")
    }

    /// Opens it over a connection with small buffers.
    pub fn open_narrow(server: &Server, target: &str) -> Events {
        let headers = [bearer(&server.key), "Accept: text/event-stream".to_owned()];
        let opened = Opened::try_get_over(narrow(server), server.address, target, &headers);
        opened.expect("the stream opens").events()
    }

    pub fn try_open(
        address: SocketAddr,
        key: &str,
        target: &str,
        last: Option<&str>,
        patience: Duration,
    ) -> io::Result<Events> {
        let mut headers = vec![format!("Authorization: Bearer {key}")];
        headers.push("Accept: text/event-stream".to_owned());
        headers.extend(last.map(|last| format!("Last-Event-ID: {last}")));
        let opened = Opened::try_get(address, target, &headers, patience)?;
        assert_eq!(opened.status, 200, "{}", opened.head);
        Ok(opened.events())
    }

    /// The output of another reader, such as curl.
    pub fn of(from: impl Read + Send + 'static) -> Events {
        Events { from: Box::new(from), bytes: BytesMut::new(), head: String::new() }
    }

    /// Reads a few bytes.
    pub fn sip(&mut self) {
        fill(&mut *self.from, &mut self.bytes).expect("the stream goes on");
    }

    /// The next block; none at the end of the stream, which must be after a block.
    pub fn try_next(&mut self) -> io::Result<Option<Block>> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\n\n") {
                let text = self.bytes.split_to(end + 2);
                let text = str::from_utf8(&text).map_err(io::Error::other)?;
                return Ok(Some(Block::read(text)));
            }
            if fill(&mut *self.from, &mut self.bytes)? == 0 {
                let whole = self.bytes.is_empty();
                return if whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// The next block; fails at the end of the stream.
    #[track_caller]
    pub fn next(&mut self) -> Block {
        self.try_next().expect("the stream goes on").expect("the stream goes on")
    }

    /// The next block with data.
    #[track_caller]
    pub fn event(&mut self) -> Block {
        loop {
            let block = self.next();
            if block.data.is_some() {
                return block;
            }
        }
    }

    /// The next event of this name; skips others.
    #[track_caller]
    pub fn named(&mut self, name: &str) -> Block {
        loop {
            let block = self.event();
            if block.is(name) {
                return block;
            }
        }
    }

    /// Texts of the messages up to this one.
    #[track_caller]
    pub fn texts_until(&mut self, last: &str) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.last().is_none_or(|text| text != last) {
            let block = self.named("message");
            texts.push(block.json()["text"].as_str().unwrap().to_owned());
        }
        texts
    }

    /// The blocks until the stream ends.
    #[track_caller]
    pub fn rest(mut self) -> Vec<Block> {
        std::iter::from_fn(|| self.try_next().expect("it ends behind a block")).collect()
    }
}

/// A curl command for a server.
pub fn curl(server: &Server, target: &str) -> Command {
    let mut command = Command::new("curl");
    let scheme = if carry::is_secure() { "https" } else { "http" };
    command.args(["--silent", "--show-error", "--insecure", "--no-buffer", "--max-time", "60"]);
    command.arg("--header").arg(format!("Authorization: Bearer {}", server.key));
    command.arg(format!("{scheme}://{}{target}", server.address));
    command
}

/// A curl that reads an event stream; dropping it ends the process.
pub struct Curl {
    child: Child,
    pub events: Events,
}

impl Curl {
    pub fn follow(mut command: Command) -> Curl {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("curl is installed");
        let events = Events::of(child.stdout.take().unwrap());
        Curl { child, events }
    }

    /// Lets curl close its connection itself.
    pub fn interrupt(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub opcode: u8,
    pub compressed: bool,
    pub payload: Vec<u8>,
}

/// The client side of a WebSocket.
pub struct Socket {
    stream: Box<dyn Bytewise>,
    bytes: BytesMut,
}

impl Socket {
    /// Opens it with the server's key.
    pub fn open(server: &Server, target: &str) -> Socket {
        Socket::try_open(server.address, &server.key, target, PATIENCE).expect("the socket opens")
    }

    /// Opens it over a connection with small buffers.
    pub fn open_narrow(server: &Server, target: &str) -> Socket {
        let mut headers = handshake().map(str::to_owned).to_vec();
        headers.push(bearer(&server.key));
        let opened = Opened::try_get_over(narrow(server), server.address, target, &headers);
        opened.expect("the socket opens").socket()
    }

    pub fn try_open(
        address: SocketAddr,
        key: &str,
        target: &str,
        patience: Duration,
    ) -> io::Result<Socket> {
        let opened = Socket::ask(address, target, &[bearer(key)], patience)?;
        assert_eq!(opened.status, 101, "{}", opened.head);
        Ok(opened.socket())
    }

    /// A handshake with these headers in addition to the required ones; the response may be a
    /// refusal.
    pub fn ask(
        address: SocketAddr,
        target: &str,
        headers: &[String],
        patience: Duration,
    ) -> io::Result<Opened> {
        let mut all: Vec<String> = handshake().iter().map(|&line| line.to_owned()).collect();
        all.extend(headers.iter().cloned());
        Opened::try_get(address, target, &all, patience)
    }

    /// The next frame; none when the server has closed the connection.
    pub fn try_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some((frame, length)) = parse(&self.bytes) {
                self.bytes.advance(length);
                return Ok(Some(frame));
            }
            if fill(&mut *self.stream, &mut self.bytes)? == 0 {
                let whole = self.bytes.is_empty();
                return if whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Reads a few bytes.
    pub fn sip(&mut self) {
        fill(&mut *self.stream, &mut self.bytes).expect("the socket goes on");
    }

    #[track_caller]
    pub fn frame(&mut self) -> Frame {
        self.try_frame().expect("the socket goes on").expect("the socket goes on")
    }

    /// The next message; answers pings. None at a close frame or the end.
    pub fn try_message(&mut self) -> io::Result<Option<Value>> {
        self.message_before(None)
    }

    /// Pings keep an idle socket open, so the wait needs a limit.
    fn message_before(&mut self, end: Option<Instant>) -> io::Result<Option<Value>> {
        loop {
            let Some(frame) = self.try_frame()? else { return Ok(None) };
            match frame.opcode {
                TEXT => return Ok(Some(serde_json::from_slice(&frame.payload)?)),
                PING if end.is_some_and(|end| Instant::now() > end) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                PING => self.send(PONG, &frame.payload)?,
                CLOSE => return Ok(None),
                _ => {}
            }
        }
    }

    #[track_caller]
    pub fn message(&mut self) -> Value {
        let end = Some(Instant::now() + PATIENCE);
        self.message_before(end).expect("the socket goes on").expect("the socket goes on")
    }

    /// The next message of this type; skips others.
    #[track_caller]
    pub fn typed(&mut self, kind: &str) -> Value {
        loop {
            let message = self.message();
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// Texts of the messages of the feed up to this one.
    #[track_caller]
    pub fn texts_until(&mut self, last: &str) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.last().is_none_or(|text| text != last) {
            let message = self.typed("message");
            texts.push(message["data"]["text"].as_str().unwrap().to_owned());
        }
        texts
    }

    /// The code and reason of the close; the server must also close the connection.
    #[track_caller]
    pub fn closed(mut self) -> (u16, String) {
        loop {
            let frame = self.frame();
            if frame.opcode == CLOSE {
                let _ = self.send(CLOSE, &frame.payload[..2]);
                let mut rest = Vec::new();
                let _ = self.stream.read_to_end(&mut rest);
                assert!(rest.is_empty(), "something followed the close frame");
                let code = u16::from_be_bytes([frame.payload[0], frame.payload[1]]);
                return (code, String::from_utf8(frame.payload[2..].to_vec()).unwrap());
            }
        }
    }

    #[track_caller]
    pub fn say(&mut self, message: Value) {
        self.send(TEXT, message.to_string().as_bytes()).expect("the socket takes it");
    }

    /// Sends a message that is acknowledged, such as a subscription; drops messages before the
    /// acknowledgement.
    #[track_caller]
    pub fn ask_for(&mut self, mut message: Value) -> Value {
        message["ref"] = json!("asked");
        self.say(message);
        loop {
            let answer = self.message();
            if answer["ref"] == "asked" {
                return answer;
            }
        }
    }

    pub fn send(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        self.bytes_as_they_are(&masked(FIN | opcode, payload))
    }

    pub fn bytes_as_they_are(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }
}

/// The headers of every handshake.
pub fn handshake() -> [&'static str; 4] {
    [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
}

pub fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}")
}

/// A frame from a client.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = head(first, 0x80, payload.len());
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The head of a frame: first byte, mask bit, length.
pub fn head(first: u8, mask: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..126 => bytes.push(mask | length as u8),
        126..65_536 => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes
}

/// A complete frame from a server, and its length.
fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    assert_eq!(second & 0x80, 0, "a server must not mask");
    assert_eq!(first & FIN, FIN, "this server sends whole messages");
    let (length, start) = match second {
        126 => (u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?).into(), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
        small => (usize::from(small), 2),
    };
    let payload = bytes.get(start..start + length)?.to_vec();
    let frame = Frame { opcode: first & 0xf, compressed: first & 0x40 != 0, payload };
    Some((frame, start + length))
}

/// Creates a message in the bookshop's feed; returns its id.
#[track_caller]
pub fn write(server: &Server, text: &str) -> i64 {
    let made = server.post("/v1/messages", json!({ "from": "writer", "text": text }));
    made.expect(201)["id"].as_i64().expect("a feed has whole numbers as ids")
}

/// A channel token with the permissions of the body.
#[track_caller]
pub fn token(server: &Server, body: Value) -> String {
    let made = server.post("/v1/channel-tokens", body).expect(201);
    made["token"].as_str().unwrap().to_owned()
}

/// Every committed message, as the feed returns it: id and text.
pub fn committed(server: &Server) -> Vec<(i64, String)> {
    let mut all: Vec<(i64, String)> = Vec::new();
    loop {
        let since = all.last().map_or(0, |(id, _)| *id);
        let page = server.get(&format!("/api/messages?since={since}")).expect(200);
        let page = page.as_array().unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page.iter().map(shown));
    }
}

/// Id and text of a message.
pub fn shown(record: &Value) -> (i64, String) {
    (record["id"].as_i64().unwrap(), record["text"].as_str().unwrap().to_owned())
}

/// The figures of /metrics by name and labels, for the server's key.
pub fn figures(server: &Server) -> HashMap<String, f64> {
    let page = server.get("/metrics").text;
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect()
}

/// Open connections of a channel.
pub fn open_connections(server: &Server, channel: &str) -> f64 {
    figures(server)[&format!("restive_live_connections{{channel=\"{channel}\"}}")]
}
