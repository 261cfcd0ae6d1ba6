//! Rules of sites, routes and backends: protocols towards servers, the PROXY protocol, pages of
//! other origins, compression, and uniform headers.

use crate::deadline::Deadline as _;
use crate::harness::{Server, Start, eventually, executable, run};
use crate::live_client::{Curl, Socket, curl};
use crate::proxy::{configured, proxy};
use crate::proxy_edge::{backend, ok, send, unchecked};
use crate::sink::{Manner, Sink};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// One backend with these keys.
fn with_backend(server: impl std::fmt::Display, keys: &str) -> Server {
    configured(&format!(
        "[backends.b]\nto = [\"{server}\"]\n{keys}\n[[sites]]\n[[sites.routes]]\nto = \"b\"\n"
    ))
}

#[test]
fn a_backend_is_spoken_to_in_the_protocol_of_its_configuration() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy =
        with_backend(listener.local_addr().unwrap(), "protocol = \"http2\"\ncheck = \"off\"");
    let client = send(proxy.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let (mut stream, _) = listener.accept().unwrap();
    let mut first = [0; 24];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    drop((client, stream));
    // All of it works with a server that speaks it, and WebSockets have a connection of their own.
    let server = Server::bookshop();
    let proxy = with_backend(server.address, "protocol = \"http2\"");
    let id = proxy.post("/v1/books", json!({ "title": "Dune", "author": "H" })).id();
    assert_eq!(proxy.get(&format!("/v1/books/{id}")).expect(200)["title"], "Dune");
    proxy.get("/v1/nothing").error(404, "route_not_found");
    let mut curl = Curl::follow(curl(&proxy, "/api/events?types=book.*"));
    let mut socket = Socket::open(&proxy, "/ws?types=book.*");
    curl.events.next();
    let id = server.book("Emma");
    assert_eq!(curl.events.named("book.created").json()["data"]["object"]["id"], id.as_str());
    assert_eq!(socket.typed("book.created")["data"]["data"]["object"]["id"], id.as_str());
}

#[test]
fn a_backend_over_https_is_asked_what_it_prefers() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let folder = Arc::new(TempDir::new().unwrap());
    for protocol in ["auto", "http1", "http2"] {
        let file = folder.path().join(format!("{protocol}.toml"));
        let text = format!(
            "[backends.b]\nto = [\"https://{}\"]\nprotocol = \"{protocol}\"\n\
             [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
            server.address
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(executable());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--config"]).arg(&file).arg("--data");
        command.arg(folder.path().join(protocol));
        command.env("SSL_CERT_FILE", server.data().join("self-signed.crt"));
        let proxy = Server::spawn(command, folder.clone());
        assert_eq!(proxy.get("/v1/books").status, 200, "{protocol}");
    }
}

#[test]
fn a_backend_learns_the_client_by_the_proxy_protocol() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let address = backend(move |request| {
        log.lock().unwrap().push(request.to_owned());
        ok("", "ok")
    });
    let proxy = with_backend(address, "send_proxy = \"v1\"\ncheck = \"off\"");
    let mut client = send(proxy.address, "GET /1 HTTP/1.1\r\nhost: a\r\n\r\n");
    let port = client.local_addr().unwrap().port();
    let mut answer = [0; 4096];
    assert!(client.read(&mut answer).unwrap() > 0);
    client.write_all(b"GET /2 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert!(client.read(&mut answer).unwrap() > 0);
    proxy.raw(b"GET /3 HTTP/1.1\r\nhost: a\r\n\r\n");
    let seen = seen.lock().unwrap().clone();
    let first = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}\r\n", proxy.address.port());
    assert!(seen[0].starts_with(&format!("{first}GET /1 ")), "{seen:?}");
    assert!(seen[1].starts_with("GET /2 "), "the client's connection is used again: {seen:?}");
    assert!(seen[2].starts_with("PROXY TCP4 127.0.0.1 "), "another client: {seen:?}");
    assert!(!seen[2].starts_with(&first), "{seen:?}");
    // Health checks are made for nobody, and a server that requires the header accepts them.
    let start = Start::bookshop().arg("--proxy-protocol").arg("on");
    let start = start.arg("--trusted-proxies").arg("127.0.0.1");
    let server = start.go();
    let keys = "send_proxy = \"v2\"\ncheck = { interval = \"50ms\", fall = 1 }";
    let proxy = with_backend(server.address, keys);
    let asked = proxy.get("/v1/books");
    assert_eq!(asked.status, 200);
    assert!(!proxy.log.lock().unwrap().contains("a server is unhealthy"));
}

#[test]
fn what_a_client_says_through_a_load_balancer_that_names_nobody_is_not_believed() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let address = backend(move |request| {
        log.lock().unwrap().push(request.to_ascii_lowercase());
        ok("", "ok")
    });
    let arguments = ["--proxy-protocol", "on", "--trusted-proxies", "127.0.0.1"];
    let proxy = crate::proxy::proxy(&[address], &arguments);
    let forged = "GET /forged HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                  x-forwarded-for: 203.0.113.9\r\nx-forwarded-proto: https\r\n\
                  forwarded: for=203.0.113.9\r\nx-real-ip: 203.0.113.9\r\n\
                  x-client-subject: CN=admin\r\nclient-cert: :AAAA:\r\n\r\n";
    for before in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let answer = proxy.raw(&[before, forged.as_bytes()].concat());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let known = [b"PROXY TCP4 198.51.100.7 127.0.0.1 5 80\r\n", forged.as_bytes()].concat();
    assert!(proxy.raw(&known).starts_with("HTTP/1.1 200 "));
    let seen = seen.lock().unwrap().clone();
    let requests: Vec<&String> = seen.iter().filter(|one| one.starts_with("get /forged")).collect();
    assert_eq!(requests.len(), 3, "{seen:?}");
    for request in &requests {
        for secret in ["203.0.113.9", "cn=admin", ":aaaa:", "proto: https"] {
            assert!(!request.contains(secret), "{request}");
        }
    }
    // The address of the load balancer is not that of a client.
    for request in &requests[..2] {
        for name in ["x-forwarded-for:", "x-real-ip:", "\r\nforwarded:"] {
            assert!(!request.contains(name), "{request}");
        }
    }
    assert!(requests[2].contains("x-forwarded-for: 198.51.100.7\r\n"), "{}", requests[2]);
}

#[test]
fn pages_of_allowed_origins_may_use_a_route_and_no_others() {
    let address = backend(|_| ok("access-control-allow-origin: https://evil.example\r\n", "data"));
    let proxy = configured(&format!(
        "[backends.b]\nto = [\"{address}\"]\ncheck = \"off\"\n[[sites]]\n\
         cors = {{ origins = [\"https://app.example\", \"https://*.app.example\"], \
         credentials = true, headers = [\"content-type\"], max_age = \"1h\" }}\n\
         [[sites.routes]]\nto = \"b\"\n[[sites.routes]]\npath = \"/open/*\"\nto = \"b\"\n\
         cors = {{ origins = [\"*\"], methods = [\"GET\"] }}\n"
    ));
    let ask = |method: &str, path: &str, fields: &[(&str, &str)]| {
        let ask = proxy.ask_anonymously(method, path);
        fields.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send()
    };
    let allowed = ask("GET", "/", &[("origin", "https://x.app.example")]);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://x.app.example"));
    assert_eq!(allowed.header("access-control-allow-credentials"), Some("true"));
    assert!(allowed.header("access-control-expose-headers").unwrap().contains("etag"));
    for origin in [&[("origin", "https://evil.example")][..], &[("origin", "null")], &[]] {
        let refused = ask("GET", "/", origin);
        assert_eq!((refused.status, refused.text.as_str()), (200, "data"));
        assert_eq!(refused.header("access-control-allow-origin"), None, "{origin:?}");
        assert_eq!(refused.header("vary"), Some("origin"));
    }
    let open = ask("GET", "/open/x", &[("origin", "https://evil.example")]);
    assert_eq!(open.header("access-control-allow-origin"), Some("*"));
    assert_eq!(open.header("access-control-allow-credentials"), None);
    let preflight = |path: &str, origin: &str, method: &str, headers: &str| {
        let fields = [
            ("origin", origin),
            ("access-control-request-method", method),
            ("access-control-request-headers", headers),
        ];
        ask("OPTIONS", path, &fields)
    };
    let allowed = preflight("/", "https://app.example", "PATCH", "content-type");
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(allowed.header("access-control-allow-headers"), Some("content-type"));
    assert_eq!(allowed.header("access-control-max-age"), Some("3600"));
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("PATCH"));
    for (path, origin, method, headers) in [
        ("/", "https://evil.example", "GET", "content-type"),
        ("/", "https://app.example", "TRACE", "content-type"),
        ("/", "https://app.example", "GET", "content-type, x-secret"),
        ("/open/x", "https://app.example", "DELETE", "content-type"),
    ] {
        preflight(path, origin, method, headers).error(403, "origin_not_allowed");
    }
    // Without the headers of a preflight it is a request like any other.
    assert_eq!(ask("OPTIONS", "/", &[("origin", "https://app.example")]).text, "data");
}

/// The head and the body of a response, both as they were sent.
fn exchange(proxy: &Server, head: &str) -> (String, Vec<u8>) {
    let mut client = send(proxy.address, &format!("{head}host: a\r\nconnection: close\r\n\r\n"));
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = all.split_off(end);
    (String::from_utf8(all).unwrap(), body)
}

/// The data of the chunks that are here.
fn data(mut chunked: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(end) = chunked.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&chunked[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(piece) = chunked.get(end + 2..end + 2 + size) else { break };
        data.extend_from_slice(piece);
        chunked = chunked.get(end + size + 4..).unwrap_or_default();
    }
    data
}

/// The text that is in the bytes so far.
fn expanded(bytes: &[u8], coding: &str) -> Vec<u8> {
    if coding == "br" {
        let mut decoder = brotli::DecompressorWriter::new(Vec::new(), 4096);
        // Bytes of a stream that goes on are no error.
        let _ = decoder.write_all(bytes);
        return decoder.get_ref().clone();
    }
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    decoder.write_all(bytes).unwrap();
    decoder.flush().unwrap();
    decoder.get_ref().clone()
}

#[test]
fn text_is_compressed_for_clients_that_take_it_and_nothing_else_is() {
    let text = "all work and no play ".repeat(200);
    let sent = text.clone();
    let address = backend(move |request| {
        let path = request.split(' ').nth(1).unwrap();
        let plain = |headers: &str| ok(headers, &sent);
        match path {
            "/text" => plain("content-type: text/plain\r\netag: \"1\"\r\naccept-ranges: bytes\r\n"),
            "/small" => ok("content-type: text/plain\r\n", "few"),
            "/image" => plain("content-type: image/png\r\n"),
            "/done" => plain("content-type: text/plain\r\ncontent-encoding: br\r\n"),
            "/as-is" => plain("content-type: text/plain\r\ncache-control: a, No-Transform\r\n"),
            "/large" => ok("content-type: application/json\r\n", &sent.repeat(100)),
            _ => plain("content-type: text/event-stream\r\n"),
        }
    });
    let proxy =
        unchecked(address, "[[sites.routes]]\npath = \"/off/*\"\nto = \"b\"\ncompress = false");
    for (accepts, coding) in [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip", "gzip"),
        ("br;q=0.5, gzip", "gzip"),
        ("br, gzip;q=0", "br"),
        ("*;q=0.1", "br"),
    ] {
        let request = |path| format!("GET {path} HTTP/1.1\r\naccept-encoding: {accepts}\r\n");
        let named = format!("content-encoding: {coding}\r\n");
        let (head, body) = exchange(&proxy, &request("/text"));
        for part in [named.as_str(), "etag: W/\"1\"\r\n", "vary: accept-encoding\r\n"] {
            assert!(head.contains(part), "{accepts}: {head}");
        }
        assert!(!head.contains("accept-ranges"), "{head}");
        assert!(body.len() < 500 && head.contains(&format!("content-length: {}\r\n", body.len())));
        assert_eq!(expanded(&body, coding), text.as_bytes());
        let (head, body) = exchange(&proxy, &request("/large"));
        assert!(head.contains(&named), "{head}");
        assert_eq!(expanded(&data(&body), coding), text.repeat(100).as_bytes());
    }
    let (head, body) = exchange(&proxy, "HEAD /text HTTP/1.1\r\naccept-encoding: br\r\n");
    assert!(head.contains("vary: accept-encoding\r\n") && body.is_empty(), "{head}");
    for (path, accepts) in [
        ("/text", "br;q=0, gzip;q=0"),
        ("/text", "zstd, deflate"),
        ("/text", "identity"),
        ("/text", "identity, br;q=0.5"),
        ("/small", "br, gzip"),
        ("/image", "br, gzip"),
        ("/done", "gzip"),
        ("/as-is", "br, gzip"),
        ("/events", "br, gzip"),
        ("/off/text", "br, gzip"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\naccept-encoding: {accepts}\r\n");
        let (head, body) = exchange(&proxy, &request);
        let is_encoded = head.contains("content-encoding: ");
        assert_eq!(is_encoded, path == "/done", "{path}: {head}");
        assert_eq!(head.contains("vary: "), path == "/text", "{path}: {head}");
        assert!(body == text.as_bytes() || body == b"few", "{path}");
    }
}

#[test]
fn a_compressed_stream_shows_what_its_server_has_sent() {
    let sink = Sink::start();
    let proxy = unchecked(sink.address, "");
    sink.will(Manner::Raw(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n\
         5\r\nfirst\r\n",
    ));
    for coding in ["br", "gzip"] {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\naccept-encoding: {coding}\r\n\r\n");
        let mut client = send(proxy.address, &head);
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let count = client.read(&mut piece).unwrap();
            assert!(count > 0, "the stream ended");
            all.extend_from_slice(&piece[..count]);
            let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            if expanded(&data(&all[end + 4..]), coding) == b"first" {
                break;
            }
        }
    }
}

#[test]
fn the_weak_tag_of_a_compressed_response_still_guards_a_write() {
    let server = Server::bookshop();
    let proxy = proxy(&[server.address], &[]);
    let path = format!("/v1/books/{}", server.book("Dune"));
    let tag = proxy.get(&path).header("etag").unwrap().to_owned();
    let weak = format!("W/{tag}");
    let write = |tag: &str, title: &str| {
        let ask = proxy.ask("PATCH", &path).header("if-match", tag);
        ask.json(&json!({ "title": title })).send().status
    };
    assert_eq!(write(&weak, "Dune II"), 200, "the client has seen the newest record");
    assert_eq!(write(&weak, "Dune III"), 412, "it has changed since");
}

#[test]
fn uniform_headers_say_https_only_over_https() {
    let sink = Sink::start();
    for (arguments, expected) in
        [(&[][..], false), (&["--tls", "self-signed", "--http3", "off"][..], true)]
    {
        let proxy = proxy(&[sink.address], arguments);
        let scheme = if expected { "https" } else { "http" };
        let output = Command::new("curl")
            .args(["-sSik", "--max-time", "20", &format!("{scheme}://{}/", proxy.address)])
            .output_in_time()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
        assert!(text.contains("x-content-type-options: nosniff"), "{text}");
        assert_eq!(text.contains("strict-transport-security: max-age="), expected, "{text}");
    }
    eventually("the server was asked", || !sink.received().is_empty());
}

#[test]
fn wrong_rules_are_reported_with_their_place() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(
        &file,
        "[backends.a]\nto = [\"127.0.0.1:1\"]\nprotocol = \"h2\"\nsend_proxy = \"v3\"\n[[sites]]\n\
         cors = { origins = [\"*\", \"app\"], credentials = true, method = [] }\n\
         compress = \"yes\"\n[[sites.routes]]\nto = \"a\"\n[backends.b]\nprotocol = \"http2\"\n\
         send_proxy = \"v1\"\nto = [\"127.0.0.1:1\"]\n",
    )
    .unwrap();
    let path = file.display().to_string();
    let (_, error, code) = run(folder.path(), &["proxy", "--check", "--config", &path]);
    assert_eq!(code, 1);
    for part in [
        ":3:12: `protocol` is one of auto, http1, http2",
        ":4:14: `send_proxy` is one of v1, v2",
        ":6:8: `credentials` with the origin `*`",
        ":6:26: `app` is not `*` or an origin",
        "did you mean `methods`",
        ":7:12: `compress` must be true or false",
        ":11:12: `send_proxy` names one client",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
