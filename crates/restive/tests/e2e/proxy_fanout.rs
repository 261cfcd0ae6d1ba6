//! Event streams through the proxy: clients with the same credential and filter share one stream of
//! the backend, and receive what they would receive from the backend itself.

use crate::auth::{account, create};
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{Block, Curl, Events, committed, curl, open_connections, token, write};
use crate::live_slow::{LAST, flood, quick};
use crate::proxy_fills::Measured;
use serde_json::json;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

const MESSAGES: &str = "/api/events?types=message";

/// A proxy that knows that its backend is a restive server.
pub fn before(server: &Server, more: &str) -> Measured {
    let measured = Measured::configured(&format!(
        "[backends.b]\nto = [\"{}\"]\ncheck = {{ path = \"/health\", interval = \"50ms\" }}\n\
         [[sites]]\n[[sites.routes]]\nto = \"b\"\n{more}",
        server.address
    ));
    eventually("the proxy knows its backend", || {
        measured.metric("restive_proxy_backend_restive") == 1
    });
    measured
}

fn ask(proxy: &Server, key: &str, target: &str, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // An old version: the body has no frames.
    let request = format!(
        "GET {target} HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\
         Accept: text/event-stream\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Opens a stream and reads its head.
fn open(proxy: &Server, key: &str, target: &str, more: &str) -> Events {
    let mut stream = ask(proxy, key, target, more);
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    Events::of(stream)
}

fn read_head(stream: &mut TcpStream) -> String {
    use std::io::Read as _;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Opens a stream and reads its first block, whose position it returns.
fn follow(proxy: &Server, target: &str) -> (Events, String) {
    let mut events = open(proxy, KEY, target, "");
    let first = events.next();
    assert!(first.retry.is_some(), "{first:?}");
    (events, first.id.unwrap())
}

#[track_caller]
fn backend_streams(server: &Server, count: usize) {
    eventually(&format!("the backend has {count} streams"), || {
        open_connections(server, "sse") == count as f64
    });
}

/// The next events, without comments.
fn events(stream: &mut Events, count: usize) -> Vec<Block> {
    (0..count).map(|_| stream.event()).collect()
}

#[test]
fn two_hundred_clients_cost_the_backend_one_stream_and_receive_the_same() {
    const CLIENTS: usize = 200;
    let server = quick();
    let measured = before(&server, "");
    let mut clients: Vec<Events> =
        (0..CLIENTS).map(|_| follow(&measured.proxy, MESSAGES).0).collect();
    backend_streams(&server, 1);
    assert_eq!(measured.metric("restive_proxy_fanout_clients"), CLIENTS as u64);
    assert_eq!(measured.metric("restive_proxy_fanout_streams"), 1);
    assert_eq!(measured.metric("restive_proxy_backend_streams_open"), 1);
    let mut direct = Events::open(&server, MESSAGES);
    direct.next();
    for number in 0..50 {
        write(&server, &format!("message {number}"));
    }
    let expected = events(&mut direct, 50);
    for client in &mut clients {
        assert_eq!(events(client, 50), expected);
    }
    drop(direct);
    // The backend's stream stays while there is a client, whichever that is.
    let last = clients.pop().unwrap();
    drop(clients);
    eventually("the others have left", || measured.metric("restive_proxy_fanout_clients") == 1);
    backend_streams(&server, 1);
    let left = Instant::now();
    drop(last);
    backend_streams(&server, 0);
    assert!(left.elapsed().as_secs() < 5, "{:?}", left.elapsed());
    eventually("it is forgotten", || measured.metric("restive_proxy_fanout_streams") == 0);
}

#[test]
fn clients_that_accept_everything_share_as_well() {
    let server = quick();
    let measured = before(&server, "");
    let mut clients: Vec<Curl> =
        (0..3).map(|_| Curl::follow(curl(&measured.proxy, MESSAGES))).collect();
    clients.iter_mut().for_each(|client| drop(client.events.next()));
    backend_streams(&server, 1);
    write(&server, "one");
    for client in &mut clients {
        assert_eq!(client.events.texts_until("one"), ["one"]);
    }
}

#[test]
fn a_client_resumes_inside_of_the_ring_and_outside_of_it() {
    let server = quick();
    for number in 0..20 {
        write(&server, &format!("old {number}"));
    }
    let oldest = server.get("/api/messages?since=0&limit=1").expect(200)[0]["id"].clone();
    let measured = before(&server, "");
    let proxy = &measured.proxy;
    let (mut first, start) = follow(proxy, MESSAGES);
    let _second = follow(proxy, MESSAGES);
    backend_streams(&server, 1);
    let new: Vec<i64> = (0..10).map(|number| write(&server, &format!("new {number}"))).collect();
    let mut sent = events(&mut first, 10);
    let texts = |blocks: &[Block]| -> Vec<String> {
        blocks.iter().map(|block| block.json()["text"].as_str().unwrap().to_owned()).collect()
    };
    // From its beginning, from an event, as a header, as the id of a record.
    let fifth = sent[4].id.clone().unwrap();
    for (target, header, had) in [
        (format!("{MESSAGES}&since={start}"), String::new(), 0),
        (format!("{MESSAGES}&since={fifth}"), String::new(), 5),
        (MESSAGES.to_owned(), format!("Last-Event-ID: {fifth}\r\n"), 5),
        (format!("{MESSAGES}&since={}", new[4]), String::new(), 5),
        (format!("{MESSAGES}&since=0"), format!("Last-Event-ID: {fifth}\r\n"), 5),
    ] {
        let mut resumed = open(proxy, KEY, &target, &header);
        let greeting = resumed.next();
        assert!(greeting.retry.is_some() && greeting.id.is_some());
        assert_eq!(events(&mut resumed, sent.len() - had), sent[had..], "{target} {header}");
        backend_streams(&server, 1);
        let id = write(&server, "after");
        assert_eq!(resumed.event().json()["id"], id);
        sent.push(first.event());
        assert_eq!(sent.last().unwrap().json()["id"], id, "each event once");
    }
    // Before the ring: the backend has it, and then the client joins the others.
    let mut outside = open(proxy, KEY, &format!("{MESSAGES}&since={oldest}"), "");
    let all = texts(&events(&mut outside, 19 + 10 + 5));
    assert_eq!((all[0].as_str(), all[19].as_str(), all[33].as_str()), ("old 1", "new 0", "after"));
    backend_streams(&server, 1);
    let id = write(&server, "for both");
    assert_eq!(outside.event().json()["id"], id);
    assert_eq!(first.event().json()["id"], id);
}

#[test]
fn a_position_that_does_not_exist_is_reported_and_the_client_then_shares() {
    let server = quick();
    let measured = before(&server, "");
    let proxy = &measured.proxy;
    let (mut first, start) = follow(proxy, MESSAGES);
    let (epoch, _) = start.split_once('.').unwrap();
    for (position, reason) in
        [("00000000.1".to_owned(), "other_epoch"), (format!("{epoch}.99999"), "ahead_of_log")]
    {
        let mut client = open(proxy, KEY, &format!("{MESSAGES}&since={position}"), "");
        let reset = client.event();
        assert!(reset.is("stream.reset"), "{reset:?}");
        assert_eq!(reset.json()["reason"], reason);
        backend_streams(&server, 1);
        let id = write(&server, "after");
        assert_eq!(client.event().json()["id"], id);
        assert_eq!(first.event().json()["id"], id, "it sees no reset");
    }
    // A position that cannot be read is refused by the backend.
    let mut refused = ask(proxy, KEY, &format!("{MESSAGES}&since=x"), "");
    assert!(read_head(&mut refused).starts_with("HTTP/1.1 400 "));
}

#[test]
fn requests_for_something_else_have_streams_of_their_own() {
    let server = quick();
    let measured = before(&server, "");
    let proxy = &measured.proxy;
    let (_, other_key, _) = account(&server, "other");
    let (_, same_account) = create(&server, &[]);
    let (mut mine, _) = follow(proxy, MESSAGES);
    let mut others = open(proxy, &other_key, MESSAGES, "");
    others.next();
    let mut second_key = open(proxy, &same_account, MESSAGES, "");
    second_key.next();
    let (mut all, _) = follow(proxy, "/api/events");
    let (mut books, _) = follow(proxy, "/api/events?types=book.*");
    let token = token(&server, json!({ "types": ["message"] }));
    let mut by_token = open(proxy, &token, MESSAGES, "");
    by_token.next();
    backend_streams(&server, 6);
    assert_eq!(measured.metric("restive_proxy_fanout_streams"), 0, "each is alone");
    let came = Instant::now();
    let (_second, _) = follow(proxy, MESSAGES);
    backend_streams(&server, 6);
    assert!(came.elapsed().as_secs() < 10, "the first client's next comment is not waited for");
    assert_eq!(measured.metric("restive_proxy_fanout_streams"), 1);
    write(&server, "mine");
    let foreign = server.ask("POST", "/v1/messages").key(&other_key);
    foreign.json(&json!({ "from": "o", "text": "theirs" })).send().expect(201);
    server.book("Dune");
    write(&server, "last");
    for stream in [&mut mine, &mut second_key, &mut by_token] {
        assert_eq!(stream.texts_until("last"), ["mine", "last"]);
    }
    assert_eq!(others.event().json()["text"], "theirs", "and nothing before it");
    assert!(books.event().is("book.created"));
    assert_eq!(all.texts_until("last"), ["mine", "last"]);
    // A credential that the backend refuses joins nothing.
    let mut refused = ask(proxy, "sk_test_nobody_0123456789", MESSAGES, "");
    assert!(read_head(&mut refused).starts_with("HTTP/1.1 401 "));
    backend_streams(&server, 6);
}

#[test]
fn a_revoked_key_ends_the_streams_of_all_its_clients() {
    let server = quick();
    let measured = before(&server, "");
    let proxy = &measured.proxy;
    let (id, secret) = create(&server, &[]);
    let mut clients: Vec<Events> = (0..5).map(|_| open(proxy, &secret, MESSAGES, "")).collect();
    clients.iter_mut().for_each(|client| drop(client.next()));
    let (mut others, _) = follow(proxy, MESSAGES);
    backend_streams(&server, 2);
    server.tool(&["keys", "revoke", &id]);
    // An event makes the backend look at the key.
    write(&server, "one");
    for mut client in clients {
        let last = loop {
            let block = client.event();
            if block.is("stream.closing") {
                break block;
            }
        };
        assert_eq!(last.json()["reason"], "key_revoked");
        assert_eq!(client.try_next().unwrap(), None);
    }
    let mut again = ask(proxy, &secret, MESSAGES, "");
    assert!(read_head(&mut again).starts_with("HTTP/1.1 401 "));
    others.texts_until("one");
}

#[test]
fn a_stalled_client_delays_nobody_and_is_cut() {
    // Far more than the sockets and the ring hold together.
    const COUNT: usize = 2_400;
    let server = quick();
    let measured = before(&server, "");
    let proxy = &measured.proxy;
    let (mut stalled, _) = follow(proxy, MESSAGES);
    let lively: Vec<Events> = (0..3).map(|_| follow(proxy, MESSAGES).0).collect();
    backend_streams(&server, 1);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let readers: Vec<_> = lively
            .into_iter()
            .map(|mut events| scope.spawn(move || events.texts_until(LAST).len()))
            .collect();
        flood(&server, COUNT, &AtomicUsize::new(0));
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert_eq!(counts, [COUNT + 1; 3]);
    // It gets what was on its way, ends between two events, and resumes.
    let id = |block: &Block| block.json()["id"].as_i64().unwrap();
    let (mut received, mut position) = (Vec::new(), None);
    while let Some(block) = stalled.try_next().unwrap() {
        received.extend(block.data.is_some().then(|| id(&block)));
        position = block.id.or(position);
    }
    assert_eq!(measured.metric("restive_proxy_fanout_behind_total"), 1);
    assert!(received.len() < COUNT, "it was cut");
    let header = format!("Last-Event-ID: {}\r\n", position.unwrap());
    let mut resumed = open(proxy, KEY, MESSAGES, &header);
    let rest = COUNT + 1 - received.len();
    received.extend(events(&mut resumed, rest).iter().map(id));
    let all: Vec<i64> = committed(&server).into_iter().map(|(id, _)| id).collect();
    assert_eq!(received, all);
}

/// Ten clients of one shared stream, which have had one event.
fn ten(server: &Server, proxy: &Server) -> Vec<Events> {
    let mut clients: Vec<Events> = (0..10).map(|_| follow(proxy, MESSAGES).0).collect();
    backend_streams(server, 1);
    write(server, "before");
    clients.iter_mut().for_each(|client| drop(client.texts_until("before")));
    clients
}

#[test]
fn clients_do_not_notice_that_the_backend_is_killed_or_stopped_and_started_again() {
    let mut server = quick();
    let measured = before(&server, "");
    let mut clients = ten(&server, &measured.proxy);
    for (round, is_killed) in [true, false].into_iter().enumerate() {
        let address = server.address;
        let folder = if is_killed { server.kill() } else { server.stop().1 };
        server = Start::bookshop().on(&folder).at(address).go();
        let text = format!("after {round}");
        write(&server, &text);
        for client in &mut clients {
            let block = client.next();
            assert_eq!(block.retry, None, "they would all come back at the same time");
            assert_eq!(block.json()["text"], *text, "each event once");
        }
        backend_streams(&server, 1);
        assert_eq!(measured.metric("restive_proxy_fanout_resumed_total"), round as u64 + 1);
    }
    assert_eq!(measured.metric("restive_proxy_fanout_joined_total"), 10, "none came back");
}

#[test]
fn a_backend_with_another_log_ends_the_streams_and_the_clients_are_told() {
    let server = quick();
    let measured = before(&server, "");
    let mut clients = ten(&server, &measured.proxy);
    let address = server.address;
    server.kill();
    let other = Start::bookshop().at(address).go();
    let ended = |client: &mut Events| while let Ok(Some(_)) = client.try_next() {};
    clients.iter_mut().for_each(ended);
    assert_eq!(measured.metric("restive_proxy_fanout_resumed_total"), 0);
    let mut again = open(&measured.proxy, KEY, &format!("{MESSAGES}&since=00000001.5"), "");
    let reset = again.event();
    assert!(reset.is("stream.reset") && reset.json()["reason"] == "other_epoch", "{reset:?}");
    write(&other, "after");
    again.texts_until("after");
}

#[test]
fn the_streams_end_with_the_backend_and_the_clients_resume_without_a_gap() {
    let server = quick();
    let measured = before(&server, "");
    let clients = ten(&server, &measured.proxy);
    let (killed, address) = (Instant::now(), server.address);
    let position = server.get("/v1/messages").header("x-stream-position").unwrap().to_owned();
    let folder = server.kill();
    let ends: Vec<f64> = std::thread::scope(|scope| {
        let ended = |mut client: Events| {
            while let Ok(Some(_)) = client.try_next() {}
            killed.elapsed().as_secs_f64()
        };
        let readers: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || ended(client))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let (first, last) = ends
        .iter()
        .fold((f64::MAX, 0.0_f64), |(first, last), end| (first.min(*end), last.max(*end)));
    assert!(first > 5.0 && last < 20.0, "{ends:?}");
    assert!(last - first > 0.5, "not all at once: {ends:?}");
    let restarted = Start::bookshop().on(&folder).at(address).go();
    write(&restarted, "after");
    let target = format!("{MESSAGES}&since={position}");
    let mut clients: Vec<Events> = Vec::new();
    eventually("the proxy reaches the backend", || {
        let mut stream = ask(&measured.proxy, KEY, &target, "");
        let is_open = read_head(&mut stream).starts_with("HTTP/1.1 200 ");
        clients.extend(is_open.then(|| Events::of(stream)));
        clients.len() == 3
    });
    for client in &mut clients {
        assert_eq!(client.texts_until("after"), ["after"]);
    }
    backend_streams(&restarted, 1);
}

#[test]
fn a_route_can_turn_it_off() {
    let server = quick();
    let measured = before(&server, "fanout = \"off\"\n");
    let mut clients: Vec<Events> = (0..3).map(|_| follow(&measured.proxy, MESSAGES).0).collect();
    backend_streams(&server, 3);
    assert_eq!(measured.metric("restive_proxy_fanout_streams"), 0);
    write(&server, "one");
    clients.iter_mut().for_each(|client| drop(client.texts_until("one")));
}
