//! kill -9 of the provider and of the receiver while events are created and delivered: each event
//! is processed, and only attempts that were in progress at a kill are repeated.

use crate::chance::Chance;
use crate::harness::{KEY, Server, Start, eventually};
use crate::receive::{Receiving, SECRET};
use crate::sink::Sink;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

const KILLS: usize = 6;
const WORKERS: usize = 4;
const WRITERS: usize = 3;

/// Creates books until this many are acknowledged; returns whether the provider is alive.
fn create(provider: &Server, enough: usize, stop: &AtomicUsize) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let body = json!({"title": format!("by {writer}"), "author": "A"});
                while stop.load(Ordering::Relaxed) < enough {
                    if provider.ask("POST", "/v1/books").json(&body).try_send().is_err() {
                        return;
                    }
                    stop.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}

fn logged(provider: &Server) -> HashSet<String> {
    let mut ids = HashSet::new();
    let mut path = "/v1/events?type=book.created&limit=100".to_owned();
    loop {
        let page = provider.get(&path).expect(200);
        let events = page["data"].as_array().unwrap().iter();
        ids.extend(events.map(|event| event["id"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["pagination"]["next_cursor"].as_str() else { return ids };
        path = format!("/v1/events?type=book.created&limit=100&after={cursor}");
    }
}

#[test]
fn events_that_no_webhook_brought_are_fetched_once() {
    let (provider, handler) = (Server::bookshop(), Sink::start());
    for number in 0..120 {
        provider.book(&format!("book {number}"));
    }
    let (url, api) = (handler.url(), provider.url(""));
    let arguments = [
        "--forward",
        &url,
        "--provider",
        &api,
        "--provider-key",
        KEY,
        "--provider-types",
        "book.*",
        "--reconcile-every",
        "1",
        "--reconcile-min-age",
        "0",
    ];
    let receiving = Receiving::start(&arguments);
    let processed = |count: u64| {
        eventually("all are processed", || receiving.status()["processed"] == count);
    };
    processed(120);
    provider.book("one more");
    processed(121);
    let folder = receiving.server.kill();
    let receiving = Receiving::on(&folder, "127.0.0.1:0", SECRET, &arguments);
    provider.book("the last");
    eventually("the last is processed", || receiving.status()["processed"] == 122);
    let ids: HashSet<String> = handler.received().iter().map(|request| request.id()).collect();
    assert_eq!(ids, logged(&provider), "each event of the log, and no other");
    assert_eq!(handler.received().len(), 122, "each once");
    assert_eq!(receiving.status()["conflicts"], 0);
    assert!(!receiving.server.log.lock().unwrap().contains(KEY), "the log shows the key");
}

/// Kills one of the two under load, and starts it again.
struct Pair {
    provider: Server,
    receiving: Receiving,
    /// The command line of the receiver, without its folder.
    address: String,
    secret: String,
    arguments: Vec<String>,
}

impl Pair {
    fn kill(mut self, kill: usize, enough: usize) -> Pair {
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (provider, made) = (&self.provider, &made);
            scope.spawn(move || create(provider, enough * 2, made));
            eventually("there is load", || made.load(Ordering::Relaxed) >= enough);
            let victim =
                if kill.is_multiple_of(2) { &self.receiving.server } else { &self.provider };
            victim.signal("-KILL");
        });
        if kill.is_multiple_of(2) {
            let folder = self.receiving.server.kill();
            let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
            self.receiving = Receiving::on(&folder, &self.address, &self.secret, &arguments);
        } else {
            let address = self.provider.address;
            self.provider = Start::bookshop().on(&self.provider.kill()).at(address).go();
        }
        self
    }
}

/// How often the handler was called for each event.
fn called(handler: &Sink) -> HashMap<String, usize> {
    let mut calls: HashMap<String, usize> = HashMap::new();
    for request in handler.of("book.created") {
        *calls.entry(request.header("webhook-id").unwrap().to_owned()).or_default() += 1;
    }
    calls
}

#[test]
fn every_event_is_processed_despite_kills_of_provider_and_receiver() {
    let mut chance = Chance::new(97);
    let (handler, provider) = (Sink::start(), Server::bookshop());
    let starting = Receiving::start(&["--store-only"]);
    let address = starting.server.address.to_string();
    let endpoint = json!({
        "url": starting.url(), "enabled_events": ["book.*"],
        "retry_schedule": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "max_in_flight": 8,
    });
    let endpoint = provider.post("/v1/webhook-endpoints", endpoint).expect(201);
    let secret = endpoint["secret"].as_str().unwrap().to_owned();
    let folder = starting.server.kill();
    // What no webhook brings is fetched from the provider's log.
    let text = format!(
        "--forward {} --workers {WORKERS} --retry-first 5 --provider {} --provider-key {KEY} \
         --provider-types book.* --reconcile-every 2 --reconcile-min-age 1",
        handler.url(),
        provider.url("")
    );
    let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let shown: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let receiving = Receiving::on(&folder, &address, &secret, &shown);
    let mut pair = Pair { provider, receiving, address, secret, arguments };
    for kill in 0..KILLS {
        pair = pair.kill(kill, 15 + chance.below(40));
    }
    let Pair { provider, receiving, .. } = pair;
    let logged = logged(&provider);
    eventually("every event was processed", || {
        let calls = called(&handler);
        logged.iter().all(|id| calls.contains_key(id))
    });
    eventually("nothing is pending", || receiving.status()["pending"] == 0);
    eventually("all of it is settled", || {
        provider.get("/v1/events?delivery=pending").expect(200)["data"] == Value::Array(Vec::new())
    });
    let status = receiving.status();
    assert_eq!((&status["dead"], &status["conflicts"]), (&json!(0), &json!(0)));
    let calls = called(&handler);
    assert!(calls.keys().all(|id| logged.contains(id)), "an event that is not in the log");
    assert!(logged.len() > KILLS * 15, "there was load: {}", logged.len());
    // A handler that knows the ids it has processed has each effect once; repeated calls are those
    // that were in progress when the receiver was killed.
    let repeated: usize = calls.values().map(|count| count - 1).sum();
    assert!(repeated <= KILLS.div_ceil(2) * WORKERS, "{repeated} calls were repeated");
}
