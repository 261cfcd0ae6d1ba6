//! The rules of RFC 9110, 9112 and 9113 for intermediaries that no other test of the proxy has, one
//! row each. `docs/spec-coverage.md` lists them all.

use crate::deadline::Deadline as _;
use crate::h2_storms::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame};
use crate::harness::{PATIENCE, Server};
use crate::proxy::proxy;
use crate::proxy_edge::{backend, ok, send, unchecked};
use crate::proxy_origin;
use crate::proxy_smuggling::{DATA, outcome};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A rule, the request, its status, what the backend must see of it, and what it must not see. A
/// request that the backend must not see at all has the absent text ` `.
type Request = (&'static str, &'static str, u16, &'static [&'static str], &'static [&'static str]);

const REQUESTS: &[Request] = &[
    (
        "9110 5.1: unknown fields are forwarded",
        "GET / HTTP/1.1|host: a|x-new: 1|sec-new: 2",
        200,
        &["\r\nx-new: 1\r\n", "\r\nsec-new: 2\r\n"],
        &[],
    ),
    (
        "9110 5.3: the order of equal names is kept",
        "GET / HTTP/1.1|host: a|x-a: 1|x-b: 2|x-a: 3",
        200,
        &["\r\nx-a: 1\r\nx-a: 3\r\n"],
        &[],
    ),
    (
        "9110 7.6.1: fields that Connection names are removed",
        "GET / HTTP/1.1|host: a|connection: x-hop, x-none|x-hop: 1|keep-alive: timeout=5",
        200,
        &[],
        &["x-hop", "x-none", "keep-alive"],
    ),
    (
        "9110 7.6.1: fields of one connection are removed",
        "GET / HTTP/1.1|host: a|proxy-connection: close|te: gzip|upgrade: h2c|trailer: x|\
         proxy-authorization: Basic x",
        200,
        &[],
        &["proxy-connection", "\r\nte: ", "upgrade", "trailer", "proxy-authorization"],
    ),
    (
        "9110 10.1.4: TE is an option of the connection",
        "GET / HTTP/1.1|host: a|connection: te|te: trailers",
        200,
        &["\r\nte: trailers\r\n", "\r\nconnection: te"],
        &[],
    ),
    (
        "9110 7.6.2: Max-Forwards counts the proxy",
        "OPTIONS / HTTP/1.1|host: a|max-forwards: 5",
        200,
        &["\r\nmax-forwards: 4\r\n"],
        &[],
    ),
    ("9110 7.6.2: and ends there", "OPTIONS / HTTP/1.1|host: a|max-forwards: 0", 204, &[], &[" "]),
    ("9110 7.6.2: TRACE too", "TRACE / HTTP/1.1|host: a|max-forwards: 0", 405, &[], &[" "]),
    (
        "9110 7.6.2: other methods are not counted",
        "GET / HTTP/1.1|host: a|max-forwards: 0",
        200,
        &["\r\nmax-forwards: 0\r\n"],
        &[],
    ),
    ("9110 7.6.2: no number", "OPTIONS / HTTP/1.1|host: a|max-forwards: -1", 400, &[], &[" "]),
    (
        "9110 7.6.3: Via names the version that was received, after those before it",
        "GET / HTTP/1.0|host: a|via: 1.1 first",
        200,
        &["\r\nvia: 1.1 first\r\nvia: 1.0 restive-"],
        &[],
    ),
    (
        "9110 7.8: Upgrade of HTTP/1.0 is ignored",
        "GET / HTTP/1.0|host: a|connection: upgrade|upgrade: websocket|\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==|sec-websocket-version: 13",
        200,
        &[],
        &["\r\nupgrade", "connection: upgrade"],
    ),
    (
        "9110 7.8: only a protocol that the proxy can tunnel",
        "GET / HTTP/1.1|host: a|connection: upgrade|upgrade: h2c, websocket",
        200,
        &[],
        &["\r\nupgrade"],
    ),
    ("9110 9.3.6: CONNECT makes no tunnel", "CONNECT a:80 HTTP/1.1|host: a:80", 405, &[], &[" "]),
    (
        "9110 9.1: unknown methods are forwarded",
        "BREW /pot HTTP/1.1|host: a",
        200,
        &["BREW /pot HTTP/1.1\r\n"],
        &[],
    ),
    (
        "9112 2.3: the proxy sends its own version",
        "GET / HTTP/1.0|host: a",
        200,
        &["GET / HTTP/1.1\r\n"],
        &[],
    ),
    (
        "9112 3.2.2: the authority of an absolute target replaces Host",
        "GET http://b.test/x?y HTTP/1.1|host: a",
        200,
        &["GET /x?y HTTP/1.1\r\n", "\r\nhost: b.test\r\n", "x-forwarded-host: b.test\r\n"],
        &["host: a\r\n"],
    ),
    ("9112 3.2.4: OPTIONS * is for the proxy", "OPTIONS * HTTP/1.1|host: a", 204, &[], &[" "]),
    ("9112 3.2: no host", "GET / HTTP/1.1|x: y", 400, &[], &[" "]),
    ("9112 3.2: two hosts", "GET / HTTP/1.1|host: a|host: a", 400, &[], &[" "]),
    ("9112 5.1: a space before a colon", "GET / HTTP/1.1|host: a|x : y", 400, &[], &[" "]),
    (
        "9112 6.1: an unknown coding",
        "POST / HTTP/1.1|host: a|transfer-encoding: gzip",
        501,
        &[],
        &[" "],
    ),
];

#[test]
fn requests_are_forwarded_as_the_rfcs_demand() {
    let seen: Arc<Mutex<String>> = Arc::default();
    let log = seen.clone();
    let address = backend(move |request| {
        *log.lock().unwrap() = request.to_owned();
        ok("", "ok")
    });
    let proxy = unchecked(address, "");
    for (rule, request, status, present, absent) in REQUESTS {
        seen.lock().unwrap().clear();
        let answer = proxy.raw(format!("{}\r\n\r\n", request.replace('|', "\r\n")).as_bytes());
        let request = seen.lock().unwrap().clone();
        let case = format!("{rule}\n{request}\n{answer}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{case}");
        assert!(*status != 405 || answer.contains("\r\nallow: "), "9110 15.5.6: {case}");
        for text in *present {
            assert!(request.contains(text), "{text:?} is missing: {case}");
        }
        for text in *absent {
            assert!(!request.contains(text), "{text:?} is there: {case}");
        }
    }
}

/// A rule, the request, the response of the backend, and what the client must and must not see.
type Response =
    (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

const RESPONSES: &[Response] = &[
    (
        "9110 5.1 and 5.3: unknown fields are forwarded in their order",
        GET,
        "HTTP/1.1 200 OK\r\nx-new: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
         content-length: 2\r\n\r\nok",
        &["\r\nx-new: 1\r\n", "\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n"],
        &[],
    ),
    (
        "9110 7.6.1: fields of the backend's connection are removed",
        GET,
        "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
         proxy-authenticate: Basic\r\nupgrade: h2c\r\nalt-svc: clear\r\ncontent-length: 2\r\n\r\n\
         ok",
        &["\r\n\r\nok"],
        &["x-hop", "timeout=5", "proxy-authenticate", "h2c", "alt-svc"],
    ),
    (
        "9110 6.6.1: a response without a date gets one",
        GET,
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["\r\ndate: "],
        &[],
    ),
    (
        "9110 6.6.1: a date is kept",
        GET,
        "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\ncontent-length: 2\r\n\r\nok",
        &["\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\n"],
        &[],
    ),
    (
        "9110 15.2: interim responses are forwarded",
        GET,
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["HTTP/1.1 102 ", "HTTP/1.1 200 OK"],
        &[],
    ),
    (
        "9110 15.2: and none to HTTP/1.0",
        "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["HTTP/1.1 200 OK", "\r\n\r\nok"],
        &["103"],
    ),
    (
        "9110 10.1.1: an expectation of HTTP/1.0 is ignored",
        "POST / HTTP/1.0\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["HTTP/1.1 200 OK"],
        &["100 Continue"],
    ),
    (
        "9110 9.3.2: HEAD has the length of the body and none of it",
        "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
        &["\r\ncontent-length: 2\r\n"],
        &["\r\n\r\nok"],
    ),
    (
        "9110 8.6: 204 has no length",
        GET,
        "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
        &["HTTP/1.1 204 "],
        &["content-length", "transfer-encoding"],
    ),
    (
        "9110 15.1: an unknown status is forwarded",
        GET,
        "HTTP/1.1 471 New\r\ncontent-length: 2\r\n\r\nok",
        &["HTTP/1.1 471 "],
        &[],
    ),
    (
        "9110 15.5.22: 426 names the protocol that is wanted",
        GET,
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         content-length: 0\r\n\r\n",
        &["HTTP/1.1 426 ", "\r\nupgrade: websocket\r\n"],
        &[],
    ),
    (
        "9110 7.8: and no other protocol",
        GET,
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: TLS/1.3\r\nconnection: upgrade\r\n\
         content-length: 0\r\n\r\n",
        &["HTTP/1.1 426 "],
        &["TLS/1.3"],
    ),
    (
        "9112 2.3: the proxy sends its own version",
        GET,
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["HTTP/1.1 200 OK\r\n", "\r\n\r\nok"],
        &["HTTP/1.0"],
    ),
    (
        "9112 6.1: HTTP/1.0 gets no chunks",
        "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        &["\r\n\r\nok"],
        &["transfer-encoding", "\r\n0\r\n"],
    ),
    (
        "9112 9.3: a connection of HTTP/1.0 is kept only if its client asks for it",
        "GET / HTTP/1.0\r\nhost: a\r\n\r\nGET /second HTTP/1.0\r\nhost: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["\r\n\r\nok"],
        &["keep-alive", "okHTTP"],
    ),
    (
        "9112 9.6: nothing is answered after close",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n\
         GET /second HTTP/1.1\r\nhost: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        &["\r\nconnection: close\r\n", "\r\n\r\nok"],
        &["okHTTP"],
    ),
    (
        "9112 5.2 and 6.3: a response that is not valid is replaced",
        GET,
        "HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 2\r\n\r\nok",
        &["HTTP/1.1 502 "],
        &["\r\n\r\nok"],
    ),
];

#[test]
fn responses_are_forwarded_as_the_rfcs_demand() {
    let said: Arc<Mutex<&'static str>> = Arc::default();
    let say = said.clone();
    let address = backend(move |_| (*say.lock().unwrap()).to_owned());
    let proxy = proxy(&[address], &["--early-hints", "always"]);
    for (rule, request, response, present, absent) in RESPONSES {
        *said.lock().unwrap() = response;
        // Without the end of the client's side: the proxy decides when the connection ends.
        let mut client = send(proxy.address, request);
        let ends = !request.contains("HTTP/1.1") || request.contains("connection: close");
        let answer = match ends {
            true => {
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap();
                String::from_utf8_lossy(&all).into_owned()
            }
            false => proxy.raw(request.as_bytes()),
        };
        let case = format!("{rule}\n{answer}");
        for text in *present {
            assert!(answer.contains(text), "{text:?} is missing: {case}");
        }
        for text in *absent {
            assert!(!answer.contains(text), "{text:?} is there: {case}");
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    // 9112 9.3.2
    let address = backend(|request| ok("", request.split(' ').nth(1).unwrap_or_default()));
    let proxy = unchecked(address, "");
    let all: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    let answer = proxy.raw(all.as_bytes());
    let bodies: Vec<&str> =
        answer.split("\r\n\r\n").skip(1).filter_map(|rest| rest.split("HTTP/1.1").next()).collect();
    let expected: Vec<String> = (0..20).map(|n| format!("/{n}")).collect();
    assert_eq!(bodies, expected, "{answer}");
}

/// What an HTTP/2 client gets through the proxy from a backend of HTTP/1.1.
fn multiplexed(address: std::net::SocketAddr) -> Server {
    unchecked(address, "").over("http2")
}

#[test]
fn messages_change_their_version_as_rfc_9113_demands() {
    let seen: Arc<Mutex<String>> = Arc::default();
    let log = seen.clone();
    let address = backend(move |request| {
        *log.lock().unwrap() = request.to_owned();
        let hops = "connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nx-new: 1\r\n";
        format!("HTTP/1.1 200 OK\r\n{hops}transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    });
    let proxy = multiplexed(address);
    let ask = proxy.ask("POST", "/x").header("cookie", "a=1").header("cookie", "b=2");
    let answer = ask.header("te", "trailers").body("hello").send();
    assert_eq!((answer.status, answer.text.as_str()), (200, "ok"));
    assert_eq!(answer.header("x-new"), Some("1"));
    for gone in ["connection", "keep-alive", "transfer-encoding", "upgrade", "x-hop"] {
        assert_eq!(answer.header(gone), None, "8.2.2: {gone}");
    }
    let request = seen.lock().unwrap().clone();
    let host = format!("\r\nhost: {}\r\n", proxy.address);
    for (rule, text) in [
        ("8.3: the pseudo fields become the request line", "POST /x HTTP/1.1\r\n"),
        ("8.3.1: the authority becomes the host", host.as_str()),
        ("8.2.3: cookies become one field", "\r\ncookie: a=1; b=2\r\n"),
        ("8.1: the length is known", "\r\ncontent-length: 5\r\n"),
        ("7.6.3 of RFC 9110", "\r\nvia: 2 restive-"),
    ] {
        assert!(request.contains(text), "{rule}: {request}");
    }
    assert!(!request.contains("\r\n:"), "{request}");
}

#[test]
fn a_request_that_ends_after_its_head_has_no_body() {
    // 9113 8.1: the end of the stream may come in a frame of its own.
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let address = backend(move |request| {
        log.lock().unwrap().push(request.to_owned());
        ok("cache-control: max-age=60\r\n", "ok")
    });
    let proxy = unchecked(address, "");
    for body in ["", "hello"] {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
        let head = frame(HEADERS, END_HEADERS, 1, &block(&fields));
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &head].concat()).unwrap();
        // waits for: the proxy to have the head before the end
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(&frame(DATA, END_STREAM, 1, body.as_bytes())).unwrap();
        assert_eq!(outcome(&mut stream, 1), '2', "{body}");
    }
    // A body that is no query is refused before the backend sees it.
    let output = Command::new("curl")
        .args(["-s", "--max-time", "30", "--http2-prior-knowledge", "-X", "GET"])
        .args(["-T", "/dev/zero", "-o", "/dev/null", "-w", "%{http_code}", &proxy.url("/")])
        .output_in_time()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "413");
    let seen = seen.lock().unwrap();
    let [empty, full] = &seen[..] else { panic!("{seen:?}") };
    assert!(!empty.contains("transfer-encoding") && !empty.contains("content-length"), "{empty}");
    assert!(full.contains("\r\ncontent-length: 5\r\n") && full.ends_with("hello"), "{full}");
}

// tidy: table
#[test]
fn the_cache_follows_the_rules_that_are_left() {
    proxy_origin::check(
        "left",
        &[
            (
                "5.2.2.3: must-understand with a status that is not known",
                &["471|cache-control: max-age=60, must-understand"],
                &[("GET", "471 1 detail=status"), ("GET", "471 2")],
            ),
            (
                "5.2.2.3: must-understand does not overrule no-store here",
                &["200|cache-control: max-age=60, must-understand, no-store"],
                &[("GET", "200 1 detail=no-store"), ("GET", "200 2")],
            ),
            (
                "4.1: a field that is absent is a value of its own",
                &["200|cache-control: max-age=60|vary: accept-language"],
                &[
                    ("GET", "200 1 stored"),
                    ("GET|accept-language: de", "200 2 fwd=vary-miss"),
                    ("GET", "200 1 hit"),
                ],
            ),
            (
                "4: of several responses the newest is used",
                &[
                    "200|cache-control: max-age=60",
                    "200|cache-control: max-age=60|vary: accept-language",
                ],
                &[
                    ("GET|accept-language: de", "200 1 stored"),
                    ("GET|accept-language: de|cache-control: no-cache", "200 2 stored"),
                    ("GET|accept-language: de", "200 2 hit"),
                ],
            ),
            (
                "5.1: an Age that is no number is ignored",
                &["200|cache-control: max-age=60|age: old"],
                &[("GET", "200 1 stored"), ("GET", "200 1 hit")],
            ),
            (
                "1.2.2: a number that is too large means for ever",
                &["200|cache-control: max-age=99999999999999999999"],
                &[("GET", "200 1 stored"), ("GET", "200 1 hit")],
            ),
            (
                "3.2: a 304 does not change what belongs to the body",
                &[
                    "200|cache-control: max-age=60|age: 100|etag: \"a\"|content-type: text/a",
                    "304|etag: \"a\"|content-length: 99|cache-control: max-age=60",
                ],
                &[("GET", "200 1 stored"), ("GET", "200 1 fwd=stale"), ("GET", "200 1 hit")],
            ),
            (
                "4.4: an error of the server may have had an effect",
                &["200|cache-control: max-age=60", "500"],
                &[("GET", "200 1"), ("POST|=x", "500 2"), ("GET", "500 3 fwd=uri-miss")],
            ),
        ],
    );
}
