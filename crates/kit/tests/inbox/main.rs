//! The inbox and the receiver at their public door: what is acknowledged is stored, each event is
//! processed, failed ones are retried and end as dead letters, and no effect happens twice.

// All of it is test code, also the parts outside `#[test]` functions.
#![allow(clippy::unwrap_used)]

mod kill;
mod lock;
mod receiver;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use restive_kit::event::Received;
use restive_kit::inbox::{
    Accepted, Error, Event, Failure, Filter, Inbox, Options, OutOfOrder, Retry, State,
};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Place {
    folder: TempDir,
}

impl Default for Place {
    fn default() -> Place {
        Place { folder: TempDir::new().unwrap() }
    }
}

impl Place {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("inbox.db")
    }

    fn open(&self) -> Inbox {
        Inbox::open(&self.path(), quick()).unwrap()
    }
}

/// Retries within milliseconds.
fn quick() -> Options {
    let mut retry = Retry::default();
    retry.first = Duration::from_millis(5);
    retry.longest = Duration::from_millis(20);
    retry.max_attempts = 4;
    let mut options = Options::default();
    options.retry = retry;
    options
}

fn event(id: &str) -> Received {
    about(id, "none", None)
}

/// An event about a version of a resource.
fn about(id: &str, resource: &str, version: Option<u32>) -> Received {
    let version = version.map(|version| format!(r#","version":{version}"#)).unwrap_or_default();
    let resource = if resource == "none" { id } else { resource };
    let body = format!(
        r#"{{"id":"{id}","type":"book.updated","data":{{"object":{{"id":"{resource}"{version}}}}}}}"#
    );
    Received::read(body.into_bytes(), None).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}

/// In this order, with shared commits.
fn accept_all(inbox: &Inbox, events: impl Iterator<Item = Received>) {
    block_on(async {
        let mut accepting = Vec::new();
        for event in events {
            let mut one = Box::pin(inbox.accept(event));
            // The first poll puts it in the queue.
            match std::future::poll_fn(|cx| Poll::Ready(one.as_mut().poll(cx))).await {
                Poll::Ready(accepted) => assert_eq!(accepted.unwrap(), Accepted::New),
                Poll::Pending => accepting.push(one),
            }
        }
        for one in accepting {
            one.await.unwrap();
        }
    });
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5)); // waits for: the next look at the condition
    }
}

fn state(inbox: &Inbox, id: &str) -> Option<State> {
    let filter = Filter { id: Some(id.to_owned()), limit: 1, ..Filter::default() };
    block_on(inbox.list(filter)).unwrap().first().map(|listed| listed.state)
}

fn in_time() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

#[test]
fn an_event_is_stored_once_and_survives_the_process() {
    let place = Place::default();
    let inbox = place.open();
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::New);
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Known);
    drop(inbox);
    let inbox = place.open();
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Known);
    let lease = inbox.next_blocking(in_time()).unwrap();
    assert_eq!((lease.id.as_str(), lease.attempt), ("evt_1", 1));
    assert_eq!(lease.body, event("evt_1").body);
    lease.done_blocking().unwrap();
    drop(inbox);
    // The id of a processed event stays known, its body is gone.
    let inbox = place.open();
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Known);
    assert_eq!(state(&inbox, "evt_1"), Some(State::Processed));
    assert_eq!(block_on(inbox.body("evt_1")).unwrap(), None);
    let soon = Some(Instant::now() + Duration::from_millis(50));
    assert!(inbox.next_blocking(soon).is_none());
}

#[test]
fn another_body_with_a_known_id_is_recorded_and_never_processed() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    let other = about("evt_1", "other", None);
    assert_eq!(inbox.accept_blocking(other.clone()).unwrap(), Accepted::Conflict);
    let lease = inbox.next_blocking(in_time()).unwrap();
    assert_eq!(lease.body, event("evt_1").body, "the first one counts");
    lease.done_blocking().unwrap();
    assert_eq!(inbox.accept_blocking(other.clone()).unwrap(), Accepted::Conflict);
    let stats = block_on(inbox.stats()).unwrap();
    assert_eq!((stats.conflicts, stats.pending, stats.processed), (2, 0, 1));
    // A list of the provider may write an event in another way.
    assert_eq!(block_on(inbox.accept_listed(other)).unwrap(), Accepted::Known);
    assert_eq!(block_on(inbox.accept_listed(event("evt_2"))).unwrap(), Accepted::New);
    let delivered = about("evt_2", "written otherwise", None);
    assert_eq!(inbox.accept_blocking(delivered).unwrap(), Accepted::Known);
}

#[test]
fn concurrent_receipts_share_commits_and_all_are_stored() {
    let place = Place::default();
    let inbox = place.open();
    let (threads, each) = (16, 50);
    let new = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (inbox, new) = (&inbox, &new);
            scope.spawn(move || {
                for number in 0..each {
                    // Every second one is sent by two threads.
                    let sender = if number % 2 == 0 { thread } else { thread / 2 };
                    let event = event(&format!("evt_{sender}_{number}"));
                    if inbox.accept_blocking(event).unwrap() == Accepted::New {
                        new.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let expected = threads * each / 2 + threads / 2 * each / 2;
    assert_eq!(new.load(Ordering::Relaxed), expected);
    assert_eq!(block_on(inbox.stats()).unwrap().pending, expected as i64);
}

#[test]
fn a_failed_event_is_tried_again_and_ends_as_a_dead_letter_that_can_be_retried() {
    let place = Place::default();
    let inbox = place.open();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (seen, failing) = (calls.clone(), fails.clone());
    let work = move |event: &Event| {
        seen.lock().unwrap().push((event.id.clone(), event.attempt));
        match failing.load(Ordering::Relaxed) {
            true if event.attempt == 2 => panic!("a bug"),
            true => Err(Failure::new("not now")),
            false => Ok(()),
        }
    };
    let workers = inbox.work(2, work).unwrap();
    inbox.accept_blocking(event("evt_1")).unwrap();
    eventually("it is dead", || state(&inbox, "evt_1") == Some(State::Dead));
    let attempts: Vec<u32> = calls.lock().unwrap().iter().map(|(_, attempt)| *attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    let dead =
        block_on(inbox.list(Filter { state: Some(State::Dead), limit: 10, ..Filter::default() }));
    assert_eq!(dead.unwrap()[0].error.as_deref(), Some("not now"));
    assert!(block_on(inbox.body("evt_1")).unwrap().is_some(), "a dead letter keeps its body");
    fails.store(false, Ordering::Relaxed);
    assert!(block_on(inbox.retry("evt_1")).unwrap());
    eventually("it is processed", || state(&inbox, "evt_1") == Some(State::Processed));
    assert!(!block_on(inbox.retry("evt_1")).unwrap(), "a processed event is not retried");
    assert!(!block_on(inbox.retry("evt_2")).unwrap());
    workers.stop();
}

#[test]
fn the_operator_can_give_up_an_event() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    assert!(block_on(inbox.give_up("evt_1")).unwrap());
    assert_eq!(state(&inbox, "evt_1"), Some(State::Dropped));
    assert!(inbox.next_blocking(Some(Instant::now() + Duration::from_millis(50))).is_none());
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Known);
    assert!(!block_on(inbox.give_up("evt_1")).unwrap());
}

#[test]
fn every_event_is_counted_once() {
    let place = Place::default();
    let inbox = place.open();
    for id in ["evt_processed", "evt_dead", "evt_dropped", "evt_retrying", "evt_pending"] {
        inbox.accept_blocking(event(id)).unwrap();
    }
    inbox.next_blocking(in_time()).unwrap().done_blocking().unwrap();
    change(
        &place,
        "UPDATE events SET state = 2 WHERE id = 'evt_dead';
         UPDATE events SET attempts = 1 WHERE id = 'evt_retrying';
         INSERT INTO events (id, digest, received, due, state) VALUES ('evt_stale', '', 0, 0, 3);",
    );
    assert!(block_on(inbox.give_up("evt_dropped")).unwrap());
    let stats = block_on(inbox.stats()).unwrap();
    let ended = (stats.processed, stats.skipped, stats.dead);
    assert_eq!((stats.pending, stats.retrying, ended), (2, 1, (1, 2, 1)), "{stats:?}");
}

#[test]
fn an_event_that_an_earlier_release_stored_is_known_and_no_conflict() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    change(&place, "UPDATE events SET digest = randomblob(16)");
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Known);
    change(&place, "UPDATE events SET digest = randomblob(8)");
    assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Conflict);
}

#[test]
fn another_process_can_retry_a_dead_letter_of_a_running_inbox() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    for _ in 0..4 {
        let lease = inbox.next_blocking(in_time()).unwrap();
        lease.failed_blocking(Failure::new("no")).unwrap();
    }
    assert_eq!(state(&inbox, "evt_1"), Some(State::Dead));
    let other = place.open();
    assert_eq!(block_on(other.retry_dead()).unwrap(), 1);
    drop(other);
    let lease = inbox.next_blocking(in_time()).expect("it is handed out again");
    assert_eq!(lease.attempt, 1);
}

#[test]
fn an_event_whose_handler_ends_the_process_is_given_up_in_the_end() {
    let place = Place::default();
    for attempt in 1..=4 {
        let inbox = place.open();
        inbox.accept_blocking(event("evt_1")).unwrap();
        let lease = inbox.next_blocking(in_time()).unwrap();
        assert_eq!(lease.attempt, attempt);
        // Like a crash: no result is written.
        std::mem::forget(lease);
        std::mem::forget(inbox);
        // The system releases the lock of a process that ends; this one goes on.
        std::fs::remove_file(place.path().with_extension("db.lock")).unwrap();
    }
    let inbox = place.open();
    assert!(inbox.next_blocking(Some(Instant::now() + Duration::from_millis(300))).is_none());
    assert_eq!(state(&inbox, "evt_1"), Some(State::Dead));
}

#[test]
fn events_of_one_resource_are_handed_out_one_at_a_time() {
    let place = Place::default();
    let inbox = place.open();
    for number in 0..20 {
        inbox.accept_blocking(about(&format!("a{number}"), "book_a", None)).unwrap();
    }
    inbox.accept_blocking(about("b0", "book_b", None)).unwrap();
    let first = inbox.next_blocking(in_time()).unwrap();
    let second = inbox.next_blocking(in_time()).unwrap();
    assert_eq!((first.id.as_str(), second.id.as_str()), ("a0", "b0"));
    assert!(inbox.next_blocking(Some(Instant::now() + Duration::from_millis(50))).is_none());
    first.done_blocking().unwrap();
    assert_eq!(inbox.next_blocking(in_time()).unwrap().id, "a1");
}

#[test]
fn a_long_queue_of_one_resource_keeps_no_other_event_waiting() {
    const HOT: usize = 5_000;
    let place = Place::default();
    let inbox = place.open();
    accept_all(&inbox, (0..HOT).map(|number| about(&format!("evt_hot_{number}"), "hot", None)));
    let hanging = inbox.next_blocking(in_time()).unwrap();
    assert_eq!(hanging.id, "evt_hot_0");
    accept_all(&inbox, (0..20).map(|number| event(&format!("evt_{number}"))));
    for number in 0..20 {
        let other = inbox.next_blocking(in_time()).unwrap();
        assert_eq!(other.id, format!("evt_{number}"));
        other.done_blocking().unwrap();
    }
    // Fails, and the next one of the resource has its turn; then they come in their order.
    hanging.failed_blocking(Failure::new("no")).unwrap();
    let mut seen = Vec::new();
    while seen.len() < HOT {
        let next = inbox.next_blocking(in_time()).unwrap();
        seen.push(next.id.clone());
        next.done_blocking().unwrap();
    }
    seen.retain(|id| id != "evt_hot_0");
    let ordered = (1..HOT).map(|number| format!("evt_hot_{number}"));
    assert_eq!(seen, ordered.collect::<Vec<_>>());
}

#[test]
fn a_resource_has_its_turn_behind_a_long_queue_of_another() {
    const HOT: usize = 5_000;
    let place = Place::default();
    let inbox = place.open();
    let quiet = |numbers: std::ops::Range<usize>| {
        numbers.map(|number| about(&format!("evt_{number}"), "quiet", None))
    };
    let hot = (0..HOT).map(|number| about(&format!("evt_hot_{number}"), "hot", None));
    accept_all(&inbox, quiet(0..2).chain(hot).chain(quiet(2..4)));
    let first = inbox.next_blocking(in_time()).unwrap();
    let hanging = inbox.next_blocking(in_time()).unwrap();
    assert_eq!((&*first.id, &*hanging.id), ("evt_0", "evt_hot_0"));
    let soon = Some(Instant::now() + Duration::from_millis(50));
    assert!(inbox.next_blocking(soon).is_none(), "both are busy");
    first.done_blocking().unwrap();
    for id in ["evt_1", "evt_2", "evt_3"] {
        let next = inbox.next_blocking(in_time()).unwrap();
        assert_eq!(next.id, id);
        next.done_blocking().unwrap();
    }
    hanging.done_blocking().unwrap();
    assert_eq!(inbox.next_blocking(in_time()).unwrap().id, "evt_hot_1");
}

#[test]
fn an_older_state_of_a_resource_is_marked_or_skipped() {
    for policy in [OutOfOrder::Deliver, OutOfOrder::Skip] {
        let place = Place::default();
        let mut options = quick();
        options.out_of_order = policy;
        let inbox = Inbox::open(&place.path(), options).unwrap();
        for (id, version, is_stale) in
            [("e5", 5, false), ("e3", 3, true), ("e5b", 5, false), ("e6", 6, false)]
        {
            inbox.accept_blocking(about(id, "book_1", Some(version))).unwrap();
            if is_stale && policy == OutOfOrder::Skip {
                let soon = Some(Instant::now() + Duration::from_millis(100));
                assert!(inbox.next_blocking(soon).is_none());
                assert_eq!(state(&inbox, id), Some(State::Stale));
                continue;
            }
            let lease = inbox.next_blocking(in_time()).unwrap();
            assert_eq!((lease.id.as_str(), lease.is_stale), (id, is_stale));
            lease.done_blocking().unwrap();
        }
    }
}

#[test]
fn a_dropped_wait_or_lease_loses_no_event() {
    let place = Place::default();
    let inbox = place.open();
    block_on(async {
        for _ in 0..50 {
            let wait = inbox.next();
            tokio::select! {
                biased;
                _ = std::future::ready(()) => drop(wait),
            }
        }
        let mut wait = Box::pin(inbox.next());
        std::future::poll_fn(|cx| {
            assert!(wait.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        inbox.accept(event("evt_1")).await.unwrap();
        drop(wait);
        let lease = inbox.next().await.unwrap();
        assert_eq!((lease.id.as_str(), lease.attempt), ("evt_1", 1), "no attempt was made before");
        lease.release();
        let lease = inbox.next().await.unwrap();
        assert_eq!(lease.attempt, 1);
        // A handler that is cancelled has failed.
        drop(lease);
        assert_eq!(inbox.next().await.unwrap().attempt, 2);
    });
}

#[test]
fn effects_in_the_same_file_and_the_mark_are_one_transaction() {
    let place = Place::default();
    let failed = Arc::new(Mutex::new(HashSet::new()));
    let seen = failed.clone();
    let inbox = Inbox::open_with(&place.path(), quick(), move |database, event| {
        database.execute_batch("CREATE TABLE IF NOT EXISTS effects (id TEXT)")?;
        database.execute("INSERT INTO effects VALUES (?1)", [&event.id])?;
        // Every third event fails after its effect, and every sixth by a panic.
        let number: u32 = event.id[4..].parse().unwrap();
        if number.is_multiple_of(3) && seen.lock().unwrap().insert(number) {
            assert!(!number.is_multiple_of(6), "a bug");
            return Err(Failure::new("not now"));
        }
        Ok(())
    })
    .unwrap();
    let count = 120;
    for number in 0..count {
        inbox.accept_blocking(event(&format!("evt_{number}"))).unwrap();
    }
    eventually("all are processed", || {
        block_on(inbox.stats()).unwrap().processed == i64::from(count)
    });
    drop(inbox);
    assert_eq!(failed.lock().unwrap().len(), 40);
    let file = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    let effects = "SELECT count(*), count(DISTINCT id) FROM effects";
    let effects = file.query_row(effects, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(effects.unwrap(), (count, count), "each effect once");
}

#[test]
fn effects_that_cannot_be_committed_fail_their_event_and_no_other() {
    let place = Place::default();
    let inbox = place.open();
    // Stored before the handler runs, so that it gets them in one batch.
    for number in 0..6 {
        inbox.accept_blocking(event(&format!("evt_{number}"))).unwrap();
    }
    drop(inbox);
    let inbox = Inbox::open_with(&place.path(), quick(), |database, event| {
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS authors (id TEXT PRIMARY KEY);
             CREATE TABLE IF NOT EXISTS books (id TEXT, author TEXT
                REFERENCES authors (id) DEFERRABLE INITIALLY DEFERRED);",
        )?;
        let author = (event.id == "evt_3").then_some("nobody");
        database.execute("INSERT INTO books VALUES (?1, ?2)", (&event.id, author))?;
        Ok(())
    })
    .unwrap();
    eventually("one is a dead letter and the others are processed", || {
        let stats = block_on(inbox.stats()).unwrap();
        (stats.pending, stats.dead, stats.processed) == (0, 1, 5)
    });
    let filter = Filter { id: Some("evt_3".to_owned()), limit: 1, ..Filter::default() };
    let listed = block_on(inbox.list(filter)).unwrap().remove(0);
    assert_eq!((listed.state, listed.attempts), (State::Dead, 4));
    let error = listed.error.unwrap();
    assert!(error.contains("could not be committed: FOREIGN KEY constraint failed"), "{error}");
    drop(inbox);
    let file = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    let select = "SELECT count(*), count(DISTINCT id) FROM books";
    let effects: (i64, i64) =
        file.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(effects, (5, 5), "each effect once");
}

/// Reads through a connection of its own: a question to the inbox would have it look again.
fn count(place: &Place, select: &str) -> i64 {
    let file = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    file.query_row(select, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_handler_that_ends_the_transaction_costs_the_other_events_of_its_batch_nothing() {
    for end in ["ROLLBACK", "COMMIT", "INSERT OR ROLLBACK INTO books VALUES ('first')"] {
        let place = Place::default();
        let inbox = place.open();
        change(&place, "CREATE TABLE books (id TEXT UNIQUE); INSERT INTO books VALUES ('first')");
        // Stored before the handler runs, so that it gets them in one batch.
        for number in 0..6 {
            inbox.accept_blocking(event(&format!("evt_{number}"))).unwrap();
        }
        drop(inbox);
        let inbox = Inbox::open_with(&place.path(), quick(), move |database, event| {
            if event.id == "evt_3" && event.attempt < 4 {
                database.execute_batch(end)?;
                return Ok(());
            }
            database.execute("INSERT INTO books VALUES (?1)", [&event.id])?;
            Ok::<(), Failure>(())
        })
        .unwrap();
        let books = "SELECT count(*) FROM books WHERE id LIKE 'evt%'";
        eventually("each event has its effect", || count(&place, books) == 6);
        drop(inbox);
        let attempts = |id: &str| {
            count(&place, &format!("SELECT attempts FROM events WHERE id = '{id}' AND state = 1"))
        };
        assert_eq!(attempts("evt_3"), 4, "{end}");
        for other in ["evt_0", "evt_2", "evt_4", "evt_5"] {
            assert_eq!(attempts(other), 1, "{end}: {other}");
        }
    }
}

#[test]
fn receipts_over_the_limit_are_refused_and_not_lost_in_silence() {
    let place = Place::default();
    let mut options = quick();
    options.max_waiting = 0;
    let inbox = Inbox::open(&place.path(), options).unwrap();
    let refused = inbox.accept_blocking(event("evt_1")).unwrap_err();
    assert_eq!(refused.to_string(), "too many events wait to be stored");
}

#[test]
fn a_disk_that_hangs_is_reported_in_time_and_the_event_is_known_later() {
    let place = Place::default();
    let mut options = quick();
    options.accept_within = Duration::from_millis(300);
    let inbox = Inbox::open(&place.path(), options).unwrap();
    // Another writer holds the file: the commit has to wait.
    let holder = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let refused = inbox.accept_blocking(event("evt_1")).unwrap_err();
    assert_eq!(refused.to_string(), "the disk did not store the event in time");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    holder.execute_batch("ROLLBACK").unwrap();
    eventually("the event that was written is known", || {
        inbox.accept_blocking(event("evt_1")).is_ok_and(|stored| stored == Accepted::Known)
    });
}

#[test]
fn receipts_behind_a_result_that_the_disk_does_not_store_are_answered_in_time() {
    let place = Place::default();
    let mut options = quick();
    options.accept_within = Duration::from_millis(300);
    let inbox = Inbox::open(&place.path(), options).unwrap();
    inbox.accept_blocking(event("evt_1")).unwrap();
    let lease = inbox.next_blocking(in_time()).unwrap();
    let holder = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Queues that the attempt failed.
    drop(lease);
    for number in 2..5 {
        let began = Instant::now();
        let refused = inbox.accept_blocking(event(&format!("evt_{number}"))).unwrap_err();
        assert_eq!(refused.to_string(), "the disk did not store the event in time");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    holder.execute_batch("ROLLBACK").unwrap();
    eventually("receipts go on", || {
        (2..5).all(|number| inbox.accept_blocking(event(&format!("evt_{number}"))).is_ok())
    });
    assert_eq!(state(&inbox, "evt_1"), Some(State::Pending), "the result is stored, too");
}

#[test]
fn processed_ids_are_forgotten_after_the_retention_and_dead_letters_are_not() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    inbox.next_blocking(in_time()).unwrap().done_blocking().unwrap();
    inbox.accept_blocking(event("evt_2")).unwrap();
    for _ in 0..4 {
        let lease = inbox.next_blocking(in_time()).unwrap();
        lease.failed_blocking(Failure::new("no")).unwrap();
    }
    drop(inbox);
    let mut options = quick();
    options.retention = Duration::ZERO;
    let inbox = Inbox::open(&place.path(), options).unwrap();
    eventually("the processed one is forgotten", || state(&inbox, "evt_1").is_none());
    assert_eq!(state(&inbox, "evt_2"), Some(State::Dead));
}

/// Changes the file behind a closed inbox.
fn change(place: &Place, sql: &str) {
    let file = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    file.execute_batch(sql).unwrap();
}

#[test]
fn a_clock_that_is_far_ahead_removes_no_id() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    inbox.next_blocking(in_time()).unwrap().done_blocking().unwrap();
    drop(inbox);
    // The clock is 41 days ahead of all times in the file.
    let ahead = Duration::from_secs(41 * 86_400).as_millis();
    change(
        &place,
        &format!(
            "UPDATE events SET received = received - {ahead}, due = due - {ahead};
             UPDATE positions SET value = CAST(value AS INTEGER) - {ahead};"
        ),
    );
    // With an event of each wrong time, so that the file has it too.
    for id in ["evt_2", "evt_3"] {
        let inbox = Inbox::open(&place.path(), Options::default()).unwrap();
        inbox.accept_blocking(event(id)).unwrap();
        inbox.next_blocking(in_time()).unwrap().done_blocking().unwrap();
        // The writer looks for old rows before it answers the second question.
        for _ in 0..2 {
            assert_eq!(state(&inbox, "evt_1"), Some(State::Processed), "{id}");
        }
        assert_eq!(inbox.accept_blocking(event("evt_1")).unwrap(), Accepted::Known);
    }
}

#[test]
fn a_clock_that_was_ahead_delays_no_retry() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    let lease = inbox.next_blocking(in_time()).unwrap();
    lease.failed_blocking(Failure::new("no")).unwrap();
    drop(inbox);
    let year = Duration::from_secs(365 * 86_400).as_millis();
    change(&place, &format!("UPDATE events SET due = due + {year}"));
    let inbox = place.open();
    let lease = inbox.next_blocking(in_time()).unwrap();
    assert_eq!((lease.id.as_str(), lease.attempt), ("evt_1", 2));
}

#[test]
fn a_result_that_the_disk_does_not_store_is_stored_later_and_no_handler_is_called_again() {
    let place = Place::default();
    let mut options = quick();
    options.retry.max_attempts = 2;
    let inbox = Inbox::open(&place.path(), options).unwrap();
    for id in ["evt_done", "evt_failed"] {
        inbox.accept_blocking(event(id)).unwrap();
    }
    let (done, failed) =
        (inbox.next_blocking(in_time()).unwrap(), inbox.next_blocking(in_time()).unwrap());
    // Fails as a full disk does, when a result is written.
    let broken = "CREATE TRIGGER broken BEFORE UPDATE OF state, due ON events
        BEGIN SELECT RAISE(ROLLBACK, 'disk I/O error'); END";
    change(&place, broken);
    let error = done.done_blocking().unwrap_err().to_string();
    assert!(error.contains("disk I/O error"), "{error}");
    failed.failed_blocking(Failure::new("no")).unwrap_err();
    let soon = Some(Instant::now() + Duration::from_millis(100));
    assert!(inbox.next_blocking(soon).is_none(), "neither is handed out again");
    change(&place, "DROP TRIGGER broken");
    eventually("the result is stored", || state(&inbox, "evt_done") == Some(State::Processed));
    let again = inbox.next_blocking(in_time()).unwrap();
    assert_eq!((&*again.id, again.attempt), ("evt_failed", 2));
    again.done_blocking().unwrap();
    assert!(inbox.next_blocking(Some(Instant::now())).is_none());
}

#[test]
fn a_retry_by_a_process_with_another_clock_is_due_at_once() {
    let place = Place::default();
    let mut options = quick();
    options.retry.max_attempts = 1;
    let inbox = Inbox::open(&place.path(), options).unwrap();
    inbox.accept_blocking(event("evt_1")).unwrap();
    let lease = inbox.next_blocking(in_time()).unwrap();
    lease.failed_blocking(Failure::new("no")).unwrap();
    // Received when the clock was a month behind.
    change(&place, "UPDATE events SET received = received - 2592000000");
    assert_eq!(block_on(inbox.retry_dead()).unwrap(), 1);
    let file = rusqlite::Connection::open(place.path()).unwrap();
    let is_due = "SELECT due = received FROM events";
    assert!(file.query_row(is_due, [], |row| row.get::<_, bool>(0)).unwrap());
}

#[test]
#[cfg(unix)]
fn only_the_owner_may_read_received_events() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    for name in ["inbox.db", "inbox.db-wal"] {
        let file = place.folder.path().join(name);
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_file_of_another_program_is_refused() {
    let place = Place::default();
    let other = restive_kit::inbox::rusqlite::Connection::open(place.path()).unwrap();
    other.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(other);
    let refused = Inbox::open(&place.path(), quick()).unwrap_err();
    assert_eq!(refused.to_string(), "the file is a database of another program");
    std::fs::write(place.path(), "no database at all, but long enough to have a head").unwrap();
    assert!(Inbox::open(&place.path(), quick()).is_err());
}

/// Ends the thread that wakes it.
struct Fatal;

impl Wake for Fatal {
    fn wake(self: Arc<Self>) {
        panic!("a waker of this test");
    }
}

#[test]
fn nobody_waits_for_ever_when_the_writer_panics() {
    let place = Place::default();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    let lease = inbox.next_blocking(in_time()).unwrap();
    let worker = std::thread::spawn({
        let inbox = inbox.clone();
        move || inbox.next_blocking(in_time()).is_none()
    });
    // The result waits for the lock of the file, so that its waker is there when it is answered;
    // the others are queued behind it.
    let file = rusqlite::Connection::open(place.path()).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut done = Box::pin(lease.done());
    let waker = Arc::new(Fatal).into();
    assert!(done.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    block_on(async {
        let (mut accept, mut ask) =
            (Box::pin(inbox.accept(event("evt_2"))), Box::pin(inbox.position("name")));
        let first = std::future::poll_fn(|cx| {
            Poll::Ready((accept.as_mut().poll(cx).is_pending(), ask.as_mut().poll(cx).is_pending()))
        });
        assert_eq!(first.await, (true, true));
        file.execute_batch("COMMIT").unwrap();
        accept.await.unwrap_err();
        ask.await.unwrap_err();
        // And what comes later.
        assert!(matches!(inbox.stats().await, Err(Error::Closed)));
        assert!(matches!(inbox.accept(event("evt_3")).await, Err(Error::Closed)));
        assert!(inbox.next().await.is_none());
    });
    assert!(worker.join().unwrap(), "the worker is told");
    drop(inbox);
    assert_eq!(place.open().accept_blocking(event("evt_3")).unwrap(), Accepted::New);
}

#[test]
fn a_position_is_kept() {
    let place = Place::default();
    let inbox = place.open();
    assert_eq!(block_on(inbox.position("reconcile")).unwrap(), None);
    for value in ["evt_1", "evt_2"] {
        block_on(inbox.set_position("reconcile", value)).unwrap();
    }
    drop(inbox);
    let inbox = place.open();
    assert_eq!(block_on(inbox.position("reconcile")).unwrap().as_deref(), Some("evt_2"));
}
