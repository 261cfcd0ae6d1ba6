//! The edges of the proxy: clients that leave, responses that break off, paths and fields that
//! servers read differently, slow servers, and what a reload keeps.

use crate::harness::{Server, eventually};
use crate::proxy::{configured, proxy};
use crate::sink::{Manner, Sink};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A backend that gives each request, with its body, to this function, and sends what it returns.
/// After an empty response it stays silent until the connection is closed.
pub fn backend(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let respond = Arc::new(respond);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let respond = respond.clone();
            std::thread::spawn(move || serve(stream, &*respond));
        }
    });
    address
}

fn serve(mut stream: TcpStream, respond: &dyn Fn(&str) -> String) {
    let (mut received, mut piece) = (String::new(), [0; 8192]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        received.push_str(&String::from_utf8_lossy(&piece[..count]));
        while let Some(end) = end_of_request(&received) {
            let request: String = received.drain(..end).collect();
            let response = respond(&request);
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn end_of_request(text: &str) -> Option<usize> {
    let head = text.find("\r\n\r\n")? + 4;
    let length = text[..head].split("content-length: ").nth(1).map(|rest| {
        let digits = rest.split("\r\n").next().unwrap();
        digits.parse::<usize>().unwrap()
    });
    if text[..head].contains("transfer-encoding: chunked") {
        let last = head + text[head..].find("0\r\n")? + 3;
        if text[last..].starts_with("\r\n") {
            return Some(last + 2);
        }
        return Some(last + text[last..].find("\r\n\r\n")? + 4);
    }
    let end = head + length.unwrap_or(0);
    (text.len() >= end).then_some(end)
}

/// A whole response with these header lines and this body.
pub fn ok(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

/// One route to one server that is not checked.
pub fn unchecked(server: impl std::fmt::Display, more: &str) -> Server {
    configured(&format!(
        "[backends.b]\nto = [\"{server}\"]\ncheck = \"off\"\n\
         [[sites]]\n[[sites.routes]]\nto = \"b\"\n{more}"
    ))
}

/// A connection on which this was sent.
pub fn send(address: SocketAddr, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    stream
}

/// Reads until this text has come.
fn until(stream: &mut TcpStream, text: &str) -> String {
    let (mut received, mut piece) = (String::new(), [0; 4096]);
    while !received.contains(text) {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the connection ended: {received}");
        received.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    received
}

#[test]
fn a_client_that_leaves_frees_its_backend_within_a_second() {
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 20000\r\n\r\n";
    let post = head.to_owned() + &"x".repeat(20_000);
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned();
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n";
    for (request, manner, first) in [
        (&get, Manner::Raw(events), Some("data: 1")),
        (&get, Manner::Silence, None),
        (&post, Manner::Silence, None),
    ] {
        let sink = Sink::start();
        let proxy = unchecked(sink.address, "");
        sink.will(manner);
        let mut client = send(proxy.address, request);
        if let Some(first) = first {
            until(&mut client, first);
        }
        eventually("the backend has the request", || sink.received().len() == 1);
        let left = Instant::now();
        drop(client);
        sink.finish();
        eventually("the log has it", || {
            first.is_some() || {
                let log = proxy.log.lock().unwrap();
                log.contains("\"status\":499") && log.contains("client_closed_request")
            }
        });
        assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
    }
}

#[test]
fn the_response_decides_how_long_it_may_be_silent() {
    let sink = Sink::start();
    let proxy = unchecked(sink.address, "timeouts = { read = \"300ms\" }\n");
    let head = "GET / HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n";
    sink.will(Manner::Raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"));
    let begun = Instant::now();
    let mut client = send(proxy.address, head);
    let mut text = String::new();
    let _ = client.read_to_string(&mut text);
    assert!(text.ends_with("half"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(5), "the client's wish does not count");
    sink.will(Manner::Raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"));
    let mut client = send(proxy.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    until(&mut client, "data: 1");
    client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let silent = client.read(&mut [0; 100]).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::WouldBlock, "the stream is open");
}

#[test]
fn a_path_that_two_servers_read_differently_reaches_neither() {
    let (public, admin) = (Sink::start(), Sink::start());
    let proxy = configured(&format!(
        "[backends.p]\nto = [\"{}\"]\ncheck = \"off\"\n[backends.a]\nto = [\"{}\"]\n\
         check = \"off\"\n[[sites]]\n[[sites.routes]]\nto = \"p\"\n[[sites.routes]]\n\
         path = \"/admin/*\"\nto = \"a\"\nstrip_prefix = \"/admin\"\n",
        public.address, admin.address
    ));
    for (path, status) in [
        ("/admin%2Fx", 400),
        ("/admin%252fx", 400),
        ("//admin", 400),
        ("/admin;x", 400),
        ("/public/..;/admin", 400),
        ("/;a=b/admin/x", 400),
        ("/public%2Fx;y//z", 200),
        ("/admin//x", 200),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let text = proxy.raw(head.as_bytes());
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {text}");
    }
    let paths = |sink: &Sink| sink.received().into_iter().map(|r| r.path).collect::<Vec<_>>();
    assert_eq!(paths(&public), ["/public%2Fx;y//z"]);
    assert_eq!(paths(&admin), ["/x"], "no path begins with two slashes");
}

#[test]
fn an_old_client_sees_that_a_response_broke_off() {
    let sink = Sink::start();
    let proxy = unchecked(sink.address, "");
    sink.will(Manner::Cut("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"));
    let mut client = send(proxy.address, "GET / HTTP/1.0\r\nhost: a\r\n\r\n");
    let mut all = Vec::new();
    let error = client.read_to_end(&mut all).expect_err("the end looks like the end of the body");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // A whole one ends as it should.
    sink.will(Manner::Cut(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ));
    let mut client = send(proxy.address, "GET / HTTP/1.0\r\nhost: a\r\n\r\n");
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("\r\n\r\nok"), "{text}");
}

#[test]
fn trailers_carry_nothing_that_belongs_into_a_head() {
    let address = backend(|request| {
        let (_, trailers) = request.split_once("\r\n0\r\n").unwrap();
        let body = "5\r\nhello\r\n0\r\nx-sum: 1\r\nset-cookie: a=b\r\nalt-svc: h3\r\n\r\n";
        let seen = trailers.trim().replace("\r\n", "|");
        format!("HTTP/1.1 200 OK\r\nx-seen: {seen}\r\ntransfer-encoding: chunked\r\n\r\n{body}")
    });
    let proxy = unchecked(address, "");
    let head = "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntransfer-encoding: chunked\r\n\r\n";
    let trailers = "x-forwarded-for: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\nx-real-ip: 6.6.6.6\r\n\
                    x_forwarded_for: 6.6.6.6\r\nx-sum: 2\r\nx-request-id: 6\r\n";
    let text = proxy.raw(format!("{head}2\r\nok\r\n0\r\n{trailers}\r\n").as_bytes());
    assert!(text.contains("x-seen: x-sum: 2\r\n"), "{text}");
    assert!(text.ends_with("0\r\nx-sum: 1\r\n\r\n"), "{text}");
}

#[test]
fn interim_responses_carry_only_hints() {
    let sink = Sink::start();
    let proxy = proxy(&[sink.address], &["--early-hints", "always"]);
    sink.will(Manner::Cut(
        "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nset-cookie: a=1\r\n\
         content-length: 5\r\nconnection: x-own\r\nx-own: 1\r\nalt-svc: h3\r\n\r\n\
         HTTP/1.1 104 Upload Resumption Supported\r\nlocation: /upload/1\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ));
    let text = proxy.raw(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let (interim, rest) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(interim, "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload", "{text}");
    let (interim, rest) = rest.split_once("\r\n\r\n").unwrap();
    assert_eq!(interim, "HTTP/1.1 104 \r\nlocation: /upload/1", "{text}");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\nok"), "{text}");
}

#[test]
fn a_client_cannot_remove_the_request_id() {
    let sink = Sink::start();
    let proxy = unchecked(sink.address, "");
    proxy.raw(b"GET / HTTP/1.1\r\nhost: a\r\nx-request-id: 6\r\nconnection: x-request-id\r\n\r\n");
    assert!(sink.received()[0].header("x-request-id").unwrap().starts_with("req_"));
}

#[test]
fn a_folder_below_a_prefix_is_found_and_a_named_pipe_is_no_file() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("docs")).unwrap();
    std::fs::write(folder.path().join("docs/index.html"), "docs").unwrap();
    std::fs::write(folder.path().join("index.html"), "home").unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let proxy = configured(&format!(
        "[[sites]]\n[[sites.routes]]\npath = \"/static/*\"\nfiles = {:?}\n",
        folder.path().display().to_string()
    ));
    let get = |path: &str| proxy.raw(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes());
    let moved = get("/static/docs?a=b");
    assert!(moved.contains("location: /static/docs/?a=b\r\n"), "{moved}");
    let moved = get("/static");
    assert!(moved.contains("location: /static/\r\n"), "{moved}");
    assert!(get("/static/docs/").ends_with("docs"));
    assert!(get("/static/").ends_with("home"));
    let begun = Instant::now();
    assert!(get("/static/pipe").starts_with("HTTP/1.1 404"));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_reload_without_checks_uses_a_server_that_they_took_out() {
    let (bad, good) = (Sink::start(), Sink::start());
    let text = |check: &str| {
        format!(
            "[backends.b]\nto = [\"{}\", \"{}\"]\ncheck = {check}\n\
             [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
            bad.address, good.address
        )
    };
    bad.will(Manner::status(500));
    let proxy = configured(&text("{ interval = \"50ms\", fall = 1 }"));
    let log = |part: &str| proxy.log.lock().unwrap().contains(part);
    eventually("the check notices", || log("a server is unhealthy"));
    bad.will(Manner::status(200));
    std::fs::write(proxy.folder.path().join("proxy.toml"), text("\"off\"")).unwrap();
    proxy.signal("-HUP");
    eventually("the new file is used", || log("the configuration was reloaded"));
    let before = bad.received().len();
    for _ in 0..4 {
        assert_eq!(proxy.get("/").status, 200);
    }
    assert!(bad.received().len() > before, "it gets requests again");
}

#[test]
fn slow_responses_do_not_take_a_server_away_that_passes_its_checks() {
    let slow = Arc::new(AtomicUsize::new(0));
    let count = slow.clone();
    let first = backend(move |request| match request {
        _ if request.starts_with("GET /health ") => ok("", "fine"),
        _ if request.starts_with("GET /slow ") => {
            count.fetch_add(1, Ordering::Relaxed);
            String::new()
        }
        _ => ok("", "first"),
    });
    let second = Sink::start();
    let proxy = configured(&format!(
        "[backends.b]\nto = [\"{first}\", \"{}\"]\n[[sites]]\n[[sites.routes]]\nto = \"b\"\n\
         timeouts = {{ read = \"100ms\" }}\n",
        second.address
    ));
    let slow = || slow.load(Ordering::Relaxed);
    while slow() < 7 {
        proxy.get("/slow");
    }
    let answers: Vec<String> = (0..4).map(|_| proxy.get("/").text).collect();
    assert_eq!(answers.iter().filter(|text| *text == "first").count(), 2, "{answers:?}");
}

#[test]
fn a_long_poll_may_take_longer_than_other_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let more = "timeouts = { read = \"300ms\", long_poll = \"20s\" }\n";
    let proxy = unchecked(listener.local_addr().unwrap(), more);
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let request = until(&mut stream, "\r\n\r\n");
            // waits for: the read time of other requests to pass
            std::thread::sleep(Duration::from_millis(600));
            let _ = stream.write_all(ok("", &request[..request.find(' ').unwrap()]).as_bytes());
        }
    });
    assert_eq!(proxy.get("/events?since=5&wait=true").text, "GET");
    proxy.get("/events?since=5").error(504, "gateway_timeout");
    server.join().unwrap();
}

#[test]
fn a_tunnel_whose_client_has_ended_is_closed_soon() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
                  connection: upgrade\r\nsec-websocket-accept: x\r\n\r\n";
    // It keeps its side open whatever its peer does, so that only the proxy can end the tunnel.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = unchecked(listener.local_addr().unwrap(), "");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        until(&mut stream, "\r\n\r\n");
        stream.write_all(switch.as_bytes()).unwrap();
        stream
    });
    let head = "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut client = send(proxy.address, head);
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    until(&mut client, "101 ");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let begun = Instant::now();
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(server);
}
