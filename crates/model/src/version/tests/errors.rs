//! Errors use the words of the version, and are decided over the current record.

use super::*;
use crate::caller::Scope;
use crate::decide::{self, Effect, Facts};
use crate::id::Entropy;
use crate::write::{Cause, Change, Precondition, Write};

const FILE: &str = "[collections.shelves]
[collections.books.fields]
title = { type = 'string', required = true, max_length = 10 }
shelf = { ref = 'shelves' }
price = { type = 'integer', max = 100000 }
nick = 'string'
reason = { type = 'string', read_only = true }
[collections.books.states]
names = ['open', 'cancelled']
[collections.books.actions.cancel]
from = 'open'
to = 'cancelled'
[[collections.books.actions.cancel.rules]]
when = 'record.title == null'
code = 'no_title'
param = 'title'
message = 'The `title` is missing.'
[[versions]]
date = '2001-01-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'name', to = 'title' }
[[versions.changes]]
collection = 'books'
rename = { from = 'rack', to = 'shelf' }
[[versions.changes]]
collection = 'books'
rename = { from = 'why', to = 'reason' }
[[versions.changes]]
collection = 'books'
removed = { field = 'nick' }
[[versions.changes]]
collection = 'books'
convert = { field = 'price', from = 'number',
  up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
[[versions.changes]]
collection = 'books'
enum_map = { field = 'status', values = { canceled = 'cancelled' } }
[[versions.changes]]
collection = 'books'
code = { from = 'name_missing', to = 'no_title' }
[[versions]]
date = '2000-01-01'";

const BOOKS: usize = 1;

struct Fixture {
    versions: Versions,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { versions: Versions::new(&Arc::new(parse(FILE).unwrap())) }
    }

    fn old(&self) -> &Arc<View> {
        self.versions.get(1).unwrap()
    }

    fn record(&self, fields: Value) -> Record {
        record(&self.versions.kept().collections[BOOKS], &object(fields))
    }

    fn decide(&self, current: &Record, change: Change, view: bool) -> Result<Fields, Problem> {
        let view = view.then(|| self.old());
        let schema = &self.versions.newest().schema;
        let write = write(BOOKS, change, view);
        for reference in decide::references(schema, &write) {
            assert_eq!((&*reference.field, reference.collection), ("shelf", 0));
        }
        decided(schema, &write, current)
    }
}

fn write(collection: usize, change: Change, view: Option<&Arc<View>>) -> Write {
    Write {
        scope: Scope::new(1, false),
        collection,
        id: Some("book_1".into()),
        parent: None,
        change,
        view: view.cloned(),
        precondition: Precondition::None,
        idempotency: None,
        cause: Cause::default(),
        now: Timestamp(1),
        entropy: Entropy([5; 32]),
    }
}

fn decided(schema: &Schema, write: &Write, current: &Record) -> Result<Fields, Problem> {
    let facts = Facts {
        current: Some(current),
        was_deleted: false,
        parent_exists: true,
        missing: &[],
        next_seq: 2,
        now: Timestamp(1),
    };
    match decide::decide(schema, write, &facts)?.effect {
        Effect::Put(kept) => Ok(kept.fields),
        _ => Ok(current.fields()),
    }
}

#[test]
fn errors_use_the_words_of_the_version() {
    let fixture = Fixture::new();
    let current = fixture.record(json!({"title": "A", "price": 250}));
    for (patch, param, code, message) in [
        (json!({"price": 1001}), "price", Code::TooLarge, "`price` has a value that newer…"),
        (json!({"why": "x"}), "why", Code::ReadOnly, "`why` is assigned by the service…"),
        (json!({"status": "open"}), "status", Code::ReadOnly, "`status` is assigned…"),
    ] {
        let patch = fixture.old().body(BOOKS, object(patch), Mode::Merge).unwrap();
        let problem = fixture.decide(&current, Change::Merge { patch }, true).unwrap_err();
        let problem = fixture.old().explain(BOOKS, &Fields::new(), problem);
        assert_eq!(problem.param.as_deref(), Some(param));
        assert_eq!((problem.violations[0].code, &*problem.violations[0].field), (code, param));
        let head = message.trim_end_matches('…');
        assert!(problem.message.starts_with(head), "{}", problem.message);
    }
    let problem =
        fixture.old().body(BOOKS, object(json!({"title": "x"})), Mode::Create).unwrap_err();
    let found: Vec<_> = problem.violations.iter().map(|v| (&*v.field, v.code)).collect();
    assert_eq!(found, [("title", Code::UnknownField), ("name", Code::Required)]);
    let taken = Violation::new("title", Code::NotUnique, "Another book has this `title`.");
    let taken = Problem::of(Code::ValidationFailed, vec![taken.value(&json!("A"))]);
    let problem = fixture.old().explain(BOOKS, &Fields::new(), taken);
    assert_eq!(problem.message, "Another book has this `name`.");
    assert_eq!((problem.param.as_deref(), &problem.value), (Some("name"), &Some(json!("A"))));
    let sent = object(json!({"name": "A", "price": 1001}));
    let problem = fixture.old().body(BOOKS, sent, Mode::Create).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some("price"));
}

#[test]
fn states_and_codes_of_refusals_are_those_of_the_version() {
    let fixture = Fixture::new();
    let current = fixture.record(json!({"title": "A", "status": "cancelled"}));
    let act = Change::Act { action: 0, params: Fields::new(), callout: None };
    let problem = fixture.decide(&current, act, false).unwrap_err();
    let problem = fixture.old().explain(BOOKS, &Fields::new(), problem);
    assert_eq!(problem.extra["current_state"], "canceled");
    assert_eq!(
        problem.message,
        "`cancel` is not possible while the book is `canceled`; it needs open."
    );
    let view = fixture.old();
    assert_eq!(view.code_down(BOOKS, "no_title"), "name_missing");
    assert_eq!(view.code_down(BOOKS, "other"), "other");
    assert_eq!(fixture.versions.newest().code_down(BOOKS, "no_title"), "no_title");
    let mut refused = Problem::new(Code::GuardFailed, "The `title` is missing.").param("title");
    refused.declared = Some(crate::problem::Declared {
        status: 422,
        kind: "invalid_request_error".into(),
        code: "no_title".into(),
    });
    let problem = view.explain(BOOKS, &Fields::new(), refused);
    assert_eq!(problem.message, "The `name` is missing.");
    assert_eq!(problem.param.as_deref(), Some("name"));
    assert_eq!(problem.declared.as_ref().unwrap().code, "name_missing");
}

/// The violations of a create in the oldest version: fields, codes, messages and values.
fn refused(versions: &Versions, sent: Value) -> Vec<(String, Code, String, Option<Value>)> {
    let (view, _) = oldest(versions);
    let problem = view.body(0, object(sent), Mode::Create).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some(&*problem.violations[0].field));
    let parts =
        |one: &Violation| (one.field.clone(), one.code, one.message.clone(), one.value.clone());
    problem.violations.iter().map(parts).collect()
}

#[test]
fn a_violation_of_a_member_that_moved_out_names_its_path() {
    let versions = service(
        "details = 'object'\nsku = { type = 'string', max_length = 4, unique = true }",
        &[
            "move = { from = 'details.sku', to = 'sku' }",
            "rename = { from = 'extra', to = 'details' }",
        ],
    );
    let message = "`extra.sku` must be a string, not a number.".to_owned();
    let expected = ("extra.sku".to_owned(), Code::WrongType, message, Some(json!(5)));
    assert_eq!(refused(&versions, json!({"extra": {"sku": 5}})), [expected]);
    let message = "`extra.sku` must have at most 4 characters.".to_owned();
    let expected = ("extra.sku".to_owned(), Code::TooLong, message, Some(json!("12345")));
    assert_eq!(refused(&versions, json!({"extra": {"sku": "12345"}})), [expected]);
    let (view, _) = oldest(&versions);
    let taken = Violation::new("sku", Code::NotUnique, "Another book has this `sku`.");
    let taken = Problem::of(Code::ValidationFailed, vec![taken.value(&json!("1"))]);
    let problem = view.explain(0, &Fields::new(), taken);
    assert_eq!(problem.message, "Another book has this `extra.sku`.");
    assert_eq!((problem.param.as_deref(), &problem.value), (Some("extra.sku"), &Some(json!("1"))));
}

/// The limits of a stored field mean nothing to a client that sends it in another unit.
#[test]
fn a_converted_value_that_newer_versions_refuse_is_named_as_it_was_sent() {
    let file = "[collections.orders.actions.pay.params]
amount = { type = 'integer', max = 100000, required = true }
[[versions]]
date = '2001-01-01'
[[versions.changes]]
collection = 'orders'
action = 'pay'
convert = { field = 'amount', from = 'number',
  up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
[[versions]]
date = '2000-01-01'";
    let versions = Versions::new(&Arc::new(parse(file).unwrap()));
    let view = versions.get(1).unwrap();
    for (sent, message) in [
        (
            json!({"amount": 2000}),
            "`amount` has a value that newer versions of this service refuse.",
        ),
        (
            json!({"amount": 0.001}),
            "`amount` has a value that newer versions of this service cannot express.",
        ),
        (json!({}), "`amount` is required."),
    ] {
        let problem = view.params(0, 0, object(sent.clone())).unwrap_err();
        assert_eq!(problem.message, message);
        assert_eq!(problem.violations.len(), 1, "{problem:?}");
        assert_eq!(problem.value.as_ref(), sent.get("amount"));
    }
    assert_eq!(view.params(0, 0, object(json!({"amount": 12.5}))).unwrap()["amount"], 1250);
}
