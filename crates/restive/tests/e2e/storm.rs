//! The cases of `bench storm` in a reduced form: account A misbehaves in each of its ways while
//! account B reads, creates, and gets its webhooks and events within a deadline. Afterwards
//! everything due to A arrives, and SIGTERM ends the server. Latencies are measured by the bench.

use crate::auth::account;
use crate::harness::{PATIENCE, Server, Start, eventually};
use crate::live_client::{Events, Socket};
use crate::storm_client::{ACTIONABLE, Account, Receiver, status};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// B never waits longer, even on a busy machine. Without fairness it waits for A.
const PROMPT: Duration = Duration::from_secs(5);
/// How long A misbehaves in cases without an end.
const STORM: Duration = Duration::from_millis(1500);
const LARGE_BYTES: usize = 120_000;

const SCHEMA: &str = r#"
    [service]
    max_page = 1000
    [webhooks]
    development = true
    [collections.notes.fields]
    number = { type = "integer", required = true, filter = true, sort = true }
    text = { type = "string", required = true }
    more = "string"
    [collections.messages]
    feed = true
    fields.text = "string"
    [collections.badges]
    fields.code = { type = "string", unique = true, filter = true }
    [collections.shelves]
    object = "shelf"
    fields.name = "string"
    [collections.volumes]
    parent = "shelves"
    fields.title = "string"
    [collections.jobs]
    fields.name = "string"
    states = { names = ["waiting", "done"] }
    [[collections.jobs.timed]]
    from = "waiting"
    to = "done"
    after = "1s"
    [collections.tasks]
    fields.name = "string"
    states = { names = ["open", "approved"] }
    [collections.tasks.actions.approve]
    from = "open"
    to = "approved"
    handler = { url = "http://HANDLER/approve", timeout = "20s" }
"#;

/// A server with two accounts. B has an endpoint and a stream.
struct Storm {
    server: Server,
    a: Account,
    b: Account,
    receiver: Receiver,
    handler: Receiver,
    stream: Events,
    record: String,
    created: u64,
}

impl Storm {
    fn start() -> Storm {
        let handler = Receiver::start();
        let schema = SCHEMA.replace("HANDLER", &handler.address.to_string());
        let server = Start::schema(&schema).arg("--rate-limit").arg("off").go();
        let (_, key, _) = account(&server, "A");
        let a = Account { address: server.address, key };
        let b = Account { address: server.address, key: server.key.clone() };
        let receiver = Receiver::start();
        b.endpoint(&receiver, 0, json!({}));
        let record = b.make("/v1/notes", &note(0, 10));
        let stream = Events::open(&server, "/api/events?types=note.created");
        eventually("the first ping and event of B arrive", || receiver.arrived() == 2);
        Storm { server, a, b, receiver, handler, stream, record, created: 0 }
    }

    /// One request of every kind for B, in time.
    #[track_caller]
    fn check_b(&mut self) {
        let b = &self.b;
        within("GET", || assert_eq!(b.get(&format!("/v1/notes/{}", self.record)).0, 200));
        within("list", || assert_eq!(b.get("/v1/notes?limit=10").0, 200));
        self.created += 1;
        let (number, before) = (self.created, self.receiver.arrived());
        let began = Instant::now();
        within("create", || drop(b.make("/v1/notes", &note(number, 10))));
        let told = loop {
            let event = self.stream.named("note.created").json();
            if event["data"]["object"]["number"] == number {
                break began.elapsed();
            }
        };
        assert!(told < PROMPT, "SSE took {told:?}");
        eventually("B's webhook arrives", || self.receiver.arrived() > before);
        let delivered = began.elapsed();
        assert!(delivered < PROMPT, "a webhook took {delivered:?}");
    }

    /// Three times, with pauses.
    #[track_caller]
    fn check_b_for_a_while(&mut self) {
        for _ in 0..3 {
            self.check_b();
            std::thread::sleep(Duration::from_millis(200)); // waits for: the storm to go on
        }
    }

    #[track_caller]
    fn end(self) {
        let log = self.server.log.clone();
        let (code, _) = self.server.stop();
        assert_eq!(code, 0);
        assert!(!log.lock().unwrap().contains("panicked"));
    }
}

#[track_caller]
fn within(what: &str, act: impl FnOnce()) {
    let began = Instant::now();
    act();
    let took = began.elapsed();
    assert!(took < PROMPT, "{what} took {took:?}");
}

/// A note with about this many bytes, in two fields where one is too short.
fn note(number: u64, bytes: usize) -> Value {
    let (text, more) = ("x".repeat(bytes.min(60_000)), "y".repeat(bytes.saturating_sub(60_000)));
    json!({ "number": number, "text": text, "more": more })
}

/// Runs A's work on threads while B is checked; A stops when B is done.
fn while_b_is_checked(storm: &mut Storm, threads: u64, work: impl Fn(&Account, u64) + Sync) {
    let (a, next) = (storm.a.clone(), AtomicU64::new(0));
    let until = Instant::now() + STORM;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while Instant::now() < until {
                    work(&a, next.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
        storm.check_b_for_a_while();
    });
}

/// Endpoints of A that hang while events of this size are created, and then recover.
fn backlog(endpoints: u32, events: u64, bytes: usize) {
    let mut storm = Storm::start();
    let receiver = Receiver::start();
    for number in 0..endpoints {
        let with = json!({ "timeout": 30, "retry_schedule": [1, 1, 1, 1, 1, 1, 1, 1] });
        storm.a.endpoint(&receiver, number, with);
    }
    eventually("the first pings arrive", || receiver.arrived() == u64::from(endpoints));
    receiver.hang(true);
    storm.a.many(4, events, |a, number| drop(a.make("/v1/notes", &note(number, bytes))));
    storm.check_b_for_a_while();
    receiver.hang(false);
    storm.check_b();
    let due = u64::from(endpoints) * (events + 1);
    eventually("everything due to A arrives", || receiver.arrived() >= due);
    storm.end();
}

#[test]
fn pings_to_a_hanging_endpoint_delay_no_other_account() {
    let mut storm = Storm::start();
    let receiver = Receiver::start();
    let id = storm.a.endpoint(&receiver, 0, json!({ "timeout": 30 }));
    eventually("the first ping arrives", || receiver.arrived() == 1);
    receiver.hang(true);
    let ping = storm.a.request("POST", &format!("/v1/webhook-endpoints/{id}/ping"), "{}");
    let streams: Vec<TcpStream> = (0..300).map(|_| storm.a.begin(&ping)).collect();
    storm.check_b_for_a_while();
    receiver.hang(false);
    for stream in streams {
        assert!(ACTIONABLE.contains(&status(stream)));
    }
    storm.a.make("/v1/notes", &note(1, 10));
    eventually("an event arrives", || receiver.of("note.created") == 1);
    storm.end();
}

#[test]
fn hanging_endpoints_with_large_events_delay_no_other_account() {
    backlog(20, 40, LARGE_BYTES);
}

#[test]
fn hanging_endpoints_with_many_events_delay_no_other_account() {
    backlog(20, 100, 4_000);
}

#[test]
fn expensive_filters_delay_no_other_account() {
    let mut storm = Storm::start();
    let receiver = Receiver::start();
    let look = "!event.data.object.text.contains('not in there')";
    let filter = [look; 18].join(" && ");
    for number in 0..20 {
        storm.a.endpoint(&receiver, number, json!({ "filter": filter }));
    }
    eventually("the first pings arrive", || receiver.arrived() == 20);
    storm.a.many(4, 20, |a, number| drop(a.make("/v1/notes", &note(number, LARGE_BYTES))));
    storm.check_b_for_a_while();
    eventually("what passes arrives", || receiver.of("note.created") == 400);
    storm.end();
}

#[test]
fn a_slow_replay_of_large_records_delays_no_other_account() {
    let mut storm = Storm::start();
    storm.a.many(4, 150, |a, number| drop(a.make("/v1/notes", &note(number, LARGE_BYTES))));
    let receiver = Receiver::start();
    let id = storm.a.endpoint(&receiver, 0, json!({}));
    eventually("the first ping arrives", || receiver.arrived() == 1);
    let replay = json!({ "endpoint": id, "rate_limit": 1, "types": ["note.created"] });
    let replay = storm.a.make("/v1/replays", &replay);
    storm.check_b_for_a_while();
    // Events outside the replay do not wait for its end.
    storm.a.make("/v1/notes", &note(151, 10));
    eventually("replayed and live events arrive", || receiver.of("note.created") >= 3);
    assert_eq!(storm.a.post(&format!("/v1/replays/{replay}/cancel"), &json!({})).0, 200);
    storm.end();
}

#[test]
fn deep_pages_and_scans_delay_no_other_account() {
    let mut storm = Storm::start();
    storm.a.many(8, 1_000, |a, number| match number % 3 {
        0 => drop(a.make("/v1/notes", &note(number, 10))),
        1 => assert_eq!(a.post("/v1/messages", &json!({ "text": "m" })).0, 201),
        _ => drop(a.make("/v1/badges", &json!({ "code": format!("c{number}") }))),
    });
    let targets = [
        "/v1/notes?limit=10&page=30",
        "/v1/messages?max_id=1&limit=10",
        "/v1/badges?code=null&limit=10",
    ];
    while_b_is_checked(&mut storm, 24, |a, number| {
        let status = a.get(targets[number as usize % targets.len()]).0;
        assert!(ACTIONABLE.contains(&status), "{status}");
    });
    assert_eq!(storm.a.get(targets[0]).0, 200);
    storm.end();
}

#[test]
fn erasures_delay_no_other_account() {
    let mut storm = Storm::start();
    let many = storm.a.make("/v1/notes", &note(0, 10));
    storm.a.many(8, 500, |a, number| {
        assert_eq!(a.patch(&format!("/v1/notes/{many}"), &json!({ "number": number })).0, 200);
    });
    let large: Vec<String> =
        (0..30).map(|number| storm.a.make("/v1/notes", &note(number, LARGE_BYTES))).collect();
    let all: Vec<String> = large.into_iter().chain([many]).collect();
    let streams: Vec<TcpStream> = all
        .iter()
        .map(|id| {
            let body = json!({ "resource": id }).to_string();
            storm.a.begin(&storm.a.request("POST", "/v1/erasures", &body))
        })
        .collect();
    storm.check_b_for_a_while();
    for stream in streams {
        assert_eq!(status(stream), 201);
    }
    for id in &all {
        eventually("its events are erased", || {
            let (_, page) = storm.a.get(&format!("/v1/events?resource={id}&limit=1000"));
            let events = page["data"].as_array().unwrap();
            events.iter().all(|event| event["data"]["object"]["erased"] == true)
        });
    }
    storm.end();
}

#[test]
fn timers_that_are_due_at_once_delay_no_other_account() {
    let mut storm = Storm::start();
    storm.a.many(8, 400, |a, _| drop(a.make("/v1/jobs", &json!({ "name": "job" }))));
    storm.check_b_for_a_while();
    eventually("every timer has fired", || {
        let (_, page) = storm.a.get("/v1/jobs?status=waiting&limit=1");
        page["data"].as_array().unwrap().is_empty()
    });
    storm.end();
}

#[test]
fn a_cascade_delays_no_other_account() {
    let mut storm = Storm::start();
    let shelves: Vec<String> =
        (0..4).map(|_| storm.a.make("/v1/shelves", &json!({ "name": "shelf" }))).collect();
    storm.a.many(8, 800, |a, number| {
        let shelf = &shelves[number as usize % shelves.len()];
        drop(a.make(&format!("/v1/shelves/{shelf}/volumes"), &json!({ "title": "volume" })));
    });
    let streams: Vec<TcpStream> = shelves
        .iter()
        .map(|id| storm.a.begin(&storm.a.request("DELETE", &format!("/v1/shelves/{id}"), "")))
        .collect();
    storm.check_b_for_a_while();
    for stream in streams {
        let status = status(stream);
        assert!((200..300).contains(&status), "{status}");
    }
    let (_, page) = storm.a.get("/v1/shelves");
    assert_eq!(page["data"].as_array().unwrap().len(), 0);
    storm.end();
}

#[test]
fn creates_without_a_pause_delay_no_other_account() {
    let mut storm = Storm::start();
    while_b_is_checked(&mut storm, 16, |a, number| drop(a.make("/v1/notes", &note(number, 500))));
    storm.end();
}

#[test]
fn slowly_read_streams_delay_no_other_account() {
    let mut storm = Storm::start();
    let server = &storm.server;
    let mut streams: Vec<Events> = (0..50)
        .map(|_| {
            let (address, key) = (server.address, &storm.a.key);
            let target = "/api/events?types=note.created";
            Events::try_open(address, key, target, None, PATIENCE).unwrap()
        })
        .collect();
    storm.a.many(4, 40, |a, number| drop(a.make("/v1/notes", &note(number, 4_000))));
    storm.check_b_for_a_while();
    for stream in &mut streams {
        (0..40).for_each(|_| drop(stream.named("note.created")));
    }
    storm.end();
}

#[test]
fn sockets_that_change_their_subscriptions_delay_no_other_account() {
    let mut storm = Storm::start();
    let mut sockets: Vec<Socket> = (0..100)
        .map(|_| {
            let address = storm.server.address;
            Socket::try_open(address, &storm.a.key, "/ws?types=badge.created", PATIENCE).unwrap()
        })
        .collect();
    let about =
        |number: usize| json!({ "types": ["note.updated"], "resource": number.to_string() });
    std::thread::scope(|scope| {
        let sockets = &mut sockets;
        scope.spawn(move || {
            for kind in ["subscribe", "unsubscribe", "subscribe", "unsubscribe"] {
                for (number, socket) in sockets.iter_mut().enumerate() {
                    let mut message = about(number);
                    message["type"] = json!(kind);
                    let answer = socket.ask_for(message);
                    assert_eq!(answer["type"], "ack", "{answer}");
                }
            }
        });
        storm.check_b_for_a_while();
    });
    for socket in &mut sockets {
        socket.ask_for(json!({ "type": "subscribe", "types": ["note.created"] }));
    }
    storm.a.make("/v1/notes", &note(1, 10));
    for socket in &mut sockets {
        socket.typed("note.created");
    }
    storm.end();
}

#[test]
fn ephemeral_messages_of_one_account_displace_none_of_another() {
    let mut storm = Storm::start();
    let open = |key: &str, target: &str| {
        Socket::try_open(storm.server.address, key, target, PATIENCE).unwrap()
    };
    let mut mouth = open(&storm.b.key, "/ws?types=badge.created&user=bea");
    let mut ear = open(&storm.b.key, "/ws?types=typing&user=ben");
    let mut typists: Vec<Socket> = (0..10)
        .map(|number| open(&storm.a.key, &format!("/ws?types=typing&user=u{number}")))
        .collect();
    let flood = json!({ "type": "typing", "data": { "room": "r".repeat(900) } });
    std::thread::scope(|scope| {
        let flood = &flood;
        for socket in &mut typists {
            scope.spawn(move || (0..100).for_each(|_| socket.say(flood.clone())));
        }
        for number in 0..5 {
            mouth.say(json!({ "type": "typing", "data": { "number": number } }));
            within("typing", || assert_eq!(ear.typed("typing")["data"]["number"], number));
        }
        storm.check_b();
    });
    storm.end();
}

#[test]
fn slow_and_large_uploads_delay_no_other_account() {
    let mut storm = Storm::start();
    let small = storm.a.request("POST", "/v1/notes", &note(1, 200).to_string());
    let mut body = b"{\"number\":1,\"text\":\"large\"".to_vec();
    body.resize(999_999, b' ');
    body.push(b'}');
    let large = storm.a.request("POST", "/v1/notes", std::str::from_utf8(&body).unwrap());
    let cut = small.len() - 100;
    let slow: Vec<TcpStream> = (0..50).map(|_| storm.a.begin(&small[..cut])).collect();
    let (a, whole) = (storm.a.clone(), &large);
    std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream = a.begin(&whole[..1_000]);
                    let sent = stream.write_all(&whole[1_000..whole.len() - 1]).is_ok();
                    (stream, sent)
                })
            })
            .collect();
        let mut sent = 0;
        let mut slow = slow;
        for byte in cut..cut + 3 {
            // A refused upload has no reader.
            slow.iter_mut()
                .for_each(|stream| sent += stream.write(&small[byte..=byte]).unwrap_or(0));
            storm.check_b();
        }
        assert!(sent > 0);
        for mut stream in slow {
            let _ = stream.write_all(&small[cut + 3..]);
            let status = status(stream);
            assert!(ACTIONABLE.contains(&status), "{status}");
        }
        for upload in uploads {
            let (mut stream, _) = upload.join().unwrap();
            let _ = stream.write_all(b"}");
            let status = status(stream);
            assert!(ACTIONABLE.contains(&status), "{status}");
        }
    });
    storm.end();
}

#[test]
fn a_hanging_handler_delays_no_other_account() {
    let mut storm = Storm::start();
    storm.handler.hang(true);
    let ids: Vec<String> =
        (0..60).map(|_| storm.a.make("/v1/tasks", &json!({ "name": "task" }))).collect();
    let streams: Vec<TcpStream> = ids
        .iter()
        .map(|id| storm.a.begin(&storm.a.request("POST", &format!("/v1/tasks/{id}/approve"), "{}")))
        .collect();
    storm.check_b_for_a_while();
    storm.handler.hang(false);
    for stream in streams {
        let status = status(stream);
        assert!(ACTIONABLE.contains(&status), "{status}");
    }
    storm.end();
}

#[test]
fn unread_responses_delay_no_other_account() {
    let mut storm = Storm::start();
    storm.a.many(8, 200, |a, number| drop(a.make("/v1/notes", &note(number, 20_000))));
    let list = storm.a.request("GET", "/v1/notes?limit=200", "");
    let unread: Vec<TcpStream> = (0..40).map(|_| storm.a.begin(&list)).collect();
    storm.check_b_for_a_while();
    drop(unread);
    assert_eq!(storm.a.get("/v1/notes?limit=10").0, 200);
    storm.end();
}

#[test]
fn stalled_uploads_over_http2_delay_neither_their_connection_nor_another_account() {
    let mut storm = Storm::start();
    let (a, until) = (storm.a.clone(), Instant::now() + STORM);
    let clients = std::thread::spawn(move || a.stalled_streams(2, 40, until));
    storm.check_b_for_a_while();
    let (answered, beside) = clients.join().unwrap();
    assert_eq!((answered, beside), (80, 2), "uploads that ended, requests next to them");
    storm.end();
}
