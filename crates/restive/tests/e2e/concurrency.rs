//! Many clients at once: no update is lost, unique values stay unique, and clients read their own
//! writes.

use crate::chance::Chance;
use crate::harness::{Answer, PATIENCE, Server, Start};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 64;
/// Long enough for thousands of collisions, short enough for every test run.
const STORM: Duration = Duration::from_secs(2);
/// Enough increments for the test to be meaningful.
const ENOUGH: usize = 20;

const COUNTERS: &str = r#"
[service]
name = "counters"

[collections.counters.fields]
name = { type = "string", unique = true, search = true }
value = { type = "integer", default = 0, filter = true, sort = true }
owner = { type = "string", filter = true }
"#;

fn counters() -> Server {
    Start::schema(COUNTERS).arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off").go()
}

/// Runs `work` in this many threads, which start together; each gets its number.
fn together<T: Send>(clients: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(clients);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn no_increment_guarded_by_if_match_is_lost() {
    let server = counters();
    let made = server.post("/v1/counters", json!({ "name": "shared" }));
    let path = format!("/v1/counters/{}", made.id());
    let began = Instant::now();
    let wins = AtomicUsize::new(0);
    // A slow machine needs more time for enough increments.
    let goes_on = || match wins.load(Ordering::Relaxed) > ENOUGH {
        true => began.elapsed() < STORM,
        false => began.elapsed() < PATIENCE,
    };
    together(CLIENTS, |_| {
        while goes_on() {
            let read = server.get(&path);
            let next = read.json["value"].as_i64().unwrap() + 1;
            let tag = read.header("etag").unwrap();
            let ask = server.ask("PATCH", &path).header("if-match", tag);
            let answer = ask.json(&json!({ "value": next })).send();
            match answer.status {
                200 => drop(wins.fetch_add(1, Ordering::Relaxed)),
                412 => drop(answer.error(412, "precondition_failed")),
                other => panic!("{other}: {}", answer.text),
            }
        }
    });
    let wins = wins.into_inner();
    assert!(wins > ENOUGH, "{wins} increments are too few to prove anything");
    assert_eq!(server.get(&path).json["value"], wins);
}

#[test]
fn exactly_one_of_many_creates_with_the_same_unique_value_succeeds() {
    let server = counters();
    for round in 0..8 {
        let body = json!({ "name": format!("name {round}") });
        let answers = together(CLIENTS, |_| server.post("/v1/counters", body.clone()));
        let won = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(won, 1);
        for answer in answers.into_iter().filter(|answer| answer.status != 201) {
            assert_eq!(answer.status, 422, "{}", answer.text);
            assert_eq!(answer.json["error"]["errors"][0]["code"], "not_unique");
            assert_eq!(answer.json["error"]["errors"][0]["field"], "name");
        }
    }
    let list = server.get("/v1/counters?page=1").expect(200);
    assert_eq!(list["pagination"]["total"], 8);
}

#[test]
fn concurrent_requests_with_one_idempotency_key_have_one_effect() {
    let server = counters();
    let answers = together(CLIENTS, |_| {
        let ask = server.ask("POST", "/v1/counters").header("idempotency-key", "the-same");
        ask.json(&json!({ "owner": "all" })).send()
    });
    let fresh = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_none());
    assert_eq!(fresh.count(), 1);
    for answer in &answers {
        assert_eq!((answer.status, &answer.text), (201, &answers[0].text));
    }
    assert_eq!(server.get("/v1/counters?page=1").expect(200)["pagination"]["total"], 1);
}

#[test]
fn an_update_never_revives_a_record_that_was_deleted() {
    let server = counters();
    for _ in 0..12 {
        let path = format!("/v1/counters/{}", server.post("/v1/counters", json!({})).id());
        let gone = AtomicBool::new(false);
        together(8, |number| {
            if number == 0 {
                server.delete(&path).expect(200);
                gone.store(true, Ordering::SeqCst);
                return;
            }
            for value in 1..6 {
                let was_gone = gone.load(Ordering::SeqCst);
                let answer = server.patch(&path, json!({ "value": value }));
                match answer.status {
                    200 => assert!(!was_gone, "an update after the acknowledged deletion"),
                    404 => drop(answer.error(404, "not_found")),
                    other => panic!("{other}: {}", answer.text),
                }
            }
        });
        server.get(&path).error(404, "not_found");
        server.delete(&path).expect(200);
    }
}

#[test]
fn clients_read_their_own_writes_by_id_by_filter_and_by_search() {
    let server = counters();
    let until = Instant::now() + STORM;
    let rounds: usize = together(24, |number| {
        let owner = format!("owner{number}");
        let mut made = 0;
        while Instant::now() < until {
            let name = format!("thing{number}x{made}");
            let record = server.post("/v1/counters", json!({ "name": name, "owner": owner }));
            assert_eq!(record.status, 201, "{}", record.text);
            made += 1;
            let path = format!("/v1/counters/{}", record.id());
            assert_eq!(server.get(&path).text, record.text);
            let list = server.get(&format!("/v1/counters?owner={owner}&page=1&limit=1"));
            assert_eq!(list.json["pagination"]["total"], made, "{}", list.text);
            assert_eq!(list.json["data"][0]["id"], record.json["id"], "newest first");
            let found = server.get(&format!("/v1/counters?q={name}")).expect(200);
            assert_eq!(found["data"][0]["id"], record.json["id"]);
            let changed = server.patch(&path, json!({ "value": made })).expect(200);
            assert_eq!(server.get(&path).json, changed);
            let filtered = server.get(&format!("/v1/counters?owner={owner}&value={made}"));
            assert_eq!(filtered.json["data"][0], changed);
        }
        made
    })
    .into_iter()
    .sum();
    assert!(rounds > 24, "{rounds} rounds are too few to prove anything");
}

/// The content of the one record of a list, and the tag of the response.
fn seen(answer: &Answer) -> (String, i64) {
    let tag = answer.header("etag").unwrap().to_owned();
    (tag, answer.json["data"][0]["value"].as_i64().unwrap())
}

#[test]
fn a_changed_list_never_gets_304() {
    let server = counters();
    let watched = server.post("/v1/counters", json!({ "owner": "watched" })).id();
    let path = format!("/v1/counters/{watched}");
    let lists = ["/v1/counters?owner=watched", "/v1/counters?sort=created_at&limit=1"];
    // The newest acknowledged value.
    let acknowledged = AtomicI64::new(0);
    let unchanged = AtomicUsize::new(0);
    let until = Instant::now() + STORM;
    // A busy machine gets enough time for a meaningful number of writes.
    let goes_on = || {
        let now = Instant::now();
        now < until || (acknowledged.load(Ordering::SeqCst) <= 20 && now < until + 10 * STORM)
    };
    together(16, |number| {
        let mut chance = Chance::new(number as u64);
        if number == 0 {
            let mut value = 0;
            while goes_on() {
                value += 1;
                server.patch(&path, json!({ "value": value })).expect(200);
                acknowledged.store(value, Ordering::SeqCst);
            }
            return;
        }
        let list = lists[number % lists.len()];
        let (mut tag, mut value) = seen(&server.get(list));
        while goes_on() {
            let least = acknowledged.load(Ordering::SeqCst);
            if chance.percent(30) {
                let (_, fresh) = seen(&server.get(list));
                assert!(fresh >= least, "read {fresh} after {least} was acknowledged");
                continue;
            }
            let answer = server.ask("GET", list).header("if-none-match", &tag).send();
            if answer.status == 304 {
                assert!(value >= least, "304 for {value} after {least} was acknowledged");
                unchanged.fetch_add(1, Ordering::Relaxed);
            } else {
                (tag, value) = seen(&answer);
                assert!(value >= least, "read {value} after {least} was acknowledged");
            }
        }
    });
    assert!(acknowledged.load(Ordering::SeqCst) > 20);
    assert!(unchanged.load(Ordering::Relaxed) > 0, "no answer was 304: nothing was proved");
    let _: Value = server.get(&path).expect(200);
}
