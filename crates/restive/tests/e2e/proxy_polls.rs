//! Long polls through the proxy: those with the same credential that ask for the same wait at the
//! proxy for one poll of the backend, and get what the backend itself would return.

use crate::auth::{account, create};
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{figures, open_connections, token, write};
use crate::live_slow::quick;
use crate::proxy_fanout::before;
use crate::proxy_fills::Measured;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A poll whose response is read later.
struct Poll(TcpStream);

/// The response to a poll, without what differs between two requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Polled {
    status: u16,
    position: Option<String>,
    gap: Option<String>,
    kind: Option<String>,
    caching: Option<String>,
    body: String,
}

impl Polled {
    fn ids(&self) -> Vec<i64> {
        assert_eq!(self.status, 200, "{self:?}");
        let records: Value = serde_json::from_str(&self.body).unwrap();
        records.as_array().unwrap().iter().map(|record| record["id"].as_i64().unwrap()).collect()
    }
}

impl Poll {
    fn ask(address: SocketAddr, key: &str, target: &str) -> Poll {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Poll(stream)
    }

    fn read(mut self) -> Polled {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let field = |name: &str| {
            let found = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = found.filter(|(other, _)| other.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.to_owned())
        };
        assert_eq!(field("restive-hold"), None, "it is between the proxy and its backend");
        Polled {
            status,
            position: field("x-stream-position"),
            gap: field("x-stream-gap"),
            kind: field("content-type"),
            caching: field("cache-control"),
            body: body.to_owned(),
        }
    }
}

fn waits_after(since: impl std::fmt::Display) -> String {
    format!("/api/messages?since={since}&wait=true")
}

/// Waits until this many polls wait at the proxy.
#[track_caller]
fn waiting(measured: &Measured, count: usize) {
    eventually(&format!("{count} polls wait at the proxy"), || {
        measured.metric("restive_proxy_fanout_polls_waiting") == count as u64
    });
}

#[track_caller]
fn held(server: &Server, count: usize) {
    eventually(&format!("the backend holds {count} polls"), || {
        open_connections(server, "poll") == count as f64
    });
}

/// Two polls of the proxy, of which the second waits there. The first is held by the backend.
fn two(measured: &Measured, server: &Server, key: &str, target: &str) -> [Poll; 2] {
    let before = open_connections(server, "poll") as usize;
    let address = measured.proxy.address;
    let first = Poll::ask(address, key, target);
    held(server, before + 1);
    let second = Poll::ask(address, key, target);
    held(server, before + 2);
    [first, second]
}

#[test]
fn a_crowd_of_polls_costs_the_backend_one_and_gets_what_a_direct_poll_gets() {
    const CLIENTS: usize = 100;
    let server = quick();
    let measured = before(&server, "");
    let proxy = measured.proxy.address;
    let mut since = write(&server, "old");
    // The first one is alone when it comes.
    let mut polls =
        two(&measured, &server, KEY, &waits_after(since)).into_iter().collect::<Vec<_>>();
    polls.extend((2..CLIENTS).map(|_| Poll::ask(proxy, KEY, &waits_after(since))));
    waiting(&measured, CLIENTS - 1);
    for round in 0..3 {
        let direct = Poll::ask(server.address, KEY, &waits_after(since));
        held(&server, if round == 0 { 3 } else { 2 });
        let sent = figures(&server)["restive_live_messages_total{channel=\"poll\"}"];
        since = write(&server, &format!("round {round}"));
        let expected = direct.read();
        assert_eq!(expected.ids(), [since]);
        for poll in polls.drain(..) {
            assert_eq!(poll.read(), expected);
        }
        let cost = figures(&server)["restive_live_messages_total{channel=\"poll\"}"] - sent;
        assert_eq!(cost, if round == 0 { 3.0 } else { 2.0 }, "with the direct poll");
        polls.extend((0..CLIENTS).map(|_| Poll::ask(proxy, KEY, &waits_after(since))));
        waiting(&measured, CLIENTS);
        held(&server, 1);
        assert_eq!(measured.metric("restive_proxy_fanout_polls "), 1);
    }
    drop(polls);
    held(&server, 0);
    waiting(&measured, 0);
}

#[test]
fn a_poll_from_any_position_gets_the_response_of_the_backend_while_others_share() {
    let server = quick();
    let measured = before(&server, "");
    let all: Vec<i64> = (0..5).map(|number| write(&server, &format!("m{number}"))).collect();
    let newest =
        server.get("/api/messages?since=0").header("x-stream-position").unwrap().to_owned();
    let (epoch, _) = newest.split_once('.').unwrap();
    let _waiting = two(&measured, &server, KEY, &waits_after(&newest));
    let changed = server.ask("PATCH", &format!("/v1/messages/{}", all[3]));
    let changed = changed.json(&json!({ "text": "changed" })).send();
    assert!(matches!(changed.status, 200 | 405), "{}", changed.text);
    for since in [
        "0".to_owned(),
        all[2].to_string(),
        format!("{epoch}.{}", all[2]),
        "00000000.1".to_owned(),
        format!("{epoch}.99999"),
        "x".to_owned(),
    ] {
        let direct = Poll::ask(server.address, KEY, &waits_after(&since)).read();
        let mut through = Poll::ask(measured.proxy.address, KEY, &waits_after(&since)).read();
        if direct.status != 200 {
            // Each error has an id of its own.
            through.body.clone_from(&direct.body);
        }
        assert_eq!(through, direct, "{since}");
    }
    waiting(&measured, 1);
    // A short poll is not held, and not answered from what the proxy has.
    let short = "/api/messages?since=0";
    let direct = Poll::ask(server.address, KEY, short).read();
    assert_eq!(Poll::ask(measured.proxy.address, KEY, short).read(), direct);
    let id = write(&server, "new");
    let polled = Poll::ask(measured.proxy.address, KEY, &format!("/api/messages?since={newest}"));
    assert_eq!(polled.read().ids(), [id], "it is seen at once");
}

#[test]
fn polls_with_other_credentials_or_for_something_else_wait_apart() {
    let server = quick();
    let measured = before(&server, "");
    let (_, other_key, _) = account(&server, "other");
    let since = write(&server, "old");
    let mine = two(&measured, &server, KEY, &waits_after(since));
    let theirs = two(&measured, &server, &other_key, &waits_after(since));
    let one = format!("{}&limit=1", waits_after(since));
    let limited = two(&measured, &server, KEY, &one);
    waiting(&measured, 3);
    assert_eq!(measured.metric("restive_proxy_fanout_polls "), 3);
    // A credential that the backend refuses waits nowhere.
    let refused =
        Poll::ask(measured.proxy.address, "sk_test_nobody_0123456789", &waits_after(since));
    assert_eq!(refused.read().status, 401);
    let id = write(&server, "mine");
    for poll in mine.into_iter().chain(limited) {
        assert_eq!(poll.read().ids(), [id]);
    }
    let foreign = server.ask("POST", "/v1/messages").key(&other_key);
    let foreign = foreign.json(&json!({ "from": "o", "text": "theirs" })).send().expect(201);
    for poll in theirs {
        let polled = poll.read();
        assert_eq!(polled.ids(), [foreign["id"].as_i64().unwrap()], "and nothing before it");
    }
}

#[test]
fn a_revoked_key_is_refused_at_the_next_poll() {
    let server = quick();
    let measured = before(&server, "");
    let (id, secret) = create(&server, &[]);
    let since = write(&server, "old");
    let [first, second] = two(&measured, &server, &secret, &waits_after(since));
    server.tool(&["keys", "revoke", &id]);
    eventually("the backend knows", || {
        let poll = Poll::ask(measured.proxy.address, &secret, &waits_after(since));
        // A poll that is not refused would wait.
        poll.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut head = [0; 12];
        (&poll.0).read_exact(&mut head).is_ok_and(|()| head.ends_with(b"401"))
    });
    let written = write(&server, "new");
    let direct = first.read().ids();
    assert_eq!((direct, second.read().ids()), (vec![], vec![]), "a revoked key reads no more");
    let refused = Poll::ask(measured.proxy.address, &secret, &waits_after(written)).read();
    assert_eq!(refused.status, 401);
}

#[test]
fn a_poll_returns_empty_when_its_time_is_over() {
    let server = quick();
    let measured = before(&server, "");
    let since = write(&server, "old");
    // Held until shortly before the end of the token.
    let token = token(&server, json!({ "types": ["message"], "expires_in": 6 }));
    let began = Instant::now();
    let [first, second] = two(&measured, &server, &token, &waits_after(since));
    server.book("moves the position");
    let (direct, shared) = (first.read(), second.read());
    assert!((2..12).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!((shared.body.as_str(), shared.status), ("[]", 200));
    assert_eq!((shared.kind, shared.caching), (direct.kind, direct.caching));
    let resumed = |position: Option<String>| {
        let target = format!("/api/messages?since={}", position.unwrap());
        Poll::ask(measured.proxy.address, KEY, &target).read().ids()
    };
    let id = write(&server, "after");
    assert_eq!((resumed(shared.position), resumed(direct.position)), (vec![id], vec![id]));
}

#[test]
fn polls_that_wait_survive_a_restart_of_the_backend() {
    const CLIENTS: usize = 20;
    let server = quick();
    let measured = before(&server, "");
    let since = write(&server, "old");
    let first = two(&measured, &server, KEY, &waits_after(since));
    let since = write(&server, "before");
    first.into_iter().for_each(|poll| assert_eq!(poll.read().ids(), [since]));
    let ask = || Poll::ask(measured.proxy.address, KEY, &waits_after(since));
    let polls: Vec<Poll> = (0..CLIENTS).map(|_| ask()).collect();
    waiting(&measured, CLIENTS);
    let address = server.address;
    let folder = server.kill();
    let restarted = Start::bookshop().on(&folder).at(address).go();
    let id = write(&restarted, "after");
    for poll in polls {
        assert_eq!(poll.read().ids(), [id], "no poll fails or misses it");
    }
}

#[test]
fn a_route_can_turn_it_off() {
    let server = quick();
    let measured = before(&server, "fanout = \"off\"\n");
    let since = write(&server, "old");
    let polls: Vec<Poll> =
        (0..3).map(|_| Poll::ask(measured.proxy.address, KEY, &waits_after(since))).collect();
    held(&server, 3);
    waiting(&measured, 0);
    let id = write(&server, "new");
    polls.into_iter().for_each(|poll| assert_eq!(poll.read().ids(), [id]));
}
