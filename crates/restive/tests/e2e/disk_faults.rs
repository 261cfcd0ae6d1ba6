//! Disk errors during writes: a refused write does not exist after a crash, and deliveries, streams
//! and timers continue when the disk works again.

use crate::deliveries::endpoint;
use crate::harness::{Answer, Server, Start, eventually};
use crate::live_client::Events;
use crate::shim::{EDQUOT, EFBIG, EIO, ENOSPC, Fault, Faults, fault};
use crate::sink::Sink;
use serde_json::{Value, json};

const WAL: &str = "restive.db-wal";

fn bookshop() -> Start {
    Start::bookshop().arg("--rate-limit").arg("off")
}

fn post(server: &Server, title: &str) -> Answer {
    let ask = server.ask("POST", "/v1/books").header("idempotency-key", title);
    ask.json(&json!({"title": title, "author": "a"})).send()
}

/// The stored titles, and the titles in the events of the log.
fn titles(server: &Server) -> (Vec<String>, Vec<String>) {
    let books = server.get("/v1/books?sort=created_at&limit=100").titles();
    let events = server.get("/v1/events?type=book.created&limit=100").expect(200);
    let title = |event: &Value| event["data"]["object"]["title"].as_str().unwrap().to_owned();
    (books, events["data"].as_array().unwrap().iter().rev().map(title).collect())
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.json["error"]["code"].as_str().unwrap_or("none"))
}

/// A server whose disk fails, and three writes after that. The service writes by itself now and
/// then; where it met the fault before the first request, another server is started.
fn refusals(what: Fault, first: (u16, &str), later: (u16, &str)) -> (Faults, Server, Vec<Answer>) {
    for _ in 0..5 {
        let faults = Faults::new();
        let server = faults.of(bookshop()).go();
        assert_eq!(post(&server, "kept").status, 201);
        faults.set(&[what]);
        let refused: Vec<Answer> =
            ["a", "b", "c"].iter().map(|title| post(&server, title)).collect();
        if first == later || code(&refused[0]) != later {
            return (faults, server, refused);
        }
    }
    panic!("{what:?}: no request is the first one that fails")
}

#[test]
fn a_write_refused_because_of_a_failing_disk_does_not_exist_after_a_crash() {
    const FAILED: (u16, &str) = (500, "storage_failed");
    const UNKNOWN: (u16, &str) = (500, "outcome_unknown");
    const FULL: (u16, &str) = (503, "storage_full");
    for (what, first, later) in [
        // The sync fails, and so does the sync of the rollback.
        (fault("sync", EIO, WAL), UNKNOWN, FAILED),
        (fault("sync", ENOSPC, WAL), UNKNOWN, FULL),
        // A disk with I/O errors is not reported as full.
        (fault("write", EIO, WAL), FAILED, FAILED),
        (fault("write", ENOSPC, WAL), FULL, FULL),
        (fault("write", EDQUOT, WAL), FULL, FULL),
        (fault("write", EFBIG, WAL), FULL, FULL),
    ] {
        let (faults, server, refused) = refusals(what, first, later);
        assert_eq!(code(&refused[0]), first, "{what:?}: {}", refused[0].text);
        for answer in &refused[1..] {
            assert_eq!(code(answer), later, "{what:?}: {}", answer.text);
        }
        server.get("/v1/books").expect(200);
        // Write nothing after the refusal that could hide the error, not even a health check.
        let folder = server.kill();
        faults.clear();
        let server = faults.of(bookshop()).on(&folder).go();
        let only = vec!["kept".to_owned()];
        assert_eq!(titles(&server), (only.clone(), only), "{what:?}");
        // The key of a write with unknown outcome can be reused: nothing was written.
        let again = post(&server, "a");
        assert_eq!((again.status, again.header("idempotent-replayed")), (201, None), "{what:?}");
    }
}

#[test]
fn a_sync_that_fails_once_refuses_one_write_and_no_other() {
    let faults = Faults::new();
    let server = faults.of(bookshop()).go();
    assert_eq!(post(&server, "kept").status, 201);
    let mut acknowledged = vec!["kept".to_owned()];
    // The service writes by itself now and then, and may meet the fault before a request does.
    let refused = (0..20).find_map(|number| {
        faults.set(&[Fault { times: 1, ..fault("sync", EIO, WAL) }]);
        let title = format!("{number:02}");
        let answer = post(&server, &title);
        if answer.status == 201 {
            acknowledged.push(title);
            return None;
        }
        Some(answer)
    });
    // The rollback worked, so nothing was written for certain.
    refused.expect("a write meets the fault").error(500, "storage_failed");
    assert_eq!(post(&server, "next").status, 201);
    acknowledged.push("next".to_owned());
    let folder = server.kill();
    let server = faults.of(bookshop()).on(&folder).go();
    acknowledged.sort();
    assert_eq!(titles(&server), (acknowledged.clone(), acknowledged));
}

#[test]
fn health_reports_a_failing_disk_and_recovers_when_it_works_again() {
    let faults = Faults::new();
    let server = faults.of(bookshop()).go();
    faults.set(&[fault("sync", EIO, WAL)]);
    for number in 0..30 {
        assert_eq!(post(&server, &number.to_string()).status, 500);
        server.get("/v1/books?sort=title").expect(200);
        let health = server.get("/health").expect(503);
        assert_eq!(health["status"], "store_failed");
        let reason = health["reason"].as_str().unwrap();
        assert!(reason.contains("writes do not work"), "{reason}");
    }
    faults.clear();
    eventually("health returns", || server.get("/health").status == 200);
    assert_eq!(post(&server, "after").status, 201);
    // The lines arrive through a pipe, perhaps after the response.
    let log = || server.log.lock().unwrap().clone();
    eventually("the log says that commits work", || log().contains("commits work again"));
    let log = log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert!(lines("a commit failed") <= 4, "{log}");
    assert!(lines("a request failed because of the store") <= 4, "{log}");
    assert!(lines("commits work again") == 1, "{log}");
    let folder = server.kill();
    let server = faults.of(bookshop()).on(&folder).go();
    let only = vec!["after".to_owned()];
    assert_eq!(titles(&server), (only.clone(), only));
}

#[test]
fn deliveries_streams_and_timers_continue_when_a_failing_disk_works_again() {
    for what in [
        vec![fault("sync", EIO, "restive.db")],
        vec![fault("write", EIO, "restive.db")],
        vec![fault("write", ENOSPC, "restive.db")],
        // The journal of the deliveries fails as well.
        vec![fault("write", ENOSPC, "/data/"), fault("sync", EIO, "/data/")],
        vec![fault("write", EIO, "/data/outcomes")],
    ] {
        let faults = Faults::new();
        let server = faults.of(bookshop()).go();
        let sink = Sink::start();
        endpoint(&server, &sink, json!({"enabled_events": ["book.*"]}));
        eventually("the ping came", || !sink.received().is_empty());
        let mut stream = Events::open(&server, "/api/events?types=book.*");
        let card = json!({"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"});
        let intent = server.make("/v1/payment-intents", card);
        let intent = format!("/v1/payment-intents/{intent}");
        server.post(&format!("{intent}/confirm"), json!({})).expect(200);
        let writes_fail = what.iter().any(|fault| fault.file != "/data/outcomes");
        assert_eq!(post(&server, "before").status, 201);
        faults.set(&what);
        let mut acknowledged = vec!["before".to_owned()];
        for title in ["a", "b", "c"] {
            if post(&server, title).status == 201 {
                acknowledged.push(title.to_owned());
            }
        }
        assert_eq!(acknowledged.len() == 1, writes_fail, "{what:?}: {acknowledged:?}");
        if writes_fail {
            eventually("a timer meets the fault", || {
                server.log.lock().unwrap().contains("timed transitions are delayed")
            });
        }
        faults.clear();
        eventually("health returns", || server.get("/health").status == 200);
        assert_eq!(post(&server, "after").status, 201);
        acknowledged.push("after".to_owned());
        eventually("the timer fires", || server.get(&intent).expect(200)["status"] == "succeeded");
        let streamed: Vec<String> = acknowledged
            .iter()
            .map(|_| stream.named("book.created").json()["data"]["object"]["title"].clone())
            .map(|title| title.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(streamed, acknowledged, "{what:?}: the stream shows what was acknowledged");
        let title = |event: &Value| event["data"]["object"]["title"].as_str().unwrap().to_owned();
        let delivered = || -> Vec<String> {
            sink.of("book.created").iter().map(|request| title(&request.event())).collect()
        };
        eventually("all are delivered", || {
            acknowledged.iter().all(|title| delivered().contains(title))
        });
        let pending = "/v1/deliveries?status=pending";
        eventually("all are settled", || server.get(pending).column("id").is_empty());
        let mut once = delivered();
        once.sort();
        acknowledged.sort();
        assert_eq!(once, acknowledged, "{what:?}: nothing refused is sent, nothing twice");
    }
}
