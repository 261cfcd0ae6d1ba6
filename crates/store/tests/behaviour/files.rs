//! What SQLite's store does with its files: restarts, backups, tools beside a server, and files
//! that are not its own.

use crate::deliveries::{endpoint, outcome, settle};
use crate::support::*;
use model::{Schema, Scope, Timestamp};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};
use store::sqlite::{Options, Role, SqliteStore};
use store::usage::{NAMED_ACCOUNTS, SubjectUse, Used};
use store::{Error, Status};

pub fn open(path: &Path, schema: Schema, role: Role) -> Result<Bed, Error> {
    let schema = Arc::new(schema);
    let options = Options { role, ..Options::default() };
    let store = SqliteStore::open_with(path, schema, options)?;
    let time = Arc::new(AtomicI64::new(START));
    Ok(Bed { store, time, _keep: Box::new(()) })
}

fn serve(path: &Path) -> Bed {
    open(path, schema(), Role::Server).unwrap()
}

#[tokio::test]
async fn committed_writes_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let made = bed.put(keyed(book("Dune", json!(1)), "k", 1)).await;
    let events = bed.store.events(None, 0, 10).await.unwrap();
    let cursor_key = bed.store.cursor_key();
    drop(bed);
    let bed = serve(&path);
    assert_eq!(bed.record(BOOKS, &made.id).await, Some(made.clone()));
    assert_eq!(bed.store.events(None, 0, 10).await.unwrap(), events);
    assert_eq!(bed.store.cursor_key(), cursor_key);
    assert_eq!(bed.newest(), made.version);
    assert_eq!(bed.store.collection_seq(HERE, BOOKS), made.version);
    assert_eq!(bed.list(&search(&["dune"])).await.records, [made]);
    let again = bed.commit(keyed(book("Dune", json!(1)), "k", 1)).await.unwrap().unwrap();
    assert!(matches!(again, model::write::Committed::Replayed { .. }));
    bed.store.health().await.unwrap();
}

#[tokio::test]
async fn damaged_events_end_no_page_before_those_behind_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    bed.put_all((0..5).map(|n| book("Dune", json!(n)))).await;
    drop(bed);
    let raw = rusqlite::Connection::open(&path).unwrap();
    let damage = "UPDATE log SET object = CAST(x'7bff7d' AS TEXT) WHERE seq IN (1, 2, 4)";
    assert_eq!(raw.execute(damage, []).unwrap(), 3);
    drop(raw);
    let bed = serve(&path);
    for scope in [None, Some(HERE)] {
        let page = |after| bed.store.events_within(scope, after, 1, usize::MAX);
        let (first, second) = (page(0).await.unwrap(), page(3).await.unwrap());
        assert_eq!((first.events[0].seq, first.more), (3, true));
        assert_eq!((second.events[0].seq, second.more), (5, true));
        assert!(page(5).await.unwrap().events.is_empty());
        assert_eq!(bed.store.events(scope, 0, 10).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn retries_of_damaged_events_take_the_place_of_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let hook = bed.put(endpoint(json!(["book.*"]))).await;
    bed.put_all((0..5).map(|n| book("Dune", json!(n)))).await;
    let first = hook.version + 1;
    let failed = |n| outcome(&hook, first + n, Status::Pending, Some(START + n));
    settle(&bed, (0..5).map(failed).collect(), Vec::new()).await;
    drop(bed);
    let raw = rusqlite::Connection::open(&path).unwrap();
    let damage = "UPDATE log SET object = CAST(x'7bff7d' AS TEXT) WHERE seq IN (?1, ?1 + 1)";
    assert_eq!(raw.execute(damage, [first]).unwrap(), 2);
    drop(raw);
    let bed = serve(&path);
    for most in 1..=5 {
        let now = Timestamp(START + 50);
        let found = bed.store.retries(hook.number, now, most, usize::MAX).await.unwrap();
        let found: Vec<i64> = found.due.iter().map(|retry| retry.event.seq - first).collect();
        assert_eq!(found, [2, 3, 4][..most.min(3)]);
    }
}

#[tokio::test]
async fn expired_keys_that_cannot_be_removed_delay_no_write() {
    // The second kind takes along everything that is in the same transaction.
    for kind in ["ABORT", "ROLLBACK"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.db");
        let bed = serve(&path);
        bed.put(keyed(book("Dune", json!(1)), "k", 1)).await;
        drop(bed);
        let raw = rusqlite::Connection::open(&path).unwrap();
        raw.execute_batch(&format!(
            "UPDATE remembered SET created = 0; CREATE TRIGGER broken BEFORE DELETE ON remembered \
             BEGIN SELECT RAISE({kind}, 'broken'); END;",
        ))
        .unwrap();
        drop(raw);
        let bed = serve(&path);
        for n in 0..5 {
            bed.put(book(&format!("T{n}"), json!(n))).await;
        }
    }
}

#[tokio::test]
async fn a_pause_that_an_older_program_kept_with_the_position_is_kept_with_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    drop(serve(&path));
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch(
        "INSERT INTO positions (endpoint, seq, paused) VALUES (7, 3, 5000), (8, 4, 1000), \
         (9, 5, NULL); INSERT INTO endpoint_states (endpoint, paused) VALUES (8, 6000);",
    )
    .unwrap();
    drop(raw);
    let bed = serve(&path);
    let paused = |number: i64, standings: &[store::EndpointState]| {
        standings.iter().find(|one| one.endpoint == number).and_then(|one| one.paused)
    };
    let standings = bed.store.endpoint_states(vec![7, 8, 9]).await.unwrap().endpoints;
    let found = [7, 8, 9].map(|number| paused(number, &standings));
    assert_eq!(found, [Some(Timestamp(5000)), Some(Timestamp(6000)), None]);
    // The end of a pause is not undone by what stood in the old place.
    let over = vec![(7, Timestamp(0))];
    let settlement = store::Settlement { pauses: over, ..store::Settlement::default() };
    bed.store.settle(settlement).await.unwrap();
    drop(bed);
    let standings = serve(&path).store.endpoint_states(vec![7, 8, 9]).await.unwrap().endpoints;
    assert_eq!(paused(7, &standings), Some(Timestamp(0)));
}

/// A small file system of its own. Needs root: a test that cannot have a small disk proves nothing
/// about one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> SmallDisk {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]);
        let status = mount.arg(disk.0.path()).status().expect("mount (package mount) is needed");
        assert!(status.success(), "a small file system cannot be mounted (as root?): {status}");
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_takes_writes_again_once_old_events_are_removed() {
    let disk = SmallDisk::mount(12);
    let bed = serve(&disk.0.path().join("data.db"));
    let text = "x".repeat(2_000);
    let title = |n: usize| format!("{n} {text}");
    let (mut made, mut full) = (0, 0);
    // A checkpoint may make room for a few more.
    while full < 2 {
        match bed.commit(book(&title(made), json!(1))).await {
            Ok(answer) => {
                answer.unwrap();
                made += 1;
            }
            Err(Error::Full) => {
                full += 1;
                // To the last byte.
                let mut file = std::fs::File::create(disk.0.path().join("fill")).unwrap();
                while std::io::Write::write(&mut file, &[1; 512]).is_ok() {}
            }
            Err(error) => panic!("{error}"),
        }
        assert!(made < 20_000, "the disk is never full");
    }
    let (later, mut removed) = (Timestamp(START + 1), 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match bed.store.expire(later, later, 1_000).await {
            Ok(expired) if expired.events == 0 => break,
            Ok(expired) => removed += expired.events,
            // waits for: the next checkpoint that makes room, at most two a second
            Err(Error::Full) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "{removed} of {made} removed");
    }
    assert_eq!(removed, made - 1, "all but the newest");
    for n in 0..made / 4 {
        let answer = bed.commit(book(&title(n), json!(1))).await;
        answer.unwrap_or_else(|error| panic!("{n} of {made}: {error}")).unwrap();
    }
    // The index has read what went.
    for n in [0, made / 3, made - 1] {
        // The index goes on a second after it could not be written.
        while bed.list(&search(&[&n.to_string()])).await.records.is_empty() {
            assert!(Instant::now() < deadline, "{n} of {made} is not found");
        }
    }
}

#[tokio::test]
async fn an_abandoned_copy_of_the_files_holds_every_answered_write() {
    // What a crash leaves: the files as they are at some moment, without a clean close.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let mut made = Vec::new();
    for n in 0..40 {
        made.push(bed.put(book(&format!("T{n}"), json!(n))).await);
    }
    let crashed = directory.path().join("crashed.db");
    std::fs::copy(&path, &crashed).unwrap();
    let log = |path: &Path| path.with_extension("db-wal");
    std::fs::copy(log(&path), log(&crashed)).unwrap();
    let after = serve(&crashed);
    for record in made {
        assert_eq!(after.record(BOOKS, &record.id).await, Some(record));
    }
    assert_eq!(after.store.events(None, 0, 100).await.unwrap().len(), 40);
}

#[tokio::test]
async fn a_backup_is_a_whole_database_and_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let bed = serve(&directory.path().join("data.db"));
    let made = bed.put(book("Dune", json!(1))).await;
    let target = directory.path().join("copy.db");
    let mut last = (0, 0);
    bed.store.backup(&target, Box::new(|done, all| last = (done, all))).await.unwrap();
    assert!(last.1 > 0 && last.0 == last.1);
    let refused = bed.store.backup(&target, Box::new(|_, _| {})).await;
    assert!(matches!(refused, Err(Error::Refused(_))));
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("copy"))
        .collect();
    assert_eq!(left, ["copy.db"]);
    let copy = serve(&target);
    assert_eq!(copy.record(BOOKS, &made.id).await, Some(made.clone()));
    assert_eq!(copy.list(&search(&["dune"])).await.records, [made]);
}

#[tokio::test]
async fn a_server_notices_what_a_tool_commits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let server = serve(&path);
    server.put(book("A", json!(1))).await;
    let generation = server.store.key_generation();
    let mut position = server.store.position();
    let before = *position.borrow_and_update();
    let tool = open(&path, schema(), Role::Tool).unwrap();
    let made = tool.put(create(KEYS, json!({"digest": "d"}))).await;
    assert!(tool.commit(book("B", json!(1))).await.is_err(), "tools change only keys");
    tokio::time::timeout(Duration::from_secs(10), position.changed()).await.unwrap().unwrap();
    assert_eq!(*position.borrow(), before + 1);
    assert!(server.store.key_generation() > generation);
    assert_eq!(server.store.collection_seq(HERE, BOOKS), before + 1, "the floor was raised");
    let found = server.store.key_by_digest("d").await.unwrap();
    assert_eq!(found, Some((HERE, made.clone())));
    let next = server.put(book("C", json!(1))).await;
    assert_eq!(next.number, made.version + 1, "one sequence for both");
}

#[tokio::test]
async fn a_tool_never_changes_the_tables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    drop(serve(&path));
    let mut other = schema();
    other.collections[BOOKS].fields.push(field("extra", model::schema::Kind::String, |_| {}));
    drop(open(&path, other, Role::Tool).unwrap());
    let server = serve(&path);
    assert_eq!(server.store.shape(BOOKS), 1);
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| match open(path, schema(), Role::Server) {
        Err(Error::Refused(reasons)) => reasons.join(" "),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    };
    let text = directory.path().join("text.db");
    std::fs::write(&text, "hello, this is no database at all".repeat(100)).unwrap();
    assert!(refusal(&text).contains("not a database"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("hello"));
    let foreign = directory.path().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(refusal(&foreign).contains("another program"));
    assert!(refusal(&directory.path().join("missing/data.db")).contains("cannot be opened"));
}

#[tokio::test]
async fn figures_count_commits_writes_and_batches() {
    let directory = tempfile::tempdir().unwrap();
    let bed = serve(&directory.path().join("data.db"));
    bed.put_all((0..100).map(|n| book("A", json!(n)))).await;
    let figures = bed.store.figures();
    assert!(figures.commits < 100, "writes in flight share commits");
    assert_eq!((figures.writes, figures.queue), (100, 0));
    assert_eq!(figures.batch_sizes.iter().sum::<u64>(), figures.commits);
    assert!(figures.database_bytes > 0);
    let account = bed.store.collection_seq(Scope::SYSTEM, ACCOUNTS);
    assert_eq!(account, 0);
}

#[tokio::test]
async fn idle_readers_do_not_prevent_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let first = bed.put(book("Dune", json!(1))).await;
    let log = path.with_file_name("data.db-wal");
    let size = || std::fs::metadata(&log).unwrap().len();
    // The file starts anew once it is large, and is cut then. Each read leaves its connection
    // inside a transaction, which would keep the file from ever starting anew.
    let mut before = size();
    for _ in 0..5_000 {
        bed.put(book(&"x".repeat(60_000), json!(1))).await;
        assert!(bed.record(BOOKS, &first.id).await.is_some());
        let now = size();
        if now < before {
            return;
        }
        before = now;
    }
    panic!("the log file only grew, to {before} bytes");
}

#[tokio::test]
async fn a_reading_tool_does_not_prevent_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let server = serve(&path);
    server.put(book("Dune", json!(1))).await;
    let tool = open(&path, schema(), Role::Tool).unwrap();
    assert_eq!(tool.store.events(None, 0, 10).await.unwrap().len(), 1);
    // The end in good order empties the file, unless somebody still reads from it.
    drop(server);
    let log = path.with_file_name("data.db-wal");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
    assert_eq!(tool.store.events(None, 0, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn counts_of_version_usage_add_up_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let used = |account: &str, requests, last| Used {
        account: account.to_owned(),
        subject: "2025-06-01".to_owned(),
        requests,
        last: Timestamp(last),
    };
    let bed = serve(&path);
    let since = bed.store.usage().since;
    assert!(bed.store.usage().subjects.is_empty());
    bed.store.add_usage(vec![used("a", 2, 50), used("b", 1, 10)]).await.unwrap();
    // A clock that was set back does not make the last use an earlier one.
    bed.store.add_usage(vec![used("a", 3, 40)]).await.unwrap();
    assert_eq!(bed.store.usage_of("a").await.unwrap(), [used("a", 5, 50)]);
    drop(bed);
    let bed = serve(&path);
    assert_eq!(bed.store.usage_of("a").await.unwrap(), [used("a", 5, 50)]);
    assert_eq!(bed.store.usage_of("c").await.unwrap(), []);
    let all = bed.store.usage();
    let latest = vec![("a".to_owned(), 5), ("b".to_owned(), 1)];
    let subject = "2025-06-01".to_owned();
    let expected = [SubjectUse { subject, requests: 6, accounts: 2, latest }];
    assert_eq!((all.since, all.subjects.as_slice()), (since, &expected[..]));
}

#[tokio::test]
async fn of_many_accounts_those_that_used_something_last_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let bed = serve(&path);
    let count = NAMED_ACCOUNTS + 2;
    let used = |subject: &str| {
        let of_account = |number: usize| Used {
            account: format!("a{number}"),
            subject: subject.to_owned(),
            requests: 1,
            last: Timestamp(i64::try_from(number).unwrap()),
        };
        (0..count).map(of_account).collect::<Vec<_>>()
    };
    bed.store.add_usage([used("clubs"), used("books.shelf")].concat()).await.unwrap();
    drop(bed);
    let bed = serve(&path);
    for subject in ["clubs", "books.shelf"] {
        let all = &bed.store.usage().subjects;
        let found = all.iter().find(|one| one.subject == subject).unwrap();
        assert_eq!((found.requests, found.accounts), (102, 102));
        assert_eq!(found.latest.len(), NAMED_ACCOUNTS);
        assert_eq!(found.latest[0], (format!("a{}", count - 1), 1));
        assert!(!found.latest.iter().any(|(account, _)| ["a0", "a1"].contains(&&**account)));
    }
}
