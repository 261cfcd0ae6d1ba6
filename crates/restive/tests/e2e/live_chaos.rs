//! Two hundred subscribers, a hundred broken connections and ten kills under load: each subscriber
//! is told exactly what was committed, once and in order.

use crate::chance::Chance;
use crate::harness::{KEY, Server, Start, eventually};
use crate::live_client::{Events, Socket, committed, shown};
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SUBSCRIBERS: usize = 200;
const KILLS: usize = 10;
const DISCONNECTS: usize = 100;
const WRITERS: usize = 2;
/// Messages between two kills, at least.
const BETWEEN: usize = 50;
const LAST: &str = "the-last-one";
/// A subscriber whose connection is dead, and does not know it, looks again after this.
const DEAF: Duration = Duration::from_secs(5);

/// What everyone knows of each other.
struct World {
    server: RwLock<Option<Server>>,
    address: RwLock<SocketAddr>,
    written: AtomicUsize,
    over: AtomicBool,
    deadline: Instant,
    /// For each subscriber: it is to break its connection off.
    orders: Vec<AtomicBool>,
}

impl World {
    #[track_caller]
    fn in_time(&self) {
        assert!(Instant::now() < self.deadline, "it takes too long");
    }

    /// Writes one message, however often the server is killed meanwhile.
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
    position: Option<String>,
    told: Vec<(i64, String)>,
    breaks: usize,
}

impl Subscriber<'_> {
    fn run(mut self) -> (Vec<(i64, String)>, usize) {
        while self.told.last().is_none_or(|(_, text)| text != LAST) {
            self.world.in_time();
            // A connection that fails is made again, whatever the reason.
            let _ = match self.number % 2 {
                0 => self.follow_stream(),
                _ => self.follow_socket(),
            };
            std::thread::sleep(Duration::from_millis(20)); // waits for: the server to be back
        }
        (self.told, self.breaks)
    }

    fn follow_stream(&mut self) -> io::Result<()> {
        let address = *self.world.address.read().unwrap();
        let last = self.position.clone();
        let mut events =
            Events::try_open(address, KEY, "/api/events?types=message", last.as_deref(), DEAF)?;
        while let Some(block) = events.try_next()? {
            self.position = block.id.clone().or(self.position.take());
            if block.is("message") && self.take(&block.json()) {
                break;
            }
            assert!(!block.is("stream.reset"), "{block:?}");
        }
        Ok(())
    }

    fn follow_socket(&mut self) -> io::Result<()> {
        let address = *self.world.address.read().unwrap();
        let since = self.position.as_ref().map_or(String::new(), |at| format!("&since={at}"));
        let target = format!("/ws?types=message{since}");
        let mut socket = Socket::try_open(address, KEY, &target, DEAF)?;
        while let Some(message) = socket.try_message()? {
            if let Some(position) = message["position"].as_str() {
                self.position = Some(position.to_owned());
            }
            if message["type"] == "message" && self.take(&message["data"]) {
                break;
            }
            assert_ne!(message["type"], "stream.reset");
        }
        Ok(())
    }

    /// True when the connection is to be left, with whatever is still on its way.
    fn take(&mut self, record: &serde_json::Value) -> bool {
        self.told.push(shown(record));
        let ordered = self.world.orders[self.number].swap(false, Relaxed);
        self.breaks += usize::from(ordered);
        ordered || self.told.last().is_some_and(|(_, text)| text == LAST)
    }
}

fn start() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

/// Kills the server and starts it on the same data, ten times, and breaks connections meanwhile.
fn havoc(world: &World, chance: &mut Chance) {
    for _ in 0..KILLS {
        let enough = world.written.load(Relaxed) + BETWEEN + chance.below(BETWEEN);
        for _ in 0..DISCONNECTS / KILLS {
            world.orders[chance.below(SUBSCRIBERS)].store(true, Relaxed);
        }
        eventually("more is written", || {
            world.in_time();
            world.written.load(Relaxed) >= enough
        });
        // Not waited for: writers are at it, and find it gone.
        world.server.read().unwrap().as_ref().unwrap().signal("-KILL");
        let mut place = world.server.write().unwrap();
        let folder = place.take().unwrap().kill();
        let server = start().on(&folder).go();
        *world.address.write().unwrap() = server.address;
        *place = Some(server);
    }
}

#[test]
fn each_of_two_hundred_subscribers_is_told_what_was_committed_through_kills_and_disconnects() {
    let server = start().go();
    let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
    let world = World {
        address: RwLock::new(server.address),
        server: RwLock::new(Some(server)),
        written: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        deadline: Instant::now() + Duration::from_secs(60),
        orders: (0..SUBSCRIBERS).map(|_| AtomicBool::new(false)).collect(),
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let world = &world;
        let subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|number| {
                let (position, told) = (Some(begin.clone()), Vec::new());
                let one = Subscriber { world, number, position, told, breaks: 0 };
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
    let mut breaks = 0;
    for (number, (one, broken)) in told.into_iter().enumerate() {
        assert_eq!(one, expected, "subscriber {number}");
        breaks += broken;
    }
    assert!(breaks > DISCONNECTS / 2, "{breaks} connections were broken off");
}
