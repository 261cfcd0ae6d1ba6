//! Files that an earlier development state wrote: secrets in their events and stored responses are
//! hidden, and records get their state, once per file and before it is served.

use crate::files::open;
use crate::support::*;
use model::record::Scalar;
use model::write::{Committed, Response};
use model::{Change, Code, Problem, Record, Violation};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::PathBuf;
use store::Error;
use store::sqlite::Role;

const ENDPOINTS: usize = 8;
const SECRET: &str = "Bearer of-the-receiver";
/// Events that one transaction of the cleanup visits (`SLICE_ROWS`).
const SLICE: i64 = 5_000;

struct OldFile(tempfile::TempDir);

impl OldFile {
    fn new() -> OldFile {
        OldFile(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("data.db")
    }

    fn serve(&self) -> Bed {
        let bed = open(&self.path(), schema(), Role::Server).unwrap();
        // Stored responses last a day, by the clock of the store.
        bed.time.store(now(), std::sync::atomic::Ordering::Relaxed);
        bed
    }

    fn edit(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        let connection = Connection::open(self.path()).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// How many rows of a table hold a text.
    fn holding(&self, table: &str, text: &str) -> i64 {
        let columns = match table {
            "log" => "object || coalesce(previous, '') || coalesce(hidden, '')",
            _ => "coalesce(text, '') || coalesce(hidden, '')",
        };
        self.number(&format!("SELECT count(*) FROM {table} WHERE instr({columns}, '{text}') > 0"))
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as i64
}

/// The file has not had the cleanup.
const NEVER: &str = "DELETE FROM meta WHERE name = 'cleanup';";

async fn replayed(bed: &Bed, key: &str, fingerprint: u8, id: &str, collection: usize) -> Record {
    let again = keyed(merge(collection, id, json!({})), key, fingerprint);
    match bed.commit(again).await.unwrap().unwrap() {
        Committed::Replayed {
            response: Response::Created(one) | Response::Updated(one), ..
        } => one,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test]
async fn header_values_of_endpoints_are_masked_in_events_that_an_older_state_wrote() {
    let file = OldFile::new();
    let bed = file.serve();
    let endpoint = json!({"url": "https://shop.example/hook", "enabled_events": ["*"],
        "status": "enabled", "secret": "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY",
        "headers": {"authorization": SECRET, "x-team": "blue-team"}});
    let made = bed.put(create(ENDPOINTS, endpoint)).await;
    let patch = json!({"headers": {"authorization": "Bearer second"}});
    let changed = bed.put(keyed(merge(ENDPOINTS, &made.id, patch), "k", 1)).await;
    drop(bed);
    assert_eq!(file.holding("log", "Bearer"), 0);
    // An older state showed the values in events, and the response showed its event.
    file.edit(&format!(
        "{NEVER} UPDATE log SET object = json_set(object, '$.headers.authorization', '{SECRET}') \
           WHERE seq = {}; \
         UPDATE log SET object = json_set(object, '$.headers.authorization', 'Bearer second'), \
           previous = json_set(previous, '$.headers.authorization', '{SECRET}') WHERE seq = {}; \
         UPDATE remembered SET text = NULL, record = NULL, api_version = NULL, hidden = NULL;",
        made.version, changed.version
    ));
    assert_eq!(file.holding("log", "Bearer"), 2);
    let bed = file.serve();
    assert_eq!(file.holding("log", "Bearer"), 0);
    let events = bed.store.events(Some(HERE), made.version - 1, 10).await.unwrap();
    let shown: Value = serde_json::from_str(&events[0].object).unwrap();
    assert_eq!(shown["headers"], json!({"authorization": "********", "x-team": "********"}));
    assert_eq!(shown["url"], "https://shop.example/hook");
    let previous: Value = serde_json::from_str(events[1].previous.as_ref().unwrap()).unwrap();
    let masked = json!({"authorization": "********", "x-team": "********"});
    assert_eq!(previous["headers"], masked);
    // The client that repeats its request gets the response that it had.
    let again = replayed(&bed, "k", 1, &made.id, ENDPOINTS).await;
    assert_eq!(value(&again, "headers")["authorization"], "Bearer second");
    assert_eq!(again.version, changed.version);
}

#[tokio::test]
async fn write_only_fields_are_hidden_in_what_an_older_state_wrote() {
    let file = OldFile::new();
    let bed = file.serve();
    let fields = json!({"title": "Dune", "author": "A", "note": "kept"});
    let made = bed.put(keyed(create(BOOKS, fields), "made", 1)).await;
    // Without a change there is no event: the response has a text of its own.
    let nothing = merge(BOOKS, &made.id, json!({"title": "Dune"}));
    bed.put(keyed(nothing, "nothing", 2)).await;
    bed.put(merge(BOOKS, &made.id, json!({"title": "Dune!"}))).await;
    // No other collection has such a field.
    let message = bed.put(create(MESSAGES, json!({"text": "plain"}))).await;
    drop(bed);
    let violation = Violation::new("note", Code::WrongType, "wrong").value(&json!("pin-6"));
    let refusal = serde_json::to_string(&Problem::of(Code::ValidationFailed, vec![violation]));
    let refusal = refusal.unwrap();
    file.edit(&format!(
        "{NEVER} UPDATE log SET object = json_set(object, '$.note', 'pin-1'), \
           hidden = '{{\"object\":{{\"note\":\"pin-2\"}}}}' WHERE collection = 'books'; \
         UPDATE log SET previous = json_set(previous, '$.note', 'pin-3') \
           WHERE previous IS NOT NULL; \
         UPDATE log SET object = json_set(object, '$.note', 'public') \
           WHERE collection = 'messages'; \
         UPDATE log SET api_version = '1999-01-01' WHERE seq = {}; \
         UPDATE remembered SET text = json_set(text, '$.note', 'pin-4'), \
           hidden = '{{\"note\":\"pin-5\"}}' WHERE text IS NOT NULL AND kind < 2; \
         INSERT INTO remembered (scope, digest, fingerprint, created, kind, seq, number, updated, \
           text, request, api_version) SELECT scope, randomblob(16), fingerprint, created, 2, 0, \
           0, 0, '{refusal}', request, api_version FROM remembered WHERE text IS NOT NULL;",
        made.version
    ));
    assert_eq!((file.holding("log", "pin-"), file.holding("remembered", "pin-")), (2, 2));
    let bed = file.serve();
    assert_eq!((file.holding("log", "pin-"), file.holding("remembered", "pin-")), (0, 0));
    assert_eq!(file.holding("log", "public"), 1, "a field of another collection stays");
    let events = bed.store.events(Some(HERE), 0, 10).await.unwrap();
    let object: Value = serde_json::from_str(&events[0].object).unwrap();
    assert_eq!(object["title"], "Dune");
    let previous: Value = serde_json::from_str(events[1].previous.as_ref().unwrap()).unwrap();
    assert_eq!(previous, json!({"title": "Dune"}));
    assert_eq!(events[2].record, message.id);
    for (key, fingerprint) in [("made", 1), ("nothing", 2)] {
        let again = replayed(&bed, key, fingerprint, &made.id, BOOKS).await;
        assert_eq!(value(&again, "title"), json!("Dune"), "{key}");
        assert!(!again.body.contains("note"), "{key}");
    }
    // The records keep what they hide.
    let kept = bed.record(BOOKS, &made.id).await.unwrap();
    assert_eq!(kept.hidden.as_deref(), Some(r#"{"note":"kept"}"#));
}

#[tokio::test]
async fn records_whose_state_is_null_get_the_initial_state() {
    let file = OldFile::new();
    let bed = file.serve();
    let lost = bed.put(create(ORDERS, json!({"quantity": 1}))).await;
    let paid = bed.put(create(ORDERS, json!({"quantity": 2}))).await;
    bed.put(write(ORDERS, Some(&paid.id), pay())).await;
    let shape = (bed.store.shape(ORDERS), bed.store.shape(BOOKS));
    drop(bed);
    file.edit(&format!(
        "{NEVER} UPDATE r_orders SET body = json_set(body, '$.status', NULL), f_status = NULL \
         WHERE id = '{}';",
        lost.id
    ));
    let mut created = query("created_at", 10);
    created.filters = vec![any_of("status", vec![Scalar::Text("created".into())])];
    // The second start finds nothing to do.
    for round in 0..2 {
        let bed = file.serve();
        let found = bed.store.list(HERE, ORDERS, &created).await.unwrap().records;
        assert_eq!(found.len(), 1, "round {round}");
        assert_eq!((&found[0].id, value(&found[0], "status")), (&lost.id, json!("created")));
        let other = bed.record(ORDERS, &paid.id).await.unwrap();
        assert_eq!(value(&other, "status"), json!("paid"));
        // Entity tags that clients have of the other text do not hold.
        let shapes = (bed.store.shape(ORDERS), bed.store.shape(BOOKS));
        assert_eq!(shapes, (shape.0 + 1, shape.1), "round {round}");
    }
    let bed = file.serve();
    let done = bed.put(write(ORDERS, Some(&lost.id), pay())).await;
    assert_eq!(value(&done, "status"), json!("paid"));
}

fn pay() -> Change {
    Change::Act { action: PAY, params: fields(json!({})), callout: None }
}

/// As many copies of the event of a book as the cleanup needs several transactions for.
fn many_events(file: &OldFile, count: i64) {
    file.edit(&format!(
        "{NEVER} WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT {count}) \
         INSERT INTO log SELECT seq + n, id || n, scope, type, created, collection, record, \
           api_version, object, previous, request, idempotency_key, hidden \
           FROM log, i WHERE seq = (SELECT max(seq) FROM log); \
         UPDATE log SET object = json_set(object, '$.note', 'pin');",
    ));
}

#[tokio::test]
async fn a_cleanup_that_was_interrupted_continues_where_it_was_and_runs_once() {
    let file = OldFile::new();
    let bed = file.serve();
    let first = bed.put(book("Dune", json!(1))).await.version;
    drop(bed);
    many_events(&file, 2 * SLICE + 10);
    let bad = first + SLICE + 5;
    file.edit(&format!(
        "CREATE TRIGGER broken BEFORE UPDATE ON log WHEN old.seq = {bad} \
         BEGIN SELECT RAISE(ABORT, 'broken'); END;"
    ));
    let refused = open(&file.path(), schema(), Role::Server);
    assert!(matches!(refused, Err(Error::Failed(_))), "a file that is not clean is not served");
    assert_eq!(file.holding("log", "pin"), SLICE + 11, "one slice is done");
    // What is done is not done again.
    file.edit(&format!(
        "DROP TRIGGER broken; \
         UPDATE log SET object = json_set(object, '$.note', 'after') WHERE seq = {first};"
    ));
    drop(file.serve());
    assert_eq!((file.holding("log", "pin"), file.holding("log", "after")), (0, 1));
    file.edit(&format!(
        "UPDATE log SET object = json_set(object, '$.note', 'pin') WHERE seq = {bad};"
    ));
    drop(file.serve());
    assert_eq!(file.holding("log", "pin"), 1, "the cleanup runs once");
    // A progress that cannot be read is none.
    file.edit("UPDATE meta SET value = 'unreadable' WHERE name = 'cleanup';");
    drop(file.serve());
    assert_eq!((file.holding("log", "pin"), file.holding("log", "after")), (0, 0));
}

#[tokio::test]
async fn the_log_file_does_not_grow_with_what_the_cleanup_changes() {
    let file = OldFile::new();
    let bed = file.serve();
    let title = "x".repeat(1_000);
    bed.put(book(&title, json!(1))).await;
    drop(bed);
    many_events(&file, 6 * SLICE);
    let bed = file.serve();
    let log = std::fs::metadata(file.path().with_file_name("data.db-wal")).unwrap().len();
    // Everything that changed has 30 MB; a slice writes 5 to 10 of them.
    assert!(log < 16 << 20, "{log}");
    drop(bed);
    assert_eq!(file.holding("log", "pin"), 0);
}
