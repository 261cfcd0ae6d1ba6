//! A newer date version over data of an older one: the rows follow, the log and remembered answers
//! are told in the shape that is asked for, and what cannot follow is refused with nothing touched.

use crate::files::open;
use crate::support::*;
use model::event::Event;
use model::evolve::Accept;
use model::parse::parse;
use model::query::{Filter, Query, Test};
use model::record::Scalar;
use model::schema::{Builtin, Schema};
use model::version::Versions;
use model::write::{Committed, Response};
use model::{Change, Record};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use store::Error;
use store::sqlite::{Options, Role, ServedSchema, SqliteStore};

const OLD: &str = "
[service]
version = '2025-06-01'
[collections.books.fields]
name = { type = 'string', required = true, search = true, sort = true, filter = true }
isbn = { type = 'string', unique = true }
who = { type = 'string', search = true }
street = { type = 'string', required = true }
price = { type = 'number', filter = true, sort = true }
status = { type = 'string', enum = ['open', 'canceled'], filter = true }
nickname = { type = 'string', filter = true, search = true }
pages = { type = 'integer', sort = true }
pin = { type = 'string', write_only = true }
";

const NEW: &str = "
[service]
version = '2026-11-01'
[collections.books.fields]
title = { type = 'string', required = true, search = true, sort = true, filter = true }
code = { type = 'string', unique = true }
first = { type = 'string', search = true, filter = true }
address = { type = 'string', required = true }
price = { type = 'integer', filter = true, sort = true }
status = { type = 'string', enum = ['open', 'cancelled'], filter = true }
nickname = { type = 'string', filter = true, search = true }
pages = { type = 'integer', sort = true, required = true }
secret = { type = 'string', write_only = true }
[[versions]]
date = '2026-11-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'name', to = 'title' }
[[versions.changes]]
collection = 'books'
rename = { from = 'isbn', to = 'code' }
[[versions.changes]]
collection = 'books'
rename = { from = 'pin', to = 'secret' }
[[versions.changes]]
collection = 'books'
rename = { from = 'who', to = 'first' }
[[versions.changes]]
collection = 'books'
rename = { from = 'street', to = 'address' }
[[versions.changes]]
collection = 'books'
convert = { field = 'price', from = 'number',
  up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
[[versions.changes]]
collection = 'books'
enum_map = { field = 'status', values = { canceled = 'cancelled' } }
[[versions.changes]]
collection = 'books'
removed = { field = 'nickname' }
[[versions.changes]]
collection = 'books'
required = { field = 'pages', fill = 0 }
[[versions]]
date = '2025-06-01'
";

fn read(file: &str) -> Schema {
    let file = file.replace("\\\n", "");
    parse(&file).unwrap_or_else(|findings| {
        panic!("{}", findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

struct Shelf {
    directory: tempfile::TempDir,
}

impl Shelf {
    fn new() -> Shelf {
        Shelf { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("data.db")
    }

    fn open(&self, file: &str) -> Bed {
        open(&self.path(), read(file), Role::Server).unwrap()
    }

    /// Opens the file with `--accept-data-loss`.
    fn open_with_loss(&self, file: &str) -> Bed {
        let edition = ServedSchema { accept: Accept::Loss, ..ServedSchema::default() };
        let options = Options { edition, ..Options::default() };
        let store = SqliteStore::open_with(&self.path(), Arc::new(read(file)), options).unwrap();
        let time = Arc::new(std::sync::atomic::AtomicI64::new(START));
        Bed { store, time, _keep: Box::new(()) }
    }

    fn refusals(&self, file: &str) -> String {
        match open(&self.path(), read(file), Role::Server) {
            Err(Error::Refused(reasons)) => reasons.join("\n"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("was accepted"),
        }
    }

    /// Everything the file holds of the books, as text.
    fn dump(&self) -> String {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let mut out = String::new();
        for sql in [
            "SELECT coalesce(sql, '') FROM sqlite_master ORDER BY name",
            "SELECT n || id || version || shape || body || coalesce(hidden, '') FROM r_books",
            "SELECT value || '' FROM meta WHERE name = 'schema'",
        ] {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
            rows.for_each(|row| out.push_str(&row.unwrap()));
        }
        out
    }
}

fn dune() -> Value {
    json!({"name": "Dune", "isbn": "1", "who": "Frank Patrick Herbert", "street": "Main St 1",
        "price": 9.99, "status": "canceled", "nickname": "sand", "pin": "0000"})
}

fn emma() -> Value {
    json!({"name": "Emma", "isbn": "2", "who": "Jane", "street": "Hill 2",
        "price": 12, "status": "open", "nickname": null, "pages": 400})
}

async fn old_books(shelf: &Shelf) -> (Record, Record) {
    let bed = shelf.open(OLD);
    let made = (bed.put(create(BOOKS, dune())).await, bed.put(create(BOOKS, emma())).await);
    bed.put(merge(BOOKS, &made.0.id, json!({"name": "Dune!", "nickname": "sandy"}))).await;
    made
}

async fn found(bed: &Bed, query: &Query) -> Vec<String> {
    titles(&bed.list(query).await.records)
}

fn only(filter: Filter) -> Query {
    Query { filters: vec![filter], ..query("title", 10) }
}

fn text(text: &str) -> Scalar {
    Scalar::Text(text.into())
}

#[tokio::test]
async fn rows_follow_to_the_newest_version_with_everything_that_finds_them() {
    let shelf = Shelf::new();
    let (dune, emma) = old_books(&shelf).await;
    // Once more: what was brought up is not brought up again.
    for round in 0..2 {
        let bed = shelf.open(NEW);
        let record = bed.record(BOOKS, &dune.id).await.unwrap();
        let body: Value = serde_json::from_str(&record.body).unwrap();
        let expected = json!({"id": dune.id, "object": "book", "title": "Dune!", "code": "1",
            "first": "Frank Patrick Herbert", "address": "Main St 1",
            "price": 999, "status": "cancelled", "pages": 0, "created_at": body["created_at"],
            "updated_at": body["updated_at"]});
        assert_eq!(body, expected, "round {round}");
        assert_eq!(record.hidden.as_deref(), Some(r#"{"nickname":"sandy","secret":"0000"}"#));
        let emma = bed.record(BOOKS, &emma.id).await.unwrap();
        assert_eq!(value(&emma, "pages"), json!(400));
        assert_eq!(found(&bed, &query("-title", 10)).await, ["Emma", "Dune!"]);
        assert_eq!(found(&bed, &query("pages", 10)).await, ["Dune!", "Emma"]);
        for filter in [
            any_of("title", vec![text("Dune!")]),
            any_of("first", vec![text("Frank Patrick Herbert")]),
            any_of("status", vec![text("cancelled")]),
            any_of("nickname", vec![text("sandy")]),
            any_of("price", vec![Scalar::Integer(999)]),
            Filter { field: "price".into(), test: Test::Max(Scalar::Integer(1000)) },
        ] {
            assert_eq!(found(&bed, &only(filter.clone())).await, ["Dune!"], "{filter:?}");
        }
        assert_eq!(found(&bed, &search(&["frank", "dune"])).await, ["Dune!"]);
        assert!(found(&bed, &search(&["sandy"])).await.is_empty(), "removed fields are not found");
        assert_eq!(bed.store.shape(BOOKS), 2);
        let taken = json!({"title": "X", "code": "2", "address": "a", "pages": 1});
        let problem = bed.refused(create(BOOKS, taken)).await;
        assert_eq!(problem.violations[0].field, "code");
    }
}

#[tokio::test]
async fn nothing_is_rewritten_where_nothing_changed() {
    let shelf = Shelf::new();
    old_books(&shelf).await;
    let before = shelf.dump();
    drop(shelf.open(OLD));
    assert_eq!(shelf.dump(), before);
    drop(shelf.open(NEW));
    let after = shelf.dump();
    assert_ne!(after, before);
    drop(shelf.open(NEW));
    assert_eq!(shelf.dump(), after);
}

#[tokio::test]
async fn a_row_that_cannot_follow_is_named_and_nothing_is_touched() {
    let shelf = Shelf::new();
    let bed = shelf.open(OLD);
    let half = json!({"name": "Half", "street": "s", "price": 0.001});
    let bad = bed.put(create(BOOKS, half)).await;
    drop(bed);
    let before = shelf.dump();
    let told = shelf.refusals(NEW);
    assert!(
        told.contains(&bad.id) && told.contains("price") && told.contains("2026-11-01"),
        "{told}"
    );
    assert_eq!(shelf.dump(), before);
    let bed = shelf.open(OLD);
    bed.put(merge(BOOKS, &bad.id, json!({"price": 0.5}))).await;
    drop(bed);
    let bed = shelf.open(NEW);
    assert_eq!(value(&bed.record(BOOKS, &bad.id).await.unwrap(), "price"), json!(50));
}

#[tokio::test]
async fn values_that_would_no_longer_be_unique_are_refused() {
    let shelf = Shelf::new();
    let (dune, emma) = old_books(&shelf).await;
    let before = shelf.dump();
    let bed = shelf.open(OLD);
    for id in [&dune.id, &emma.id] {
        bed.put(merge(BOOKS, id, json!({"street": "a"}))).await;
    }
    drop(bed);
    let unique = NEW.replace(
        "address = { type = 'string', required = true }",
        "address = { type = 'string', required = true, unique = true }",
    );
    let told = shelf.refusals(&unique);
    assert!(told.contains("`street` became unique, but records share a value"), "{told}");
    assert_ne!(shelf.dump(), before);
    drop(shelf.open(NEW));
}

#[tokio::test]
async fn an_edit_that_no_version_declares_is_refused_as_before() {
    let shelf = Shelf::new();
    old_books(&shelf).await;
    let undeclared = NEW.replace("town = 'string'", "").replace(
        "[[versions.changes]]\ncollection = 'books'\nrename = { from = 'isbn', to = 'code' }\n",
        "",
    );
    let told = shelf.refusals(&undeclared);
    assert!(told.contains("`isbn` was removed"), "{told}");
    // And back again: data of the newest version is not that of the oldest.
    drop(shelf.open(NEW));
    assert!(shelf.refusals(OLD).contains("`title` was removed"));
}

#[tokio::test]
async fn a_database_that_does_not_say_its_version_is_recognised_by_its_shape() {
    let shelf = Shelf::new();
    let (dune, _) = old_books(&shelf).await;
    let forget = || {
        let connection = rusqlite::Connection::open(shelf.path()).unwrap();
        let sql = "UPDATE meta SET value = json_remove(value, '$.version') WHERE name = 'schema'";
        assert_eq!(connection.execute(sql, []).unwrap(), 1);
    };
    forget();
    let bed = shelf.open(NEW);
    assert_eq!(value(&bed.record(BOOKS, &dune.id).await.unwrap(), "title"), json!("Dune!"));
    drop(bed);
    forget();
    let bed = shelf.open(NEW);
    assert_eq!(value(&bed.record(BOOKS, &dune.id).await.unwrap(), "price"), json!(999));
}

fn of(event: &Event, name: &str) -> Value {
    let text = match name {
        "object" => Some(&event.object),
        _ => event.previous.as_ref(),
    };
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

#[tokio::test]
async fn events_are_shown_in_every_version() {
    let shelf = Shelf::new();
    let (dune, _) = old_books(&shelf).await;
    let bed = shelf.open(NEW);
    bed.put(merge(BOOKS, &dune.id, json!({"title": "Dune?", "price": 500}))).await;
    let old = bed.store.events(Some(HERE), 0, 10).await.unwrap();
    let schema = Arc::new(read(NEW));
    let versions = Versions::new(&schema);
    let tell = |event: &Event, version| -> Value {
        serde_json::from_str(&versions.envelope(event, version, 0)).unwrap()
    };
    // Written under the old version.
    let updated = &old[2];
    assert_eq!(updated.api_version, "2025-06-01");
    let (newest, oldest) = (tell(updated, 0), tell(updated, 1));
    assert_eq!(newest["api_version"], "2026-11-01");
    assert_eq!(newest["data"]["object"]["title"], "Dune!");
    assert_eq!(newest["data"]["object"]["price"], 999);
    assert!(newest["data"]["object"].get("nickname").is_none());
    assert_eq!(newest["data"]["previous_attributes"], json!({"title": "Dune"}));
    assert_eq!(oldest["api_version"], "2025-06-01");
    assert_eq!(oldest["data"]["object"], of(updated, "object"));
    let before = json!({"name": "Dune", "nickname": "sand"});
    assert_eq!(oldest["data"]["previous_attributes"], before);
    // Written under the new one.
    let updated = &old[3];
    let (newest, oldest) = (tell(updated, 0), tell(updated, 1));
    assert_eq!(newest["data"]["object"], of(updated, "object"));
    let before = json!({"title": "Dune!", "price": 999});
    assert_eq!(newest["data"]["previous_attributes"], before);
    assert_eq!(oldest["data"]["object"]["name"], "Dune?");
    assert_eq!(oldest["data"]["object"]["nickname"], "sandy");
    assert_eq!(oldest["data"]["object"]["status"], "canceled");
    assert_eq!(oldest["data"]["object"]["street"], "Main St 1");
    assert!(oldest["data"]["object"].get("pin").is_none());
    let before = json!({"name": "Dune!", "price": 9.99});
    assert_eq!(oldest["data"]["previous_attributes"], before);
    // The rows of the collection of events say the same.
    let events = schema.own(Builtin::Event);
    let page = bed.store.list(HERE, events, &query("created_at", 10)).await.unwrap();
    for (event, row) in old.iter().zip(&page.records) {
        assert_eq!(serde_json::from_str::<Value>(&row.body).unwrap(), tell(event, 0));
        for version in [0, 1] {
            let shown: Value = serde_json::from_str(&versions.row(row, version)).unwrap();
            assert_eq!(shown, tell(event, version), "{version}");
        }
    }
}

#[tokio::test]
async fn fields_that_only_old_clients_see_change_for_them_alone() {
    let shelf = Shelf::new();
    let (dune, _) = old_books(&shelf).await;
    let bed = shelf.open(NEW);
    let versions = Versions::new(&Arc::new(read(NEW)));
    let mut patch = merge(BOOKS, &dune.id, json!({"nickname": "worm"}));
    patch.view = versions.get(1).cloned();
    let record = bed.put(patch).await;
    assert!(record.hidden.unwrap().contains("worm"));
    let event = bed.store.events(Some(HERE), bed.newest() - 1, 1).await.unwrap().remove(0);
    assert_eq!(of(&event, "previous"), json!({}));
    let told: Value = serde_json::from_str(&versions.envelope(&event, 1, 0)).unwrap();
    assert_eq!(told["data"]["object"]["nickname"], "worm");
    assert_eq!(told["data"]["previous_attributes"], json!({"nickname": "sandy"}));
}

#[tokio::test]
async fn remembered_responses_are_shown_in_the_newest_version() {
    let shelf = Shelf::new();
    let bed = shelf.open(OLD);
    bed.time.store(now(), std::sync::atomic::Ordering::Relaxed);
    let made = bed.put(keyed(create(BOOKS, dune()), "made", 1)).await;
    // Changes nothing, so no event tells of it.
    let nothing = merge(BOOKS, &made.id, json!({"name": "Dune"}));
    bed.put(keyed(nothing, "nothing", 2)).await;
    drop(bed);
    let bed = shelf.open(NEW);
    bed.time.store(now(), std::sync::atomic::Ordering::Relaxed);
    for (key, fingerprint) in [("made", 1), ("nothing", 2)] {
        let again = keyed(merge(BOOKS, &made.id, json!({})), key, fingerprint);
        let answer = bed.commit(again).await.unwrap().unwrap();
        let Committed::Replayed { response, .. } = answer else { panic!("{answer:?}") };
        let (Response::Created(record) | Response::Updated(record)) = response else { panic!() };
        assert_eq!(value(&record, "title"), json!("Dune"), "{key}");
        assert_eq!(value(&record, "nickname"), json!("sand"), "{key}");
        let known = bed.store.remembered(HERE, key).await.unwrap().unwrap();
        let (Response::Created(same) | Response::Updated(same)) = known.response else { panic!() };
        assert_eq!(same, record);
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as i64
}

const STATES: &str = "
[service]
version = '2025-06-01'
[collections.orders.states]
names = ['created', 'canceled']
[[collections.orders.timed]]
from = 'created'
to = 'canceled'
after = '1h'
";

#[tokio::test]
async fn timers_follow_the_names_of_states() {
    let shelf = Shelf::new();
    let bed = shelf.open(STATES);
    let order = bed.put(create(0, json!({}))).await;
    drop(bed);
    let renamed = STATES.replace("canceled", "cancelled").replace("2025-06-01", "2026-11-01")
        + "
[[versions]]
date = '2026-11-01'
[[versions.changes]]
collection = 'orders'
enum_map = { field = 'status', values = { canceled = 'cancelled' } }
[[versions]]
date = '2025-06-01'
";
    let bed = shelf.open(&renamed);
    let late = model::Timestamp(i64::MAX);
    let due = bed.store.due(late, 10).await.unwrap();
    assert_eq!(due.timers.len(), 1);
    let transition = due.timers[0].transition;
    let done = bed.put(write(0, Some(&order.id), Change::Timed { transition })).await;
    assert_eq!(value(&done, "status"), json!("cancelled"));
}

#[tokio::test]
async fn an_erased_object_stays_erased_in_every_version() {
    let shelf = Shelf::new();
    let (dune, _) = old_books(&shelf).await;
    let bed = shelf.open(NEW);
    let schema = Arc::new(read(NEW));
    bed.put(create(schema.own(Builtin::Erasure), json!({"resource": dune.id}))).await;
    let versions = Versions::new(&schema);
    let event = &bed.store.events(Some(HERE), 0, 1).await.unwrap()[0];
    for version in [0, 1] {
        let told: Value = serde_json::from_str(&versions.envelope(event, version, 0)).unwrap();
        let erased = json!({"id": dune.id, "object": "book", "erased": true});
        assert_eq!(told["data"], json!({"object": erased}));
    }
}

#[tokio::test]
async fn a_database_of_an_older_release_is_compared_from_its_first_start_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let serve = |text: &str| {
        let edition = ServedSchema { text: Some(text.to_owned()), ..ServedSchema::default() };
        let options = Options { edition, ..Options::default() };
        SqliteStore::open_with(&path, Arc::new(read(text)), options).map(drop)
    };
    let limited = |least: &str| OLD.replace("'number',", &format!("'number', min = {least},"));
    let keep = |sql: &str| {
        assert_eq!(rusqlite::Connection::open(&path).unwrap().execute(sql, []).unwrap(), 1);
    };
    serve(OLD).unwrap();
    keep("DELETE FROM meta WHERE name = 'schema_text'");
    serve(&limited("1")).unwrap();
    let Err(Error::Refused(reasons)) = serve(&limited("2")) else { panic!("it was taken") };
    assert!(reasons.iter().any(|reason| reason.contains("`min` is 2, not 1")), "{reasons:?}");
    // One that this release cannot read is no reason not to serve.
    keep("UPDATE meta SET value = 'colections = 1' WHERE name = 'schema_text'");
    serve(&limited("2")).unwrap();
    assert!(matches!(serve(&limited("3")), Err(Error::Refused(_))));
}

/// Stored responses that are hidden page by page: more than one page (`PAGE`) has.
const RESPONSES: i64 = 2_100;

#[tokio::test]
async fn a_field_that_becomes_write_only_while_a_version_renames_it_is_hidden() {
    let shelf = Shelf::new();
    let shown = OLD.replace("pin = { type = 'string', write_only = true }", "pin = 'string'");
    let bed = shelf.open(&shown);
    let fields = json!({"name": "Dune", "street": "s", "pin": "pin-1"});
    let made = bed.put(keyed(create(BOOKS, fields), "made", 1)).await;
    let nothing = merge(BOOKS, &made.id, json!({"name": "Dune"}));
    bed.put(keyed(nothing, "nothing", 2)).await;
    bed.put(merge(BOOKS, &made.id, json!({"pin": "pin-2"}))).await;
    drop(bed);
    let connection = rusqlite::Connection::open(shelf.path()).unwrap();
    let copies = "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT ?1) \
        INSERT INTO remembered (scope, digest, fingerprint, created, kind, seq, number, updated, \
        record, text, request, api_version) SELECT scope, randomblob(16), fingerprint, created, \
        kind, seq, number, updated, record, text, request, api_version FROM remembered, i \
        WHERE text IS NOT NULL";
    assert_eq!(connection.execute(copies, [RESPONSES]).unwrap() as i64, RESPONSES);
    let holding = || -> (i64, i64, i64) {
        let sql = "SELECT (SELECT count(*) FROM log WHERE instr(object || coalesce(previous, '') \
            || coalesce(hidden, ''), 'pin-') > 0), (SELECT count(*) FROM remembered \
            WHERE instr(coalesce(text, '') || coalesce(hidden, ''), 'pin-') > 0), \
            (SELECT count(*) FROM r_books WHERE instr(body || coalesce(hidden, ''), 'pin-') > 0)";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    assert_eq!(holding(), (2, RESPONSES + 1, 1));
    let bed = shelf.open_with_loss(NEW);
    assert_eq!(holding(), (0, 0, 0));
    let record = bed.record(BOOKS, &made.id).await.unwrap();
    assert_eq!(value(&record, "title"), json!("Dune"));
}

#[tokio::test]
async fn records_get_their_state_while_a_version_rewrites_them() {
    let shelf = Shelf::new();
    let bed = shelf.open(
        "
[service]
version = '2025-06-01'
[collections.orders.fields]
note = 'string'
status = { type = 'string', filter = true }
",
    );
    let without = bed.put(create(0, json!({"note": "a"}))).await;
    let with = bed.put(create(0, json!({"note": "b", "status": "canceled"}))).await;
    drop(bed);
    let bed = shelf.open(
        "
[service]
version = '2026-11-01'
[collections.orders]
states = { names = ['created', 'canceled'] }
fields = { remark = 'string' }
[[versions]]
date = '2026-11-01'
[[versions.changes]]
collection = 'orders'
rename = { from = 'note', to = 'remark' }
[[versions]]
date = '2025-06-01'
",
    );
    for (id, remark, status) in [(&without.id, "a", "created"), (&with.id, "b", "canceled")] {
        let record = bed.record(0, id).await.unwrap();
        let found = (value(&record, "remark"), value(&record, "status"));
        assert_eq!(found, (json!(remark), json!(status)));
        let one = only(any_of("status", vec![text(status)]));
        let listed = bed.store.list(HERE, 0, &Query { sort: Vec::new(), ..one }).await.unwrap();
        assert_eq!(listed.records.len(), 1, "{status} is found by its column");
    }
}
