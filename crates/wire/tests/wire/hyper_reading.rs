//! Our reading of requests against hyper's: what the test `differential` and the fuzz target of the
//! same crate both hold any bytes to. Where both accept, they must see the same request; what hyper
//! accepts and we do not must be one of the forms we refuse on purpose; and nothing may pass here
//! that hyper refuses. Knows nothing of where the bytes come from.

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
use wire::offline::{Seen, Verdict};
use wire::{BodyFault, Fault};

/// Forms that hyper lets pass and we refuse, by the reason we give.
const ON_PURPOSE: [&str; 14] = [
    "A request must carry at most one Content-Length.",
    "A request must carry exactly one Host header.",
    "Content-Length and Transfer-Encoding exclude each other.",
    "Lines must end with CR LF, not with a bare LF.",
    "The Content-Length header is not a number.",
    "The Host header is not a valid host.",
    "The host in the request target is not a valid host and port.",
    "The only transfer coding that is known here is chunked.",
    "The request method is not valid.",
    "The request target must be a path.",
    "The request target must not carry a fragment.",
    "Too many empty lines before a request.",
    "Transfer-Encoding is not valid here.",
    "Transfer-Encoding must be chunked.",
];

/// A request as hyper sees it; no body if that could not be had.
#[derive(Debug)]
pub struct Theirs {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

/// What hyper's server makes of the bytes.
pub async fn hyper_reads(bytes: &[u8]) -> Vec<Theirs> {
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

/// What differs between the two, if anything does that should not.
pub fn compare(bytes: &[u8], ours: &[Verdict], theirs: &[Theirs]) -> Result<(), String> {
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
            // It knows no later minor version of HTTP/1.
            (Verdict::Read(_) | Verdict::BadBody(..), None) if has_later_version(bytes) => {
                return Ok(());
            }
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

fn has_later_version(bytes: &[u8]) -> bool {
    bytes.windows(9).any(|part| part.starts_with(b" HTTP/1.") && matches!(part[8], b'2'..=b'9'))
}

fn same(seen: &Seen, their: &Theirs) -> Result<(), String> {
    // Of an absolute form we put the authority into the header; hyper leaves that to others.
    let mut expected = their.headers.clone();
    if let Some(authority) = their.uri.authority() {
        expected.insert(http::header::HOST, authority.as_str().parse().unwrap());
    }
    let same = seen.method == their.method
        && seen.uri.path_and_query() == their.uri.path_and_query()
        && seen.version == their.version
        && seen.headers == expected;
    if same { Ok(()) } else { Err(format!("{seen:?}\nis not\n{their:?}")) }
}
