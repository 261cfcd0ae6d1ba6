//! A webhook receiver on this machine: stores requests, and responds as the test demands.

use crate::harness::{PATIENCE, eventually};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How it responds to a request.
#[derive(Clone)]
pub enum Manner {
    /// Status, further header lines, body.
    Answer(u16, &'static str, String),
    /// Any bytes; then the connection stays open.
    Raw(&'static str),
    /// Sends these bytes repeatedly until the caller gives up.
    Drip(&'static str, &'static str),
    /// The same as fast as the caller reads.
    Flood(&'static str, &'static str),
    /// Reads the request and closes the connection.
    Close,
    /// Sends this much and closes the connection.
    Cut(&'static str),
    /// Sends this much and resets the connection.
    Reset(&'static str),
    /// Does not respond until the caller gives up.
    Silence,
}

impl Manner {
    pub fn status(status: u16) -> Manner {
        Manner::Answer(status, "", "{\"received\":true}".to_owned())
    }

    /// Bytes that a test generates.
    pub fn raw(bytes: String) -> Manner {
        Manner::Raw(Box::leak(bytes.into_boxed_str()))
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Number of its connection.
    pub connection: usize,
    pub at: Instant,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn event(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub fn kind(&self) -> String {
        self.event()["type"].as_str().unwrap_or("?").to_owned()
    }

    pub fn id(&self) -> String {
        self.event()["id"].as_str().unwrap_or("?").to_owned()
    }
}

#[derive(Clone)]
pub struct Sink {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    manner: Manner,
    received: Vec<Received>,
    connections: usize,
    closed: usize,
}

impl Sink {
    /// A receiver that responds 200.
    pub fn start() -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state =
            State { manner: Manner::status(200), received: Vec::new(), connections: 0, closed: 0 };
        let state = Arc::new(Mutex::new(state));
        let sink = Sink { address, state };
        let shared = sink.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sink = shared.clone();
                let connection = {
                    let mut state = sink.state.lock().unwrap();
                    state.connections += 1;
                    state.connections
                };
                std::thread::spawn(move || {
                    sink.serve(stream, connection);
                    sink.state.lock().unwrap().closed += 1;
                });
            }
        });
        sink
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub fn will(&self, manner: Manner) {
        self.state.lock().unwrap().manner = manner;
    }

    pub fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    /// Waits until it has read everything from closed connections.
    pub fn finish(&self) {
        // Connections are accepted in order: once this one is, so are those before it.
        let mut last = TcpStream::connect(self.address).unwrap();
        last.set_read_timeout(Some(PATIENCE)).unwrap();
        last.shutdown(Shutdown::Write).unwrap();
        let _ = last.read(&mut [0]);
        eventually("every connection is read to its end", || {
            let state = self.state.lock().unwrap();
            state.closed == state.connections
        });
    }

    /// The received requests of one event type.
    pub fn of(&self, kind: &str) -> Vec<Received> {
        self.received().into_iter().filter(|request| request.kind() == kind).collect()
    }

    fn serve(&self, stream: TcpStream, connection: usize) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(request) = read(&mut reader, connection) {
            let manner = {
                let mut state = self.state.lock().unwrap();
                state.received.push(request);
                state.manner.clone()
            };
            if answer(&mut stream, manner).is_none() {
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Received> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Some(0), |(_, value)| value.parse().ok())?];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some(Received { method, path, headers, body, connection, at: Instant::now() })
}

/// `None` at the end of the connection.
fn answer(stream: &mut TcpStream, manner: Manner) -> Option<()> {
    match manner {
        Manner::Answer(status, headers, body) => {
            let head = format!(
                "HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{headers}\r\n{body}",
                body.len()
            );
            stream.write_all(head.as_bytes()).ok()
        }
        Manner::Raw(bytes) => {
            stream.write_all(bytes.as_bytes()).ok()?;
            until_closed(stream)
        }
        Manner::Drip(first, then) => {
            stream.write_all(first.as_bytes()).ok()?;
            while stream.write_all(then.as_bytes()).is_ok() {
                // waits for: the caller to give up, in small pieces
                std::thread::sleep(Duration::from_millis(20));
            }
            None
        }
        Manner::Flood(first, then) => {
            stream.write_all(first.as_bytes()).ok()?;
            while stream.write_all(then.as_bytes()).is_ok() {}
            None
        }
        Manner::Close => None,
        Manner::Cut(bytes) => {
            stream.write_all(bytes.as_bytes()).ok()?;
            None
        }
        Manner::Reset(bytes) => {
            stream.write_all(bytes.as_bytes()).ok()?;
            socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).ok()?;
            None
        }
        Manner::Silence => until_closed(stream),
    }
}

fn until_closed(stream: &mut TcpStream) -> Option<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).ok().filter(|bytes| *bytes > 0).is_some() {}
    None
}
