//! kill -9 while events are created and delivered: every committed event arrives at every endpoint,
//! no other event arrives, and few arrive twice.

use crate::chance::Chance;
use crate::deliveries::endpoint;
use crate::harness::{Server, Start, eventually};
use crate::sink::Sink;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

const ROUNDS: usize = 50;
const WRITERS: usize = 4;
/// Maximum concurrent requests to one endpoint. The engine leaves one slot free, so a crash, which
/// repeats requests in progress, repeats fewer.
const WINDOW: usize = 8;

/// Creates books from several threads until this many are acknowledged, then kills the server.
fn round(server: Server, chance: &mut Chance) -> std::sync::Arc<tempfile::TempDir> {
    let enough = 5 + chance.below(60);
    let made = AtomicUsize::new(0);
    let pid = server.pid();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (server, made) = (&server, &made);
            scope.spawn(move || {
                let body = json!({"title": format!("by {writer}"), "author": "A"});
                while server.ask("POST", "/v1/books").json(&body).try_send().is_ok() {
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually("enough books", || made.load(Ordering::Relaxed) >= enough);
        let killed = std::process::Command::new("kill").arg("-9").arg(pid.to_string()).status();
        assert!(killed.unwrap().success());
    });
    server.kill()
}

/// Ids of all events of books in the log.
fn logged(server: &Server) -> HashSet<String> {
    let mut ids = HashSet::new();
    let mut path = "/v1/events?type=book.created&limit=100".to_owned();
    loop {
        let page = server.get(&path).expect(200);
        for event in page["data"].as_array().unwrap() {
            ids.insert(event["id"].as_str().unwrap().to_owned());
        }
        match page["pagination"]["next_cursor"].as_str() {
            Some(cursor) => {
                path = format!("/v1/events?type=book.created&limit=100&after={cursor}");
            }
            None => return ids,
        }
    }
}

/// The number of requests that each sink had received when a server was killed.
fn lived(sinks: &[Sink; 2]) -> [usize; 2] {
    sinks.each_ref().map(|sink| {
        sink.finish();
        sink.received().len()
    })
}

/// The number of requests that each crash repeated: a repeated request was last sent before the
/// crash. `ends` has the number of requests at each crash.
fn repeated(sink: &Sink, ends: &[usize]) -> Vec<usize> {
    let mut last: HashMap<String, usize> = HashMap::new();
    let mut repeated = vec![0; ends.len() + 1];
    for (number, request) in sink.received().iter().enumerate() {
        let life = ends.iter().filter(|end| **end <= number).count();
        if let Some(before) = last.insert(request.id(), life) {
            assert!(before < life, "{} came twice in one life", request.id());
            repeated[before] += 1;
        }
    }
    repeated
}

#[test]
fn every_committed_event_reaches_every_endpoint_despite_fifty_crashes() {
    let sinks = [Sink::start(), Sink::start()];
    let mut chance = Chance::new(41);
    let server = Server::bookshop();
    let quick = json!({
        "enabled_events": ["book.*"], "max_in_flight": WINDOW, "retry_schedule": [1, 1, 1, 1, 1],
    });
    for sink in &sinks {
        endpoint(&server, sink, quick.clone());
    }
    let mut folder = round(server, &mut chance);
    let mut lives = vec![lived(&sinks)];
    for _ in 1..ROUNDS {
        folder = round(Start::bookshop().on(&folder).go(), &mut chance);
        lives.push(lived(&sinks));
    }
    let server = Start::bookshop().on(&folder).go();
    let logged = logged(&server);
    assert!(logged.len() > ROUNDS * 5, "there was load: {}", logged.len());
    let arrived = |sink: &Sink| {
        let mut times: HashMap<String, usize> = HashMap::new();
        for request in sink.of("book.created") {
            *times.entry(request.id()).or_default() += 1;
        }
        times
    };
    eventually("everything arrives everywhere", || {
        sinks.iter().all(|sink| {
            let arrived = arrived(sink);
            logged.iter().all(|id| arrived.contains_key(id))
        })
    });
    for (place, sink) in sinks.iter().enumerate() {
        for id in arrived(sink).keys() {
            assert!(logged.contains(id), "{id} was sent and is not in the log");
        }
        let ends: Vec<usize> = lives.iter().map(|life| life[place]).collect();
        let repeated = repeated(sink, &ends);
        assert!(repeated.iter().all(|count| *count < WINDOW), "arrived again: {repeated:?}");
    }
    eventually("all of it is settled", || {
        server.get("/v1/events?delivery=pending").expect(200)["data"] == Value::Array(Vec::new())
    });
}
