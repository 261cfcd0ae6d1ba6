//! The pipeline gives the same result whether writes are loaded one by one or all at once: the
//! overlay stands for effects that are not written yet.

use super::super::testbed::{Bed, HERE, NOW, THERE};
use super::super::{connection, log};
use super::*;
use crate::commit::{Commit, WriteResult};
use model::Write;
use model::write::{Change, Committed, Idempotency, Response};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

const SCHEMA: &str = "
[collections.people.fields]
name = { type = 'string', unique = true }
email = { type = 'string', unique = true }
boss = { ref = 'people', on_delete = 'restrict' }
friend = { ref = 'people' }
guardian = { ref = 'people', on_delete = 'cascade' }
[collections.pets]
parent = 'people'
[collections.pets.fields]
name = 'string'
sitter = { ref = 'people' }
[collections.orders.states]
names = ['open', 'paid', 'late']
[collections.orders.fields]
of = { ref = 'people' }
code = { type = 'string', unique = true }
[collections.orders.actions.pay]
from = 'open'
to = 'paid'
set = { code = 'paid' }
[[collections.orders.timed]]
from = 'open'
to = 'late'
after = '1s'
";

/// Numbers by chance, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % bound
    }

    fn one_of<'a>(&mut self, known: &'a [String]) -> Option<&'a str> {
        let place = self.below(known.len() + 2);
        known.get(place).map(String::as_str)
    }
}

/// Ids that earlier rounds have made.
#[derive(Default)]
struct Known {
    people: Vec<String>,
    pets: Vec<(String, String)>,
    orders: Vec<String>,
}

fn person(chance: &mut Chance, known: &Known) -> Value {
    let mut fields = json!({});
    for name in ["boss", "friend", "guardian"] {
        if chance.below(3) == 0 {
            fields[name] = chance.one_of(&known.people).map_or(json!("person_none"), Value::from);
        }
    }
    for name in ["name", "email"] {
        match chance.below(3) {
            0 => fields[name] = json!(format!("{name} {}", chance.below(12))),
            1 => fields[name] = Value::Null,
            _ => {}
        }
    }
    fields
}

/// A write about few records, so that the writes of a round meet.
fn write(bed: &Bed, chance: &mut Chance, known: &Known) -> Write {
    let scope = if chance.below(8) == 0 { THERE } else { HERE };
    let target = chance.one_of(&known.people).unwrap_or("person_none").to_owned();
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    let mut write = match chance.below(11) {
        0..=2 => bed.create(scope, "people", person(chance, known)),
        3 | 4 => {
            let change = Change::Merge { patch: map(person(chance, known)) };
            bed.write(scope, "people", Some(&target), change)
        }
        5 => bed.write(scope, "people", Some(&target), Change::Delete),
        6 => {
            let sitter = chance.one_of(&known.people).map_or(Value::Null, Value::from);
            let pet = bed.create(scope, "pets", json!({"name": "Rex", "sitter": sitter}));
            Write { parent: Some(target), ..pet }
        }
        7 => match known.pets.get(chance.below(known.pets.len() + 1)) {
            Some((parent, id)) => {
                let change = match chance.below(2) {
                    0 => Change::Delete,
                    _ => Change::Merge { patch: map(json!({"sitter": target})) },
                };
                let write = bed.write(scope, "pets", Some(id), change);
                Write { parent: Some(parent.clone()), ..write }
            }
            None => bed.create(scope, "orders", json!({"of": target})),
        },
        8 => bed.create(scope, "orders", json!({"of": target})),
        9 => {
            let id = chance.one_of(&known.orders).unwrap_or("order_none").to_owned();
            let params = Default::default();
            let change = match chance.below(2) {
                0 => Change::Act { action: 0, params, callout: None },
                _ => Change::Timed { transition: 0 },
            };
            bed.write(scope, "orders", Some(&id), change)
        }
        _ => {
            let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
            bed.create(scope, "webhook-endpoints", endpoint)
        }
    };
    if chance.below(4) == 0 {
        let key = format!("key {}", chance.below(6));
        let fingerprint = [u8::try_from(chance.below(2)).unwrap(); 32];
        write.idempotency = Some(Idempotency { key, fingerprint });
    }
    write
}

fn learn(known: &mut Known, write: &Write, bed: &Bed, outcome: &WriteResult) {
    let Ok(Ok(Committed::Fresh(Response::Created(record)))) = outcome else { return };
    match write.collection {
        ix if ix == bed.ix("people") => known.people.push(record.id.clone()),
        ix if ix == bed.ix("orders") => known.orders.push(record.id.clone()),
        ix if ix == bed.ix("pets") => {
            let parent = write.parent.clone().unwrap_or_default();
            known.pets.push((parent, record.id.clone()));
        }
        _ => {}
    }
}

/// Applies a round in one transaction.
fn apply(bed: &Bed, at_once: usize, writes: &[Write]) -> Vec<WriteResult> {
    let shared = &bed.store.shared;
    shared.loaded_at_once.store(at_once, Ordering::Relaxed);
    let connection = connection::connect(&shared.path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let newest = log::newest(&connection).unwrap();
    let rows = SqliteRows { connection: &connection, shared };
    let mut commit = Commit::new(rows, &shared.schema, &shared.versions, newest, NOW);
    let writes: Vec<&Write> = writes.iter().collect();
    let applied = commit.apply(&writes).unwrap();
    connection.execute_batch("COMMIT").unwrap();
    applied.into_iter().map(|one| one.outcome).collect()
}

/// Everything that is stored.
fn dump(bed: &Bed) -> Vec<String> {
    let connection = connection::reader(&bed.store.shared.path).unwrap();
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 's\\_%' \
                  ESCAPE '\\' AND name <> 'meta' ORDER BY name";
    let mut tables = connection.prepare(tables).unwrap();
    let names = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut found = Vec::new();
    for name in names.map(Result::unwrap) {
        let mut rows = connection.prepare(&format!("SELECT * FROM \"{name}\"")).unwrap();
        let width = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cell = |place| format!("{:?}", row.get_ref(place).unwrap());
            found.push(format!("{name}: {}", (0..width).map(cell).collect::<Vec<_>>().join(" ")));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn writes_loaded_at_once_end_like_writes_loaded_one_by_one() {
    let (mut refused, mut made, mut replayed) = (0, 0, 0);
    for seed in 1..=8 {
        let (single, batched) = (Bed::new(SCHEMA), Bed::new(SCHEMA));
        let (mut chance, mut known) = (Chance(seed), Known::default());
        for round in 0..8 {
            let writes: Vec<Write> = (0..40).map(|_| write(&single, &mut chance, &known)).collect();
            let expected = apply(&single, 1, &writes);
            let found = apply(&batched, 64, &writes);
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
                assert_eq!(expected, found, "seed {seed}, round {round}, write {place}");
            }
            for (write, outcome) in writes.iter().zip(&expected) {
                learn(&mut known, write, &single, outcome);
                match outcome {
                    Ok(Ok(Committed::Fresh(_) | Committed::Unchanged(_))) => made += 1,
                    Ok(Ok(Committed::Replayed { .. })) => replayed += 1,
                    Ok(Err(_)) => refused += 1,
                    Err(error) => panic!("seed {seed}, round {round}: {error}"),
                }
            }
            assert_eq!(dump(&single), dump(&batched), "seed {seed}, round {round}");
        }
    }
    assert!(refused > 250 && made > 400 && replayed > 20, "{refused} {made} {replayed}");
}
