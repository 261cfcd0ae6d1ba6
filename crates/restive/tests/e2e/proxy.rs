//! The reverse proxy in front of real servers and of backends that misbehave: forwarding, headers,
//! balancing, retries, status codes, streams.

use crate::harness::{Answer, Server, eventually, executable};
use crate::live_client::{Curl, Socket, curl};
use crate::sink::{Manner, Sink};
use serde_json::json;
use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// A proxy in front of these servers.
pub fn proxy(servers: &[impl Display], arguments: &[&str]) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let mut command = Command::new(executable());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    for server in servers {
        command.arg("--to").arg(server.to_string());
    }
    command.args(arguments);
    Server::spawn(command, folder)
}

/// A proxy with this configuration.
pub fn configured(config: &str) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let file = folder.path().join("proxy.toml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(executable());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    command.arg("--config").arg(file);
    Server::spawn(command, folder)
}

/// An address where nothing listens.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Without health checks, which would be among the requests of a sink.
fn unchecked(servers: &[String], more: &str) -> Server {
    let to = servers.iter().map(|server| format!("{server:?}")).collect::<Vec<_>>().join(", ");
    configured(&format!(
        "[backends.b]\nto = [{to}]\ncheck = \"off\"\n\
         [[sites]]\n[[sites.routes]]\nto = \"b\"\n{more}"
    ))
}

fn address(sink: &Sink) -> String {
    sink.address.to_string()
}

#[test]
fn the_whole_api_works_through_the_proxy() {
    let server = Server::bookshop();
    let proxy = proxy(&[server.address], &[]);
    let created = proxy.post("/v1/books", json!({ "title": "Dune", "author": "H", "price": 9.5 }));
    assert_eq!(created.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(created.header("x-frame-options"), Some("SAMEORIGIN"));
    assert_eq!(created.header("strict-transport-security"), None, "the proxy speaks plain HTTP");
    assert!(created.header("request-id").is_some());
    let id = created.id();
    let path = format!("/v1/books/{id}");
    let read = proxy.get(&path);
    let tag = read.header("etag").unwrap().to_owned();
    assert_eq!(read.expect(200)["title"], "Dune");
    let same = proxy.ask("GET", &path).header("if-none-match", &tag).send();
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    proxy.patch(&path, json!({ "title": "Dune II" })).expect(200);
    assert_eq!(proxy.get("/v1/books?q=dune").titles(), ["Dune II"]);
    let head = proxy.ask("HEAD", &path).send();
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    proxy.get("/v1/nothing").error(404, "route_not_found");
    proxy.delete(&path).expect(200);
    assert_eq!(server.get(&path).status, 404);
}

#[test]
fn streams_and_sockets_pass_through_as_they_come() {
    let server = Server::bookshop();
    let proxy = proxy(&[server.address], &[]);
    let mut curl = Curl::follow(curl(&proxy, "/api/events?types=book.*"));
    let mut socket = Socket::open(&proxy, "/ws?types=book.*");
    // The stream is open once its first block has come.
    curl.events.next();
    let id = server.book("Dune");
    assert_eq!(curl.events.named("book.created").json()["data"]["object"]["id"], id.as_str());
    assert_eq!(socket.typed("book.created")["data"]["data"]["object"]["id"], id.as_str());
}

#[test]
fn the_backend_sees_the_client_and_nothing_forged() {
    let sink = Sink::start();
    let proxy = unchecked(&[address(&sink)], "");
    let sent = proxy
        .ask("GET", "/a/%62?x=%2F&y")
        .header("x-forwarded-for", "6.6.6.6")
        .header("x-real-ip", "6.6.6.6")
        .header("forwarded", "for=6.6.6.6")
        .header("x-forwarded-host", "evil.example")
        .header("connection", "x-private")
        .header("x-private", "1")
        .send();
    assert_eq!(sent.status, 200);
    let [request] = &sink.received()[..] else { panic!("one request") };
    assert_eq!(request.path, "/a/b?x=%2F&y");
    let host = proxy.address.to_string();
    for (name, expected) in [
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-real-ip", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some(host.as_str())),
        ("host", Some(host.as_str())),
        ("x-private", None),
    ] {
        assert_eq!(request.header(name), expected, "{name}");
    }
    assert!(request.header("via").unwrap().starts_with("1.1 restive-"));
    assert!(request.header("x-request-id").unwrap().starts_with("req_"));
}

#[test]
fn requests_that_cannot_be_forwarded_safely_are_refused() {
    let sink = Sink::start();
    let proxy = unchecked(&[address(&sink)], "max_body = \"1KiB\"\n");
    for (target, header, status, code) in [
        ("/a/../b", ("x-a", "1"), 400, "malformed_request"),
        ("/a/%2e%2e/b", ("x-a", "1"), 400, "malformed_request"),
        ("/a%00", ("x-a", "1"), 400, "malformed_request"),
        ("/", ("connection", "host"), 400, "malformed_request"),
        ("/", ("connection", "content-length"), 400, "malformed_request"),
        ("/", ("x_forwarded_for", "1.1.1.1"), 400, "malformed_request"),
        ("/", ("transfer-encoding", "gzip, chunked"), 400, "malformed_request"),
    ] {
        let (name, value) = header;
        let text = proxy
            .raw(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{name}: {value}\r\n\r\n").as_bytes());
        let expected = format!("HTTP/1.1 {status} ");
        assert!(text.starts_with(&expected) || text.starts_with("HTTP/1.1 501"), "{text}");
        assert!(text.contains(code) || text.contains("not_implemented"), "{text}");
    }
    let large = proxy.ask("POST", "/").body(vec![b'x'; 2000]).send();
    large.error(413, "body_too_large");
    assert!(sink.received().is_empty(), "no server has seen any of them");
    // A body whose length is not known before is counted while it is forwarded.
    let piece = format!("200\r\n{}\r\n", "x".repeat(512));
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = proxy.raw(format!("{head}{}0\r\n\r\n", piece.repeat(3)).as_bytes());
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
}

#[test]
fn each_failure_of_a_backend_has_its_status() {
    let sink = Sink::start();
    let more = "timeouts = { read = \"300ms\", connect = \"300ms\" }\n";
    let proxy = unchecked(&[address(&sink)], more);
    let garbage = "SMTP ready\r\n\r\n";
    let two = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab";
    let folded = "HTTP/1.1 200 OK\r\nx-a: 1\r\n b\r\ncontent-length: 0\r\n\r\n";
    for (manner, status, code) in [
        (Manner::Silence, 504, "gateway_timeout"),
        (Manner::Close, 502, "bad_gateway"),
        (Manner::Cut("HTTP/1.1 200"), 502, "bad_gateway"),
        (Manner::Cut(garbage), 502, "bad_gateway"),
        (Manner::Cut(two), 502, "bad_gateway"),
        (Manner::Cut(folded), 502, "bad_gateway"),
        (Manner::Flood("HTTP/1.1 200 OK\r\n", "x-a: 1\r\n"), 502, "bad_gateway"),
        (Manner::Drip("HTTP/1.1 200 OK\r\n", "x-a: 1\r\n"), 504, "gateway_timeout"),
    ] {
        sink.will(manner);
        let answer = proxy.ask("POST", "/v1/x").body("{}").send();
        assert!(answer.header("retry-after").is_none());
        answer.error(status, code);
    }
    let gone = unchecked(&[nobody()], "");
    let answer = gone.get("/");
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.error(503, "backend_unavailable");
}

#[test]
fn a_request_goes_to_another_server_only_if_that_repeats_nothing() {
    let (bad, good) = (Sink::start(), Sink::start());
    let proxy = unchecked(&[address(&bad), address(&good)], "");
    let count = |sink: &Sink, method: &str| {
        sink.received().iter().filter(|request| request.method == method).count()
    };
    // A server that closes: idempotent requests move, others fail.
    bad.will(Manner::Close);
    for _ in 0..4 {
        assert_eq!(proxy.ask("PUT", "/x").body("1").send().status, 200);
    }
    assert_eq!(count(&good, "PUT"), 4);
    assert!(count(&bad, "PUT") >= 1);
    let posted: Vec<Answer> = (0..4).map(|_| proxy.ask("POST", "/x").body("1").send()).collect();
    let failed = posted.iter().filter(|answer| answer.status == 502).count();
    assert_eq!(count(&bad, "POST"), failed, "each was sent once");
    assert_eq!(count(&good, "POST"), 4 - failed);
    assert!(failed >= 1);
}

/// A backend that closes the connection, instead of answering, at the second POST on it. Returns
/// its address; each POST that arrives is sent to the channel.
fn closing_backend(is_restive: bool) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, posts) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || {
                let (mut buffer, mut posts, mut request) = ([0; 4096], 0, String::new());
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    request.push_str(&String::from_utf8_lossy(&buffer[..count]));
                    let end = if request.starts_with("POST") { "}" } else { "\r\n\r\n" };
                    if !request.ends_with(end) {
                        continue;
                    }
                    let request = std::mem::take(&mut request);
                    if request.starts_with("POST") {
                        posts += 1;
                        let _ = sender.send(request);
                    }
                    if posts == 2 {
                        return;
                    }
                    let name = if is_restive { "restive-server: 1\r\netag: \"1\"\r\n" } else { "" };
                    let answer = format!("HTTP/1.1 200 OK\r\n{name}content-length: 0\r\n\r\n");
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    (address, posts)
}

#[test]
fn a_post_with_a_key_is_sent_once_more_to_a_restive_server_that_closed() {
    for (is_restive, key, status, sent) in [
        (true, "idempotency-key", 200, 3),
        (true, "x-no-key", 502, 2),
        (false, "idempotency-key", 502, 2),
    ] {
        let (address, posts) = closing_backend(is_restive);
        let proxy = configured(&format!(
            "[backends.b]\nto = [\"{address}\"]\ncheck = {{ interval = \"50ms\" }}\n\
             [[sites]]\n[[sites.routes]]\nto = \"b\"\n"
        ));
        let ask = || proxy.ask("POST", "/").header(key, "k").json(&json!({ "a": 1 })).send().status;
        if is_restive {
            // From then on the responses of a single credential are stored.
            eventually("the check has passed", || {
                let read = proxy.ask("GET", "/").key("k").send();
                read.header("cache-status").is_some_and(|status| status.contains("stored"))
            });
        }
        assert_eq!([ask(), ask()], [200, status], "{is_restive} {key}");
        let arrived: Vec<String> = posts.try_iter().collect();
        assert_eq!(arrived.len(), sent, "{is_restive} {key}");
        assert!(arrived.iter().all(|post| post.ends_with("{\"a\":1}")), "{arrived:?}");
    }
}

#[test]
fn a_503_moves_an_idempotent_request_and_a_400_moves_none() {
    let (first, second) = (Sink::start(), Sink::start());
    let proxy = unchecked(&[address(&first), address(&second)], "");
    first.will(Manner::status(503));
    for _ in 0..2 {
        assert_eq!(proxy.get("/").status, 200);
    }
    let statuses: Vec<u16> =
        (0..2).map(|_| proxy.ask("POST", "/").body("x").send().status).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    first.will(Manner::status(400));
    second.will(Manner::status(400));
    let before = first.received().len() + second.received().len();
    assert_eq!(proxy.get("/").status, 400);
    assert_eq!(first.received().len() + second.received().len(), before + 1);
}

#[test]
fn a_refused_connection_moves_every_request() {
    let good = Sink::start();
    let proxy = unchecked(&[nobody(), address(&good)], "");
    for _ in 0..6 {
        assert_eq!(proxy.ask("POST", "/").body("x").send().status, 200);
    }
    assert_eq!(good.received().len(), 6);
}

#[test]
fn an_unhealthy_server_leaves_and_returns_and_the_last_one_stays() {
    let (a, b) = (Sink::start(), Sink::start());
    let proxy = configured(&format!(
        "[backends.b]\nto = [\"{}\", \"{}\"]\n\
         check = {{ path = \"/ready\", interval = \"50ms\", fall = 2, rise = 2 }}\n\
         [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
        a.address, b.address
    ));
    let to = |sink: &Sink| sink.received().iter().filter(|request| request.path == "/").count();
    a.will(Manner::status(500));
    eventually("the checks notice", || proxy.log.lock().unwrap().contains("a server is unhealthy"));
    let before = to(&a);
    for _ in 0..6 {
        assert_eq!(proxy.get("/").status, 200);
    }
    assert_eq!(to(&a), before, "an unhealthy server gets no requests");
    b.will(Manner::status(500));
    eventually("both are unhealthy", || {
        proxy.log.lock().unwrap().matches("a server is unhealthy").count() == 2
    });
    assert_eq!(proxy.get("/").status, 500, "with no healthy server all are asked");
    a.will(Manner::status(200));
    b.will(Manner::status(200));
    eventually("they return", || {
        proxy.log.lock().unwrap().matches("a server is healthy again").count() == 2
    });
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn a_response_that_breaks_off_is_not_taken_for_a_whole_one() {
    let sink = Sink::start();
    let proxy = unchecked(&[address(&sink)], "");
    for cut in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        sink.will(Manner::Cut(cut));
        let outcome = proxy.ask("POST", "/").body("x").try_send();
        assert!(outcome.is_err() || outcome.as_ref().is_ok_and(|a| a.status == 502), "{outcome:?}");
    }
    // Garbage behind a response never becomes the next response.
    sink.will(Manner::Cut(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 666 Forged\r\n\r\n",
    ));
    assert_eq!(proxy.ask("POST", "/").body("x").send().text, "ok");
    sink.will(Manner::status(200));
    assert_eq!(proxy.ask("POST", "/").body("x").send().status, 200);
}
