//! Three servers on one PostgreSQL while they are killed and cut off from the database, and while
//! the database restarts, under writes, followers, webhooks and timers. Nothing acknowledged is
//! lost, nothing has a second effect. Short as part of the suite; `cargo xtask postgres` takes two
//! minutes for it.

use crate::chance::Chance;
use crate::cluster::Nodes;
use crate::database;
use crate::deliveries::endpoint;
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{Events, Opened, bearer, committed, shown};
use crate::nodes::through_relay;
use crate::relay::{Plan, Relay};
use crate::sink::Sink;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NODES: usize = 3;
const WRITERS: usize = 4;
const LAST: &str = "the-last-one";
/// A follower whose stream is silent for so long opens another one.
const DEAF: Duration = Duration::from_secs(5);
/// Runs a shell command that restarts the database; the mode of the stop is added.
const RESTART: &str = "RESTIVE_TEST_POSTGRES_RESTART";

/// What happens, at which second, to which node.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// SIGKILL, and a start after some seconds.
    Kill { node: usize, away: u64 },
    /// No connection to the database for some seconds.
    CutOff { node: usize, seconds: u64 },
    /// The database stops, in this mode, and starts.
    Restart(&'static str),
}

/// What all threads share.
struct World {
    servers: [Mutex<Option<Server>>; NODES],
    addresses: [Mutex<SocketAddr>; NODES],
    relays: Vec<Relay>,
    over: AtomicBool,
    /// A thread has failed: the others end.
    failed: AtomicBool,
    deadline: Instant,
    written: AtomicUsize,
    agent: ureq::Agent,
}

impl World {
    #[track_caller]
    fn in_time(&self) {
        assert!(!self.failed.load(Relaxed), "another thread has failed");
        assert!(Instant::now() < self.deadline, "it takes too long");
    }

    /// Runs the work of a thread.
    fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.unwrap_or_else(|panic| {
            self.failed.store(true, Relaxed);
            std::panic::resume_unwind(panic)
        })
    }

    fn address(&self, node: usize) -> SocketAddr {
        *self.addresses[node % NODES].lock().unwrap()
    }

    /// Sends a request with a key until a server has carried it out: each time to another one.
    fn post(&self, first: usize, path: &str, key: &str, body: &Value) -> Value {
        for node in first.. {
            self.in_time();
            let url = format!("http://{}{path}", self.address(node));
            let request = self.agent.post(&url).header("authorization", format!("Bearer {KEY}"));
            let request = request.header("content-type", "application/json");
            let answer = request.header("idempotency-key", key).send(body.to_string());
            let answer = answer.ok().and_then(|mut answer| {
                Some((answer.status().as_u16(), answer.body_mut().read_to_string().ok()?))
            });
            match answer {
                Some((200 | 201, text)) => return serde_json::from_str(&text).unwrap(),
                // 409: the first one still runs. 500: the outcome is unknown.
                Some((409 | 500 | 503 | 504, _)) | None => {
                    std::thread::sleep(Duration::from_millis(20)); // waits for: a server to be back
                }
                Some(other) => panic!("{path}: {other:?}"),
            }
        }
        unreachable!()
    }

    /// Messages, each with a key of its own; returns their ids by text. Some are sent again to
    /// another server after they were acknowledged.
    fn write(&self, writer: usize, chance: &mut Chance) -> BTreeMap<String, i64> {
        let mut made = BTreeMap::new();
        for number in 0.. {
            if self.over.load(Relaxed) {
                break;
            }
            let text = format!("{writer}-{number}");
            let body = json!({"text": text});
            let answer = self.post(chance.below(NODES), "/v1/messages", &text, &body);
            if chance.percent(20) {
                let again = self.post(chance.below(NODES), "/v1/messages", &text, &body);
                assert_eq!(again, answer, "a repetition has no second effect");
            }
            made.insert(text, answer["id"].as_i64().unwrap());
            self.written.fetch_add(1, Relaxed);
        }
        made
    }

    /// Payments, whose timed transitions fire a second later; returns their ids.
    fn pay(&self, chance: &mut Chance) -> Vec<String> {
        let mut made = Vec::new();
        for number in 0.. {
            if self.over.load(Relaxed) {
                break;
            }
            let body = json!({"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"});
            let (key, node) = (format!("pay-{number}"), chance.below(NODES));
            let payment = self.post(node, "/v1/payment-intents", &key, &body);
            let id = payment["id"].as_str().unwrap().to_owned();
            let path = format!("/v1/payment-intents/{id}/confirm");
            self.post(node + 1, &path, &format!("confirm-{number}"), &json!({}));
            made.push(id);
            std::thread::sleep(Duration::from_millis(100)); // waits for: other writes in between
        }
        made
    }

    fn start(&self, node: usize, start: Start) {
        let server = start.go();
        *self.addresses[node].lock().unwrap() = server.address;
        *self.servers[node].lock().unwrap() = Some(server);
    }

    /// A server that is up; there is one when nothing happens any more.
    fn with<T>(&self, node: usize, ask: impl FnOnce(&Server) -> T) -> T {
        ask(self.servers[node].lock().unwrap().as_ref().unwrap())
    }
}

/// Reads the messages from a position on, at any server.
struct Follower<'w> {
    world: &'w World,
    chance: Chance,
    position: String,
    read: Vec<(i64, String)>,
}

impl Follower<'_> {
    fn run(mut self) -> Vec<(i64, String)> {
        while !self.has_all() {
            self.world.in_time();
            let node = self.chance.below(NODES);
            // Refused, or ended: the next one goes on from the position.
            if self.follow(node).is_err() {
                std::thread::sleep(Duration::from_millis(50)); // waits for: a server to be back
            }
        }
        self.read
    }

    fn has_all(&self) -> bool {
        self.read.last().is_some_and(|(_, text)| text == LAST)
    }

    fn follow(&mut self, node: usize) -> io::Result<()> {
        let headers = [
            bearer(KEY),
            "Accept: text/event-stream".to_owned(),
            format!("Last-Event-ID: {}", self.position),
        ];
        let target = "/api/events?types=message";
        let opened = Opened::try_get(self.world.address(node), target, &headers, DEAF)?;
        if opened.status != 200 {
            assert!(matches!(opened.status, 500 | 503 | 504), "{}", opened.head);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let mut events: Events = opened.events();
        let leaves_after = 20 + self.chance.below(200);
        for _ in 0..leaves_after {
            let Some(block) = events.try_next()? else { return Ok(()) };
            assert!(!block.is("stream.reset"), "{block:?}");
            if let Some(position) = &block.id {
                self.position.clone_from(position);
            }
            if block.is("message") {
                self.read.push(shown(&block.json()));
                if self.has_all() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn start(folder: &Arc<TempDir>, url: &str) -> Start {
    let start = Start::bookshop().on(folder).env("RESTIVE_DATABASE", url);
    start.arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off")
}

fn strike(world: &World, blow: Blow, folders: &[Arc<TempDir>], urls: &[String]) {
    println!("{blow:?} after {} messages", world.written.load(Relaxed));
    let pass = |seconds| {
        // waits for: requests that meet the failure
        std::thread::sleep(Duration::from_secs(seconds));
    };
    match blow {
        Blow::Kill { node, away } => {
            drop(world.servers[node].lock().unwrap().take().unwrap().kill());
            pass(away);
            world.start(node, start(&folders[node], &urls[node]));
        }
        Blow::CutOff { node, seconds } => {
            world.relays[node].plan(vec![Plan::Refuse; 100_000]);
            world.relays[node].cut();
            pass(seconds);
            world.relays[node].forget();
        }
        Blow::Restart(mode) => match std::env::var(RESTART) {
            Ok(command) => {
                let mut shell = Command::new("sh");
                let status = shell.arg("-c").arg(format!("{command} -m {mode}")).status();
                assert!(status.unwrap().success(), "{command}");
            }
            // The server is not ours: for the nodes it looks the same.
            Err(_) => {
                for relay in &world.relays {
                    relay.plan(vec![Plan::Refuse; 100_000]);
                    relay.cut();
                }
                pass(2);
                world.relays.iter().for_each(Relay::forget);
            }
        },
    }
}

/// Carries out a plan, and waits for writes after it.
fn havoc(world: &World, plan: &[(u64, Blow)], folders: &[Arc<TempDir>], urls: &[String]) {
    let began = Instant::now();
    for (second, blow) in plan {
        let at = Duration::from_secs(*second);
        // waits for: writes between two failures
        std::thread::sleep(at.saturating_sub(began.elapsed()));
        world.in_time();
        strike(world, *blow, folders, urls);
    }
    let before = world.written.load(Relaxed);
    eventually("writes go on", || {
        world.in_time();
        world.written.load(Relaxed) > before + 20
    });
}

/// Seconds from the beginning, in order.
fn plan(is_long: bool) -> Vec<(u64, Blow)> {
    if !is_long {
        return vec![
            (2, Blow::Kill { node: 1, away: 1 }),
            (5, Blow::CutOff { node: 2, seconds: 2 }),
        ];
    }
    let kill = |round: usize| {
        let (node, away) = (round % NODES, 1 + (round % 4) as u64);
        (10 * round as u64, Blow::Kill { node, away })
    };
    let mut plan: Vec<(u64, Blow)> = (1..=12).map(kill).collect();
    plan.extend([
        (25, Blow::Restart("fast")),
        (57, Blow::CutOff { node: 1, seconds: 5 }),
        (87, Blow::Restart("immediate")),
    ]);
    plan.sort_by_key(|(second, _)| *second);
    plan
}

fn check_deliveries(sinks: &[Sink], expected: &[(i64, String)]) {
    let wanted: BTreeSet<i64> = expected.iter().map(|(id, _)| *id).collect();
    for sink in sinks {
        let arrived = || -> BTreeSet<i64> {
            let all = sink.received();
            let ids = all.iter().filter(|one| one.kind() == "message.created");
            ids.filter_map(|one| one.event()["data"]["object"]["id"].as_i64()).collect()
        };
        let began = Instant::now();
        while arrived() != wanted {
            let missing = wanted.difference(&arrived()).count();
            assert!(began.elapsed() < 2 * PATIENCE, "{missing} of {} are missing", wanted.len());
            std::thread::sleep(Duration::from_millis(100)); // waits for: the next look
        }
    }
}

/// Each payment has succeeded, by one event.
fn check_timers(world: &World, payments: &[String]) {
    let succeeded = || {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let first = "/v1/events?type=payment_intent.succeeded&limit=100".to_owned();
        let mut path = first.clone();
        loop {
            let page = world.with(0, |server| server.get(&path).expect(200));
            for event in page["data"].as_array().unwrap() {
                let id = event["data"]["object"]["id"].as_str().unwrap();
                *counts.entry(id.to_owned()).or_default() += 1;
            }
            let Some(next) = page["pagination"]["next_cursor"].as_str() else { return counts };
            path = format!("{first}&after={next}");
        }
    };
    eventually("every timer fires", || succeeded().len() >= payments.len());
    let expected: BTreeMap<String, usize> = payments.iter().map(|id| (id.clone(), 1)).collect();
    assert_eq!(succeeded(), expected);
}

fn world(nodes: &Nodes, is_long: bool) -> (World, Vec<Arc<TempDir>>, Vec<String>) {
    let folders: Vec<_> = (0..NODES).map(|_| Arc::new(TempDir::new().unwrap())).collect();
    let (urls, relays): (Vec<String>, Vec<Relay>) =
        (0..NODES).map(|_| through_relay(&nodes.url)).unzip();
    let limit = Duration::from_secs(if is_long { 400 } else { 120 });
    let world = World {
        servers: [const { Mutex::new(None) }; NODES],
        // None has started yet.
        addresses: [const { Mutex::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1)) };
            NODES],
        relays,
        over: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        deadline: Instant::now() + limit,
        written: AtomicUsize::new(0),
        agent: ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build()
            .new_agent(),
    };
    for node in 0..NODES {
        world.start(node, start(&folders[node], &urls[node]));
    }
    (world, folders, urls)
}

#[test]
fn servers_that_are_killed_and_cut_off_lose_nothing_and_do_nothing_twice() {
    let Some(nodes) = Nodes::new() else { return };
    let is_long = database::is_long();
    let followers = if is_long { 200 } else { 20 };
    let (world, folders, urls) = world(&nodes, is_long);
    let sinks = [Sink::start(), Sink::start()];
    for (node, sink) in sinks.iter().enumerate() {
        let wanted = json!({"enabled_events": ["message.created"]});
        world.with(node, |server| endpoint(server, sink, wanted));
    }
    let begin = world.with(0, |server| server.get("/api/messages"));
    let begin = begin.header("x-stream-position").unwrap().to_owned();
    let (read, made, payments) = std::thread::scope(|scope| {
        let world = &world;
        let follower = |number: usize| {
            let (chance, position) = (Chance::new(1_000 + number as u64), begin.clone());
            let one = Follower { world, chance, position, read: Vec::new() };
            scope.spawn(move || world.work(|| one.run()))
        };
        let readers: Vec<_> = (0..followers).map(follower).collect();
        let writer = |number: usize| {
            let mut chance = Chance::new(number as u64);
            scope.spawn(move || world.work(|| world.write(number, &mut chance)))
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        let payer = scope.spawn(|| world.work(|| world.pay(&mut Chance::new(99))));
        world.work(|| havoc(world, &plan(is_long), &folders, &urls));
        world.over.store(true, Relaxed);
        let mut made = BTreeMap::new();
        writers.into_iter().for_each(|writer| made.extend(writer.join().unwrap()));
        let payments = payer.join().unwrap();
        let last = world.post(0, "/v1/messages", LAST, &json!({"text": LAST}));
        made.insert(LAST.to_owned(), last["id"].as_i64().unwrap());
        let read: Vec<_> = readers.into_iter().map(|one| one.join().unwrap()).collect();
        (read, made, payments)
    });
    let expected = world.with(2, committed);
    let kept: BTreeMap<String, i64> =
        expected.iter().map(|(id, text)| (text.clone(), *id)).collect();
    assert_eq!(kept.len(), expected.len(), "no key has two effects");
    assert_eq!(kept, made, "exactly what was acknowledged");
    for (number, one) in read.into_iter().enumerate() {
        assert_eq!(one, expected, "follower {number}");
    }
    check_timers(&world, &payments);
    check_deliveries(&sinks, &expected);
    println!("{} messages, {} payments", expected.len(), payments.len());
}
