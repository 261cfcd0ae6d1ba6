//! Several servers on one PostgreSQL: who delivers, who is online, what limits count. Runs where
//! `RESTIVE_TEST_POSTGRES` names a server; each test has a schema of its own there.

use crate::database;
use crate::deadline::Deadline as _;
use crate::deliveries::{endpoint, wait_for};
use crate::harness::{Server, Start, eventually, executable};
use crate::live_client::Socket;
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The database of one test.
pub struct Nodes {
    pub url: String,
}

impl Nodes {
    pub fn new() -> Option<Nodes> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Ok(server) = std::env::var("RESTIVE_TEST_POSTGRES") else {
            eprintln!("RESTIVE_TEST_POSTGRES is not set: nothing was tested");
            return None;
        };
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, SeqCst));
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let schema = format!("nodes_{}_{process}_{number}", time.as_millis());
        database::run(&server, &format!("CREATE SCHEMA {schema}"));
        let mark = if server.contains('?') { '&' } else { '?' };
        Some(Nodes { url: format!("{server}{mark}schema={schema}") })
    }

    pub fn start(&self, arguments: &[&str]) -> Server {
        let start = Start::bookshop().env("RESTIVE_DATABASE", &self.url);
        arguments.iter().fold(start, |start, argument| start.arg(argument)).go()
    }

    /// A node with another schema file.
    pub fn start_with(&self, schema: &str) -> Server {
        Start::schema(schema).env("RESTIVE_DATABASE", &self.url).go()
    }

    pub fn status(&self) -> Value {
        let mut command = Command::new(executable());
        command.args(["cluster", "status", "--json", "--database", &self.url]);
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn alive(&self) -> usize {
        let status = self.status();
        status["nodes"].as_array().unwrap().iter().filter(|node| node["alive"] == true).count()
    }
}

/// How often each event about a book arrived, by its id.
pub fn arrivals(sink: &Sink) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in sink.received().iter().filter(|one| one.kind() == "book.created") {
        *counts.entry(one.id()).or_default() += 1;
    }
    counts
}

#[test]
fn deliveries_go_on_within_20_s_after_the_node_that_made_them_was_killed() {
    let Some(nodes) = Nodes::new() else { return };
    // The first one holds every bucket when the others come.
    let owner = nodes.start(&[]);
    let others = [nodes.start(&[]), nodes.start(&[])];
    eventually("three nodes", || nodes.alive() == 3);
    let sink = Sink::start();
    endpoint(&others[0], &sink, json!({"enabled_events": ["book.created"], "max_in_flight": 4}));
    for number in 0..30 {
        [&owner, &others[0], &others[1]][number % 3].book("before");
    }
    eventually("all arrive", || arrivals(&sink).len() == 30);
    assert!(arrivals(&sink).values().all(|count| *count == 1), "each once");
    // Some are in flight when it dies.
    sink.will(Manner::Silence);
    for number in 0..20 {
        others[number % 2].book("during");
    }
    eventually("some are on their way", || arrivals(&sink).len() > 31);
    owner.kill();
    let killed = Instant::now();
    sink.will(Manner::status(200));
    for number in 0..20 {
        others[number % 2].book("after");
    }
    eventually("all arrive", || arrivals(&sink).len() == 70);
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let twice = arrivals(&sink).values().filter(|count| **count > 1).count();
    assert!(twice <= 4, "{twice} were repeated: more than the window");
    // Later events do not wait.
    let begun = Instant::now();
    others[0].book("later");
    eventually("the last one arrives", || arrivals(&sink).len() == 71);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    eventually("the dead node is gone", || nodes.alive() == 2);
    let status = nodes.status();
    let leases = |node: &Value| node["leases"].as_i64().unwrap();
    let all: i64 = status["nodes"].as_array().unwrap().iter().map(leases).sum();
    assert_eq!((all, &status["free_buckets"]), (256, &json!(0)), "{status}");
}

#[test]
fn a_node_that_stops_hands_its_endpoints_over_at_once_and_repeats_nothing() {
    let Some(nodes) = Nodes::new() else { return };
    let owner = nodes.start(&[]);
    let other = nodes.start(&[]);
    let sink = Sink::start();
    endpoint(&other, &sink, json!({"enabled_events": ["book.created"]}));
    for _ in 0..10 {
        other.book("before");
    }
    eventually("all arrive", || arrivals(&sink).len() == 10);
    let begun = Instant::now();
    assert_eq!(owner.stop().0, 0);
    for _ in 0..10 {
        other.book("after");
    }
    eventually("all arrive", || arrivals(&sink).len() == 20);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(arrivals(&sink).values().all(|count| *count == 1), "each once");
}

#[test]
fn a_node_that_is_killed_and_starts_again_delivers_at_once() {
    let Some(nodes) = Nodes::new() else { return };
    let node = nodes.start(&[]);
    let sink = Sink::start();
    let id = endpoint(&node, &sink, json!({"enabled_events": ["book.created"]}));
    for _ in 0..10 {
        node.book("before");
    }
    // Also written down: what is not may be repeated.
    wait_for(&node, &id, &["succeeded"; 10]);
    let folder = node.kill();
    let begun = Instant::now();
    let node = Start::bookshop().env("RESTIVE_DATABASE", &nodes.url).on(&folder).go();
    node.book("after");
    eventually("it arrives", || arrivals(&sink).len() == 11);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(arrivals(&sink).values().all(|count| *count == 1), "each once");
}

#[test]
fn pings_retries_and_replays_on_any_node_reach_the_one_that_delivers() {
    let Some(nodes) = Nodes::new() else { return };
    let _owner = nodes.start(&[]);
    let other = nodes.start(&[]);
    let sink = Sink::start();
    let id = endpoint(&other, &sink, json!({"retry_schedule": [3600]}));
    eventually("the first ping", || sink.received().len() == 1);
    other.post(&format!("/v1/webhook-endpoints/{id}/ping"), json!({})).expect(200);
    eventually("a ping", || sink.received().len() == 2);
    sink.will(Manner::status(500));
    other.book("fails");
    let failed = || {
        let all = other.get("/v1/deliveries?status=pending").expect(200);
        all["data"].as_array().unwrap().first().cloned()
    };
    eventually("the failure is recorded", || failed().is_some());
    sink.will(Manner::status(200));
    let delivery = failed().unwrap()["id"].as_str().unwrap().to_owned();
    other.post(&format!("/v1/deliveries/{delivery}/retry"), json!({})).expect(200);
    eventually("the retry", || {
        other.get(&format!("/v1/deliveries/{delivery}")).expect(200)["status"] == "succeeded"
    });
    let before = sink.received().len();
    let replay = other.make("/v1/replays", json!({"endpoint": id}));
    eventually("the replay ends", || {
        other.get(&format!("/v1/replays/{replay}")).expect(200)["status"] == "succeeded"
    });
    assert_eq!(sink.received().len(), before + 1);
}

#[test]
fn users_and_their_typing_are_seen_at_every_node_and_leave_with_it() {
    let Some(nodes) = Nodes::new() else { return };
    let (first, second) = (nodes.start(&[]), nodes.start(&[]));
    let users = |server: &Server| {
        let all = server.get("/v1/presence").expect(200);
        let users = all["data"].as_array().unwrap().clone();
        let user = |one: &Value| (one["user"].clone(), one["connections"].clone());
        users.iter().map(user).collect::<Vec<_>>()
    };
    let mut ann = Socket::open(&first, "/ws?user=ann");
    ann.typed("welcome");
    let mut bob = Socket::open(&second, "/ws?user=bob");
    bob.typed("welcome");
    let _again = Socket::open(&second, "/ws?user=ann");
    let both = [(json!("ann"), json!(2)), (json!("bob"), json!(1))];
    eventually("the first node lists both", || users(&first) == both);
    eventually("the second node lists both", || users(&second) == both);
    let told = loop {
        let told = ann.typed("online");
        if told["user"] == "bob" {
            break told;
        }
    };
    assert_eq!(told["online"], true);
    bob.say(json!({"type": "typing", "data": {"room": 7}}));
    let typing = ann.typed("typing");
    assert_eq!((&typing["user"], &typing["data"]), (&json!("bob"), &json!({"room": 7})));
    // No echo: what bob hears next is what ann says.
    ann.say(json!({"type": "typing", "data": {"room": 8}}));
    assert_eq!(bob.typed("typing")["data"], json!({"room": 8}));
    second.kill();
    let killed = Instant::now();
    eventually("bob has left", || users(&first) == [(json!("ann"), json!(1))]);
    let gone = ann.typed("online");
    assert_eq!((&gone["user"], &gone["online"]), (&json!("bob"), &json!(false)));
    assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
}

#[test]
fn the_limit_of_a_key_holds_for_all_nodes_together() {
    let Some(nodes) = Nodes::new() else { return };
    let limit = ["--rate-limit", "300/1h"];
    let (first, second) = (nodes.start(&limit), nodes.start(&limit));
    for node in [&first, &second] {
        // What a node may admit by itself depends on how many there are.
        eventually("it knows the other", || {
            node.get("/metrics").text.contains("\nrestive_cluster_nodes 2\n")
        });
    }
    let mut granted = [0, 0];
    for number in 0..600 {
        // Three of four come to the second.
        let place = usize::from(number % 4 != 0);
        let answer = [&first, &second][place].get("/v1/books");
        match answer.status {
            200 => granted[place] += 1,
            429 => {}
            other => panic!("{other}: {}", answer.text),
        }
    }
    let all: usize = granted.iter().sum();
    assert!((270..=330).contains(&all), "{granted:?} of 300");
    assert!(all <= 300 && granted[0] > 50, "{granted:?}");
}

/// A key that seems never to be used may be revoked, and a version removed.
#[test]
fn the_use_of_keys_and_versions_at_one_node_is_shown_at_every_node() {
    let Some(nodes) = Nodes::new() else { return };
    let [first, second] = [nodes.start(&[]), nodes.start(&[])];
    let sent = std::cell::Cell::new(0);
    let show = |node: &Server, path: &str| {
        sent.set(sent.get() + 1);
        node.get(path).expect(200)
    };
    let requests =
        |node: &Server| show(node, "/v1/version-usage")["data"][0]["requests"].as_u64().unwrap();
    // Both have seen the account.
    let begun = requests(&first).max(requests(&second));
    let made = first.post("/v1/keys", json!({"name": "till", "scopes": null})).expect(201);
    let place = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(show(&second, &place)["last_used_at"], Value::Null);
    for _ in 0..50 {
        first.ask("GET", "/v1/books").key(made["secret"].as_str().unwrap()).send().expect(200);
    }
    eventually("the last use is shown", || show(&second, &place)["last_used_at"].is_string());
    let keys = show(&second, "/v1/keys");
    let listed = keys["data"].as_array().unwrap().iter().find(|key| key["id"] == made["id"]);
    assert!(listed.unwrap()["last_used_at"].is_string(), "{keys}");
    // The last requests of the key may be saved later than its use. Each is counted once.
    for node in [&first, &second] {
        eventually("its requests are shown", || requests(node) >= begun + 50);
        let shown = requests(node);
        let most = begun + 51 + sent.get();
        assert!((begun + 50..=most).contains(&shown), "{begun} ≤ {shown} ≤ {most}");
    }
}

#[test]
fn a_timed_transition_fires_once_whatever_node_has_it() {
    let Some(nodes) = Nodes::new() else { return };
    let owner = nodes.start(&[]);
    let other = nodes.start(&[]);
    let confirm = |server: &Server| {
        let body = json!({"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"});
        let id = server.make("/v1/payment-intents", body);
        server.post(&format!("/v1/payment-intents/{id}/confirm"), json!({})).expect(200);
    };
    for number in 0..10 {
        confirm([&owner, &other][number % 2]);
    }
    let succeeded = || {
        let path = "/v1/events?type=payment_intent.succeeded&limit=100";
        other.get(path).expect(200)["data"].as_array().unwrap().len()
    };
    eventually("all succeed", || succeeded() == 10);
    owner.kill();
    for _ in 0..5 {
        confirm(&other);
    }
    eventually("the timers move", || succeeded() == 15);
    // waits for: a timer that would wrongly fire again
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(succeeded(), 15);
}
