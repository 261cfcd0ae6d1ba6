//! What the proxy answers without asking its restive backend: stored responses that nothing has
//! changed, and refusals of keys. Both end with the commit that changes them, and with the feed of
//! changes itself.

use crate::auth::{account, create};
use crate::harness::{Answer, KEY, PATIENCE, Server, Start, eventually};
use crate::proxy_fills::Measured;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SECRET: &str = "an-edge-secret-of-the-tests-0123456789";
const VARIABLE: &str = "RESTIVE_EDGE_SECRET";
/// A change that was made elsewhere is seen after the time that the feed takes; on a busy machine
/// the feed may break and be opened again.
const SEEN: Duration = Duration::from_secs(10);

const LIBRARY: &str = r#"
[service]
rate_limit = { requests = 100000, window = "60s" }
[collections.writers.fields]
name = "string"
[collections.books.fields]
title = { type = "string", filter = true, sort = true }
writer = { ref = "writers" }
[collections.reviews]
parent = "books"
fields = { text = "string" }
"#;

fn backend() -> Server {
    Start::schema(LIBRARY).env(VARIABLE, SECRET).go()
}

/// A proxy that follows the servers at these addresses.
fn before(addresses: &[SocketAddr]) -> Measured {
    let measured = unfollowed(addresses, SECRET);
    await_feed(&measured);
    measured
}

fn await_feed(measured: &Measured) {
    eventually("the feed is read", || measured.metric("restive_proxy_backend_feed_current") == 1);
}

fn unfollowed(addresses: &[SocketAddr], secret: &str) -> Measured {
    let to: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let config = format!(
        "[backends.b]\nto = [{}]\nfollow = true\n\
         check = {{ path = \"/health\", interval = \"50ms\" }}\n\
         [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
        to.join(", ")
    );
    let measured = Measured::configured_with(&config, &[(VARIABLE, secret)]);
    eventually("the proxy knows its backend", || {
        measured.metric("restive_proxy_backend_restive") == 1
    });
    measured
}

fn is_exact(answer: &Answer) -> bool {
    answer.header("cache-status").unwrap_or_default().contains("detail=exact")
}

/// Reads until the proxy answers itself; returns that response.
#[track_caller]
fn warm(proxy: &Server, key: &str, path: &str) -> Answer {
    let mut last = None;
    eventually(&format!("{path} is answered by the proxy itself"), || {
        let answer = proxy.ask("GET", path).key(key).send();
        assert_eq!(answer.status, 200, "{}", answer.text);
        let exact = is_exact(&answer);
        last = Some(answer);
        exact
    });
    last.unwrap()
}

/// A response of the proxy itself, which no change has made it ask for again.
#[track_caller]
fn unchanged(measured: &Measured, key: &str, path: &str) -> Answer {
    let outdated = || measured.metric("restive_proxy_exact_total{result=\"changed\"}");
    let before = outdated();
    // The feed may have been late, which is no change.
    let answer = warm(&measured.proxy, key, path);
    assert_eq!(outdated(), before, "{path}");
    answer
}

/// The requests that the backend has answered for the proxy.
fn answered(measured: &Measured) -> u64 {
    ["success", "client_error"]
        .map(|outcome| {
            let name = "restive_proxy_backend_responses_total";
            measured.metric_with(name, &format!("outcome=\"{outcome}\""))
        })
        .iter()
        .sum()
}

fn refusals(measured: &Measured, status: u16) -> u64 {
    measured.metric(&format!("restive_proxy_refusals_total{{status=\"{status}\"}}"))
}

#[test]
fn responses_cost_the_backend_nothing_until_a_commit_changes_them() {
    let server = backend();
    let measured = before(&[server.address]);
    let proxy = &measured.proxy;
    let (_, other_key, _) = account(&server, "other");
    let writer = server.make("/v1/writers", json!({ "name": "Ann" }));
    let book = server.make("/v1/books", json!({ "title": "One", "writer": writer }));
    let lonely = server.make("/v1/books", json!({ "title": "Lonely" }));
    let reviews = format!("/v1/books/{book}/reviews");
    let review = server.make(&reviews, json!({ "text": "good" }));
    server.ask("POST", "/v1/books").key(&other_key).json(&json!({ "title": "B" })).send();
    let record = format!("/v1/books/{book}");
    let expanded = format!("{record}?expand=writer,reviews");
    let unrelated = format!("/v1/books/{lonely}");
    let item = format!("{reviews}/{review}");
    warm(proxy, &other_key, "/v1/books");
    // What is read, what is written at the backend itself, and whether it changes what is read.
    let (to_writer, to_book) = (format!("/v1/writers/{writer}"), record.clone());
    for (path, target, is_changed) in [
        (record.as_str(), &to_book, true),
        ("/v1/books", &to_book, true),
        ("/v1/books?sort=title&limit=1", &to_book, true),
        (&expanded, &to_writer, true),
        (&expanded, &item, true),
        ("/v1/books?expand=writer", &to_writer, true),
        (&reviews, &item, true),
        (&item, &item, true),
        (&unrelated, &to_book, false),
        (&record, &to_writer, false),
        ("/v1/writers", &item, false),
        ("/v1/books", &item, false),
    ] {
        let old = warm(proxy, KEY, path);
        warm(proxy, &other_key, "/v1/books");
        let (count, changes) = (answered(&measured), measured.metric(CHANGES));
        assert!(is_exact(&proxy.get(path)));
        assert_eq!(answered(&measured), count, "{path}: the backend is not asked");
        let field = match target {
            target if *target == to_writer => "name",
            target if *target == item => "text",
            _ => "title",
        };
        let value = format!("{path} {target}").chars().take(90).collect::<String>();
        server.patch(target, json!({ field: value })).expect(200);
        let written = Instant::now();
        eventually("the feed reports it", || measured.metric(CHANGES) > changes);
        match is_changed {
            true => eventually("the proxy has the new one", || {
                assert!(written.elapsed() < SEEN, "{path} after {target}");
                proxy.get(path).header("etag") != old.header("etag")
            }),
            false => assert_eq!(unchanged(&measured, KEY, path).text, old.text),
        }
        // Another account is not affected.
        assert_eq!(unchanged(&measured, &other_key, "/v1/books").titles(), ["B"]);
    }
    assert!(measured.metric("restive_proxy_exact_total{result=\"hit\"}") > 0);
    assert!(measured.metric("restive_proxy_exact_total{result=\"changed\"}") > 0);
}

const CHANGES: &str = "restive_proxy_backend_feed_changes_total";

#[test]
fn a_record_that_is_deleted_or_created_elsewhere_is_seen() {
    let server = backend();
    let measured = before(&[server.address]);
    let proxy = &measured.proxy;
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let (record, reviews) = (format!("/v1/books/{book}"), format!("/v1/books/{book}/reviews"));
    warm(proxy, KEY, "/v1/books");
    server.make("/v1/books", json!({ "title": "Two" }));
    eventually("the list has it", || proxy.get("/v1/books").titles().len() == 2);
    for path in [record.as_str(), &reviews, "/v1/books"] {
        warm(proxy, KEY, path);
    }
    server.delete(&record).expect(200);
    eventually("it is gone", || {
        proxy.get(&record).status == 404
            && proxy.get(&reviews).status == 404
            && proxy.get("/v1/books").titles() == ["Two"]
    });
}

#[test]
fn requests_that_want_something_else_are_asked_at_the_backend() {
    let server = backend();
    let measured = before(&[server.address]);
    let proxy = &measured.proxy;
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    let known = warm(proxy, KEY, &path);
    for name in ["x-ratelimit-remaining", "ratelimit", "restive-edge"] {
        assert_eq!(known.header(name), None, "{name}");
    }
    let tag = known.header("etag").unwrap();
    for (name, value, exact, status) in [
        ("user-agent", "other", true, 200),
        ("if-none-match", tag, true, 304),
        ("if-none-match", "\"other\"", true, 200),
        ("range", "bytes=0-3", true, 206),
        ("cache-control", "no-cache", false, 200),
        ("cache-control", "max-age=0", false, 200),
        ("restive-version", "1999-01-01", false, 400),
        ("x-unknown", "1", false, 200),
        ("cookie", "a=1", false, 200),
        ("accept", "text/html", false, 406),
    ] {
        warm(proxy, KEY, &path);
        let answer = proxy.ask("GET", &path).header(name, value).send();
        assert_eq!((is_exact(&answer), answer.status), (exact, status), "{name}: {answer:?}");
    }
    warm(proxy, KEY, &path);
    let head = proxy.ask("HEAD", &path).send();
    assert!(is_exact(&head) && head.text.is_empty(), "{head:?}");
    // Changes of these need no event, or come over sockets.
    for path in ["/v1/events", "/v1/webhook-endpoints"] {
        for _ in 0..3 {
            let answer = proxy.get(path);
            assert!(answer.status == 200 && !is_exact(&answer), "{answer:?}");
        }
    }
}

#[test]
fn a_client_never_reads_less_than_it_has_written() {
    const CLIENTS: usize = 4;
    const WRITES: usize = 40;
    let server = backend();
    let measured = before(&[server.address]);
    let (_, second) = create(&server, &[]);
    let hits = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (proxy, second, hits) = (&measured.proxy, &second, &hits);
            scope.spawn(move || {
                let book = proxy.make("/v1/books", json!({ "title": "0" }));
                let record = format!("/v1/books/{book}");
                for number in 1..=WRITES {
                    let title = format!("{client}-{number}");
                    proxy.patch(&record, json!({ "title": title })).expect(200);
                    let list = format!("/v1/books?title={title}");
                    // The same key and another one of the account.
                    for (path, key) in
                        [(&record, KEY), (&record, second), (&list, second), (&record, KEY)]
                    {
                        let answer = proxy.ask("GET", path).key(key).send();
                        hits.fetch_add(usize::from(is_exact(&answer)), Ordering::Relaxed);
                        assert!(answer.text.contains(&format!("\"{title}\"")), "{answer:?}");
                    }
                }
                proxy.delete(&record).expect(200);
                assert_eq!(proxy.get(&record).status, 404);
            });
        }
    });
    // Each record is read twice with the same key between two writes.
    assert!(hits.into_inner() > 0, "none was answered by the proxy itself");
}

/// Stands between a proxy and its backend, and can hold back or end the feed of changes.
struct Relay {
    address: SocketAddr,
    feed: Arc<FeedState>,
}

#[derive(Default)]
struct FeedState {
    is_held: AtomicBool,
    is_cut: AtomicBool,
}

impl Relay {
    fn before(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let feed = Arc::<FeedState>::default();
        let state = feed.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = state.clone();
                std::thread::spawn(move || state.pass(client, server));
            }
        });
        Relay { address, feed }
    }

    fn hold(&self, is_held: bool) {
        self.feed.is_held.store(is_held, Ordering::SeqCst);
    }

    fn cut(&self, is_cut: bool) {
        self.feed.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

impl FeedState {
    fn pass(&self, mut client: TcpStream, server: SocketAddr) {
        let mut first = [0; 8192];
        let Ok(count @ 1..) = client.read(&mut first) else { return };
        let is_feed = first[..count].starts_with(b"GET /edge/changes");
        let Ok(mut backend) = TcpStream::connect(server) else { return };
        backend.write_all(&first[..count]).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), backend.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        backend.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut piece = [0; 8192];
        loop {
            if is_feed && self.is_cut.load(Ordering::SeqCst) {
                break;
            }
            match backend.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    while is_feed && self.is_held.load(Ordering::SeqCst) {
                        // waits for: the test lets the feed go on
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    if client.write_all(&piece[..count]).is_err() {
                        break;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }
}

#[test]
fn own_writes_are_seen_and_others_are_validated_when_the_feed_is_silent() {
    let server = backend();
    let relay = Relay::before(server.address);
    let measured = before(&[relay.address]);
    let proxy = &measured.proxy;
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    warm(proxy, KEY, &path);
    relay.hold(true);
    // The feed has not reported it, and is not known to be silent.
    proxy.patch(&path, json!({ "title": "Own" })).expect(200);
    let own = proxy.get(&path);
    assert!(!is_exact(&own), "{own:?}");
    assert_eq!(own.expect(200)["title"], "Own");
    server.patch(&path, json!({ "title": "Foreign" })).expect(200);
    let written = Instant::now();
    eventually("the proxy asks the backend", || proxy.get(&path).json["title"] == "Foreign");
    assert!(written.elapsed() < SEEN, "{:?}", written.elapsed());
    eventually("the silence is noticed", || {
        measured.metric("restive_proxy_backend_feed_current") == 0
    });
    for number in 0..5 {
        let title = format!("silent {number}");
        server.patch(&path, json!({ "title": title })).expect(200);
        assert_eq!(proxy.get(&path).expect(200)["title"], title);
    }
    relay.hold(false);
    assert_eq!(warm(proxy, KEY, &path).json["title"], "silent 4");
}

#[test]
fn everything_is_validated_when_the_feed_ends() {
    let server = backend();
    let relay = Relay::before(server.address);
    let measured = before(&[relay.address]);
    let proxy = &measured.proxy;
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    for round in 0..3 {
        warm(proxy, KEY, &path);
        relay.cut(true);
        eventually("its end is noticed", || {
            measured.metric("restive_proxy_backend_feed_current") == 0
        });
        let title = format!("round {round}");
        server.patch(&path, json!({ "title": title })).expect(200);
        for _ in 0..2 {
            let answer = proxy.get(&path);
            assert!(!is_exact(&answer), "{answer:?}");
            assert_eq!(answer.expect(200)["title"], title);
        }
        relay.cut(false);
        assert_eq!(warm(proxy, KEY, &path).json["title"], title);
    }
}

#[test]
fn a_backend_that_starts_again_is_asked_again() {
    let server = backend();
    let address = server.address;
    let measured = before(&[address]);
    let proxy = &measured.proxy;
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    warm(proxy, KEY, &path);
    let folder = server.kill();
    eventually("its end is noticed", || measured.metric("restive_proxy_backend_feed_current") == 0);
    assert!(proxy.get(&path).status >= 500, "nothing is served for a backend that is down");
    let server = Start::schema(LIBRARY).env(VARIABLE, SECRET).on(&folder).at(address).go();
    server.patch(&path, json!({ "title": "Two" })).expect(200);
    eventually("the backend answers", || proxy.get(&path).status == 200);
    assert_eq!(warm(proxy, KEY, &path).json["title"], "Two");
    // A server that stops ends the feed, and does not wait for it.
    let asked = Instant::now();
    let (code, _) = server.stop();
    assert_eq!(code, 0);
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
}

#[test]
fn a_revoked_key_gets_401_and_the_proxy_repeats_it() {
    let server = backend();
    let measured = before(&[server.address]);
    let proxy = &measured.proxy;
    let (id, key) = create(&server, &[]);
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    warm(proxy, KEY, &path);
    warm(proxy, &key, &path);
    let (_, error, code) = server.tool(&["keys", "revoke", &id]);
    assert_eq!(code, 0, "{error}");
    let revoked = Instant::now();
    eventually("it is refused", || proxy.ask("GET", &path).key(&key).send().status == 401);
    assert!(revoked.elapsed() < SEEN, "{:?}", revoked.elapsed());
    let direct = server.ask("GET", &path).key(&key).send();
    eventually("the proxy repeats the refusal", || {
        let before = refusals(&measured, 401);
        let answer = proxy.ask("GET", &path).key(&key).send();
        let header = |name: &str, answer: &Answer| answer.header(name).map(str::to_owned);
        for name in ["www-authenticate", "content-type", "cache-control", "restive-error-code"] {
            assert_eq!(header(name, &answer), header(name, &direct), "{name}");
        }
        let mut error = answer.error(401, "invalid_api_key");
        // These are those of the request.
        error["request_id"] = direct.json["error"]["request_id"].clone();
        error["message"] = direct.json["error"]["message"].clone();
        assert_eq!(error, direct.json["error"]);
        refusals(&measured, 401) > before
    });
    // It is about this key, and needs no body of a request.
    assert_eq!(proxy.get(&path).status, 200);
    assert_eq!(proxy.ask("GET", "/health").key(&key).send().status, 200);
    assert_eq!(proxy.ask("OPTIONS", &path).key(&key).send().status, 204);
    assert_eq!(proxy.ask("GET", "/v1/nothing").key(&key).send().status, 404);
    // A new key makes the proxy ask again: the refused one could be the new one.
    let (_, new) = create(&server, &[]);
    eventually("the backend is asked again", || {
        let before = (refusals(&measured, 401), answered(&measured));
        assert_eq!(proxy.ask("GET", &path).key(&key).send().status, 401);
        let after = (refusals(&measured, 401), answered(&measured));
        after.0 == before.0 && after.1 > before.1
    });
    assert_eq!(proxy.ask("GET", &path).key(&new).send().status, 200);
}

#[test]
fn an_expired_key_gets_nothing_from_the_proxy() {
    let server = backend();
    let measured = before(&[server.address]);
    let at = std::time::SystemTime::now() + Duration::from_secs(5);
    let at = at.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let at = model::Timestamp(at.try_into().unwrap());
    let (_, key) = create(&server, &["--expires-at", &at.to_iso()]);
    let book = server.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    warm(&measured.proxy, &key, &path);
    loop {
        let asked = std::time::SystemTime::now();
        let status = measured.proxy.ask("GET", &path).key(&key).send().status;
        let asked = asked.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let is_expired = i64::try_from(asked).unwrap() >= at.0;
        assert!(!is_expired || status == 401, "{status}");
        if is_expired {
            break;
        }
        // waits for: the expiry of the key
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_key_without_quota_is_refused_by_the_proxy_and_others_are_not() {
    let server = backend();
    let measured = before(&[server.address]);
    let proxy = &measured.proxy;
    let (_, key) = create(&server, &["--rate-limit", "10"]);
    let make = |body: &str| {
        let request = proxy.ask("POST", "/v1/books").key(&key);
        request.header("idempotency-key", "once").json(&json!({ "title": body })).send()
    };
    let made = make("One");
    assert_eq!(made.status, 201, "{}", made.text);
    let (mut asked, mut refused) = (0, None);
    eventually("the proxy refuses the key itself", || {
        // Each URL once: what the proxy answers itself takes no quota.
        asked += 1;
        let path = format!("/v1/books?title={asked}");
        let before = (refusals(&measured, 429), answered(&measured));
        let answer = proxy.ask("GET", &path).key(&key).send();
        let is_own = (refusals(&measured, 429), answered(&measured)) == (before.0 + 1, before.1);
        refused = Some(answer).filter(|answer| answer.status == 429 && is_own);
        refused.is_some()
    });
    assert!(asked > 9, "the quota of the backend is exact: {asked}");
    let refused = refused.unwrap();
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit", "retry-after"] {
        assert!(refused.header(name).is_some(), "{name}: {refused:?}");
    }
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    refused.error(429, "rate_limited");
    let again = make("One");
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(again.id(), made.id());
    assert_eq!(proxy.get("/v1/books?limit=7").status, 200, "another key");
    let (_, other) = create(&server, &[]);
    assert_eq!(proxy.ask("GET", "/v1/books?limit=7").key(&other).send().status, 200);
}

#[test]
fn the_feed_is_for_the_operators_proxies_only() {
    let server = backend();
    let ask = |server: &Server, header: Option<&str>| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let field = header.map(|value| format!("restive-edge: {value}\r\n")).unwrap_or_default();
        let head = format!("GET /edge/changes HTTP/1.1\r\nhost: a\r\n{field}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        let begun = |text: &str| text.contains("current ") || text.contains("\"error\"");
        while !begun(&text) {
            match stream.read(&mut piece).unwrap() {
                0 => break,
                count => text.push_str(&String::from_utf8_lossy(&piece[..count])),
            }
        }
        text
    };
    for (header, expected) in [
        (None, "HTTP/1.1 403 "),
        (Some("wrong"), "HTTP/1.1 403 "),
        (Some(&SECRET[1..]), "HTTP/1.1 403 "),
        (Some(SECRET), "HTTP/1.1 200 "),
    ] {
        let text = ask(&server, header);
        assert!(text.starts_with(expected), "{header:?}: {text}");
        assert_eq!(text.contains("hello "), header == Some(SECRET), "{text}");
    }
    // Feeds are limited, and a place is free again when its proxy has left.
    let open = || {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head =
            format!("GET /edge/changes HTTP/1.1\r\nhost: a\r\nrestive-edge: {SECRET}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        (stream, String::from_utf8_lossy(&begin).into_owned())
    };
    let mut open_feeds = Vec::new();
    eventually("all places are taken", || {
        open_feeds.push(open());
        open_feeds.last().unwrap().1 == "HTTP/1.1 503"
    });
    assert!((60..=65).contains(&open_feeds.len()), "{}", open_feeds.len());
    drop(open_feeds);
    let measured = before(&[server.address]);
    let through = ask(&measured.proxy, Some(SECRET));
    assert!(through.starts_with("HTTP/1.1 403 "), "clients cannot send it: {through}");
    for server in [&server, &measured.proxy] {
        let forged = server.ask("GET", "/v1/books").header("restive-edge", SECRET).send();
        assert_eq!((forged.status, forged.header("restive-edge")), (200, None));
    }
    // Without a secret there is no such path.
    let without = Start::schema(LIBRARY).go();
    assert!(ask(&without, Some(SECRET)).starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_proxy_with_a_wrong_secret_validates_everything() {
    let server = backend();
    let measured = unfollowed(&[server.address], "another-edge-secret-of-the-tests-0123456789");
    let proxy = &measured.proxy;
    let book = proxy.make("/v1/books", json!({ "title": "One" }));
    let path = format!("/v1/books/{book}");
    eventually("the refusal is logged", || {
        proxy.log.lock().unwrap().contains("refuses the feed of changes")
    });
    for number in 0..5 {
        let title = format!("title {number}");
        server.patch(&path, json!({ "title": title })).expect(200);
        let answer = proxy.get(&path);
        assert!(!is_exact(&answer), "{answer:?}");
        assert_eq!(answer.expect(200)["title"], title);
    }
    assert_eq!(measured.metric("restive_proxy_backend_feed_current"), 0);
    assert!(!proxy.log.lock().unwrap().contains("another-edge-secret"), "no secret is logged");
}

#[test]
fn a_secret_that_is_short_or_given_twice_is_refused() {
    let (code, error) = Start::bookshop().env(VARIABLE, "short").fails();
    assert!(code != 0 && error.contains("needs at least 32"), "{error}");
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let file = file.to_str().unwrap();
    let twice = Start::bookshop().env(VARIABLE, SECRET).arg("--edge-secret-file").arg(file);
    let (code, error) = twice.fails();
    assert!(code != 0 && error.contains("both given"), "{error}");
    let missing = Start::bookshop().arg("--edge-secret-file").arg("/nowhere/secret");
    assert!(missing.fails().1.contains("cannot be read"));
    let server = Start::schema(LIBRARY).arg("--edge-secret-file").arg(file).go();
    let measured = before(&[server.address]);
    server.make("/v1/books", json!({ "title": "One" }));
    warm(&measured.proxy, KEY, "/v1/books");
}

#[test]
fn servers_that_share_nothing_are_followed_each_for_itself() {
    let servers = [backend(), backend()];
    let measured = before(&[servers[0].address, servers[1].address]);
    eventually("both feeds are read", || {
        servers.iter().all(|server| {
            let label = format!("server=\"http://{}\"", server.address);
            measured.metric_with("restive_proxy_backend_feed_current", &label) == 1
        })
    });
    let proxy = &measured.proxy;
    for (number, server) in servers.iter().enumerate() {
        server.make("/v1/books", json!({ "title": format!("of {number}") }));
    }
    for round in 0..3 {
        let old = warm(proxy, KEY, "/v1/books").titles();
        for server in &servers {
            server.make("/v1/books", json!({ "title": format!("round {round}") }));
        }
        eventually("neither old list is used", || {
            let new = proxy.get("/v1/books").titles();
            new != old && new.len() == round + 2
        });
    }
    // A client's own write makes it ask the servers again, whichever has it.
    warm(proxy, KEY, "/v1/books");
    proxy.make("/v1/books", json!({ "title": "own" }));
    assert!(!is_exact(&proxy.get("/v1/books")));
}
