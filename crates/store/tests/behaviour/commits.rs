//! Writes and their events: invariants 1 and 4 of the design, and what each change does.

use crate::support::*;
use model::write::{Committed, Precondition, Response};
use model::{Change, Code, Timestamp, Write};
use serde_json::json;

pub async fn a_created_record_is_there_with_its_event(bed: Bed) {
    let made = bed.put(book("Dune", json!(9.5))).await;
    assert_eq!(bed.record(BOOKS, &made.id).await.unwrap(), made);
    let events = bed.store.events(None, 0, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!((event.seq, event.record.as_str()), (made.version, made.id.as_str()));
    assert_eq!((event.kind.as_str(), event.collection.as_str()), ("book.created", "books"));
    assert_eq!(event.object, made.body);
    assert_eq!(event.request.as_deref(), Some("req_1"));
    assert_eq!(made.number, made.version);
    assert_eq!(bed.newest(), event.seq);
}

pub async fn every_change_has_exactly_one_event_and_every_event_its_change(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    let changed = bed.put(merge(BOOKS, &made.id, json!({"price": 2}))).await;
    bed.commit(delete(BOOKS, &made.id)).await.unwrap().unwrap();
    let events = bed.store.events(Some(HERE), 0, 10).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["book.created", "book.updated", "book.deleted"]);
    assert_eq!(events[1].object, changed.body);
    assert_eq!(events[1].previous.as_deref(), Some(r#"{"price":1}"#));
    assert_eq!((changed.number, changed.version), (made.number, events[1].seq));
}

pub async fn a_change_of_nothing_leaves_no_trace(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    let same = bed.put(merge(BOOKS, &made.id, json!({"price": 1}))).await;
    assert_eq!(same, made);
    assert_eq!(bed.newest(), made.version);
}

pub async fn a_replaced_record_loses_what_was_not_sent(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    let fields = fields(json!({"title": "B", "author": "C"}));
    let put = bed.put(write(BOOKS, Some(&made.id), Change::Replace { fields })).await;
    assert_eq!((value(&put, "title"), value(&put, "price")), (json!("B"), json!(null)));
    // The typed column went with it.
    let mut priced = query("price", 10);
    priced.filters = vec![any_of("price", vec![model::record::Scalar::Null])];
    assert_eq!(bed.list(&priced).await.records, [put]);
}

pub async fn versions_guard_writes(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    let mut good = merge(BOOKS, &made.id, json!({"price": 2}));
    good.precondition = Precondition::Versions(vec![made.version]);
    let stale = good.clone();
    bed.put(good).await;
    assert_eq!(bed.refused(stale).await.code, Code::PreconditionFailed);
}

pub async fn a_deleted_record_stays_deleted(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    for committed in [Committed::Fresh, Committed::Unchanged] {
        let done = bed.commit(delete(BOOKS, &made.id)).await.unwrap().unwrap();
        assert_eq!(done, committed(Response::Deleted { id: made.id.clone() }));
    }
    assert_eq!(bed.record(BOOKS, &made.id).await, None);
    let elsewhere = Write { scope: THERE, ..delete(BOOKS, &made.id) };
    assert_eq!(bed.refused(elsewhere).await.code, Code::NotFound);
    assert_eq!(bed.store.events(None, 0, 10).await.unwrap().len(), 2);
    assert_eq!(bed.refused(delete(BOOKS, "book_unknown")).await.code, Code::NotFound);
}

pub async fn scopes_never_meet(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    assert_eq!(bed.store.record(THERE, BOOKS, None, &made.id).await.unwrap(), None);
    for change in [Change::Delete, Change::Merge { patch: fields(json!({"price": 2})) }] {
        let mut foreign = write(BOOKS, Some(&made.id), change);
        foreign.scope = THERE;
        assert_eq!(bed.refused(foreign).await.code, Code::NotFound);
    }
    let list = bed.store.list(THERE, BOOKS, &query("-created_at", 10)).await.unwrap();
    assert!(list.records.is_empty());
    assert!(bed.store.events(Some(THERE), 0, 10).await.unwrap().is_empty());
    let ids = [made.id.clone()];
    assert!(bed.store.by_ids(THERE, BOOKS, &ids).await.unwrap().is_empty());
    // The same unique value is free in another scope.
    let mut here = book("B", json!(1));
    here.change =
        Change::Create { fields: fields(json!({"title": "B", "author": "x", "isbn": "1"})) };
    let mut there = create(BOOKS, json!({"title": "B", "author": "x", "isbn": "1"}));
    there.scope = THERE;
    bed.put(here).await;
    bed.put(there).await;
}

pub async fn children_are_found_only_below_their_parent(bed: Bed) {
    let (a, b) = (bed.put(book("A", json!(1))).await, bed.put(book("B", json!(1))).await);
    let review = bed.put(under(create(REVIEWS, json!({"rating": 5})), &a.id)).await;
    assert_eq!(value(&review, "book"), json!(a.id));
    let at = |parent| bed.store.record(HERE, REVIEWS, parent, &review.id);
    assert_eq!(at(Some(&a.id)).await.unwrap(), Some(review.clone()));
    assert_eq!(at(Some(&b.id)).await.unwrap(), None);
    let misplaced = under(merge(REVIEWS, &review.id, json!({"rating": 1})), &b.id);
    assert_eq!(bed.refused(misplaced).await.code, Code::NotFound);
    let orphan = under(create(REVIEWS, json!({"rating": 5})), "book_unknown");
    assert_eq!(bed.refused(orphan).await.code, Code::NotFound);
}

pub async fn a_delete_takes_everything_below_along(bed: Bed) {
    let top = bed.put(book("A", json!(1))).await;
    let other = bed.put(book("B", json!(1))).await;
    let mut below = Vec::new();
    for rating in 1..4 {
        let review = bed.put(under(create(REVIEWS, json!({"rating": rating})), &top.id)).await;
        let reply = bed.put(under(create(REPLIES, json!({"text": "hm"})), &review.id)).await;
        below.extend([review.id, reply.id]);
    }
    let kept = bed.put(under(create(REVIEWS, json!({"rating": 1})), &other.id)).await;
    let before = bed.newest();
    bed.commit(delete(BOOKS, &top.id)).await.unwrap().unwrap();
    let events = bed.store.events(None, before, 100).await.unwrap();
    let mut told: Vec<String> = events.iter().map(|event| event.record.clone()).collect();
    assert_eq!(told.pop(), Some(top.id), "the record itself comes last");
    told.sort();
    below.sort();
    assert_eq!(told, below);
    assert!(events.iter().all(|event| event.kind.ends_with(".deleted")));
    let left = bed.store.record(HERE, REVIEWS, Some(&other.id), &kept.id).await.unwrap();
    assert_eq!(left, Some(kept));
}

pub async fn a_delete_of_too_much_is_refused_whole(bed: Bed) {
    let top = bed.put(book("A", json!(1))).await;
    let reviews = (0..1001).map(|_| under(create(REVIEWS, json!({"rating": 1})), &top.id));
    bed.put_all(reviews).await;
    let before = bed.newest();
    assert_eq!(bed.refused(delete(BOOKS, &top.id)).await.code, Code::TooManyChildren);
    assert!(bed.record(BOOKS, &top.id).await.is_some());
    assert_eq!(bed.newest(), before);
}

pub async fn unique_values_are_refused_and_all_of_them_named(bed: Bed) {
    let full = json!({"title": "A", "author": "x", "isbn": "1", "code": "c"});
    let made = bed.put(create(BOOKS, full.clone())).await;
    let problem = bed.refused(create(BOOKS, full)).await;
    assert_eq!(problem.code, Code::ValidationFailed);
    let named: Vec<_> = problem.violations.iter().map(|v| (v.field.as_str(), v.code)).collect();
    assert_eq!(named, [("isbn", Code::NotUnique), ("code", Code::NotUnique)]);
    assert_eq!(bed.newest(), made.version, "a refused write leaves nothing behind");
    // Null is no value, and a record does not stand in its own way.
    let other = bed.put(book("B", json!(1))).await;
    bed.put(book("C", json!(1))).await;
    bed.put(merge(BOOKS, &made.id, json!({"isbn": "1", "price": 3}))).await;
    let moved = bed.refused(merge(BOOKS, &other.id, json!({"isbn": "1"}))).await;
    assert_eq!(moved.violations[0].field, "isbn");
    assert_eq!(value(&bed.record(BOOKS, &other.id).await.unwrap(), "isbn"), json!(null));
}

pub async fn references_must_exist(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    bed.put(create(ORDERS, json!({"book": made.id}))).await;
    let problem = bed.refused(create(ORDERS, json!({"book": "book_none"}))).await;
    assert_eq!(problem.violations[0].code, Code::BadReference);
    let mut foreign = create(ORDERS, json!({"book": made.id}));
    foreign.scope = THERE;
    assert_eq!(bed.refused(foreign).await.violations[0].code, Code::BadReference);
}

fn act(id: &str, action: usize) -> model::Write {
    write(ORDERS, Some(id), Change::Act { action, params: fields(json!({})), callout: None })
}

pub async fn actions_move_the_state_and_refusals_leave_their_trace(bed: Bed) {
    let order = bed.put(create(ORDERS, json!({"quantity": 1}))).await;
    let declined = bed.commit(act(&order.id, DECLINE)).await.unwrap().unwrap();
    let Committed::Fresh(Response::Refused(problem)) = declined else { panic!("{declined:?}") };
    assert_eq!(problem.declared.as_ref().unwrap().status, 402);
    let traced = bed.record(ORDERS, &order.id).await.unwrap();
    assert_eq!(value(&traced, "failure"), json!("declined"));
    let events = bed.store.events(None, order.version, 10).await.unwrap();
    assert_eq!(events[0].kind, "order.payment_failed");
    let paid = bed.put(act(&order.id, PAY)).await;
    assert_eq!(value(&paid, "status"), json!("paid"));
    assert_eq!(bed.refused(act(&order.id, PAY)).await.code, Code::InvalidState);
}

pub async fn timers_come_due_and_are_voided(bed: Bed) {
    let (a, b) = (create(ORDERS, json!({})), create(ORDERS, json!({})));
    let (a, b) = (bed.put(a).await, bed.put(b).await);
    bed.put(act(&a.id, PAY)).await;
    bed.pass(500);
    bed.put(act(&b.id, PAY)).await;
    let at = |millis| bed.store.due(Timestamp(START + millis), 10);
    assert_eq!(at(999).await.unwrap().next, Some(Timestamp(START + 1000)));
    let due = at(1000).await.unwrap();
    assert_eq!((due.timers.len(), due.timers[0].id.as_str()), (1, a.id.as_str()));
    assert_eq!(due.next, Some(Timestamp(START + 1500)));
    assert_eq!(bed.store.due(Timestamp(START + 9000), 1).await.unwrap().timers.len(), 1);
    bed.pass(500);
    let fire = || write(ORDERS, Some(&a.id), Change::Timed { transition: 0 });
    assert_eq!(value(&bed.put(fire()).await, "status"), json!("shipped"));
    let before = bed.newest();
    bed.commit(fire()).await.unwrap().unwrap();
    assert_eq!(bed.newest(), before, "a transition that came too late changes nothing");
    bed.commit(delete(ORDERS, &b.id)).await.unwrap().unwrap();
    assert_eq!(at(9000).await.unwrap(), store::Due::default());
}

pub async fn feeds_number_their_records_by_the_log(bed: Bed) {
    bed.put(book("A", json!(1))).await;
    let message = bed.put(create(MESSAGES, json!({"text": "hello"}))).await;
    assert_eq!((message.id.as_str(), message.number), ("2", 2));
    assert_eq!(value(&message, "id"), json!(2));
    assert_eq!(bed.record(MESSAGES, "2").await, Some(message.clone()));
    for wrong in ["02", "+2", "1", "3", "x", "", "-2", "99999999999999999999"] {
        assert_eq!(bed.record(MESSAGES, wrong).await, None, "{wrong}");
    }
    let found = bed.store.by_ids(HERE, MESSAGES, &["2".into(), "x".into()]).await.unwrap();
    assert_eq!(found, [message]);
    for _ in 0..2 {
        bed.commit(delete(MESSAGES, "2")).await.unwrap().unwrap();
    }
}

pub async fn time_never_runs_backwards(bed: Bed) {
    bed.pass(5_000);
    bed.put(book("A", json!(1))).await;
    bed.pass(-5_000);
    let late = bed.put(book("B", json!(1))).await;
    assert_eq!(late.updated, Timestamp(START + 5_000));
}

pub async fn one_bad_write_does_not_spoil_its_batch(bed: Bed) {
    // Equal entropy gives equal ids, which the database refuses: a fault of this write alone.
    let first = book("A", json!(1));
    let mut twin = book("B", json!(1));
    twin.entropy = first.entropy;
    let others = (0..20).map(|n| book(&format!("T{n}"), json!(n)));
    let answers = bed.commit_all([first.clone(), twin].into_iter().chain(others)).await;
    let failed: Vec<usize> = (0..22).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(failed, [1]);
    // An event id used twice is found only after the record was touched: the write is undone.
    let made = bed.put(book("C", json!(1))).await;
    let mut clash = merge(BOOKS, &made.id, json!({"price": 7}));
    clash.entropy = first.entropy;
    let others = |from: i64| (from..from + 3).map(|n| book(&format!("U{n}"), json!(n)));
    let answers = bed.commit_all(others(0).chain([clash]).chain(others(3))).await;
    let failed: Vec<usize> = (0..7).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(failed, [3]);
    assert_eq!(bed.record(BOOKS, &made.id).await, Some(made));
    let events = bed.store.events(None, 0, 100).await.unwrap();
    assert_eq!(events.len(), 28);
    let gapless = events.iter().zip(1..).all(|(event, seq)| event.seq == seq);
    assert!(gapless, "a failed write leaves no hole");
}

pub async fn write_only_fields_are_kept_and_not_served(bed: Bed) {
    let secret = json!({"title": "A", "author": "x", "note": "psst"});
    let made = bed.put(create(BOOKS, secret)).await;
    assert!(!made.body.contains("psst"));
    let read = bed.record(BOOKS, &made.id).await.unwrap();
    assert_eq!(value(&read, "note"), json!("psst"));
    let changed = bed.put(merge(BOOKS, &made.id, json!({"price": 1}))).await;
    assert_eq!(value(&changed, "note"), json!("psst"));
    let events = bed.store.events(None, 0, 10).await.unwrap();
    assert!(events.iter().all(|event| !event.object.contains("psst")));
}

pub async fn keys_are_found_by_digest_and_bump_the_generation(bed: Bed) {
    let before = bed.store.key_generation();
    bed.put(book("A", json!(1))).await;
    assert_eq!(bed.store.key_generation(), before);
    let made = bed.put(create(KEYS, json!({"digest": "abc"}))).await;
    assert!(bed.store.key_generation() > before);
    let found = bed.store.key_by_digest("abc").await.unwrap();
    assert_eq!(found, Some((HERE, made)));
    assert_eq!(bed.store.key_by_digest("abd").await.unwrap(), None);
}

pub async fn collection_sequences_grow_with_their_own_changes(bed: Bed) {
    let seqs = || [BOOKS, ORDERS].map(|ix| bed.store.collection_seq(HERE, ix));
    let made = bed.put(book("A", json!(1))).await;
    let [books, orders] = seqs();
    assert_eq!(books, made.version);
    bed.put(create(ORDERS, json!({}))).await;
    assert_eq!(seqs()[0], books);
    assert!(seqs()[1] > orders);
    let changed = bed.put(merge(BOOKS, &made.id, json!({"price": 2}))).await;
    assert_eq!(seqs()[0], changed.version);
    assert_eq!(bed.store.collection_seq(THERE, BOOKS), 0);
}

pub async fn children_windows_and_ids(bed: Bed) {
    let mut parents = Vec::new();
    for title in ["A", "B", "C"] {
        let parent = bed.put(book(title, json!(1))).await;
        for rating in 1..=parents.len() * 2 {
            bed.put(under(create(REVIEWS, json!({"rating": rating})), &parent.id)).await;
        }
        parents.push(parent.id);
    }
    let found = bed.store.children(HERE, REVIEWS, &parents, 2).await.unwrap();
    let ratings = |parent: &String| -> Vec<_> {
        let own = found.iter().filter(|child| child.parent == *parent);
        own.map(|child| value(&child.record, "rating")).collect()
    };
    assert_eq!(
        parents.iter().map(ratings).collect::<Vec<_>>(),
        [vec![], vec![json!(2), json!(1)], vec![json!(4), json!(3), json!(2)]]
    );
    let mut ids = parents.clone();
    ids.push("book_none".into());
    assert_eq!(bed.store.by_ids(HERE, BOOKS, &ids).await.unwrap().len(), 3);
    assert!(bed.store.children(THERE, REVIEWS, &parents, 2).await.unwrap().is_empty());
    let one = found[0].record.id.clone();
    assert_eq!(bed.store.by_ids(HERE, REVIEWS, &[one]).await.unwrap().len(), 1);
}
