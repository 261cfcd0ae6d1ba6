//! References never name a record that is not there: what a delete refuses, takes along and
//! changes, in one commit, whoever writes at the same time.

use crate::files::open;
use crate::support::*;
use model::record::Fields;
use model::schema::rule::Template;
use model::schema::{Kind, OnDelete};
use model::write::{Callout, Committed, Response};
use model::{Change, Code, Record, Schema, Write};
use serde_json::{Value, json};
use std::collections::HashSet;
use store::sqlite::Role;

const PEOPLE: usize = 0;
const PETS: usize = 1;
const TOYS: usize = 2;
const CLUBS: usize = 3;

/// People with a boss (restrict), a friend (set null) and a guardian (cascade), who are people.
/// Below them are pets, which have a sitter; toys belong to a pet, and clubs are of somebody.
fn people() -> Schema {
    let refers = |name: &str, target: usize, on_delete: Option<OnDelete>| {
        field(name, Kind::String, |f| (f.reference, f.on_delete) = (Some(target), on_delete))
    };
    let name = || field("name", Kind::String, |_| {});
    let own = vec![
        name(),
        refers("boss", PEOPLE, Some(OnDelete::Restrict)),
        refers("friend", PEOPLE, None),
        refers("guardian", PEOPLE, Some(OnDelete::Cascade)),
    ];
    let people = collection("people", "person", None, own);
    let mut owner = refers("person", PEOPLE, None);
    owner.read_only = true;
    let pets = vec![owner, name(), refers("sitter", PEOPLE, None)];
    let pets = collection("pets", "pet", Some(PEOPLE), pets);
    let toys = vec![name(), refers("pet", PETS, Some(OnDelete::Restrict))];
    let toys = collection("toys", "toy", None, toys);
    let mut of = refers("of", PEOPLE, None);
    of.required = true;
    let mut clubs = collection("clubs", "club", None, vec![of, refers("host", PEOPLE, None)]);
    let mut act = schema().collections[ORDERS].actions[PAY].clone();
    (act.name, act.from, act.to) = ("lead".into(), Vec::new(), None);
    let value = Template::Fixed(json!("person_none"));
    act.set = vec![model::schema::Assignment { field: "host".into(), value }];
    let asks = model::schema::Action { name: "ask".into(), set: Vec::new(), ..act.clone() };
    clubs.actions = vec![act, asks];
    Schema::new(schema().service, vec![people, pets, toys, clubs])
}

fn bed() -> (tempfile::TempDir, Bed) {
    let directory = tempfile::tempdir().unwrap();
    let bed = open(&directory.path().join("data.db"), people(), Role::Server).unwrap();
    (directory, bed)
}

fn person(name: &str, more: Value) -> Write {
    let mut fields = json!({ "name": name });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create(PEOPLE, fields)
}

async fn delete_person(bed: &Bed, id: &str) {
    let done = bed.commit(delete(PEOPLE, id)).await.unwrap().unwrap();
    assert_eq!(done, Committed::Fresh(Response::Deleted { id: id.to_owned() }));
}

/// The kinds of events since a sequence, with the names of whom they are about.
async fn told(bed: &Bed, since: i64) -> Vec<String> {
    let events = bed.store.events(Some(HERE), since, 256).await.unwrap();
    let line = |event: model::event::Event| {
        let object: Value = serde_json::from_str(&event.object).unwrap();
        format!("{} {}", event.kind, object["name"].as_str().unwrap_or("?"))
    };
    events.into_iter().map(line).collect()
}

#[tokio::test]
async fn a_record_that_others_need_is_not_deleted_and_they_are_named() {
    let (_keep, bed) = bed();
    let chief = bed.put(person("chief", json!({}))).await;
    let mut needy = Vec::new();
    for n in 0..5 {
        needy.push(bed.put(person(&format!("p{n}"), json!({ "boss": chief.id }))).await);
    }
    let before = bed.newest();
    let refused = bed.refused(delete(PEOPLE, &chief.id)).await;
    assert_eq!(refused.code, Code::StillReferenced);
    let named = refused.extra["referrers"].as_array().unwrap().clone();
    assert_eq!(named.len(), 3);
    let first = json!({ "object": "person", "id": needy[0].id, "field": "boss" });
    assert_eq!(named[0], first);
    for part in [&needy[0].id, "`boss`", "there are more"] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    assert_eq!(bed.newest(), before, "nothing happened");
    for one in &needy[1..] {
        bed.put(merge(PEOPLE, &one.id, json!({ "boss": null }))).await;
    }
    let refused = bed.refused(delete(PEOPLE, &chief.id)).await;
    assert_eq!(refused.extra["referrers"], json!([first]));
    assert!(!refused.message.contains("more"), "{}", refused.message);
    delete_person(&bed, &needy[0].id).await;
    delete_person(&bed, &chief.id).await;
    // Required without a word of what happens.
    let of = bed.put(person("of", json!({}))).await;
    let club = bed.put(create(CLUBS, json!({ "of": of.id }))).await;
    let refused = bed.refused(delete(PEOPLE, &of.id)).await;
    assert_eq!(refused.extra["referrers"][0]["id"], json!(club.id));
}

#[tokio::test]
async fn references_become_null_and_records_go_with_an_event_each_in_one_commit() {
    let (_keep, bed) = bed();
    let chief = bed.put(person("chief", json!({}))).await;
    let both = json!({ "friend": chief.id });
    let friend = bed.put(person("friend", both)).await;
    let ward = bed.put(person("ward", json!({ "guardian": chief.id }))).await;
    let child = bed.put(person("child", json!({ "guardian": ward.id, "friend": chief.id }))).await;
    let pet = create(PETS, json!({ "name": "pet", "sitter": chief.id }));
    let pet = bed.put(under(pet, &friend.id)).await;
    let lost = bed.put(under(create(PETS, json!({ "name": "lost" })), &child.id)).await;
    let before = bed.newest();
    delete_person(&bed, &chief.id).await;
    let kinds = told(&bed, before).await;
    assert_eq!(
        kinds,
        [
            "person.updated friend",
            "pet.updated pet",
            "pet.deleted lost",
            "person.deleted child",
            "person.deleted ward",
            "person.deleted chief",
        ]
    );
    assert_eq!(value(&bed.record(PEOPLE, &friend.id).await.unwrap(), "friend"), Value::Null);
    let kept = bed.store.record(HERE, PETS, Some(&friend.id), &pet.id).await.unwrap().unwrap();
    assert_eq!(value(&kept, "sitter"), Value::Null);
    assert!(kept.version > pet.version, "its ETag is another");
    for gone in [&ward, &child] {
        assert_eq!(bed.record(PEOPLE, &gone.id).await, None);
    }
    assert_eq!(bed.store.record(HERE, PETS, Some(&child.id), &lost.id).await.unwrap(), None);
    let events = bed.store.events(Some(HERE), before, 1).await.unwrap();
    let previous: Value = serde_json::from_str(events[0].previous.as_ref().unwrap()).unwrap();
    assert_eq!(previous, json!({ "friend": chief.id }));
}

#[tokio::test]
async fn records_deleted_by_a_cascade_are_guarded_too() {
    let (_keep, bed) = bed();
    let owner = bed.put(person("owner", json!({}))).await;
    let ward = bed.put(person("ward", json!({ "guardian": owner.id }))).await;
    let pet = bed.put(under(create(PETS, json!({ "name": "pet" })), &ward.id)).await;
    let toy = bed.put(create(TOYS, json!({ "name": "toy", "pet": pet.id }))).await;
    let refused = bed.refused(delete(PEOPLE, &owner.id)).await;
    assert_eq!(refused.code, Code::StillReferenced);
    let expected = json!([{ "object": "toy", "id": toy.id, "field": "pet" }]);
    assert_eq!(refused.extra["referrers"], expected);
    assert!(refused.message.contains(&pet.id), "{}", refused.message);
    assert!(bed.record(PEOPLE, &ward.id).await.is_some(), "nothing of it was done");
    bed.commit(delete(TOYS, &toy.id)).await.unwrap().unwrap();
    delete_person(&bed, &owner.id).await;
}

#[tokio::test]
async fn records_that_refer_to_themselves_and_in_circles_can_be_deleted() {
    let (_keep, bed) = bed();
    let own = bed.put(person("own", json!({}))).await;
    let all = json!({ "boss": own.id, "friend": own.id, "guardian": own.id });
    bed.put(merge(PEOPLE, &own.id, all)).await;
    delete_person(&bed, &own.id).await;
    // A circle of guardians, who are also each other's bosses.
    let mut ring: Vec<Record> = Vec::new();
    for n in 0..5 {
        let above = ring.last().map(|last| last.id.clone());
        let more = json!({ "guardian": above, "boss": above });
        ring.push(bed.put(person(&format!("r{n}"), more)).await);
    }
    let last = ring[4].id.clone();
    bed.put(merge(PEOPLE, &ring[0].id, json!({ "guardian": last, "boss": last }))).await;
    let before = bed.newest();
    delete_person(&bed, &ring[2].id).await;
    let kinds = told(&bed, before).await;
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    assert_eq!(kinds.last().unwrap(), "person.deleted r2");
}

#[tokio::test]
async fn only_records_of_the_same_account_and_mode_count() {
    let (_keep, bed) = bed();
    let there = |write: Write| Write { scope: THERE, ..write };
    let ours = bed.put(person("ours", json!({}))).await;
    let refused = bed.refused(there(person("spy", json!({ "boss": ours.id })))).await;
    assert_eq!(refused.violations[0].code, Code::BadReference);
    let theirs = bed.put(there(person("theirs", json!({})))).await;
    bed.put(there(person("needy", json!({ "boss": theirs.id })))).await;
    delete_person(&bed, &ours.id).await;
    let refused = bed.refused(there(delete(PEOPLE, &theirs.id))).await;
    assert_eq!(refused.code, Code::StillReferenced);
}

#[tokio::test]
async fn a_cascade_over_the_limit_is_refused_completely() {
    let (_keep, bed) = bed();
    let chief = bed.put(person("chief", json!({}))).await;
    bed.put_all((0..600).map(|n| person(&n.to_string(), json!({ "friend": chief.id })))).await;
    bed.put_all((0..400).map(|n| person(&n.to_string(), json!({ "guardian": chief.id })))).await;
    let extra = bed.put(person("extra", json!({ "friend": chief.id }))).await;
    let before = bed.newest();
    let refused = bed.refused(delete(PEOPLE, &chief.id)).await;
    assert_eq!(refused.code, Code::TooManyChildren);
    assert!(refused.message.contains("1000") && refused.message.contains("`people`"));
    assert_eq!(bed.newest(), before);
    bed.commit(delete(PEOPLE, &extra.id)).await.unwrap().unwrap();
    delete_person(&bed, &chief.id).await;
    assert_eq!(bed.newest(), before + 1 + 1_001);
}

#[tokio::test]
async fn writes_of_one_commit_leave_no_reference_to_a_deleted_record() {
    let (_keep, bed) = bed();
    for round in 0..40 {
        let chief = bed.put(person("chief", json!({}))).await;
        let other = bed.put(person("other", json!({}))).await;
        let refers = |field: &str| person("new", json!({ field: chief.id }));
        let mut writes = vec![
            refers("boss"),
            refers("friend"),
            refers("guardian"),
            merge(PEOPLE, &other.id, json!({ "friend": chief.id })),
            under(create(PETS, json!({ "name": "pet", "sitter": chief.id })), &other.id),
        ];
        writes.insert(round % 6, delete(PEOPLE, &chief.id));
        // Spawned at once, they are committed together.
        for answer in bed.commit_all(writes).await {
            let answer = answer.unwrap();
            if let Err(problem) = answer {
                let codes = [Code::StillReferenced, Code::ValidationFailed];
                assert!(codes.contains(&problem.code), "{problem:?}");
            }
        }
    }
    no_reference_dangles(&bed).await;
}

/// Every reference names a record.
async fn no_reference_dangles(bed: &Bed) {
    let people = bed.walk(PEOPLE, &query("created_at", 100)).await;
    let ids: HashSet<String> = people.iter().map(|record| record.id.clone()).collect();
    let mut fields: Vec<Fields> = people.iter().map(Record::fields).collect();
    for owner in &people {
        let pets = model::query::Query { parent: Some(owner.id.clone()), ..query("created_at", 9) };
        let pets = bed.store.list(HERE, PETS, &pets).await.unwrap();
        fields.extend(pets.records.iter().map(Record::fields));
    }
    for fields in fields {
        for name in ["boss", "friend", "guardian", "sitter"] {
            if let Some(id) = fields.get(name).and_then(Value::as_str) {
                assert!(ids.contains(id), "{name} dangles: {fields:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_action_sets_no_reference_that_names_nothing() {
    let (_keep, bed) = bed();
    let of = bed.put(person("of", json!({}))).await;
    let club = bed.put(create(CLUBS, json!({ "of": of.id }))).await;
    let act = Change::Act { action: 0, params: Fields::new(), callout: None };
    let refused = bed.refused(write(CLUBS, Some(&club.id), act)).await;
    assert_eq!(refused.violations[0].code, Code::BadReference);
    assert_eq!(refused.violations[0].field, "host");
    // What a handler sets is the handler's fault.
    let answer = fields(json!({ "of": "person_none", "host": null }));
    let callout = Some(Callout::Change(answer));
    let act = Change::Act { action: 1, params: Fields::new(), callout };
    let refused = bed.refused(write(CLUBS, Some(&club.id), act)).await;
    assert_eq!(refused.code, Code::HandlerInvalid, "{refused:?}");
    assert!(refused.message.contains("`of`"), "{refused:?}");
    assert_eq!(bed.record(CLUBS, &club.id).await.unwrap().version, club.version);
}

#[tokio::test]
async fn a_file_of_an_older_release_gets_the_index_of_references() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    drop(open(&path, people(), Role::Server).unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    let indexes = |raw: &rusqlite::Connection| -> i64 {
        let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'i_pets+r_sitter'";
        raw.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(indexes(&raw), 1);
    raw.execute_batch("DROP INDEX \"i_pets+r_sitter\"").unwrap();
    drop(raw);
    drop(open(&path, people(), Role::Server).unwrap());
    let raw = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(indexes(&raw), 1);
    for (table, column) in [("r_pets", "f_sitter"), ("r_people", "f_boss")] {
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT n FROM {table} t WHERE t.scope = 1 AND t.{column} = 'x'"
        );
        let plan: String = raw.query_row(&sql, [], |row| row.get(3)).unwrap();
        assert!(plan.contains("scope=? AND ") && plan.contains(column), "{plan}");
    }
}
