//! The cache of the proxy under many clients: one request to the backend for all who wait, bounded
//! memory, reloads, and entries for one credential.

use crate::carry;
use crate::harness::{PATIENCE, Server, Start, eventually, executable};
use crate::proxy_origin::{Got, Origin, send};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const STORED: &str = "200|cache-control: max-age=60";

/// A proxy whose metrics can be read.
pub struct Measured {
    pub proxy: Server,
    metrics: String,
}

impl Measured {
    fn start(origin: &Origin, more: &str) -> Measured {
        let config = format!(
            "cache_size = \"16MiB\"\n[backends.b]\nto = [\"{}\"]\ncheck = \"off\"\n\
             [[sites]]\n[[sites.routes]]\nto = \"b\"\n{more}",
            origin.address
        );
        Measured::configured(&config)
    }

    pub fn configured(config: &str) -> Measured {
        Measured::configured_with(config, &[])
    }

    /// With these variables.
    pub fn configured_with(config: &str, variables: &[(&str, &str)]) -> Measured {
        let folder = Arc::new(TempDir::new().unwrap());
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(executable());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(folder.path().join("data")).args(["--metrics-listen", "127.0.0.1:0"]);
        command.arg("--config").arg(file).envs(variables.iter().copied());
        let proxy = Server::spawn(command, folder);
        let line = proxy.greeting.lines().find_map(|line| line.strip_prefix("metrics on http://"));
        let metrics = line.unwrap().split('/').next().unwrap().to_owned();
        Measured { proxy, metrics }
    }

    pub fn metric(&self, name: &str) -> u64 {
        self.metric_with(name, "")
    }

    /// The first one whose labels have this text.
    pub fn metric_with(&self, name: &str, label: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let line = page.lines().find(|line| line.starts_with(name) && line.contains(label));
        let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn waiting(&self) -> u64 {
        self.metric("restive_proxy_cache_waiting")
    }

    fn await_waiting(&self, count: u64) {
        eventually("all requests wait", || self.waiting() == count);
    }

    /// Sends a request whose response is read later.
    fn ask(&self, path: &str, fields: &str) -> Client {
        let mut stream = carry::plain(self.proxy.address);
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Client(stream)
    }
}

struct Client(Box<dyn carry::Bytewise>);

impl Client {
    fn read(mut self) -> Got {
        let mut bytes = Vec::new();
        // A response that breaks off ends with an error.
        let _ = self.0.read_to_end(&mut bytes);
        let answer = String::from_utf8_lossy(&bytes);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Got { status, head: head.to_owned(), body: body.to_owned() }
    }
}

#[test]
fn a_thousand_misses_make_one_request_to_the_backend() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    let body = "x".repeat(100_000);
    let known = format!("{STORED}|={body}");
    for (path, answer) in [("/known", &known), ("/unknown", &format!("{known}|chunked"))] {
        origin.will(path, &[answer]);
        origin.hold(true);
        let clients: Vec<Client> = (0..1000).map(|_| measured.ask(path, "")).collect();
        measured.await_waiting(1000);
        origin.hold(false);
        let mut collapsed = 0;
        for client in clients {
            let got = client.read();
            let is_leader = !got.header("cache-status").unwrap().contains("collapsed");
            // The first client may read chunks, with their sizes.
            assert!(got.body == body || is_leader && got.body.len() > body.len(), "{}", got.head);
            assert_eq!(got.status, 200);
            collapsed += usize::from(!is_leader);
        }
        assert_eq!((origin.count(path), collapsed), (1, 999), "{path}");
    }
}

#[test]
fn a_write_whose_client_leaves_removes_what_is_stored() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/a", &[STORED]);
    assert_eq!(measured.ask("/a", "").read().body, "1");
    origin.hold(true);
    let mut put = Command::new("curl");
    put.args(["-sS", "--http2-prior-knowledge", "-X", "PUT", "-d", "x", "-H", "host: shop.test"]);
    put.arg(measured.proxy.url("/a")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut put = put.spawn().unwrap();
    eventually("it is forwarded", || origin.count("/a") == 2);
    put.kill().unwrap();
    put.wait().unwrap();
    origin.hold(false);
    eventually("the old response is gone", || measured.ask("/a", "").read().body != "1");
}

#[test]
fn a_client_that_waits_for_a_slow_response_of_another_asks_itself() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/a", &[STORED]);
    origin.hold(true);
    let _leader = measured.ask("/a", "");
    measured.await_waiting(1);
    let follower = measured.ask("/a", "");
    eventually("it is forwarded, too", || origin.count("/a") == 2);
    origin.hold(false);
    assert_eq!(follower.read().status, 200);
}

#[test]
fn a_client_that_leaves_does_not_stop_the_others() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/a", &[STORED]);
    origin.hold(true);
    // On HTTP/2 the server notices at once that a client leaves.
    let leave = |path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--http2-prior-knowledge", "--max-time", "20", "-H", "host: shop.test"]);
        curl.arg(measured.proxy.url(path)).stdout(Stdio::null()).stderr(Stdio::null());
        curl.spawn().unwrap()
    };
    let mut leader = leave("/a");
    measured.await_waiting(1);
    let others: Vec<Client> = (0..5).map(|_| measured.ask("/a", "")).collect();
    measured.await_waiting(6);
    leader.kill().unwrap();
    leader.wait().unwrap();
    measured.await_waiting(5);
    origin.hold(false);
    for client in others {
        assert_eq!(client.read().body, "1");
    }
    assert_eq!(origin.count("/a"), 1);
    // With nobody left the request is given up.
    origin.hold(true);
    let mut only = leave("/b");
    eventually("it is forwarded", || origin.count("/b") == 1);
    only.kill().unwrap();
    only.wait().unwrap();
    measured.await_waiting(0);
    origin.hold(false);
    assert_eq!(send(&measured.proxy, "GET /b").status, 200);
}

#[test]
fn clients_that_wait_for_a_response_of_another_ask_at_the_same_time() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/a", &["200|cache-control: private, max-age=60"]);
    origin.hold(true);
    let clients: Vec<Client> = (0..50).map(|_| measured.ask("/a", "")).collect();
    measured.await_waiting(50);
    eventually("one request is forwarded", || origin.count("/a") == 1);
    origin.pass_one();
    eventually("the others do not wait for one another", || origin.count("/a") == 50);
    origin.hold(false);
    let mut bodies: Vec<u32> =
        clients.into_iter().map(|c| c.read().body.parse().unwrap()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (1..=50).collect::<Vec<u32>>(), "each has its own");
    // The next ones do not even wait for the first.
    origin.hold(true);
    let clients: Vec<Client> = (0..5).map(|_| measured.ask("/a", "")).collect();
    eventually("they go at once", || origin.count("/a") == 55);
    origin.hold(false);
    clients.into_iter().for_each(|client| assert_eq!(client.read().status, 200));
}

#[test]
fn clients_that_wait_for_a_failing_backend_do_not_all_ask_it_again() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    for (path, answer, status) in [
        ("/503", "503|set-cookie: own=1", 503),
        ("/502", "502", 502),
        ("/garbage", "0|cut", 502),
        ("/broken", "200|cache-control: max-age=60|chunked|cut", 502),
    ] {
        origin.will(path, &[answer]);
        origin.hold(true);
        let clients: Vec<Client> = (0..20).map(|_| measured.ask(path, "")).collect();
        measured.await_waiting(20);
        origin.hold(false);
        let all: Vec<Got> = clients.into_iter().map(Client::read).collect();
        let failed = all.iter().filter(|got| got.status == status).count();
        assert!(failed >= 19, "{path}: {all:?}");
        let own = all.iter().filter(|got| got.header("set-cookie").is_some()).count();
        assert!(own <= 1, "{path}: a response that is not stored has one reader");
        assert!(origin.count(path) <= 2, "{path}: {}", origin.count(path));
    }
}

#[test]
fn clients_with_other_selecting_fields_get_their_own_variant() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/a", &["200|cache-control: max-age=60|vary: accept-language"]);
    origin.hold(true);
    let first = measured.ask("/a", "accept-language: de\r\n");
    measured.await_waiting(1);
    let others: Vec<Client> =
        (0..10).map(|_| measured.ask("/a", "accept-language: en\r\n")).collect();
    measured.await_waiting(11);
    origin.hold(false);
    assert_eq!(first.read().body, "1");
    others.into_iter().for_each(|client| assert_eq!(client.read().body, "2"));
    assert_eq!(origin.count("/a"), 2);
}

#[test]
fn a_validation_that_ends_the_sharing_is_for_its_own_client() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    let old = "200|cache-control: max-age=60|age: 100|etag: \"a\"";
    let confirmed = "304|etag: \"a\"|cache-control: private";
    origin.will("/a", &[old, confirmed, "200|cache-control: private"]);
    assert_eq!(send(&measured.proxy, "GET /a").body, "1");
    origin.hold(true);
    let clients: Vec<Client> = (0..5).map(|_| measured.ask("/a", "")).collect();
    measured.await_waiting(5);
    origin.hold(false);
    let mut bodies: Vec<String> = clients.into_iter().map(|client| client.read().body).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["1", "3", "4", "5", "6"]);
}

#[test]
fn a_write_overtakes_a_response_on_its_way_into_the_cache() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/a", &[STORED]);
    origin.hold(true);
    let old = measured.ask("/a", "");
    eventually("the backend has the request", || origin.count("/a") == 1);
    assert_eq!(send(&measured.proxy, "POST /a|=x").status, 200);
    // Who asks after the write does not get what was asked before it.
    let new = measured.ask("/a", "");
    eventually("it is a request of its own", || origin.count("/a") == 3);
    origin.hold(false);
    assert_eq!((old.read().body.as_str(), new.read().body.as_str()), ("1", "3"));
    assert_eq!(send(&measured.proxy, "GET /a").body, "3");
}

#[test]
fn large_bodies_pass_through_whole_and_are_not_stored() {
    let origin = Origin::start();
    // An entry has at most 3/128 of the cache: 384 KiB of 16 MiB.
    let proxy = origin.proxy("");
    let body = "0123456789".repeat(40_000);
    let known = format!("200|cache-control: max-age=60|={body}");
    origin.will("/known", &[&known]);
    origin.will("/chunked", &[&format!("{known}|chunked")]);
    origin.will("/small", &[&format!("200|cache-control: max-age=60|={}", &body[..380_000])]);
    for round in 1..=2 {
        let got = send(&proxy, "GET /known");
        assert_eq!((got.body.len(), origin.count("/known")), (body.len(), round));
        let got = send(&proxy, "GET /chunked");
        assert!(got.body.len() > body.len() && got.body.ends_with("0\r\n\r\n"));
        assert!(got.body.contains(&body[..1000]));
        assert_eq!(origin.count("/chunked"), round);
        assert_eq!(send(&proxy, "GET /small").body.len(), 380_000);
    }
    assert_eq!(origin.count("/small"), 1);
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_used_often() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    let answer = format!("200|cache-control: max-age=600|={}", "x".repeat(100_000));
    origin.will("/hot", &[&answer]);
    origin.will("/scan", &[&answer]);
    for _ in 0..3 {
        send(&measured.proxy, "GET /hot");
    }
    for number in 0..400 {
        send(&measured.proxy, &format!("GET /scan?{number}"));
    }
    let bytes = measured.metric("restive_proxy_cache_bytes");
    assert!((1 << 20..=16 << 20).contains(&bytes), "{bytes}");
    assert!(measured.metric("restive_proxy_cache_evicted_total") > 100);
    send(&measured.proxy, "GET /hot");
    assert_eq!(origin.count("/hot"), 1, "a scan does not push it out");
    assert_eq!(measured.metric("restive_proxy_cache_requests_total{result=\"hit\"}"), 3);
    assert_eq!(measured.metric("restive_proxy_cache_requests_total{result=\"fwd_uri_miss\"}"), 401);
    assert_eq!(measured.metric("restive_proxy_cache_stored_total"), 401);
}

#[test]
fn responses_on_their_way_have_a_bounded_part_of_the_memory() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    // The backend stops in the middle of each body; 4 MiB are for such bodies.
    let body = "x".repeat(250 * 1024);
    origin.will("/slow", &[&format!("200|cache-control: max-age=60|x-stall: 1|cut|={body}")]);
    let mut clients: Vec<Client> =
        (0..20).map(|number| measured.ask(&format!("/slow?{number}"), "")).collect();
    let mut refused = 0;
    for client in &mut clients {
        let mut head = vec![0; 4096];
        let count = client.0.read(&mut head).unwrap();
        let head = String::from_utf8_lossy(&head[..count]);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        refused += usize::from(head.contains("detail=memory"));
    }
    assert_eq!(refused, 4, "16 of them fit");
    drop(clients);
}

#[test]
fn nobody_waits_long_for_the_end_of_a_body_of_unknown_length() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    origin.will("/slow", &["200|cache-control: max-age=60|x-stall: 1|chunked|cut"]);
    let mut first = measured.ask("/slow", "");
    let mut head = [0; 2048];
    let count = first.0.read(&mut head).unwrap();
    assert!(head[..count].starts_with(b"HTTP/1.1 200 "), "the first client reads at once");
    let second = measured.ask("/slow", "");
    measured.await_waiting(1);
    assert_eq!(origin.count("/slow"), 1, "it waits for the first");
    eventually("it asks the backend itself", || origin.count("/slow") == 2);
    drop((first, second));
}

#[test]
fn a_body_of_unknown_length_is_not_read_on_when_all_its_clients_have_left() {
    let origin = Origin::start();
    let measured = Measured::start(&origin, "");
    let in_progress = || measured.metric("restive_proxy_backend_requests_in_progress");
    let stalled = format!("{STORED}|chunked|cut|x-stall: 1|={}", "x".repeat(1_000));
    origin.will("/a", &[&stalled, STORED]);
    let mut first = measured.ask("/a", "");
    first.0.read_exact(&mut [0; 12]).unwrap();
    let second = measured.ask("/a", "");
    measured.await_waiting(1);
    drop(first);
    // The other one waits for the same response.
    std::thread::sleep(Duration::from_millis(300)); // waits for: an end that must not come
    assert_eq!(in_progress(), 1);
    let left = Instant::now();
    drop(second);
    eventually("the request to the backend ends", || in_progress() == 0);
    assert!(left.elapsed() < Duration::from_secs(10), "{:?}", left.elapsed());
    assert_eq!(measured.ask("/a", "").read().body, "2", "nothing was stored");
}

#[test]
fn a_reload_keeps_what_is_stored_for_unchanged_routes() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    origin.will("/a", &[STORED]);
    assert_eq!(send(&proxy, "GET /a").body, "1");
    let file = proxy.folder.path().join("proxy.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let reload = |config: &str, count: usize| {
        std::fs::write(&file, config).unwrap();
        proxy.signal("-HUP");
        eventually("it is reloaded", || {
            proxy.log.lock().unwrap().matches("the configuration was reloaded").count() == count
        });
    };
    reload(&config, 1);
    assert_eq!(send(&proxy, "GET /a").body, "1");
    reload(&format!("{config}response_headers = {{ set = {{ x-a = \"1\" }} }}\n"), 2);
    let got = send(&proxy, "GET /a");
    assert_eq!((got.body.as_str(), got.header("x-a")), ("2", Some("1")));
}

#[test]
fn a_restive_backends_responses_are_kept_for_each_credential() {
    let server = Start::bookshop().go();
    let health = server.ask_anonymously("GET", "/health").send();
    assert!(health.header("restive-server").is_some(), "it says what it is");
    let measured = Measured::configured(&format!(
        "[backends.b]\nto = [\"{}\"]\ncheck = {{ path = \"/health\", interval = \"50ms\" }}\n\
         [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
        server.address
    ));
    let proxy = &measured.proxy;
    let id = proxy.book("Dune");
    let path = format!("/v1/books/{id}");
    let status = |answer: &crate::harness::Answer| {
        answer.header("cache-status").unwrap_or_default().to_owned()
    };
    eventually("the proxy knows that the server is restive", || {
        status(&proxy.get(&path)).contains("stored")
    });
    let again = proxy.get(&path);
    assert!(status(&again).contains("fwd=stale"), "always validated: {}", status(&again));
    assert_eq!(again.expect(200)["title"], "Dune");
    let confirmed = measured.metric("restive_proxy_cache_revalidated_total");
    assert!(confirmed >= 1);
    // A change at the server itself is seen at once.
    server.patch(&path, json!({ "title": "Dune II" })).expect(200);
    assert_eq!(proxy.get(&path).expect(200)["title"], "Dune II");
    assert_eq!(proxy.get("/v1/books?q=dune").titles(), ["Dune II"]);
    // Another credential gets nothing of it.
    let other = proxy.ask("GET", &path).key("sk_test_nobody_0123456789").send();
    assert_eq!(other.status, 401);
    let nobody = proxy.ask_anonymously("GET", &path).send();
    assert_eq!(nobody.status, 401);
    proxy.delete(&path).expect(200);
    assert_eq!(proxy.get(&path).status, 404);
}
