//! Metrics of the live channels: each counter changes by exactly what happened.

use crate::harness::{PATIENCE, Server, eventually};
use crate::live_client::{Events, PING, PONG, Socket, figures, open_connections, write};
use crate::live_slow::{flood, quick};
use serde_json::json;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

const RESET: &str = "stream.reset";

/// A metric by the part of its name after `restive_live_`.
fn figure(server: &Server, name: &str) -> f64 {
    figures(server)[&format!("restive_live_{name}")]
}

/// Waits until a metric has this value; sent messages are counted a moment later.
#[track_caller]
fn becomes(server: &Server, name: &str, expected: f64) {
    let mut last = f64::NAN;
    let deadline = Instant::now() + PATIENCE;
    while last != expected {
        last = figure(server, name);
        assert!(Instant::now() < deadline, "{name} is {last}, not {expected}");
    }
}

#[test]
fn messages_out_and_in_are_counted_by_channel() {
    let server = quick();
    let mut stream = Events::open(&server, "/api/events?types=message");
    let mut sockets: Vec<Socket> =
        (0..2).map(|_| Socket::open(&server, "/ws?types=message")).collect();
    let mut deaf = Events::open(&server, "/api/events?types=book.*");
    deaf.next();
    let last = (0..3).map(|number| write(&server, &format!("message {number}"))).last().unwrap();
    stream.texts_until("message 2");
    sockets.iter_mut().for_each(|socket| drop(socket.texts_until("message 2")));
    let target = format!("/api/messages?since={last}&wait=true");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| server.get(&target).expect(200));
        eventually("the poll is held", || open_connections(&server, "poll") == 1.0);
        write(&server, "message 3");
        assert_eq!(held.join().unwrap().as_array().unwrap().len(), 1);
    });
    stream.texts_until("message 3");
    sockets.iter_mut().for_each(|socket| drop(socket.texts_until("message 3")));
    // Greetings and responses are not messages, and a connection that subscribes to nothing gets
    // none.
    for (channel, count) in [("sse", 4.0), ("websocket", 8.0), ("poll", 1.0)] {
        becomes(&server, &format!("messages_total{{channel=\"{channel}\"}}"), count);
    }
    assert_eq!(figure(&server, "received_total"), 0.0);
    let socket = &mut sockets[0];
    socket.say(json!({ "type": "typing", "data": {} }));
    socket.say(json!({ "type": "nonsense" }));
    socket.say(json!({ "type": "ping" }));
    socket.typed("pong");
    // A control frame is not a message.
    socket.send(PING, b"").unwrap();
    std::iter::repeat_with(|| socket.frame()).find(|frame| frame.opcode == PONG).unwrap();
    assert_eq!(figure(&server, "received_total"), 3.0);
    assert_eq!(figure(&server, "refused_total"), 0.0);
    assert_eq!(figure(&server, "dropped_total"), 0.0);
    assert_eq!(figure(&server, "lag_events"), 0.0);
}

#[test]
fn resumed_connections_are_counted_by_source_of_the_missed_events() {
    let server = quick();
    let begin = server.get("/v1/books").header("x-stream-position").unwrap().to_owned();
    // Without subscribers, the newest events are not kept in memory.
    let _somebody = Events::open(&server, "/api/events?types=book.*");
    write(&server, "the first one");
    let resumed = |from: &str| figure(&server, &format!("resumes_total{{from=\"{from}\"}}"));
    // A client without a position does not resume.
    Events::open(&server, "/api/events").next();
    let target = format!("/ws?types=message&since={begin}");
    Socket::open(&server, &target).texts_until("the first one");
    Events::open_from(&server, "/api/events", Some(&begin)).named("message");
    becomes(&server, "resumes_total{from=\"memory\"}", 2.0);
    let (epoch, _) = begin.split_once('.').unwrap();
    Events::open_from(&server, "/api/events", Some(&format!("{epoch}.1000000"))).named(RESET);
    let foreign = format!("{:08x}.1", u32::from_str_radix(epoch, 16).unwrap() ^ 1);
    Socket::open(&server, &format!("/ws?since={foreign}")).typed(RESET);
    becomes(&server, "resumes_total{from=\"gap\"}", 2.0);
    assert_eq!(resumed("log"), 0.0);
    // More than the memory of the newest events.
    flood(&server, 1_200, &AtomicUsize::new(0));
    Events::open_from(&server, "/api/events", Some(&begin)).named("message");
    becomes(&server, "resumes_total{from=\"log\"}", 1.0);
    assert_eq!((resumed("memory"), resumed("gap")), (2.0, 2.0));
}

#[test]
fn metrics_show_the_lag_and_the_missed_messages_of_a_stalled_client() {
    const COUNT: usize = 400;
    let server = quick();
    let stalled = Events::open_narrow(&server, "/api/events?types=message,typing");
    flood(&server, COUNT, &AtomicUsize::new(0));
    let (mut sent, mut same) = (f64::NAN, 0);
    // The stalled client receives what its sockets hold, and then nothing.
    eventually("it stalls", || {
        let now = figure(&server, "messages_total{channel=\"sse\"}");
        same = if std::mem::replace(&mut sent, now) == now { same + 1 } else { 0 };
        same == 50
    });
    assert!(sent < COUNT as f64, "{sent} were sent");
    assert_eq!(figure(&server, "lag_events") + sent, COUNT as f64 + 1.0);
    assert_eq!(figure(&server, "dropped_total"), 0.0);
    let mut typist = Socket::open(&server, "/ws?types=message&user=ann");
    for number in 1..=20 {
        typist.say(json!({ "type": "typing", "data": { "number": number } }));
        becomes(&server, "dropped_total", f64::from(number));
    }
    drop(stalled);
    eventually("it is gone", || open_connections(&server, "sse") == 0.0);
    assert_eq!(figure(&server, "lag_events"), 0.0);
    assert_eq!(figure(&server, "slow_total"), 0.0);
}
