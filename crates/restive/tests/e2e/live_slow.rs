//! Stalled readers, and very many at once: no event is lost, other clients do not wait, and the
//! server's memory stays bounded.

use crate::clock::hurried;
use crate::harness::{KEY, Server, Start, eventually};
use crate::hostile::{GROWTH_KIB, MANY_CONNECTIONS, assert_unharmed, resident_kib};
use crate::live_client::{
    Block, CLOSE, Events, PONG, Socket, TEXT, ask_for, committed, figures, open_connections,
    vanish, write,
};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WRITERS: usize = 4;
pub const LAST: &str = "the last one";

fn quick_start() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

pub fn quick() -> Server {
    quick_start().go()
}

/// Far more than the sockets and the memory of the newest events hold together.
pub fn flood(server: &Server, count: usize, written: &AtomicUsize) {
    let filler = "x".repeat(3_900);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let filler = &filler;
            scope.spawn(move || {
                for number in 0..count / WRITERS {
                    write(server, &format!("{writer} {number} {filler}"));
                    written.fetch_add(1, Relaxed);
                }
            });
        }
    });
    write(server, LAST);
}

#[test]
fn a_stalled_reader_gets_everything_later_and_delays_no_other_client() {
    const COUNT: usize = 5_000;
    let server = quick();
    let stalled_stream = Events::open(&server, "/api/events?types=message");
    let mut stalled_socket = Socket::open(&server, "/ws?types=message");
    let mut lively = Events::open(&server, "/api/events?types=message");
    let before = resident_kib(&server);
    let written = AtomicUsize::new(0);
    let (texts, behind, grown) = std::thread::scope(|scope| {
        let (server, written, alive) = (&server, &written, &mut stalled_socket);
        let writing = scope.spawn(move || {
            flood(server, COUNT, written);
            Instant::now()
        });
        let reading = scope.spawn(move || {
            let mut worst = 0;
            let mut texts = Vec::with_capacity(COUNT);
            while texts.last().is_none_or(|text| text != LAST) {
                let block = lively.named("message");
                texts.push(block.json()["text"].as_str().unwrap().to_owned());
                worst = worst.max(written.load(Relaxed).saturating_sub(texts.len()));
                if texts.len().is_multiple_of(COUNT / 10) {
                    // It does not read, but it sends, so it is not silent.
                    alive.send(PONG, b"").unwrap();
                }
            }
            (texts, worst, Instant::now())
        });
        let finished = writing.join().unwrap();
        let grown = resident_kib(server).saturating_sub(before);
        let (texts, worst, heard) = reading.join().unwrap();
        let late = heard.saturating_duration_since(finished);
        assert!(late < Duration::from_secs(5), "the lively one was {late:?} late");
        (texts, worst, grown)
    });
    assert_eq!(texts.len(), COUNT + 1);
    assert!(behind < COUNT / 4, "the lively one was {behind} behind");
    // The newest part of the log in memory, encoded once for each kind of channel, and no more.
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB");
    assert!(figures(&server)["restive_live_lag_events"] > 100.0, "somebody does stall");
    let reads = || figures(&server)["restive_live_log_reads_total"];
    let earlier = reads();
    for number in 0..200 {
        write(&server, &format!("unread {number}"));
    }
    // The server does not read the log for a client that reads nothing.
    assert!(reads() - earlier < 20.0, "{} reads of the log", reads() - earlier);
    std::thread::scope(|scope| {
        let (mut stream, mut socket) = (stalled_stream, stalled_socket);
        let from_stream = scope.spawn(move || stream.texts_until(LAST));
        let from_socket = scope.spawn(move || socket.texts_until(LAST));
        assert!(from_stream.join().unwrap() == texts, "the stream has all of it in order");
        assert!(from_socket.join().unwrap() == texts, "the socket has all of it in order");
    });
    assert!(figures(&server)["restive_live_log_reads_total"] > 0.0, "they read the log");
}

/// A subscriber ignores any number of events that it did not subscribe to.
#[test]
fn an_idle_subscriber_does_not_read_the_log_for_events_it_filters_out() {
    let server = quick();
    let mut quiet = Events::open(&server, "/api/events?types=order.*,typing");
    let mut typist = Socket::open(&server, "/ws?user=ann&types=order.*");
    // More than the memory of the newest events.
    flood(&server, 2_000, &AtomicUsize::new(0));
    typist.say(json!({ "type": "typing", "data": { "room": "lobby" } }));
    assert_eq!(quiet.named("typing").json()["user"], "ann");
    let figures = figures(&server);
    assert_eq!(figures["restive_live_log_reads_total"], 0.0);
    assert_eq!(figures["restive_live_lag_events"], 0.0);
}

/// Two minutes of server time.
#[test]
fn a_stream_whose_client_reads_nothing_is_closed_and_can_be_resumed() {
    const COUNT: usize = 4_000;
    let server = hurried(quick_start(), 20).go();
    let mut stalled = Events::open(&server, "/api/events?types=message");
    let first = write(&server, "the first one");
    assert_eq!(stalled.named("message").json()["id"], first);
    flood(&server, COUNT, &AtomicUsize::new(0));
    eventually("it is given up", || open_connections(&server, "sse") == 0.0);
    assert_eq!(figures(&server)["restive_live_slow_total"], 1.0);
    // The received part is complete up to the last block, and the rest follows on another
    // connection.
    let mut heard = vec![first];
    while let Ok(Some(block)) = stalled.try_next() {
        heard.extend(block.json()["id"].as_i64());
    }
    assert!(heard.len() < COUNT, "{} came although nobody read", heard.len());
    let since = heard.last().unwrap();
    let mut resumed = Events::open(&server, &format!("/api/events?types=message&since={since}"));
    let rest = resumed.texts_until(LAST);
    assert_eq!(heard.len() + rest.len(), COUNT + 2);
}

/// Far more messages than are read at the pace of `sip_until_given_up` before the server closes the
/// connection.
const BACKLOG: usize = 6_000;

/// Reads too slowly to catch up with the log, until the server closes the connection.
fn sip_until_given_up(server: &Server, mut sip: impl FnMut()) {
    // For some 16 KiB, four messages. The system wakes a writer when a third of its buffer of up to
    // 4 MiB is free: at this rate long before the server considers the client stalled.
    const SIP: Duration = Duration::from_millis(50);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while figures(server)["restive_live_slow_total"] == 0.0 {
                assert!(began.elapsed() < Duration::from_secs(240), "nobody minds");
                std::thread::sleep(SIP); // waits for: the next look at the figures
            }
        });
        let mut sips = 0;
        // Nothing else may delay the next read: a client that reads nothing is closed.
        while !watching.is_finished() {
            let ahead = (SIP * sips).saturating_sub(began.elapsed());
            std::thread::sleep(ahead); // waits for: its own pace
            sip();
            sips += 1;
        }
    });
}

/// A server whose log has the backlog, and the position before it.
fn behind() -> (Server, String) {
    let server = hurried(quick_start(), 20).go();
    let begin = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    flood(&server, BACKLOG, &AtomicUsize::new(0));
    (server, begin)
}

/// Ten minutes of server time.
#[test]
fn a_stream_that_never_catches_up_is_closed_and_resumes_without_loss() {
    let (server, begin) = behind();
    let target = format!("/api/events?types=message&since={begin}");
    let mut slow = Events::open_narrow(&server, &target);
    sip_until_given_up(&server, || slow.sip());
    let blocks = slow.rest();
    let closing = blocks.last().unwrap();
    assert!(closing.is("stream.closing"), "{closing:?}");
    assert_eq!(closing.json(), json!({ "reason": "slow_resume" }));
    let id = |block: &Block| block.json()["id"].as_i64().unwrap();
    let mut ids: Vec<i64> = blocks.iter().filter(|block| block.is("message")).map(id).collect();
    assert!(!ids.is_empty() && ids.len() < BACKLOG, "{} messages", ids.len());
    let place = blocks.iter().rev().find_map(|block| block.id.as_deref());
    let mut resumed = Events::open_from(&server, "/api/events?types=message", place);
    let all: Vec<i64> = committed(&server).into_iter().map(|(id, _)| id).collect();
    while ids.len() < all.len() {
        ids.push(id(&resumed.named("message")));
    }
    assert!(ids == all, "nothing lost, nothing twice");
}

/// Ten minutes of server time.
#[test]
fn a_socket_that_never_catches_up_is_closed_and_resumes_without_loss() {
    let (server, begin) = behind();
    let mut slow = Socket::open_narrow(&server, &format!("/ws?types=message&since={begin}"));
    // It reads slowly and sends: neither stalled nor silent.
    sip_until_given_up(&server, || {
        slow.sip();
        slow.send(PONG, b"").unwrap();
    });
    let mut ids = Vec::new();
    let closed = loop {
        let frame = slow.frame();
        match frame.opcode {
            CLOSE => break frame.payload,
            TEXT => {
                let message: Value = serde_json::from_slice(&frame.payload).unwrap();
                ids.extend(message["data"]["id"].as_i64());
            }
            _ => {}
        }
    };
    assert_eq!(closed, [&4102u16.to_be_bytes()[..], b"slow_resume"].concat());
    assert!(!ids.is_empty() && ids.len() < BACKLOG, "{} messages", ids.len());
    let since = ids.last().unwrap();
    let mut resumed = Events::open(&server, &format!("/api/events?types=message&since={since}"));
    assert_eq!(ids.len() + resumed.texts_until(LAST).len(), BACKLOG + 1);
}

/// Reads until the last message has arrived completely; returns the ids.
fn ids_until_last(stream: &mut TcpStream) -> Vec<i64> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    let told = |text: &[u8]| text.windows(LAST.len()).any(|window| window == LAST.as_bytes());
    while !told(&text) || !text.ends_with(b"\n\n") {
        let count = stream.read(&mut piece).expect("the stream goes on");
        assert!(count > 0, "the stream ended: {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_i64();
    lines.filter_map(id).collect()
}

const CLIENTS: usize = 10_000;

/// All resume at once, each from one of these messages, and receive the rest.
fn wave(server: &Server, ids: &[i64]) -> u64 {
    let before = resident_kib(server);
    let mut streams: Vec<TcpStream> = (0..CLIENTS)
        .map(|number| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let since = ids[number % ids.len()];
            let request = format!(
                "GET /api/events?types=message&since={since} HTTP/1.1\r\nHost: localhost\r\n\
                 Authorization: Bearer {KEY}\r\nAccept: text/event-stream\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let all = [ids, &[write(server, LAST)]].concat();
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_eq!(ids_until_last(stream), all[number % ids.len() + 1..], "client {number}");
    }
    assert_eq!(open_connections(server, "sse"), CLIENTS as f64);
    let grown = resident_kib(server).saturating_sub(before);
    drop(streams);
    eventually("they are gone", || open_connections(server, "sse") == 0.0);
    grown
}

#[test]
fn ten_thousand_reconnecting_clients_are_served_from_memory_which_is_freed_again() {
    let _alone = MANY_CONNECTIONS.lock();
    let server = quick();
    let before = resident_kib(&server);
    let mut after = Vec::new();
    for round in 0..3 {
        let ids: Vec<i64> = (0..40).map(|n| write(&server, &format!("message {n}"))).collect();
        let grown = wave(&server, &ids);
        assert!(grown < 8 * CLIENTS as u64, "{CLIENTS} cost {grown} KiB in round {round}");
        // The allocator may keep the memory of one wave for the next, and no more.
        assert_unharmed(&server, before);
        after.push(resident_kib(&server));
    }
    let grown = after[2].saturating_sub(after[0]);
    assert!(grown < 8 << 10, "the second and third crowd left {grown} KiB more: {after:?}");
    assert_eq!(figures(&server)["restive_live_log_reads_total"], 0.0, "memory was enough");
}

/// Without pings, only the system detects it: sent data is not acknowledged.
#[test]
fn streams_and_polls_of_vanished_clients_are_closed_and_freed() {
    const STREAMS: usize = 3_000;
    const POLLS: usize = 20;
    // Listener and hub have room for exactly these.
    let room = STREAMS + 4 * POLLS;
    let schema = model::schema::BOOKSHOP.replace(
        "max_connections_per_account = 50000",
        &format!("max_connections_per_account = {room}"),
    );
    let start = Start::schema(&schema).arg("--rate-limit").arg("off");
    // A tenth of the listener's connections is reserved for requests, and a tenth of the rest for
    // other accounts.
    let listened = room * 5 / 4;
    let start = start.arg("--max-connections").arg(&listened.to_string()).arg("--vanished-after");
    let server = hurried(start.arg("2").env("RESTIVE_ACCESS_LOG", "off"), 20).go();
    let before = resident_kib(&server);
    let poll = format!("/api/messages?since={}&wait=true&user=cat", write(&server, "the newest"));
    let kept: Vec<u64> = (0..5)
        .map(|_| {
            let streams = (0..STREAMS).map(|_| ask_for(&server, "/api/events?user=ben", &[]));
            let mut vanished: Vec<TcpStream> = streams.collect();
            eventually("all are heard", || open_connections(&server, "sse") == STREAMS as f64);
            let mut polls = Vec::new();
            // Repeated until all are seen: the accelerated server holds them for little more than a
            // second.
            eventually("all are held", || {
                polls = (0..POLLS).map(|_| ask_for(&server, &poll, &[])).collect();
                open_connections(&server, "poll") == POLLS as f64
            });
            vanished.append(&mut polls);
            vanished.iter().for_each(vanish);
            assert_ne!(server.get("/v1/presence").expect(200)["data"], json!([]));
            eventually("they are given up, and their users offline", || {
                ["sse", "poll"].iter().all(|channel| open_connections(&server, channel) == 0.0)
                    && server.get("/v1/presence").expect(200)["data"] == json!([])
            });
            resident_kib(&server)
        })
        .collect();
    assert_unharmed(&server, before);
    // The allocator may keep the memory of the first two rounds for the next, and no more. If only
    // 2.5 KiB of each connection stayed, the last three rounds would leave 22 MiB.
    let grown = kept[4].saturating_sub(kept[1]);
    assert!(grown < 12 << 10, "{grown} KiB more in three rounds: from {before} to {kept:?}");
}
