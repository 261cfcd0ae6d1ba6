//! Decisions without a database: the stored record, the events and the response for each kind of
//! change.

use super::*;
use crate::caller::Scope;
use crate::id::Entropy;
use crate::parse::parse;
use crate::record;
use crate::write::{Callout, Cause};
use serde_json::json;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const LATER: Timestamp = Timestamp(1_800_000_060_000);

const SCHEMA: &str = r#"
[collections.shelves.fields]
label = "string"

[collections.books]
parent = "shelves"

[collections.books.fields]
title = { type = "string", required = true }
price = { type = "number", min = 0 }
copies = { type = "integer", min = 0 }
notes = "object"
pin = { type = "string", write_only = true }
series = { ref = "shelves" }
reason = { type = "string", read_only = true }

[collections.books.states]
field = "status"
names = ["new", "lent", "lost"]

[collections.books.actions.lend]
from = "new"
to = "lent"
params = { to_whom = { type = "string", required = true } }
set = { reason = "=request.to_whom" }

[[collections.books.actions.lend.rules]]
when = "record.price != null && record.price > 100.0"
status = 402
type = "card_error"
code = "too_dear"
message = "Too dear to lend."
extra = { decline_code = "dear" }
set = { reason = "too dear" }
event = "book.refused"

[[collections.books.actions.lend.rules]]
when = "record.copies != null && 100 / record.copies > 50"
message = "Too few are left."

[[collections.books.actions.lend.rules]]
when = "request.to_whom == 'nobody'"
message = "Nobody lends nothing."

[collections.books.actions.stamp]
from = "new"
set = { reason = "=client" }

[[collections.books.actions.stamp.rules]]
when = "client == null || !client.startsWith('10.')"
code = "not_at_the_desk"
message = "Only at the desk."

[[collections.books.timed]]
from = "lent"
to = "lost"
after = "60s"

[collections.messages]
feed = true

[collections.messages.fields]
text = "string"
"#;

struct Fixture {
    schema: Schema,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { schema: parse(SCHEMA).unwrap() }
    }

    fn write(&self, collection: &str, change: Change) -> Write {
        let collection = self.schema.find(collection).unwrap();
        Write {
            scope: Scope::new(1, false),
            collection,
            id: None,
            parent: self.schema.collections[collection].parent.map(|_| "shelf_1".to_owned()),
            change,
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: NOW,
            entropy: Entropy([5; 32]),
        }
    }

    fn decide_at(
        &self,
        write: &Write,
        current: Option<&Record>,
        now: Timestamp,
    ) -> Result<Decision, Problem> {
        let facts = Facts {
            current,
            was_deleted: false,
            parent_exists: true,
            missing: &[],
            next_seq: 42,
            now,
        };
        decide(&self.schema, write, &facts)
    }

    /// A book after its creation, with some fields changed by hand.
    fn book(&self, changes: Value) -> Record {
        let fields = object(json!({ "title": "Dune", "pin": "0000" }));
        let decision =
            self.decide_at(&self.write("books", Change::Create { fields }), None, NOW).unwrap();
        let Effect::Put(kept) = decision.effect else { panic!("a create keeps a record") };
        let mut fields = kept.fields;
        fields.extend(object(changes));
        let collection = &self.schema.collections[self.schema.find("books").unwrap()];
        Record {
            id: kept.id,
            number: 7,
            version: 7,
            updated: NOW,
            body: record::encode(collection, &fields),
            hidden: record::encode_hidden(collection, &fields),
        }
    }

    fn change(&self, current: &Record, change: Change) -> Result<Decision, Problem> {
        let mut write = self.write("books", change);
        write.id = Some(current.id.clone());
        self.decide_at(&write, Some(current), LATER)
    }

    fn lend(&self, current: &Record, to_whom: &str) -> Result<Decision, Problem> {
        let params = object(json!({ "to_whom": to_whom }));
        self.change(current, Change::Act { action: 0, params, callout: None })
    }
}

fn object(value: Value) -> Fields {
    value.as_object().unwrap().clone()
}

fn kept(decision: &Decision) -> Value {
    match &decision.effect {
        Effect::Put(kept) => serde_json::from_str(&kept.body).unwrap(),
        other => panic!("nothing was kept: {other:?}"),
    }
}

#[test]
fn a_create_assigns_id_parent_state_and_times_and_hides_secrets() {
    let fixture = Fixture::new();
    let fields = object(json!({ "title": "Dune", "pin": "0000" }));
    let write = fixture.write("books", Change::Create { fields });
    let decision = fixture.decide_at(&write, None, NOW).unwrap();
    let body = kept(&decision);
    assert!(crate::id::is_well_formed("book", body["id"].as_str().unwrap()));
    assert_eq!(
        (&body["object"], &body["shelf"], &body["status"], &body["price"]),
        (&json!("book"), &json!("shelf_1"), &json!("new"), &Value::Null)
    );
    assert_eq!(body["created_at"], json!(NOW.to_iso()));
    assert_eq!(body.get("pin"), None, "write-only fields are not in the served text");
    let Effect::Put(kept) = &decision.effect else { panic!() };
    assert_eq!(kept.hidden.as_deref(), Some(r#"{"pin":"0000"}"#));
    assert_eq!(decision.events[0].kind, "book.created");
    assert_eq!(decision.events[0].object, kept.body);
}

#[test]
fn feed_ids_are_the_sequence_of_their_creation() {
    let fixture = Fixture::new();
    let write =
        fixture.write("messages", Change::Create { fields: object(json!({ "text": "hi" })) });
    let decision = fixture.decide_at(&write, None, NOW).unwrap();
    assert_eq!(kept(&decision)["id"], json!(42));
}

#[test]
fn put_erases_fields_that_are_not_sent_and_keeps_assigned_ones() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({ "price": 3, "reason": "kept" }));
    let fields = object(json!({ "title": "New" }));
    let decision = fixture.change(&book, Change::Replace { fields }).unwrap();
    let body = kept(&decision);
    assert_eq!((&body["title"], &body["price"]), (&json!("New"), &Value::Null));
    assert_eq!((&body["reason"], &body["status"]), (&json!("kept"), &json!("new")));
    assert_eq!(body["created_at"], json!(NOW.to_iso()));
    assert_eq!(body["updated_at"], json!(LATER.to_iso()));
    let Effect::Put(kept) = &decision.effect else { panic!() };
    assert_eq!(kept.hidden, None, "the secret was omitted, so it is erased");
    let previous: Value =
        serde_json::from_str(decision.events[0].previous.as_deref().unwrap()).unwrap();
    assert_eq!(previous, json!({ "title": "Dune", "price": 3 }));
}

#[test]
fn patch_merges_objects_and_nulls_fields() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({ "price": 3, "notes": { "a": 1, "b": { "c": 2 } } }));
    let patch = object(json!({ "price": null, "notes": { "a": null, "b": { "d": 4 } } }));
    let decision = fixture.change(&book, Change::Merge { patch }).unwrap();
    let body = kept(&decision);
    assert_eq!(body["price"], Value::Null);
    assert_eq!(body["notes"], json!({ "b": { "c": 2, "d": 4 } }));
    assert!(decision.timers.is_none(), "what waits goes on waiting");
}

#[test]
fn a_change_that_changes_nothing_leaves_no_trace() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({ "price": 3 }));
    let all: Fields = serde_json::from_str(&book.body).unwrap();
    for patch in [object(json!({})), object(json!({ "price": 3 })), all] {
        let decision = fixture.change(&book, Change::Merge { patch }).unwrap();
        assert!(matches!(decision.effect, Effect::Nothing) && decision.events.is_empty());
    }
}

#[test]
fn assigned_fields_cannot_be_changed() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({}));
    let patch = object(json!({ "id": "book_other", "status": "lost", "created_at": "x" }));
    let problem = fixture.change(&book, Change::Merge { patch }).unwrap_err();
    assert_eq!(problem.code, Code::ValidationFailed);
    let mut fields: Vec<_> = problem.violations.iter().map(|v| (&*v.field, v.code)).collect();
    fields.sort_by_key(|(field, _)| *field);
    let expected = ["created_at", "id", "status"].map(|field| (field, Code::ReadOnly));
    assert_eq!(fields, expected);
}

#[test]
fn an_action_moves_the_state_sets_fields_and_starts_the_clock() {
    let fixture = Fixture::new();
    let decision = fixture.lend(&fixture.book(json!({ "price": 3 })), "Ada").unwrap();
    let body = kept(&decision);
    assert_eq!((&body["status"], &body["reason"]), (&json!("lent"), &json!("Ada")));
    assert_eq!(decision.events[0].kind, "book.lent");
    let timers = decision.timers.unwrap();
    assert_eq!((timers.len(), timers[0].due), (1, Timestamp(LATER.0 + 60_000)));
}

#[test]
fn the_refusal_of_an_action_in_the_wrong_state_names_the_right_ones() {
    let fixture = Fixture::new();
    let problem = fixture.lend(&fixture.book(json!({ "status": "lost" })), "Ada").unwrap_err();
    assert_eq!(problem.code, Code::InvalidState);
    assert_eq!(problem.extra["current_state"], "lost");
    assert_eq!(problem.extra["allowed"], json!([]));
}

#[test]
fn an_action_that_needs_a_state_is_refused_without_a_known_state() {
    let fixture = Fixture::new();
    for status in [json!(null), json!(7), json!(["new"]), json!("none")] {
        let book = fixture.book(json!({ "status": status }));
        let problem = fixture.lend(&book, "Ada").unwrap_err();
        assert_eq!(problem.code, Code::InvalidState, "{status}");
        assert_eq!(problem.extra["allowed"], json!([]), "{status}");
    }
}

#[test]
fn a_declared_refusal_answers_as_declared_and_leaves_its_trace() {
    let fixture = Fixture::new();
    let decision = fixture.lend(&fixture.book(json!({ "price": 101.5 })), "Ada").unwrap();
    let ResponseKind::Refused(problem) = &decision.response else {
        panic!("{:?}", decision.response)
    };
    let declared = problem.declared.as_ref().unwrap();
    assert_eq!((declared.status, &*declared.code), (402, "too_dear"));
    assert_eq!(problem.extra["decline_code"], "dear");
    let body = kept(&decision);
    assert_eq!((&body["status"], &body["reason"]), (&json!("new"), &json!("too dear")));
    assert_eq!(decision.events[0].kind, "book.refused");
}

#[test]
fn a_refusal_without_a_trace_keeps_nothing() {
    let fixture = Fixture::new();
    let decision = fixture.lend(&fixture.book(json!({ "price": 3.0 })), "nobody").unwrap();
    assert!(matches!(decision.effect, Effect::Nothing));
    let ResponseKind::Refused(problem) = &decision.response else {
        panic!("{:?}", decision.response)
    };
    assert_eq!(problem.declared.as_ref().unwrap().status, 422);
}

#[test]
fn a_rule_that_cannot_be_evaluated_refuses() {
    let fixture = Fixture::new();
    let problem = fixture.lend(&fixture.book(json!({ "copies": 0 })), "Ada").unwrap_err();
    assert_eq!(problem.code, Code::RuleFailed, "{}", problem.message);
    // The log says where to look; the client has nothing to do with it.
    let cause = problem.cause.as_deref().unwrap();
    assert!(cause.starts_with("schema file:38:9: Division by zero"), "{cause}");
    assert!(!problem.message.contains("zero"), "{}", problem.message);
}

#[test]
fn rules_and_set_see_the_address_of_the_client() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({}));
    let stamp = |client: Option<&str>| {
        let (action, params, callout) = (1, Fields::new(), None);
        let mut write = fixture.write("books", Change::Act { action, params, callout });
        write.id = Some(book.id.clone());
        write.cause.client = client.map(|address| address.parse().unwrap());
        fixture.decide_at(&write, Some(&book), LATER)
    };
    assert_eq!(kept(&stamp(Some("10.1.2.3")).unwrap())["reason"], "10.1.2.3");
    for client in ["192.0.2.1", "2001:db8::1"] {
        let decision = stamp(Some(client)).unwrap();
        let ResponseKind::Refused(problem) = decision.response else { panic!("{client}") };
        assert_eq!(problem.declared.as_ref().unwrap().code, "not_at_the_desk");
    }
    // A client that is not known satisfies no rule, not even one that compares it with null.
    let problem = stamp(None).unwrap_err();
    assert_eq!(problem.code, Code::RuleFailed);
    assert!(problem.cause.as_ref().unwrap().contains("X-Forwarded-For"));
}

#[test]
fn a_timed_transition_happens_only_in_its_state() {
    let fixture = Fixture::new();
    let fire = |status: &str| {
        let book = fixture.book(json!({ "status": status }));
        fixture.change(&book, Change::Timed { transition: 0 }).unwrap()
    };
    assert_eq!(kept(&fire("lent"))["status"], "lost");
    assert!(matches!(fire("new").effect, Effect::Nothing));
}

#[test]
fn the_change_of_a_handler_is_applied_and_its_mistakes_are_reported_as_its_own() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({ "price": 3.0 }));
    let act = |callout: Callout| {
        let params = object(json!({ "to_whom": "Ada" }));
        fixture.change(&book, Change::Act { action: 0, params, callout: Some(callout) })
    };
    let decision = act(Callout::Change(object(json!({ "reason": "checked" })))).unwrap();
    assert_eq!(kept(&decision)["reason"], "checked");
    for bad in [
        json!({ "nothing": 1 }),
        json!({ "price": -1 }),
        json!({ "title": null }),
        json!({ "status": "lent" }),
        json!({ "shelf": "shelf_1" }),
        json!({ "id": book.id }),
    ] {
        let problem = act(Callout::Change(object(bad))).unwrap_err();
        assert_eq!(problem.code, Code::HandlerInvalid);
    }
    let refusal = Problem::new(Code::GuardFailed, "no");
    let decision = act(Callout::Refuse(refusal)).unwrap();
    assert!(matches!(decision.effect, Effect::Nothing));
    assert!(matches!(decision.response, ResponseKind::Refused(_)));
}

#[test]
fn preconditions_references_parents_and_tombstones_are_checked() {
    let fixture = Fixture::new();
    let book = fixture.book(json!({}));
    let mut write = fixture.write("books", Change::Merge { patch: object(json!({ "price": 1 })) });
    write.id = Some(book.id.clone());
    for (precondition, passes) in [
        (Precondition::Versions(vec![6, 7]), true),
        (Precondition::Versions(vec![6]), false),
        (Precondition::Versions(vec![]), false),
        (Precondition::Exists, true),
        (Precondition::UnmodifiedSince(NOW), true),
        (Precondition::UnmodifiedSince(Timestamp(NOW.0 - 1_000)), false),
        (Precondition::Absent, false),
        (Precondition::NoneOf(vec![6, 8]), true),
        (Precondition::NoneOf(vec![6, 7]), false),
        (Precondition::All(vec![Precondition::Exists, Precondition::NoneOf(vec![7])]), false),
        (Precondition::All(vec![Precondition::Exists, Precondition::NoneOf(vec![6])]), true),
    ] {
        write.precondition = precondition.clone();
        let result = fixture.decide_at(&write, Some(&book), LATER);
        match result {
            Ok(_) => assert!(passes, "{precondition:?}"),
            Err(problem) => {
                assert!(!passes && problem.code == Code::PreconditionFailed, "{precondition:?}");
            }
        }
    }
    let missing = [Reference { field: "series".into(), collection: 0, id: "shelf_9".into() }];
    let facts = |parent_exists, was_deleted| Facts {
        current: None,
        was_deleted,
        parent_exists,
        missing: &missing,
        next_seq: 1,
        now: NOW,
    };
    let fields = object(json!({ "title": "x", "series": "shelf_9" }));
    let create = fixture.write("books", Change::Create { fields });
    assert_eq!(references(&fixture.schema, &create), missing);
    let problem = decide(&fixture.schema, &create, &facts(true, false)).unwrap_err();
    assert_eq!(problem.violations[0].code, Code::BadReference);
    let problem = decide(&fixture.schema, &create, &facts(false, false)).unwrap_err();
    assert_eq!(problem.code, Code::NotFound);
    let mut delete = fixture.write("books", Change::Delete);
    delete.id = Some("book_1".into());
    assert!(decide(&fixture.schema, &delete, &facts(true, true)).is_ok(), "repeated DELETE");
    let problem = decide(&fixture.schema, &delete, &facts(true, false)).unwrap_err();
    assert_eq!(problem.code, Code::NotFound);
}
