//! Requests that two servers in a chain may read differently, through every version of HTTP to a
//! backend of HTTP/1.1. The backend reads its connections strictly and notes whatever is not one
//! whole request after the other. The proxy itself answers `/smuggled`: a backend that sees this
//! path has got a request past the rules of the proxy.

use crate::deadline::Deadline as _;
use crate::h2_storms::{END_HEADERS, END_STREAM, HEADERS, PREFACE, RESET, SETTINGS, block, frame};
use crate::harness::{PATIENCE, Server, executable};
use crate::hostile::{GROWTH_KIB, resident_kib};
use crate::proxy_edge;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

pub const DATA: u8 = 0;
const GOAWAY: u8 = 7;
/// A request that would reach the backend if it were read from a body.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\nX-A: ";
/// Clients that send a request after each attack: whichever thread serves them, one shares its
/// connections with the attacker.
const OTHERS: usize = 4;

/// A backend that answers each request with its path.
#[derive(Clone)]
struct Strict {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// `METHOD PATH BODY` of each whole request.
    whole: Vec<String>,
    /// What is no request.
    wrong: Vec<String>,
}

impl Strict {
    fn start() -> Strict {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let strict = Strict { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let server = strict.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        strict
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        loop {
            match request(&mut reader) {
                Ok(Some((line, path))) => {
                    self.seen.lock().unwrap().whole.push(line);
                    let answer = proxy_edge::ok("", &path);
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
                // The proxy has ended a request that its client broke off.
                Ok(None) => return,
                Err(wrong) => return self.seen.lock().unwrap().wrong.push(wrong),
            }
        }
    }

    #[track_caller]
    fn check(&self, case: &str) {
        let seen = self.seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{case}: {:?}", seen.wrong);
        let smuggled = seen.whole.iter().find(|line| {
            let path = line.split(' ').nth(1).unwrap_or_default();
            path.contains("smuggled")
        });
        assert!(smuggled.is_none(), "{case}: {smuggled:?}");
    }
}

/// A line without its CRLF; none at the end of the connection.
fn line(reader: &mut BufReader<TcpStream>) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    if reader.read_until(b'\n', &mut bytes).is_err() || !bytes.ends_with(b"\n") {
        return Ok(None);
    }
    match bytes.strip_suffix(b"\r\n") {
        Some(text) if !text.contains(&b'\r') && !text.contains(&0) => {
            Ok(Some(String::from_utf8_lossy(text).into_owned()))
        }
        _ => Err(format!("the line {:?}", bytes.escape_ascii().to_string())),
    }
}

/// One request, `METHOD PATH BODY` and its path; none if the connection ends in it.
fn request(reader: &mut BufReader<TcpStream>) -> Result<Option<(String, String)>, String> {
    let Some(first) = line(reader)? else { return Ok(None) };
    let words: Vec<&str> = first.split(' ').collect();
    let [method, path, "HTTP/1.1"] = words[..] else { return Err(first) };
    let (mut length, mut chunked, mut hosts) = (Vec::new(), 0, 0);
    loop {
        let Some(field) = line(reader)? else { return Ok(None) };
        if field.is_empty() {
            break;
        }
        let Some((name, value)) = field.split_once(':') else { return Err(field) };
        if name.is_empty() || name.contains([' ', '\t', '_']) {
            return Err(field);
        }
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length.push(value.trim().parse::<usize>().map_err(|_| value)?),
            "transfer-encoding" if value.trim() == "chunked" => chunked += 1,
            "transfer-encoding" => return Err(field),
            "host" => hosts += 1,
            _ => {}
        }
    }
    if length.len() + chunked > 1 || hosts != 1 {
        return Err(format!("{first}: {length:?} {chunked} {hosts}"));
    }
    let mut body = Vec::new();
    if chunked == 1 {
        if chunks(reader, &mut body)?.is_none() {
            return Ok(None);
        }
    } else {
        body = vec![0; length.first().copied().unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return Ok(None);
        }
    }
    let body = String::from_utf8_lossy(&body);
    Ok(Some((format!("{method} {path} {body}"), path.to_owned())))
}

fn chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Result<Option<()>, String> {
    loop {
        let Some(size) = line(reader)? else { return Ok(None) };
        let bytes = usize::from_str_radix(&size, 16).map_err(|_| format!("the size {size}"))?;
        if bytes == 0 {
            break;
        }
        let mut chunk = vec![0; bytes];
        if reader.read_exact(&mut chunk).is_err() {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
        match line(reader)? {
            Some(end) if end.is_empty() => {}
            Some(end) => return Err(format!("{end} after a chunk")),
            None => return Ok(None),
        }
    }
    // Trailers, and the empty line.
    while let Some(field) = line(reader)? {
        if field.is_empty() {
            return Ok(Some(()));
        }
        let name = field.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if ["content-length", "transfer-encoding", "host"].contains(&name.as_str()) {
            return Err(format!("{field} behind a body"));
        }
    }
    Ok(None)
}

/// A proxy that answers `/smuggled` itself, with HTTP/3 if `arguments` say so.
fn proxy(strict: &Strict, arguments: &[&str]) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "[backends.b]\nto = [\"{}\"]\ncheck = \"off\"\n[[sites]]\n[[sites.routes]]\nto = \"b\"\n\
         [[sites.routes]]\npath = \"/smuggled\"\nredirect = \"/caught\"\n",
        strict.address
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(executable());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    command.arg("--config").arg(file).args(arguments);
    Server::spawn(command, folder)
}

/// Clients that use their connections again and again, and expect their own paths in return.
struct Others {
    streams: Vec<BufReader<TcpStream>>,
    count: usize,
}

impl Others {
    fn connect(proxy: &Server) -> Others {
        let stream = |_| {
            let stream = TcpStream::connect(proxy.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            BufReader::new(stream)
        };
        Others { streams: (0..OTHERS).map(stream).collect(), count: 0 }
    }

    #[track_caller]
    fn ask(&mut self, case: &str) {
        for stream in &mut self.streams {
            self.count += 1;
            let path = format!("/mine/{}", self.count);
            let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
            stream.get_mut().write_all(head.as_bytes()).unwrap();
            let mut length = 0;
            loop {
                let field = line(stream).unwrap().unwrap_or_else(|| panic!("{case}: closed"));
                if field.is_empty() {
                    break;
                }
                if let Some(bytes) = field.strip_prefix("content-length: ") {
                    length = bytes.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            assert_eq!(String::from_utf8_lossy(&body), path, "{case}: somebody else's response");
        }
    }
}

/// Attacks on HTTP/1.1: the lines between `Host` and the empty line, and what follows it.
const REFUSED: &[(&str, &str)] = &[
    ("Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 4", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: identity, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, identity", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: xchunked", "0\r\n\r\n"),
    ("Transfer-Encoding: \"chunked\"", "0\r\n\r\n"),
    ("Transfer-Encoding: \x0bchunked", "0\r\n\r\n"),
    ("Transfer-Encoding:\x00chunked", "0\r\n\r\n"),
    ("Transfer-Encoding : chunked", "0\r\n\r\n"),
    ("Transfer-Encoding\t: chunked", "0\r\n\r\n"),
    ("X: y\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("X: y\rTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("X: y\r\n Transfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding:\r\n chunked", "0\r\n\r\n"),
    ("Transfer_Encoding: chunked", "0\r\n\r\n"),
    ("Content_Length: 4", "0\r\n\r\n"),
    ("Content-Length: 0\r\nContent-Length: 5", "0\r\n\r\n"),
    ("Content-Length: 5\r\nContent-Length: 5", "0\r\n\r\n"),
    ("Content-Length: 5, 5", "0\r\n\r\n"),
    ("Content-Length: +5", "0\r\n\r\n"),
    ("Content-Length: -5", "0\r\n\r\n"),
    ("Content-Length: 0x5", "0\r\n\r\n"),
    ("Content-Length: 5 5", "0\r\n\r\n"),
    ("Content-Length: 5;", "0\r\n\r\n"),
    ("Content-Length : 5", "0\r\n\r\n"),
    ("Content-Length: 18446744073709551617", "0\r\n\r\n"),
    ("Connection: content-length\r\nContent-Length: 5", "0\r\n\r\n"),
    ("Connection: host, content-length", "0\r\n\r\n"),
    ("Connection: close, Host", ""),
    ("Connection: X-Forwarded-For", ""),
    ("Connection: authorization", ""),
    ("Host: b", ""),
    ("Host : a", ""),
    ("X_Forwarded_For: 127.0.0.1", ""),
    ("Transfer-Encoding: chunked", "1\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "1;\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "1\r\nxx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0x1\r\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "-1\r\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "1 \r\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "1_0\r\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "10000000000000001\r\nx\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0\n\n"),
    ("Transfer-Encoding: chunked", "0\r\nContent-Length: 50\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0\r\nHost: b\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0\r\nX\r\n\r\n"),
];

/// Odd requests with one meaning. The body must reach the backend as a body.
const SERVED: &[(&str, &str)] = &[
    ("Content-Length: 36", SMUGGLED_36),
    ("Transfer-Encoding: chunked", "23\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n"),
    ("Transfer-Encoding:\tChunked ", "0\r\n\r\n"),
    ("Content-Length: 00000000000000036", SMUGGLED_36),
    ("Transfer-Encoding: chunked", "2;a=\"GET /smuggled\"\r\nhi\r\n0;x\r\nX-Sum: 1\r\n\r\n"),
    ("Connection: transfer-encoding\r\nTransfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n"),
    ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ", ""),
    ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13", ""),
    ("Keep-Alive: 36\r\nTE: chunked, trailers\r\nTrailer: Content-Length", ""),
];

const SMUGGLED_36: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\n";

/// The first status of an answer.
fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

#[test]
fn no_request_of_http_1_is_read_differently_by_the_backend() {
    let strict = Strict::start();
    let proxy = proxy(&strict, &[]);
    let mut others = Others::connect(&proxy);
    others.ask("before");
    let before = resident_kib(&proxy);
    let refused = REFUSED.iter().map(|case| (*case, false));
    for ((fields, body), is_served) in refused.chain(SERVED.iter().map(|case| (*case, true))) {
        for method in ["POST", "GET"] {
            let head = format!("{method} /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}");
            // Where the framing is wrong, this is read as the rest or as the next request.
            let answer = proxy.raw(format!("{head}{SMUGGLED}\r\n\r\n").as_bytes());
            let case = format!("{head:?}: {answer}");
            match is_served {
                true => assert_eq!(status(&answer), 200, "{case}"),
                // Some of it is found wrong when the backend has the head.
                false => assert!(matches!(status(&answer), 400 | 501), "{case}"),
            }
            assert!(is_served || !answer.contains("HTTP/1.1 200"), "a part is served: {case}");
            strict.check(&case);
            others.ask(&case);
        }
    }
    let now = resident_kib(&proxy);
    assert!(now < before + GROWTH_KIB, "{before} KiB became {now} KiB");
    let whole = strict.seen.lock().unwrap().whole.clone();
    let bodies = whole.iter().filter(|line| line.contains("/a GET /smuggled")).count();
    assert_eq!(bodies, 6, "bodies stay bodies");
}

#[test]
fn request_lines_and_the_corpus_of_wire_are_read_in_one_way() {
    let strict = Strict::start();
    let proxy = proxy(&strict, &[]);
    let mut others = Others::connect(&proxy);
    for first in [
        "GET /a HTTP/1.1\nHost: a",
        "GET  /a HTTP/1.1\r\nHost: a",
        "GET\t/a HTTP/1.1\r\nHost: a",
        "GET /a\r\nHost: a",
        "GET /a HTTP/0.9\r\nHost: a",
        "GET /a HTTP/2.0\r\nHost: a",
        "GET /a HTTP/1.1 \r\nHost: a",
        "GET /a /smuggled HTTP/1.1\r\nHost: a",
        "GET /a\x00 HTTP/1.1\r\nHost: a",
        "GET /a#/smuggled HTTP/1.1\r\nHost: a",
        "GET a HTTP/1.1\r\nHost: a",
        "GET http://b@a/smuggled HTTP/1.1\r\nHost: a",
        "GET /../smuggled HTTP/1.1\r\nHost: a",
        "GET /x/%2e%2e/smuggled HTTP/1.1\r\nHost: a",
        "CONNECT a:80 HTTP/1.1\r\nHost: a",
        "POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked",
        " GET /a HTTP/1.1\r\nHost: a",
        "GET /a HTTP/1.1\r\n Host: a",
        "GET /a HTTP/1.1\r\nX: y",
    ] {
        let answer = proxy.raw(format!("{first}\r\n\r\n0\r\n\r\n{SMUGGLED}\r\n\r\n").as_bytes());
        let is_refused = matches!(status(&answer), 400..=499 | 501 | 505) || answer.is_empty();
        assert!(is_refused, "{first:?}: {answer}");
        strict.check(first);
        others.ask(first);
    }
    // All spellings of a path have one meaning.
    for path in ["/%73muggled", "/smuggle%64", "http://a/smuggled", "/./smuggled"] {
        let answer = proxy.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert!(matches!(status(&answer), 308 | 400), "{path}: {answer}");
        strict.check(path);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let answer = proxy.raw(&std::fs::read(entry.path()).unwrap());
        let found = status(&answer);
        match name.split('-').next().unwrap() {
            "ok" => assert!(found < 500 && found != 0, "{name}: {answer}"),
            // A head without an end has no answer; a body without one gets none or 4xx.
            _ => assert!(matches!(found, 0 | 400..=499 | 501 | 505), "{name}: {answer}"),
        }
        strict.check(&name);
        others.ask(&name);
        count += 1;
    }
    assert!(count > 20, "the corpus is there");
}

/// The fields of a request on HTTP/2 in place of those of the usual one, `-` for none, and its
/// body. The fields are sent as they are.
type Stream = (&'static [(&'static str, &'static str)], &'static str);

const REFUSED_STREAMS: &[Stream] = &[
    (&[("transfer-encoding", "chunked")], "0\r\n\r\nGET /smuggled HTTP/1.1\r\n"),
    (&[("transfer-encoding", "identity")], ""),
    (&[("connection", "close")], ""),
    (&[("connection", "host, content-length")], ""),
    (&[("keep-alive", "x")], ""),
    (&[("proxy-connection", "x")], ""),
    (&[("upgrade", "h2c")], ""),
    (&[("te", "chunked")], ""),
    (&[("content-length", "0")], "GET /smuggled HTTP/1.1\r\n"),
    (&[("content-length", "3")], "four"),
    (&[("content-length", "5")], "four"),
    (&[("content-length", "4"), ("content-length", "4")], "four"),
    (&[("content-length", "4, 4")], "four"),
    (&[("content-length", "+4")], "four"),
    (&[("x", "y\r\nTransfer-Encoding: chunked")], "0\r\n\r\n"),
    (&[("x", "y\r\n\r\nGET /smuggled HTTP/1.1")], ""),
    (&[("x", "y\nContent-Length: 5")], "0\r\n\r\n"),
    (&[("x", "y\rz")], ""),
    (&[("x", "y\0z")], ""),
    (&[("x\r\ntransfer-encoding", "chunked")], "0\r\n\r\n"),
    (&[("transfer-encoding: chunked\r\nx", "y")], "0\r\n\r\n"),
    (&[("x y", "z")], ""),
    (&[("x:y", "z")], ""),
    (&[("", "z")], ""),
    (&[("X-Upper", "z")], ""),
    (&[("content_length", "5")], ""),
    (&[("x_forwarded_for", "127.0.0.1")], ""),
    (&[(":method", "GET /smuggled HTTP/1.1\r\nX:")], ""),
    (&[(":method", "GET ")], ""),
    (&[(":method", "")], ""),
    (&[(":path", "/a HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled")], ""),
    (&[(":path", "/a b")], ""),
    (&[(":path", "/a\tb")], ""),
    (&[(":path", "a")], ""),
    (&[(":path", "http://b/smuggled")], ""),
    (&[(":path", "/x/../smuggled")], ""),
    (&[(":path", "/a#/smuggled")], ""),
    (&[(":path", "")], ""),
    (&[(":path", "-")], ""),
    (&[(":scheme", "http://b/smuggled?")], ""),
    (&[(":scheme", "-")], ""),
    (&[(":authority", "a\r\nx: y")], ""),
    (&[(":authority", "a/smuggled")], ""),
    (&[(":authority", "b@a")], ""),
    (&[(":authority", "a b")], ""),
    (&[("host", "b")], ""),
    (&[("host", "a"), ("host", "a")], ""),
    (&[(":status", "200")], ""),
    (&[(":unknown", "x")], ""),
    (&[(":method", "CONNECT"), (":path", "-"), (":scheme", "-")], ""),
];

const SERVED_STREAMS: &[Stream] = &[
    (&[], "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
    (&[("content-length", "24")], "GET /smuggled HTTP/1.1\r\n"),
    (&[("te", "trailers")], "0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    (&[("cookie", "a=1"), ("cookie", "b=2")], ""),
    (&[("expect", "100-continue")], "four"),
];

/// The fields of a case, those of the protocol first.
fn fields(changed: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let usual = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/a")];
    let is_changed = |name: &str| changed.iter().any(|(other, _)| *other == name);
    let mut all: Vec<_> = usual.into_iter().filter(|(name, _)| !is_changed(name)).collect();
    all.extend(changed.iter().filter(|(_, value)| *value != "-"));
    all.sort_by_key(|(name, _)| !name.starts_with(':'));
    all
}

/// What became of a stream: the first digit of the status, or `r` if it was refused as a whole.
pub fn outcome(stream: &mut TcpStream, number: u32) -> char {
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).is_err() {
            return 'r';
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            return 'r';
        }
        let found = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match head[3] {
            GOAWAY => return 'r',
            RESET if found == number => return 'r',
            HEADERS if found == number => return class(&payload),
            _ => {}
        }
    }
}

/// The first digit of the status, which stands first in the block.
fn class(block: &[u8]) -> char {
    let at = usize::from(block[0] & 0xe0 == 0x20);
    match block[at..] {
        [indexed @ 0x88..=0x8e, ..] => {
            ['2', '2', '2', '3', '4', '4', '5'][usize::from(indexed - 0x88)]
        }
        // In Huffman's code the digits from 3 on have six bits.
        [_, length, first, ..] if length & 0x80 != 0 => match first >> 2 {
            0b011001 => '3',
            0b011010 => '4',
            0b011011 => '5',
            _ => '2',
        },
        [_, _, first, ..] => char::from(first),
        _ => panic!("{block:?}"),
    }
}

/// What became of the request, and of one after it on the same connection.
fn over_http2(proxy: &Server, (changed, body): Stream) -> (char, char) {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let ends = if body.is_empty() { END_STREAM } else { 0 };
    bytes.extend(frame(HEADERS, END_HEADERS | ends, 1, &block(&fields(changed))));
    if !body.is_empty() {
        bytes.extend(frame(DATA, END_STREAM, 1, body.as_bytes()));
    }
    stream.write_all(&bytes).unwrap();
    let first = outcome(&mut stream, 1);
    let after = fields(&[(":method", "GET"), (":path", "/after")]);
    // The proxy may have closed.
    let _ = stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&after)));
    (first, outcome(&mut stream, 3))
}

#[test]
fn no_request_of_http_2_is_read_differently_by_the_backend() {
    let strict = Strict::start();
    let proxy = proxy(&strict, &[]);
    let mut others = Others::connect(&proxy);
    let before = resident_kib(&proxy);
    let refused = REFUSED_STREAMS.iter().map(|case| (*case, false));
    for (case, is_served) in refused.chain(SERVED_STREAMS.iter().map(|case| (*case, true))) {
        let (first, after) = over_http2(&proxy, case);
        match is_served {
            true => assert_eq!((first, after), ('2', '2'), "{case:?}"),
            false => {
                assert!(matches!(first, '4' | 'r'), "{case:?}: {first}");
                assert!(matches!(after, '2' | 'r'), "{case:?}: then {after}");
            }
        }
        strict.check(&format!("{case:?}"));
        others.ask(&format!("{case:?}"));
    }
    let now = resident_kib(&proxy);
    assert!(now < before + GROWTH_KIB, "{before} KiB became {now} KiB");
    let whole = strict.seen.lock().unwrap().whole.clone();
    let bodies = whole.iter().filter(|line| line.starts_with("POST /a ") && line.len() > 20);
    assert_eq!(bodies.count(), 3, "bodies stay bodies: {whole:?}");
}

#[test]
fn no_request_of_http_3_is_read_differently_by_the_backend() {
    let strict = Strict::start();
    let proxy = proxy(&strict, &["--tls", "self-signed"]).over("http3");
    // The fields and the body of a request; whether it is served. The client library refuses to
    // send fields that are no fields; wire has tests that send them byte by byte.
    for (fields, body, is_served) in [
        (&[("transfer-encoding", "chunked")][..], "0\r\n\r\nGET /smuggled HTTP/1.1\r\n", false),
        (&[("connection", "close")], "", false),
        (&[("connection", "content-length")], "four", false),
        (&[("keep-alive", "x")], "", false),
        (&[("proxy-connection", "x")], "", false),
        (&[("upgrade", "h2c")], "", false),
        (&[("te", "chunked")], "", false),
        (&[("content-length", "3")], "four", false),
        (&[("content-length", "5")], "four", false),
        (&[("content-length", "4"), ("content-length", "4")], "four", false),
        (&[("content-length", "4, 4")], "four", false),
        (&[("host", "b")], "", false),
        (&[("x_forwarded_for", "127.0.0.1")], "", false),
        (&[("x", " y")], "", false),
        (&[], "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (&[("te", "trailers")], "0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n", true),
    ] {
        let mut ask = proxy.ask_anonymously("POST", "/a").body(body);
        for (name, value) in fields {
            ask = ask.header(name, value);
        }
        let answer = ask.try_send();
        let case = format!("{fields:?} {body:?}: {answer:?}");
        match answer {
            Ok(answer) if is_served => assert_eq!((answer.status, &*answer.text), (200, "/a")),
            Ok(answer) => assert_eq!(answer.status / 100, 4, "{case}"),
            Err(_) => assert!(!is_served, "{case}"),
        }
        strict.check(&case);
        for _ in 0..OTHERS {
            let next = proxy.ask_anonymously("GET", "/mine").try_send();
            // A connection that was closed because of the attack is replaced by the next request.
            let next = next.unwrap_or_else(|_| proxy.ask_anonymously("GET", "/mine").send());
            assert_eq!(next.text, "/mine", "{case}");
        }
    }
}

#[test]
fn the_backend_sees_one_host_and_one_cookie_for_each_version() {
    let strict = Strict::start();
    let seen: Arc<Mutex<String>> = Arc::default();
    let log = seen.clone();
    let address = proxy_edge::backend(move |request| {
        *log.lock().unwrap() = request.to_owned();
        proxy_edge::ok("", "ok")
    });
    let strict = Strict { address, ..strict };
    let proxy = proxy(&strict, &["--tls", "self-signed"]);
    let ask = |version: &str| {
        let address = proxy.address;
        let output = Command::new("curl")
            .args(["-sk", "--max-time", "30", version, "-b", "a=1; b=2"])
            .args(["-H", "x-forwarded-for: 6.6.6.6", "-H", "forwarded: for=6.6.6.6"])
            .args(["-H", "x-forwarded-anything: 6", "-H", "x-real-ip: 6.6.6.6"])
            .arg(format!("https://localhost:{}/x", address.port()))
            .args(["--resolve", &format!("localhost:{}:127.0.0.1", address.port())])
            .output_in_time()
            .unwrap();
        assert_eq!(output.stdout, b"ok", "{}", String::from_utf8_lossy(&output.stderr));
        seen.lock().unwrap().clone()
    };
    for version in ["--http1.1", "--http2"] {
        let request = ask(version);
        let count = |part: &str| request.matches(part).count();
        assert_eq!(count("\r\nhost: localhost:"), 1, "{request}");
        assert_eq!(count("\r\ncookie: a=1; b=2\r\n"), 1, "{request}");
        assert_eq!((count(": 6.6.6.6"), count("for=6.6.6.6")), (0, 0), "{request}");
        assert_eq!(count("x-forwarded-anything"), 0, "{request}");
        assert_eq!(count("\r\nx-forwarded-for: 127.0.0.1\r\n"), 1, "{request}");
        assert!(request.starts_with("GET /x HTTP/1.1\r\n"), "{request}");
    }
}
