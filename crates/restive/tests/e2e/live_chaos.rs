//! Two hundred subscribers on three channels, a hundred broken connections and ten kills under
//! load: each subscriber receives exactly the committed messages, once and in order.

use crate::chance::Chance;
use crate::harness::{KEY, Server, Start, eventually};
use crate::live_client::{Events, Opened, Socket, bearer, committed, shown};
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SUBSCRIBERS: usize = 200;
const KILLS: usize = 10;
const DISCONNECTS: usize = 100;
const WRITERS: usize = 2;
/// Minimum messages between two kills.
const BETWEEN: usize = 50;
const LAST: &str = "the-last-one";
/// A subscriber whose connection is dead without notice reconnects after this time.
const DEAF: Duration = Duration::from_secs(5);

/// The state that all threads share.
struct World {
    server: RwLock<Option<Server>>,
    /// The number of kills, and the current address.
    place: RwLock<(usize, SocketAddr)>,
    written: AtomicUsize,
    over: AtomicBool,
    deadline: Instant,
    /// For each subscriber: whether it must break its connection.
    orders: Vec<AtomicBool>,
    /// Connections broken while their server was up.
    broken: AtomicUsize,
}

/// How a connection ended.
#[derive(PartialEq, Eq)]
enum Left {
    /// The server closed it, or there are no more messages.
    Ended,
    /// Broken on request, with unread messages.
    Broken,
}

impl World {
    #[track_caller]
    fn in_time(&self) {
        assert!(Instant::now() < self.deadline, "it takes too long");
    }

    /// Writes one message, retrying while the server is down.
    fn write(&self, text: &str) {
        loop {
            self.in_time();
            let server = self.server.read().unwrap();
            let Some(server) = server.as_ref() else { continue };
            let ask = server.ask("POST", "/v1/messages").header("idempotency-key", text);
            match ask.json(&json!({ "text": text })).try_send() {
                Ok(answer) if answer.status == 201 => break,
                Ok(answer) => panic!("{}", answer.text),
                Err(_) => std::thread::yield_now(),
            }
        }
        self.written.fetch_add(1, Relaxed);
    }
}

struct Subscriber<'w> {
    world: &'w World,
    number: usize,
    position: String,
    told: Vec<(i64, String)>,
}

impl Subscriber<'_> {
    fn run(mut self) -> Vec<(i64, String)> {
        while !self.has_all() {
            self.world.in_time();
            let (life, address) = *self.world.place.read().unwrap();
            let left = match self.number % 5 {
                0 | 1 => self.follow_stream(life, address),
                2 | 3 => self.follow_socket(life, address),
                _ => self.follow_polls(life, address),
            };
            match left {
                Ok(Left::Broken) => drop(self.world.broken.fetch_add(1, Relaxed)),
                // A failed connection is opened again.
                Ok(Left::Ended) | Err(_) => {
                    std::thread::sleep(Duration::from_millis(20)); // waits for: a server to be back
                }
            }
        }
        self.told
    }

    fn has_all(&self) -> bool {
        self.told.last().is_some_and(|(_, text)| text == LAST)
    }

    fn follow_stream(&mut self, life: usize, address: SocketAddr) -> io::Result<Left> {
        let last = self.position.clone();
        let mut events =
            Events::try_open(address, KEY, "/api/events?types=message", Some(&last), DEAF)?;
        while let Some(block) = events.try_next()? {
            assert!(!block.is("stream.reset"), "{block:?}");
            self.position = block.id.clone().unwrap_or(std::mem::take(&mut self.position));
            if block.is("message") {
                self.told.push(shown(&block.json()));
                if self.is_to_break(life) {
                    return Ok(Left::Broken);
                }
                if self.has_all() {
                    break;
                }
            }
        }
        Ok(Left::Ended)
    }

    fn follow_socket(&mut self, life: usize, address: SocketAddr) -> io::Result<Left> {
        let target = format!("/ws?types=message&since={}", self.position);
        let mut socket = Socket::try_open(address, KEY, &target, DEAF)?;
        while let Some(message) = socket.try_message()? {
            assert_ne!(message["type"], "stream.reset");
            if let Some(position) = message["position"].as_str() {
                self.position = position.to_owned();
            }
            if message["type"] == "message" {
                self.told.push(shown(&message["data"]));
                if self.is_to_break(life) {
                    return Ok(Left::Broken);
                }
                if self.has_all() {
                    break;
                }
            }
        }
        Ok(Left::Ended)
    }

    fn follow_polls(&mut self, life: usize, address: SocketAddr) -> io::Result<Left> {
        while !self.has_all() {
            let target = format!("/api/messages?wait=true&since={}", self.position);
            let headers = [bearer(KEY), "Connection: close".to_owned()];
            let opened = Opened::try_get(address, &target, &headers, DEAF)?;
            assert_eq!(opened.status, 200, "{}", opened.head);
            assert_eq!(opened.header("x-stream-gap"), None);
            // The response is discarded.
            if self.is_to_break(life) {
                return Ok(Left::Broken);
            }
            let position = opened.header("x-stream-position").unwrap().to_owned();
            let records: Vec<Value> = serde_json::from_str(&opened.try_body()?)?;
            self.told.extend(records.iter().map(shown));
            self.position = position;
        }
        Ok(Left::Ended)
    }

    /// Whether the connection, opened in that life of the server, must be broken. Messages from
    /// before a kill may be read later, when the connection is already gone.
    fn is_to_break(&self, life: usize) -> bool {
        let lives = self.world.place.read().unwrap().0 == life;
        lives && self.world.orders[self.number].swap(false, Relaxed)
    }
}

fn start() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

/// Kills the server and restarts it on the same data, ten times, and breaks connections in between.
fn havoc(world: &World, chance: &mut Chance) {
    for life in 1..=KILLS {
        let enough = world.written.load(Relaxed) + BETWEEN + chance.below(BETWEEN);
        let broken = life * DISCONNECTS / KILLS;
        for _ in world.broken.load(Relaxed)..broken {
            // A subscriber that has no request to break yet.
            while world.orders[chance.below(SUBSCRIBERS)].swap(true, Relaxed) {}
        }
        eventually("more is written, and connections are broken off", || {
            world.in_time();
            world.written.load(Relaxed) >= enough && world.broken.load(Relaxed) == broken
        });
        // Does not wait: the writers notice that the server is down.
        world.server.read().unwrap().as_ref().unwrap().signal("-KILL");
        let mut place = world.server.write().unwrap();
        let folder = place.take().unwrap().kill();
        let server = start().on(&folder).go();
        *world.place.write().unwrap() = (life, server.address);
        *place = Some(server);
    }
}

#[test]
fn two_hundred_subscribers_receive_every_commit_despite_kills_and_disconnects() {
    let server = start().go();
    let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
    let world = World {
        place: RwLock::new((0, server.address)),
        server: RwLock::new(Some(server)),
        written: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        deadline: Instant::now() + Duration::from_secs(60),
        orders: (0..SUBSCRIBERS).map(|_| AtomicBool::new(false)).collect(),
        broken: AtomicUsize::new(0),
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let world = &world;
        let subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|number| {
                let (position, told) = (begin.clone(), Vec::new());
                let one = Subscriber { world, number, position, told };
                scope.spawn(|| one.run())
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let numbers = (0..).take_while(|_| !world.over.load(Relaxed));
                    numbers.for_each(|number: usize| world.write(&format!("{writer}-{number}")));
                })
            })
            .collect();
        havoc(world, &mut Chance::new(0xCAB1E));
        world.over.store(true, Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        world.write(LAST);
        subscribers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let server = world.server.into_inner().unwrap().unwrap();
    let expected = committed(&server);
    assert!(expected.len() > KILLS * BETWEEN);
    for (number, one) in told.into_iter().enumerate() {
        assert_eq!(one, expected, "subscriber {number}");
    }
    assert_eq!(world.broken.into_inner(), DISCONNECTS);
}
