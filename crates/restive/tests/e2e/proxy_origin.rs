//! A backend for tests of the cache: each path has a list of responses, and the body of a response
//! is the number of its request.

use crate::harness::Server;
use crate::proxy::configured;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A request as the backend saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
pub struct Origin {
    pub address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// The responses of a path, in order; the last one is repeated.
    scripts: HashMap<String, Vec<String>>,
    seen: Vec<Seen>,
    /// GET requests wait until it is opened.
    is_closed: bool,
    /// So many go on all the same.
    passes: usize,
}

impl Origin {
    pub fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let origin = Origin { address, shared: Arc::default() };
        let server = origin.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        origin
    }

    /// A proxy in front of it, without health checks; `more` are keys of the route.
    pub fn proxy(&self, more: &str) -> Server {
        configured(&format!(
            "cache_size = \"16MiB\"\n[backends.b]\nto = [\"{}\"]\ncheck = \"off\"\n\
             [[sites]]\n[[sites.routes]]\nto = \"b\"\n{more}",
            self.address
        ))
    }

    /// The responses to a path: `STATUS|name: value|…`. A part that begins with `=` is the body;
    /// `cut` closes the connection in the middle of the body, or leaves it open with a field
    /// `x-stall`; `chunked` hides the length.
    pub fn will(&self, path: &str, answers: &[&str]) {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        self.shared.0.lock().unwrap().scripts.insert(path.to_owned(), answers);
    }

    /// Lets GET requests wait, or go on.
    pub fn hold(&self, is_closed: bool) {
        self.shared.0.lock().unwrap().is_closed = is_closed;
        self.shared.1.notify_all();
    }

    /// Lets one of those that wait go on.
    pub fn pass_one(&self) {
        self.shared.0.lock().unwrap().passes += 1;
        self.shared.1.notify_all();
    }

    pub fn seen(&self, path: &str) -> Vec<Seen> {
        let state = self.shared.0.lock().unwrap();
        state.seen.iter().filter(|seen| seen.path == path).cloned().collect()
    }

    pub fn count(&self, path: &str) -> usize {
        self.seen(path).len()
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(seen) = read(&mut reader) {
            let Some((bytes, is_cut)) = self.answer(seen) else { return };
            if stream.write_all(bytes.as_bytes()).is_err() {
                return;
            }
            if is_cut {
                let is_stalled = bytes.contains("x-stall: ");
                // Until the proxy closes.
                while is_stalled && matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
                return;
            }
        }
    }

    /// The bytes, and whether the connection is closed after them.
    fn answer(&self, seen: Seen) -> Option<(String, bool)> {
        let (lock, changed) = &*self.shared;
        let mut state = lock.lock().unwrap();
        let (is_head, is_get) = (seen.method == "HEAD", seen.method == "GET");
        let path = seen.path.clone();
        state.seen.push(seen);
        let number = state.seen.iter().filter(|seen| seen.path == path).count();
        let path = path.split('?').next().unwrap_or_default();
        let script = state.scripts.get(path).cloned().unwrap_or_else(|| vec!["200".to_owned()]);
        while is_get && state.is_closed && state.passes == 0 {
            state = changed.wait(state).unwrap();
        }
        if is_get && state.is_closed {
            state.passes -= 1;
        }
        drop(state);
        let answer = script.get(number - 1).or(script.last())?;
        Some(written(answer, number, is_head))
    }
}

fn written(answer: &str, number: usize, is_head: bool) -> (String, bool) {
    let mut parts = answer.split('|');
    let status = parts.next().unwrap_or("200");
    let (mut head, mut body) = (format!("HTTP/1.1 {status} Said\r\n"), number.to_string());
    let (mut is_cut, mut is_chunked) = (false, false);
    for part in parts {
        match part {
            "cut" => is_cut = true,
            "chunked" => is_chunked = true,
            _ => match part.strip_prefix('=') {
                Some(text) => body = text.to_owned(),
                None => head.push_str(&format!("{part}\r\n")),
            },
        }
    }
    if matches!(status, "204" | "304") {
        body.clear();
        return (head + "\r\n", is_cut);
    }
    let length = body.len() + usize::from(is_cut) * 10;
    match is_chunked {
        true => head.push_str("transfer-encoding: chunked\r\n\r\n"),
        false => head.push_str(&format!("content-length: {length}\r\n\r\n")),
    }
    if !is_head {
        match is_chunked {
            true => head.push_str(&format!("{:x}\r\n{body}\r\n", body.len())),
            false => head.push_str(&body),
        }
        if is_chunked && !is_cut {
            head.push_str("0\r\n\r\n");
        }
    }
    (head, is_cut)
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Some(0), |(_, value)| value.parse().ok())?];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { method, path, headers })
}

/// A response of the proxy.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

/// Sends `METHOD PATH|name: value|…` to the proxy; a part that begins with `=` is the body.
pub fn send(proxy: &Server, request: &str) -> Got {
    let mut parts = request.split('|');
    let line = parts.next().unwrap_or_default();
    let (mut fields, mut body) = (String::new(), "");
    for part in parts {
        match part.strip_prefix('=') {
            Some(text) => body = text,
            None => fields.push_str(&format!("{part}\r\n")),
        }
    }
    if !fields.lines().any(|line| line.starts_with("host: ")) {
        fields.push_str("host: shop.test\r\n");
    }
    if !body.is_empty() {
        fields.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    let text = format!("{line} HTTP/1.1\r\n{fields}connection: close\r\n\r\n{body}");
    let answer = proxy.raw(text.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Got { status, head: head.to_owned(), body: body.to_owned() }
}

/// One rule: the responses of the backend, and requests with what they get: status, body (`-` for
/// none, `*` for any) and a part of `Cache-Status`.
pub type Row = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// Checks a table. The path of a row is its own; a request names what follows it.
#[track_caller]
pub fn check(name: &str, rows: &[Row]) {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    let mut failures = Vec::new();
    for (place, (rule, answers, steps)) in rows.iter().enumerate() {
        let path = format!("/{name}{place}");
        origin.will(&path, answers);
        for (step, (request, expected)) in steps.iter().enumerate() {
            let (method, rest) =
                request.split_at(request.find([' ', '|']).unwrap_or(request.len()));
            let got = send(&proxy, &format!("{method} {path}{}", rest.trim_start()));
            let mut words = expected.splitn(3, ' ');
            let status = words.next().and_then(|word| word.parse::<u16>().ok());
            let body = words.next().unwrap_or("*");
            let cache = words.next().unwrap_or_default();
            let found = got.header("cache-status").unwrap_or_default();
            let is_body = body == "*" || got.body == body || body == "-" && got.body.is_empty();
            if Some(got.status) != status || !is_body || !found.contains(cache) {
                failures.push(format!("{rule}, step {step} ({request}): {expected}: {got:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
