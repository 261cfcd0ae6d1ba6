//! `restive serve --edge`: the proxy and the API in one process. Requests reach the API without a
//! socket, with everything that the proxy does in front of it.

use crate::harness::{Server, Start, eventually};
use crate::live_client::{Curl, Socket, curl, open_connections, write};
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const CONFIG: &str = "[[sites]]\n\
    [[sites.routes]]\nto = \"self\"\n\
    [[sites.routes]]\npath = \"/openapi.json\"\nto = \"self\"\n\
    response_headers = { set = { cache-control = \"max-age=60\" }, remove = [\"vary\"] }\n\
    [[sites.routes]]\npath = \"/shop/*\"\nto = \"self\"\nstrip_prefix = \"/shop\"\n\
    request_headers = { remove = [\"authorization\"] }\n\
    [[sites.routes]]\npath = \"/limited/*\"\nto = \"self\"\nstrip_prefix = \"/limited\"\n\
    rate_limit = \"2/60s\"\n\
    [[sites.routes]]\npath = \"/old\"\nredirect = \"/v1/books\"\n\
    [[sites.routes]]\npath = \"/pages/*\"\nfiles = \"{files}\"\n";

/// A server with this configuration of its edge, in which `{files}` is a folder.
fn edge(config: &str, arguments: &[&str]) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("index.html"), "home").unwrap();
    configure(folder.path(), config);
    let file = folder.path().join("edge.toml").display().to_string();
    let start = Start::bookshop().on(&folder).arg("--edge").arg(&file);
    arguments.iter().fold(start, |start, argument| start.arg(argument)).go()
}

fn configure(folder: &Path, config: &str) {
    let files = folder.join("files").display().to_string();
    std::fs::write(folder.join("edge.toml"), config.replace("{files}", &files)).unwrap();
}

#[test]
fn the_api_and_what_the_proxy_does_share_a_process() {
    let server = edge(CONFIG, &[]);
    let id = server.post("/v1/books", json!({ "title": "Dune", "author": "H" })).id();
    let path = format!("/v1/books/{id}");
    let read = server.get(&path);
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"), "a header of the proxy");
    let tag = read.header("etag").unwrap().to_owned();
    assert_eq!(read.expect(200)["title"], "Dune");
    let same = server.ask("GET", &path).header("if-none-match", &tag).send();
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    let stale = server.ask("PATCH", &path).header("if-match", "\"x\"");
    stale.json(&json!({ "title": "No" })).send().error(412, "precondition_failed");
    let head = server.ask("HEAD", &path).send();
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    server.get("/v1/nothing").error(404, "route_not_found");
    server.ask("POST", "/v1/books").body("{").header("content-type", "application/json").send();
    // Routes, files, header edits and limits.
    assert_eq!(server.get("/pages/").text, "home");
    assert_eq!(server.get("/shop/v1/books").status, 401, "the key was removed");
    let moved = server.raw(b"GET /old HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(moved.starts_with("HTTP/1.1 308 ") && moved.contains("location: /v1/books"), "{moved}");
    assert_eq!(server.get(&format!("/limited{path}")).status, 200);
    assert_eq!(server.get(&format!("/limited{path}")).status, 200);
    server.get(&format!("/limited{path}")).error(429, "rate_limited");
    // The cache of the proxy.
    let first = server.ask_anonymously("GET", "/openapi.json").send();
    assert_eq!(first.status, 200);
    let second = server.ask_anonymously("GET", "/openapi.json").send();
    assert!(second.header("cache-status").unwrap().contains("hit"), "{second:?}");
    assert_eq!(first.text, second.text);
    server.delete(&path).expect(200);
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn streams_sockets_and_long_polls_pass_the_edge() {
    let server = Start::bookshop().arg("--edge").go();
    let mut curl = Curl::follow(curl(&server, "/api/events?types=book.*"));
    let mut socket = Socket::open(&server, "/ws?types=book.*");
    curl.events.next();
    let id = server.book("Dune");
    assert_eq!(curl.events.named("book.created").json()["data"]["object"]["id"], id.as_str());
    assert_eq!(socket.typed("book.created")["data"]["data"]["object"]["id"], id.as_str());
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| server.get("/api/messages?since=0&wait=true"));
        eventually("the poll is held", || open_connections(&server, "poll") == 1.0);
        let id = write(&server, "hello");
        let polled = poll.join().unwrap();
        assert_eq!(polled.json[0]["id"], id, "{polled:?}");
        assert_eq!(polled.header("x-content-type-options"), Some("nosniff"), "{polled:?}");
    });
    let (code, _) = server.stop();
    assert_eq!(code, 0);
}

#[test]
fn a_request_is_logged_and_counted_once_with_its_client() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = edge(CONFIG, &["--metrics-listen", &port.to_string()]);
    server.get("/v1/books?marked=1");
    server.get("/pages/");
    let lines = |path: &str| {
        let log = server.log.lock().unwrap().clone();
        let path = format!("\"path\":\"{path}\"");
        log.lines().filter(|line| line.contains(&path)).map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("both are logged", || lines("/v1/books").len() + lines("/pages/").len() >= 2);
    let [api] = &lines("/v1/books")[..] else { panic!("{:?}", lines("/v1/books")) };
    assert!(api.contains("\"client\":\"127.0.0.1\"") && api.contains("\"key\":"), "{api}");
    assert_eq!(lines("/pages/").len(), 1);
    let metrics = metrics(port);
    for part in ["restive_proxy_backend_", "restive_requests_total", "restive_proxy_cache_"] {
        assert!(metrics.contains(part), "{part}: {metrics}");
    }
    assert!(metrics.contains("backend=\"self\""), "{metrics}");
}

fn metrics(address: SocketAddr) -> String {
    let head = "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut stream = crate::proxy_edge::send(address, head);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    text
}

#[test]
fn a_reload_replaces_the_edge_and_its_errors_are_reported() {
    let server = edge(CONFIG, &[]);
    let log = |part: &str| server.log.lock().unwrap().contains(part);
    configure(server.folder.path(), "[[sites]]\n[[sites.routes]]\nto = \"slef\"\n");
    server.signal("-HUP");
    eventually("the error is logged", || log("no backend is called `slef`"));
    assert_eq!(server.get("/pages/").text, "home", "the old one goes on");
    let new = "[[sites]]\n[[sites.routes]]\nto = \"self\"\n[[sites.routes]]\n\
               path = \"/new\"\nredirect = \"/v1/books\"\n";
    configure(server.folder.path(), new);
    server.signal("-HUP");
    eventually("the new file is used", || log("the configuration was reloaded"));
    server.get("/pages/").error(404, "route_not_found");
    assert_eq!(server.get("/v1/books").status, 200);
    // A file with errors is not served at all, with their place.
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("bad.toml"), "[[sites]]\n[[sites.routes]]\nto = 5\n")
        .unwrap();
    let file = folder.path().join("bad.toml").display().to_string();
    let (code, error) = Start::bookshop().arg("--edge").arg(&file).fails();
    assert!(code != 0 && error.contains("bad.toml:3:"), "{code}: {error}");
}

#[test]
fn only_the_edge_knows_the_backend_self() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("p.toml"), "[[sites]]\n[[sites.routes]]\nto = \"self\"\n")
        .unwrap();
    let run = |arguments: &[&str]| crate::harness::run(folder.path(), arguments);
    let (_, error, code) = run(&["proxy", "--listen", "127.0.0.1:0", "--config", "p.toml"]);
    assert!(code != 0 && error.contains("p.toml:3:6: `self` is the API"), "{code}: {error}");
    let (text, error, code) = run(&["proxy", "--check", "--config", "p.toml"]);
    assert!(code == 0 && text.contains("for `restive serve --edge`"), "{text} {error}");
    let (text, _, _) = run(&["proxy", "explain", "--config", "p.toml", "GET", "http://a/v1/books"]);
    assert!(text.contains("backend     self"), "{text}");
}

#[test]
fn the_edge_can_lead_to_other_servers_as_well() {
    let other = Server::bookshop();
    let id = other.book("Elsewhere");
    let config = format!(
        "[backends.other]\nto = [\"{}\"]\n[[sites]]\n[[sites.routes]]\nto = \"self\"\n\
         [[sites.routes]]\npath = \"/other/*\"\nto = \"other\"\nstrip_prefix = \"/other\"\n",
        other.address
    );
    let server = edge(&config, &[]);
    assert_eq!(server.get(&format!("/other/v1/books/{id}")).expect(200)["title"], "Elsewhere");
    assert_eq!(server.get(&format!("/v1/books/{id}")).status, 404);
}
