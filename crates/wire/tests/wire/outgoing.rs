//! Outgoing calls against servers that behave well, badly, slowly or not at all.
//! `data/` holds a certificate for `localhost`, its key and the authority that signed it, made for
//! these tests and trusted by nobody else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use wire::outgoing::{Client, OutgoingFault, Reply, Stage};

use crate::server::{PATIENCE, Server};
use crate::sink::{Caller, Sink, request};

type Outcome = Result<Reply, OutgoingFault>;

fn post_by(client: &Client, url: &str, within: Duration) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-test", HeaderValue::from_static("yes"));
    let deadline = Instant::now() + within;
    let call = client.post(url, headers, Bytes::from_static(b"hello"), deadline, 100);
    // The future must be able to move between threads: services await it.
    fn movable<F: Future + Send>(future: F) -> F {
        future
    }
    runtime.block_on(movable(call))
}

fn post(url: &str) -> Outcome {
    post_by(&Client::new(), url, PATIENCE)
}

/// Accepts one connection and hands it to the closure.
fn peer(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    address
}

/// Reads the request to the end of its body, then answers with these bytes.
fn answer(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"hello") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0);
        request.extend_from_slice(&buffer[..count]);
    }
    let _ = stream.write_all(bytes);
    let _ = stream.flush();
    String::from_utf8(request).unwrap()
}

#[test]
fn a_post_reaches_its_server_and_returns_the_response() {
    let server = Server::start();
    let url = format!("http://localhost:{}/hook?x=1", server.address.port());
    let reply = post(&url).unwrap();
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.body, "{\"saw\":\"POST /hook?x=1\",\"body\":\"hello\"}");
}

#[test]
fn the_request_has_the_host_and_the_headers_of_the_caller() {
    let (sender, received) = std::sync::mpsc::channel();
    let address = peer(move |stream| {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        sender.send(answer(stream, ok)).unwrap();
    });
    post(&format!("http://{address}")).unwrap();
    let request = received.recv().unwrap();
    assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {address}\r\n")), "{request}");
    assert!(request.contains("x-test: yes\r\n"), "{request}");
    assert!(request.contains("content-length: 5\r\n"), "{request}");
}

#[test]
fn redirects_are_not_followed() {
    let address = peer(|stream| {
        let moved = b"HTTP/1.1 302 Found\r\nLocation: http://localhost:1/\r\n\
            Content-Length: 0\r\n\r\n";
        answer(stream, moved);
    });
    assert_eq!(post(&format!("http://{address}/")).unwrap().status, StatusCode::FOUND);
}

#[test]
fn each_error_names_the_step_that_failed() {
    let url = |address: SocketAddr| format!("http://{address}/");
    let class = |url: &str| post(url).map_err(|fault| fault.class()).unwrap_err();
    assert_eq!(class("gopher://a/"), "url");
    assert_eq!(class("/path"), "url");
    assert_eq!(class("http://user:secret@a/"), "url");
    assert_eq!(class("http://nowhere.invalid/"), "dns");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(class(&url(closed)), "connect");
    for (bytes, expected) in [
        ("what?\r\n\r\n", "invalid_response"),
        ("HTTP/1.1 abc OK\r\n\r\n", "invalid_response"),
        ("HTTP/2.0 200 OK\r\n\r\n", "invalid_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "invalid_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "invalid_response"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid_response"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab", "invalid_response"),
        ("", "reset"),
        ("HTTP/1.1 200 OK\r\nContent-", "reset"),
    ] {
        let address = peer(move |stream| drop(answer(stream, bytes.as_bytes())));
        assert_eq!(class(&url(address)), expected, "{bytes}");
    }
}

#[test]
fn a_response_over_the_limit_is_refused() {
    let hundred = "x".repeat(100);
    let declared = format!("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n{hundred}");
    let sent = format!("HTTP/1.1 200 OK\r\n\r\n{hundred}x");
    for bytes in [declared, sent] {
        let address = peer(move |stream| drop(answer(stream, bytes.as_bytes())));
        let outcome = post(&format!("http://{address}/"));
        assert!(matches!(outcome, Err(OutgoingFault::TooLarge)), "{outcome:?}");
    }
}

#[test]
fn the_deadline_covers_every_step() {
    let within = Duration::from_millis(200);
    // Held open until the test ends, so that nothing but the deadline can end the call.
    let (_hold, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    for (bytes, scheme, stage) in [
        (&b""[..], "http", Stage::Head),
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"[..], "http", Stage::Body),
        (&b""[..], "https", Stage::Tls),
    ] {
        let held = held.clone();
        let address = peer(move |stream| {
            if scheme == "http" {
                answer(&stream, bytes);
            }
            let _ = held.lock().map(|held| held.recv());
        });
        let client = trusting();
        let url = format!("{scheme}://localhost:{}/", address.port());
        let outcome = post_by(&client, &url, within);
        let Err(OutgoingFault::Timeout(at)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(at, stage);
    }
}

#[test]
fn tls_connects_to_a_trusted_server_only() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret";
    let serve = |bytes: &'static [u8]| peer(move |stream| secure(stream, bytes));
    let url = |host: &str, address: SocketAddr| format!("https://{host}:{}/", address.port());
    let outcome = post_by(&trusting(), &url("localhost", serve(ok)), PATIENCE);
    assert_eq!(outcome.unwrap().body, "secret");
    let wrong_name = post_by(&trusting(), &url("127.0.0.1", serve(ok)), PATIENCE);
    assert!(matches!(wrong_name, Err(OutgoingFault::Tls(_))), "{wrong_name:?}");
    let unknown = post_by(&Client::new(), &url("localhost", serve(ok)), PATIENCE);
    assert_eq!(unknown.unwrap_err().class(), "tls");
    let plain = peer(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    let plain = post_by(&trusting(), &url("localhost", plain), PATIENCE);
    assert!(matches!(plain, Err(OutgoingFault::Tls(_))), "{plain:?}");
}

#[test]
fn a_tls_connection_is_reused_too() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret";
    let sink = Sink::new(|_, stream| secure(stream, ok));
    let caller = Caller { client: trusting(), ..Caller::new() };
    let url = format!("https://localhost:{}/", sink.address.port());
    for turn in 0..3 {
        let report = caller.send(&url);
        assert_eq!(report.result.unwrap().body, "secret");
        assert_eq!((report.reused, report.timing.tls.is_some()), (turn > 0, turn == 0));
    }
    assert_eq!((sink.accepted(), caller.client.idle()), (1, 1));
}

fn trusting() -> Client {
    Client::trusting(vec![include_bytes!("data/authority.der").to_vec()]).unwrap()
}

/// Answers requests over TLS; a client that turns away is no failure of the server.
pub fn secure(stream: TcpStream, bytes: &[u8]) {
    let chain = vec![CertificateDer::from(include_bytes!("data/localhost.der").to_vec())];
    let key = PrivateKeyDer::try_from(include_bytes!("data/localhost-key.der").to_vec()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let mut stream = stream;
    let mut session = ServerConnection::new(Arc::new(config)).unwrap();
    if session.complete_io(&mut stream).is_ok() {
        let mut stream = StreamOwned::new(session, stream);
        while request(&mut stream).is_some() && stream.write_all(bytes).is_ok() {}
    }
}
