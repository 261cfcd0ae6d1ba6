//! Open connections when the server stops, and when it has no room for them.

use crate::deadline::Deadline as _;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{
    Block, Curl, Events, Opened, Socket, bearer, figures, open_connections, write,
};
use crate::live_slow::{LAST, flood};
use serde_json::json;
use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn quick() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

#[test]
fn a_stopping_server_closes_every_channel_with_a_reason() {
    let mut server = quick().go();
    let since = write(&server, "first");
    std::thread::scope(|scope| {
        let polls: Vec<_> = (0..5)
            .map(|_| {
                let server = &server;
                scope.spawn(move || server.get(&format!("/api/messages?since={since}&wait=true")))
            })
            .collect();
        let streams: Vec<Events> = (0..20).map(|_| Events::open(&server, "/api/events")).collect();
        let sockets: Vec<Socket> = (0..20).map(|_| Socket::open(&server, "/ws")).collect();
        eventually("the polls are held", || open_connections(&server, "poll") == 5.0);
        let began = Instant::now();
        let closings: Vec<_> = sockets
            .into_iter()
            .map(|socket| scope.spawn(move || (socket.closed(), began.elapsed())))
            .collect();
        server.signal("-TERM");
        for poll in polls {
            let answer = poll.join().unwrap();
            assert_eq!((answer.status, answer.text.as_str()), (200, "[]"));
            assert!(answer.header("x-stream-position").is_some());
        }
        let polled = began.elapsed();
        assert!(polled < Duration::from_secs(5), "polls were answered after {polled:?}");
        let mut retries = HashSet::new();
        for stream in streams {
            let blocks = stream.rest();
            let last = blocks.last().unwrap();
            assert!(last.retry.is_some() && last.data.is_none(), "{last:?}");
            retries.insert(last.retry);
        }
        // They do not all reconnect at the same time, and were not all closed at one time.
        assert!(retries.len() > 10, "{retries:?}");
        let mut times = Vec::new();
        for closing in closings {
            let (closed, time) = closing.join().unwrap();
            assert_eq!(closed, (1012, "restart".to_owned()));
            times.push(time);
        }
        let spread = *times.iter().max().unwrap() - *times.iter().min().unwrap();
        assert!(spread > Duration::from_secs(1), "all within {spread:?}");
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    });
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_stopping_server_completes_events_before_it_closes_channels() {
    let server = quick().go();
    let begin = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    let over = AtomicBool::new(false);
    let written = AtomicUsize::new(0);
    let (mut streams, mut folder) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let (server, over, written) = (&server, &over, &written);
        let writer = scope.spawn(move || {
            let mut number = 0;
            while !over.load(Relaxed) {
                let text = format!("{number} {}", "x".repeat(2_000));
                let ask = server.ask("POST", "/v1/messages").json(&json!({ "text": text }));
                // The server may stop before the writer does.
                if ask.try_send().is_err() {
                    break;
                }
                number += 1;
                written.store(number, Relaxed);
            }
        });
        let readers: Vec<_> = (0..10)
            .map(|_| {
                let stream = Events::open(server, "/api/events");
                scope.spawn(move || stream.rest())
            })
            .collect();
        eventually("there is load", || written.load(Relaxed) > 50);
        server.signal("-TERM");
        streams.extend(readers.into_iter().map(|reader| reader.join().unwrap()));
        over.store(true, Relaxed);
        writer.join().unwrap();
        folder = Some(server.folder.clone());
    });
    let mut server = server;
    assert_eq!(server.wait(), 0);
    // After the restart each continues exactly where it was closed.
    let server = quick().on(&folder.unwrap()).go();
    write(&server, "the last one");
    let target = format!("/api/events?types=message&since={begin}");
    let all = Events::open(&server, &target).texts_until("the last one");
    for blocks in streams {
        let place = blocks.iter().rev().find_map(|block| block.id.clone()).unwrap();
        let text = |block: &Block| block.json()["text"].as_str().unwrap().to_owned();
        let mut told: Vec<String> =
            blocks.iter().filter(|block| block.is("message")).map(text).collect();
        let mut events = Events::open_from(&server, "/api/events?types=message", Some(&place));
        told.extend(events.texts_until("the last one"));
        let first = told.first().unwrap().clone();
        let from = all.iter().position(|text| *text == first).unwrap();
        assert_eq!(told, all[from..], "nothing lost, nothing twice");
    }
}

/// A reader that pauses while the server stops finds complete events and the closing message after
/// them.
#[test]
fn a_paused_reader_still_gets_the_closing_message_of_a_stopping_server() {
    let mut server = quick().go();
    let target = "/api/events?types=message";
    let paused = Events::open_narrow(&server, target);
    flood(&server, 400, &AtomicUsize::new(0));
    assert!(figures(&server)["restive_live_lag_events"] > 100.0, "it is far behind");
    let lively: Vec<Events> = (0..20).map(|_| Events::open(&server, target)).collect();
    server.signal("-TERM");
    // Each is closed at a different time: by the last of them this one most likely is, too.
    lively.into_iter().for_each(|stream| drop(stream.rest()));
    let blocks = paused.rest();
    let last = blocks.last().unwrap();
    assert!(last.retry.is_some() && last.data.is_none(), "{last:?}");
    assert_eq!(server.wait(), 0);
    assert!(!server.log.lock().unwrap().contains("cut off"));
    let place = blocks.iter().rev().find_map(|block| block.id.clone()).unwrap();
    let heard = blocks.iter().filter(|block| block.is("message")).count();
    // Whether the rest was sent in the three seconds of the stop depends on the machine.
    if heard < 401 {
        let server = quick().on(&server.folder).go();
        let mut rest = Events::open_from(&server, target, Some(&place));
        assert_eq!(heard + rest.texts_until(LAST).len(), 401);
    }
}

#[test]
fn clients_that_connect_during_a_stop_do_not_delay_it() {
    let mut server = quick().go();
    let address = server.address;
    let (over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    let began = std::thread::scope(|scope| {
        let (over, opened) = (&over, &opened);
        for number in 0..8 {
            scope.spawn(move || {
                let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
                while !over.load(Relaxed) {
                    let headers = [bearer(KEY), "Accept: text/event-stream".to_owned()];
                    match number % 2 {
                        0 => {
                            let stream =
                                Opened::try_get(address, "/api/events", &headers, PATIENCE);
                            kept.extend(stream.ok().map(|one| Box::new(one) as _));
                        }
                        _ => {
                            let socket = Socket::ask(address, "/ws", &headers, PATIENCE);
                            kept.extend(socket.ok().map(|one| Box::new(one) as _));
                        }
                    }
                    opened.fetch_add(1, Relaxed);
                }
            });
        }
        eventually("connections are made", || opened.load(Relaxed) > 200);
        server.signal("-TERM");
        let began = Instant::now();
        assert_eq!(server.wait(), 0);
        let took = began.elapsed();
        over.store(true, Relaxed);
        took
    });
    // Sockets whose clients do not answer the close are dropped after a while.
    assert!(began < Duration::from_secs(20), "{began:?}");
    assert!(!server.log.lock().unwrap().contains("cut off"), "{}", server.log.lock().unwrap());
}

fn limited(limits: &str) -> Server {
    let schema = model::schema::BOOKSHOP.replace("max_connections_per_account = 50000", limits);
    assert!(schema.contains(limits));
    Start::schema(&schema).go()
}

/// The response of each channel when there is no room: status, and whether it has Retry-After.
fn refusals(server: &Server, key: &str) -> Vec<(u16, bool)> {
    let ask = |headers: &[&str], target: &str| {
        let mut all = vec![bearer(key)];
        all.extend(headers.iter().map(|&line| line.to_owned()));
        let opened = match target {
            "/ws" => Socket::ask(server.address, target, &all, PATIENCE),
            _ => Opened::try_get(server.address, target, &all, PATIENCE),
        };
        let opened = opened.unwrap();
        (opened.status, opened.header("retry-after").is_some())
    };
    let newest = server.ask("GET", "/api/messages").key(key).send();
    let newest = newest.header("x-stream-position").unwrap().to_owned();
    let poll = format!("/api/messages?since={newest}&wait=true");
    vec![ask(&[], "/ws"), ask(&["Accept: */*"], "/api/events"), ask(&[], &poll)]
}

/// Enough to see that it is random.
const REFUSED: usize = 4;

/// An EventSource gets the only response after which it reconnects, with different delays.
fn retries_later(server: &Server, key: &str) {
    let retry = || {
        let events = Events::try_open(server.address, key, "/api/events", None, PATIENCE).unwrap();
        let blocks = events.rest();
        assert_eq!(blocks.len(), 1, "{blocks:?}");
        assert!(blocks[0].retry.is_some_and(|ms| ms >= 1_000) && blocks[0].data.is_none());
        blocks[0].retry
    };
    let retries: HashSet<_> = (0..REFUSED).map(|_| retry()).collect();
    assert!(retries.len() > 1, "{retries:?}");
}

#[test]
fn the_schema_limits_the_connections_of_an_account() {
    let server = limited("max_connections_per_account = 3");
    let mut open = vec![Socket::open(&server, "/ws"), Socket::open(&server, "/ws")];
    let stream = Events::open(&server, "/api/events");
    assert_eq!(refusals(&server, KEY), [(429, true), (429, true), (429, true)]);
    retries_later(&server, KEY);
    assert_eq!(figures(&server)["restive_live_refused_total"], (3 + REFUSED) as f64);
    // Short polls and other accounts are not affected.
    server.get("/api/messages").expect(200);
    let (_, theirs, _) = crate::auth::account(&server, "Other shop");
    drop(Socket::try_open(server.address, &theirs, "/ws", PATIENCE).unwrap());
    let error = server.get("/api/events").error(429, "too_many_connections");
    assert!(error["message"].as_str().unwrap().contains("connections"));
    open.pop();
    eventually("there is room again", || open_connections(&server, "websocket") == 1.0);
    Socket::open(&server, "/ws").typed("welcome");
    drop(stream);
}

#[test]
fn the_schema_limits_the_connections_of_the_server() {
    let server = limited("max_connections = 2");
    let (_, theirs, _) = crate::auth::account(&server, "Other shop");
    let _socket = Socket::open(&server, "/ws");
    let _stream = Events::open(&server, "/api/events");
    for key in [KEY, &theirs] {
        assert_eq!(refusals(&server, key), [(503, true), (503, true), (503, true)]);
        retries_later(&server, key);
    }
    server.get("/api/events").error(503, "overloaded");
    server.get("/v1/books").expect(200);
}

/// Before the caller and the path are known: the limit of the listener.
#[test]
fn a_server_at_its_connection_limit_tells_an_event_source_to_retry() {
    let named = "origins = [\"https://a.example\"]";
    let schema = model::schema::BOOKSHOP.replace("origins = []", named);
    let server = Start::schema(&schema).arg("--rate-limit").arg("off");
    let server = server.arg("--max-connections").arg("2").go();
    let stream = Events::open(&server, "/api/events");
    let socket = Socket::open(&server, "/ws");
    let ask = |accept: &str| {
        let headers = [bearer(KEY), format!("Accept: {accept}")];
        Opened::try_get(server.address, "/api/events", &headers, PATIENCE).unwrap()
    };
    let refused = ask("application/json");
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (503, true));
    let told = ask("text/event-stream");
    assert_eq!((told.status, told.header("content-type")), (200, Some("text/event-stream")));
    // A page of another origin must be allowed to read it, or its browser does not reconnect.
    assert_eq!(told.header("access-control-allow-origin"), Some("*"));
    retries_later(&server, KEY);
    // A client that sends nothing gets the default response.
    let mute = std::net::TcpStream::connect(server.address).unwrap();
    mute.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut &mute, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    drop((stream, socket));
    let greeted = || Events::open(&server, "/api/events").next().id.is_some();
    eventually("there is room again", greeted);
}

/// A browser prefers HTTP/2, but accepts what it is offered.
#[test]
fn a_server_at_its_connection_limit_tells_an_event_source_to_retry_over_tls() {
    let server = quick().arg("--tls").arg("self-signed").arg("--max-connections").arg("1").go();
    let curl = |accept: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--insecure", "--http2", "--no-buffer"]);
        curl.args(["--max-time", "60", "--header", &bearer(KEY), "--header"]);
        curl.arg(format!("Accept: {accept}"));
        curl.arg(format!("https://{}/api/events", server.address));
        curl
    };
    let told = |accept: &str| {
        let output = curl(accept).arg("--include").output_in_time().expect("curl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().replace('\r', "")
    };
    let mut first = Curl::follow(curl("text/event-stream"));
    assert!(first.events.next().id.is_some());
    assert!(told("application/json").starts_with("HTTP/1.1 503"));
    let retries_later = told("text/event-stream");
    let (head, body) = retries_later.split_once("\n\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    assert!(body.starts_with("retry: ") && !body.contains("data"), "{body}");
    assert!(!head.contains("access-control"), "no other origin is named: {head}");
    first.interrupt();
    eventually("there is room again", || {
        Curl::follow(curl("text/event-stream")).events.next().id.is_some()
    });
}

#[test]
fn an_event_source_over_its_quota_is_told_to_retry() {
    let server = Start::bookshop().arg("--rate-limit").arg("2/60s").go();
    server.get("/v1/books").expect(200);
    server.get("/v1/books").expect(200);
    retries_later(&server, KEY);
    server.get("/api/messages").error(429, "rate_limited");
    server.get("/api/events").error(429, "rate_limited");
}
