//! Our reading of requests against hyper's. Where both accept, they must see the same request;
//! what hyper accepts and we do not must be one of the forms we refuse on purpose; and nothing may
//! pass here that hyper refuses.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use wire::offline::{self, Seen, Verdict};
use wire::{BodyFault, Fault, Limits};

use crate::chance::Chance;
use crate::corpus::corpus;

const CASES: usize = 20_000;

/// Forms that hyper lets pass and we refuse, by the reason we give.
const ON_PURPOSE: [&str; 13] = [
    "A request must carry at most one Content-Length.",
    "A request must carry exactly one Host header.",
    "Content-Length and Transfer-Encoding exclude each other.",
    "Lines must end with CR LF, not with a bare LF.",
    "The Content-Length header is not a number.",
    "The Host header is not a valid host.",
    "The request method is not valid.",
    "The request target and the Host header differ.",
    "The request target must be a path.",
    "The request target must not carry a fragment.",
    "Too many empty lines before a request.",
    "Transfer-Encoding is not valid here.",
    "Transfer-Encoding must be chunked.",
];

/// A request as hyper sees it; no body if that could not be had.
#[derive(Debug)]
struct Theirs {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

/// What hyper's server makes of the bytes.
async fn hyper_reads(bytes: &[u8]) -> Vec<Theirs> {
    // Room for everything either side writes: nobody has to wait for the other.
    let (mut client, server) = tokio::io::duplex(1 << 20);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let seen: Rc<RefCell<Vec<Theirs>>> = Rc::default();
    let service = service_fn(|request: http::Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            let (method, uri, version) = (parts.method, parts.uri, parts.version);
            seen.borrow_mut().push(Theirs { method, uri, version, headers: parts.headers, body });
            Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new()))
        }
    });
    let _ = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(server), service)
        .await;
    seen.take()
}

fn compare(bytes: &[u8], ours: &[Verdict], theirs: &[Theirs]) -> Result<(), String> {
    for (index, verdict) in ours.iter().enumerate() {
        match (verdict, theirs.get(index)) {
            (Verdict::Read(seen), Some(their)) => {
                same(seen, their)?;
                if their.body.as_ref() != Some(&seen.body) {
                    return Err(format!("bodies differ in request {index}"));
                }
            }
            (Verdict::BadBody(seen, fault), Some(their)) => {
                same(seen, their)?;
                let start = their.body.as_ref().is_none_or(|body| body.starts_with(&seen.body));
                // A body that just ends does so for both.
                let ended = *fault == BodyFault::Incomplete && their.body.is_some();
                if !start || ended {
                    return Err(format!("bodies differ in request {index}: {fault:?}"));
                }
                return Ok(());
            }
            (Verdict::Refused(Fault::Tunnel), _) => return Ok(()),
            (Verdict::Refused(fault), Some(_)) if !ON_PURPOSE.contains(&fault.message()) => {
                return Err(format!("refused without need: {}", fault.message()));
            }
            (Verdict::Refused(_) | Verdict::Incomplete, _) => return Ok(()),
            (Verdict::Read(_) | Verdict::BadBody(..), None) => {
                return Err(format!("hyper refuses request {index}, we do not"));
            }
        }
    }
    match theirs.len() > ours.len() {
        true => Err(format!("hyper reads {} requests", theirs.len())),
        false => Ok(()),
    }
    .map_err(|error| format!("{error} in {} bytes", bytes.len()))
}

fn same(seen: &Seen, their: &Theirs) -> Result<(), String> {
    let same = seen.method == their.method
        && seen.uri.path_and_query() == their.uri.path_and_query()
        && seen.version == their.version
        && seen.headers == their.headers;
    if same { Ok(()) } else { Err(format!("{seen:?}\nis not\n{their:?}")) }
}

#[test]
fn whatever_both_accept_is_the_same_request_for_both() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let files: Vec<Vec<u8>> = corpus().into_iter().map(|(_, bytes)| bytes).collect();
    let mut chance = Chance::new(3);
    let (mut accepted, mut refused) = (0, 0);
    for case in 0..CASES {
        let bytes = match files.get(case) {
            Some(bytes) => bytes.clone(),
            None => request(&mut chance, &files),
        };
        let pieces = chance.cut(&bytes);
        let ours = offline::read(pieces, &Limits::default());
        let theirs = runtime.block_on(hyper_reads(&bytes));
        if let Err(difference) = compare(&bytes, &ours, &theirs) {
            panic!("{difference}\ncase {case}: {}\nours: {ours:#?}", bytes.escape_ascii());
        }
        match ours.first() {
            Some(Verdict::Read(_)) => accepted += 1,
            _ => refused += 1,
        }
    }
    // The comparison is worth something only if both kinds are common.
    assert!(accepted > CASES / 10 && refused > CASES / 10, "{accepted} to {refused}");
}

const METHODS: [&str; 7] =
    ["GET", "POST", "PUT", "OPTIONS", "get", "X-1", "A-METHOD-THAT-IS-LONGER-THAN-ANY-KNOWN"];
const TARGETS: [&str; 9] =
    ["/", "/a/b?c=d", "*", "http://a/x", "http://b/", "a:80", "//x", "/%zz?", "/a{}|b"];
const VERSIONS: [&str; 6] =
    ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1"];
const LINES: [&str; 22] = [
    "Host: a",
    "host:a",
    "Host: b",
    "Content-Length: 0",
    "Content-Length: 3",
    "content-length:\t3 ",
    "Content-Length: 3, 3",
    "Content-Length: +3",
    "Transfer-Encoding: chunked",
    "transfer-encoding: CHUNKED",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: upgrade, keep-alive",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "X-Empty:",
    "X-Text: a, b;c=\"d\"",
    "X-Text: a, b;c=\"d\"",
    "Cookie: a=b",
    "x_y: z",
];
const BODIES: [&str; 12] = [
    "",
    "",
    "abc",
    "3\r\nabc\r\n0\r\n\r\n",
    "3;x=y\r\nabc\r\n0\r\n\r\n",
    "03\r\nabc\r\n00\r\nX-Sum: 1\r\n\r\n",
    "3 \r\nabc\r\n0\r\n\r\n",
    "3\nabc\r\n0\r\n\r\n",
    "3\r\nabcd\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nabc",
    "0\r\nContent-Length: 3\r\n\r\n",
    "\r\n",
];
/// What is put in, over or out at chance places.
const TOKENS: [&str; 18] = [
    "\r\n", "\n", "\r", " ", "\t", "\0", ":", ";", ",", "0", "a", "\r\n ", "\u{7f}", "#", "/", "?",
    "\r\n\r\n", "ü",
];

/// A request, well formed or not quite.
fn request(chance: &mut Chance, files: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = match chance.once_in(3) {
        true => files[chance.below(files.len())].clone(),
        false => {
            let count = 1 + chance.below(2);
            (0..count).flat_map(|_| structured(chance)).collect()
        }
    };
    let changes = [0, 0, 1, 1, 2, 4][chance.below(6)];
    for _ in 0..changes {
        let start = chance.below(bytes.len() + 1);
        let end = (start + [0, 1, 1, 2][chance.below(4)]).min(bytes.len());
        let token = if chance.once_in(4) { "" } else { chance.one_of(&TOKENS) };
        bytes.splice(start..end, token.bytes());
    }
    bytes
}

fn structured(chance: &mut Chance) -> Vec<u8> {
    let target = if chance.once_in(3) { chance.one_of(&TARGETS) } else { "/usual?a=b" };
    let version = chance.one_of(&VERSIONS);
    let mut text = "\r\n".repeat(if chance.once_in(9) { chance.below(9) } else { 0 });
    text.push_str(&format!("{} {target} {version}\r\n", chance.one_of(&METHODS)));
    if !chance.once_in(8) {
        text.push_str("Host: a\r\n");
    }
    for _ in 0..chance.below(4) {
        text.push_str(chance.one_of(&LINES));
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.push_str(chance.one_of(&BODIES));
    text.into_bytes()
}
