//! Files that are right: what becomes of them.

use crate::parse::parse;
use crate::schema::rule::{Inputs, Template};
use crate::schema::{BOOKSHOP, Collection, ErrorShape, Field, INIT, Kind, Operations, Schema};
use serde_json::{Map, Value, json};
use std::time::Duration;

fn read(source: &str) -> Schema {
    parse(source).unwrap_or_else(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

fn collection<'s>(schema: &'s Schema, name: &str) -> &'s Collection {
    &schema.collections[schema.find(name).unwrap()]
}

fn field<'c>(collection: &'c Collection, name: &str) -> &'c Field {
    collection.field(name).unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn the_bookshop_is_served_in_the_order_of_its_file() {
    let schema = read(BOOKSHOP);
    let names: Vec<&str> = schema.routed().map(|(_, c)| c.name.as_str()).collect();
    assert_eq!(names[..5], ["books", "reviews", "orders", "payment-intents", "messages"]);
    let own = ["events", "webhook-endpoints", "deliveries", "attempts", "replays", "erasures"];
    assert_eq!(names[5..], own);
    let internal: Vec<&str> = schema.collections[5..7].iter().map(|c| c.name.as_str()).collect();
    assert_eq!(internal, ["accounts", "keys"]);
    let fields: Vec<&str> =
        schema.collections[0].fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(fields, ["title", "author", "price", "isbn"]);
    read(INIT);
}

#[test]
fn bookshop_names_and_limits_are_the_documented_ones() {
    let schema = read(BOOKSHOP);
    assert_eq!(schema.service.name, "bookshop");
    assert_eq!(schema.service.max_body_bytes, 1 << 20);
    let books = collection(&schema, "books");
    assert_eq!((books.object.as_str(), books.id_prefix.as_str()), ("book", "book"));
    assert_eq!(books.events.created, "book.created");
    assert_eq!(books.operations, Operations::ALL);
    assert!(field(books, "title").required && field(books, "author").search);
    assert_eq!(field(books, "price").min, Some(0.0));
    let isbn = &field(books, "isbn").pattern.as_ref().unwrap().0;
    for (text, fits) in [
        ("9780306406157", true),
        ("978-0-306-40615-7", true),
        ("030640615X", true),
        ("123", false),
        ("not an isbn", false),
    ] {
        assert_eq!(isbn.is_match(text), fits, "{text}");
    }
    let intents = collection(&schema, "payment-intents");
    assert_eq!((intents.object.as_str(), intents.id_prefix.as_str()), ("payment_intent", "pi"));
    assert_eq!(field(collection(&schema, "orders"), "quantity").default, Some(json!(1)));
}

#[test]
fn references_declare_on_delete_or_have_a_default() {
    let schema = parse(
        "[collections.people.fields]
needed = { ref = 'people', required = true }
free = { ref = 'people' }
tied = { ref = 'people', required = true, on_delete = 'cascade' }
held = { ref = 'people', on_delete = 'restrict' }
[collections.pets]
parent = 'people'
fields = { friend = { ref = 'people' } }
[collections.toys]
fields = { pet = { ref = 'pets', on_delete = 'cascade' } }",
    )
    .unwrap();
    let at = |name: &str| schema.find(name).unwrap();
    let said: Vec<_> = schema
        .referrers(at("people"))
        .map(|(_, _, field)| (field.name.as_str(), field.on_delete().name()))
        .collect();
    let expected = [
        ("needed", "restrict"),
        ("free", "set_null"),
        ("tied", "cascade"),
        ("held", "restrict"),
        ("friend", "set_null"),
    ];
    assert_eq!(said, expected, "and not the reference to the parent");
    assert_eq!(schema.deletes(at("people")), [at("people"), at("pets"), at("toys")]);
    assert_eq!(schema.deletes(at("toys")), [at("toys")]);
}

#[test]
fn a_child_begins_with_the_reference_to_its_parent() {
    let schema = read(BOOKSHOP);
    let reviews = collection(&schema, "reviews");
    let first = &reviews.fields[0];
    assert_eq!(first.name, "book");
    assert_eq!(first.reference, schema.find("books"));
    assert!(first.read_only && !first.required && !first.filter);
    assert_eq!(schema.parent_field(schema.find("reviews").unwrap()), Some("book"));
}

#[test]
fn the_state_is_a_filterable_field_that_no_request_can_write() {
    let schema = read(BOOKSHOP);
    let status = field(collection(&schema, "orders"), "status");
    assert!(status.read_only && status.filter && !status.required);
    assert_eq!(status.choices, ["created", "paid", "shipped", "cancelled"]);
    let declared = read(
        "[collections.orders.fields]
status = { type = 'string', sort = true, filter = false, description = 'Where it is.' }
[collections.orders.states]
names = ['open', 'closed']",
    );
    let orders = collection(&declared, "orders");
    let status = field(orders, "status");
    assert!(status.read_only && !status.filter && status.sort);
    assert_eq!(status.description.as_deref(), Some("Where it is."));
    assert_eq!(orders.fields.len(), 1);
    let states = orders.states.as_ref().unwrap();
    assert_eq!((states.field.as_str(), states.initial.as_str()), ("status", "open"));
}

#[test]
fn payments_are_refused_by_the_rule_that_fits() {
    let schema = read(BOOKSHOP);
    let intents = collection(&schema, "payment-intents");
    let confirm = &intents.actions[intents.action("confirm").unwrap()];
    let all_null: Map<String, Value> =
        intents.public_names().map(|name| (name.to_owned(), Value::Null)).collect();
    let check = |method: Value, request: Value, expected: Option<&str>| {
        let mut record = all_null.clone();
        record.insert("payment_method".to_owned(), method.clone());
        let sent = object(request.clone());
        let inputs = Inputs { record: &record, request: &sent, client: None, now: String::new() };
        let fired = confirm.rules.iter().find(|rule| rule.when.holds(&inputs).unwrap());
        assert_eq!(fired.map(|rule| rule.code.as_str()), expected, "{method} {request}");
        for rule in &confirm.rules {
            assert!(rule.when.evaluate(&inputs).unwrap().is_boolean(), "{method} {request}");
        }
    };
    check(Value::Null, json!({}), Some("payment_method_missing"));
    check(Value::Null, json!({"payment_method": null}), Some("payment_method_missing"));
    check(Value::Null, json!({"payment_method": "pm_card_visa"}), None);
    check(json!("pm_card_visa"), json!({}), None);
    check(json!("pm_card_visa"), json!({"payment_method": null}), None);
    check(json!("pm_card_declined"), json!({}), Some("card_declined"));
    check(json!("pm_card_declined"), json!({"payment_method": "pm_card_visa"}), None);
    check(
        json!("pm_card_visa"),
        json!({"payment_method": "pm_card_declined"}),
        Some("card_declined"),
    );
}

#[test]
fn a_declined_card_leaves_its_error_on_the_payment() {
    let schema = read(BOOKSHOP);
    let intents = collection(&schema, "payment-intents");
    let declined = &intents.actions[intents.action("confirm").unwrap()].rules[1];
    assert_eq!((declined.status, declined.kind.as_str()), (402, "card_error"));
    assert_eq!(declined.extra["decline_code"], "generic_decline");
    assert_eq!(declined.event.as_deref(), Some("payment_intent.payment_failed"));
    assert_eq!(declined.to, None);
    assert_eq!(declined.set[0].field, "last_payment_error");
    let Template::Fixed(error) = &declined.set[0].value else { panic!("computed") };
    assert_eq!(error["code"], "card_declined");
}

#[test]
fn a_confirmed_payment_keeps_the_method_that_was_used() {
    let schema = read(BOOKSHOP);
    let intents = collection(&schema, "payment-intents");
    let confirm = &intents.actions[intents.action("confirm").unwrap()];
    assert_eq!(confirm.set[0].field, "payment_method");
    let check = |request: Value, expected: &str| {
        let record = object(json!({"payment_method": "pm_old"}));
        let request = object(request);
        let inputs =
            Inputs { record: &record, request: &request, client: None, now: String::new() };
        assert_eq!(confirm.set[0].value.value(&inputs), Ok(json!(expected)));
        assert_eq!(confirm.set[1].value.value(&inputs), Ok(Value::Null));
    };
    check(json!({}), "pm_old");
    check(json!({"payment_method": "pm_new"}), "pm_new");
    let timed = &intents.timed[0];
    assert_eq!((timed.from.as_str(), timed.to.as_str()), ("processing", "succeeded"));
    assert_eq!(
        (timed.after, timed.event.as_str()),
        (Duration::from_secs(1), "payment_intent.succeeded")
    );
}

#[test]
fn a_cancelled_order_may_leave_the_reason_out() {
    let schema = read(BOOKSHOP);
    let orders = collection(&schema, "orders");
    let cancel = &orders.actions[orders.action("cancel").unwrap()];
    assert_eq!(
        (cancel.event.as_str(), cancel.to.as_deref()),
        ("order.cancelled", Some("cancelled"))
    );
    let record = Map::new();
    for (request, expected) in
        [(json!({}), Value::Null), (json!({"reason": "late"}), json!("late"))]
    {
        let request = object(request);
        let inputs =
            Inputs { record: &record, request: &request, client: None, now: String::new() };
        assert_eq!(cancel.set[0].value.value(&inputs), Ok(expected));
    }
}

#[test]
fn feeds_are_append_only_unless_the_file_says_otherwise() {
    let schema = read(BOOKSHOP);
    let messages = collection(&schema, "messages");
    assert_eq!(messages.feed.as_ref().unwrap().live_name, "message");
    let ops = messages.operations;
    assert!(ops.list && ops.get && ops.create && !ops.replace && !ops.update && !ops.delete);
    let schema = read(
        "[collections.notes]
feed = true
operations = ['list', 'delete']",
    );
    let notes = collection(&schema, "notes");
    assert_eq!(notes.feed.as_ref().unwrap().live_name, "note");
    assert!(notes.operations.list && notes.operations.delete && !notes.operations.create);
}

#[test]
fn every_setting_of_the_service_is_reachable() {
    let schema = read(
        "[service]
name = 'x'
version = 2026-05-06
mount = '/shop/v2'
errors = 'flat'
max_page = 1_000
max_body = 65536
rate_limit = { requests = 10, window = '1m' }
[collections.books]",
    );
    let service = schema.service;
    assert_eq!((service.version.as_str(), service.mount.as_str()), ("2026-05-06", "/shop/v2"));
    assert_eq!(service.errors, ErrorShape::Flat);
    assert_eq!((service.max_page, service.max_body_bytes), (1000, 65_536));
    assert_eq!(service.rate_limit.requests, 10);
    assert_eq!(service.rate_limit.window, Duration::from_secs(60));
}

#[test]
fn every_option_of_a_collection_and_its_fields_is_reachable() {
    let schema = read(
        "[collections.people]
id_prefix = 'per'
require_if_match = true
require_idempotency_key = true
cache_control = 'public, max-age=60'
events = { created = 'person.born', deleted = 'person.gone' }
indexes = [['city', 'born']]
[collections.people.fields]
city = { type = 'string', filter = true, default = 'Kiel' }
born = { type = 'date', sort = true, default = 1999-12-31 }
seen = { type = 'timestamp', default = 2026-01-01T02:00:00+02:00 }
tags = { type = 'array', items = 'string', max_length = 5, default = ['a'] }
extra = 'object'
email = { type = 'string', unique = true }
secret = { type = 'string', write_only = true }
friend = { ref = 'people' }
active = { type = 'boolean', default = true, filter = true }
ratio = { type = 'number', min = -0.5, max = 0.5, default = 0.25 }
[collections.people.actions.wave-back]
handler = { url = 'https://hands.example/wave', timeout = '500ms' }
[collections.people.actions.greet]
handler = 'http://127.0.0.1:9000/greet'",
    );
    let people = collection(&schema, "people");
    assert_eq!((people.object.as_str(), people.id_prefix.as_str()), ("person", "per"));
    assert!(people.require_if_match && people.require_idempotency_key);
    assert_eq!(people.cache_control, "public, max-age=60");
    assert_eq!(people.events.created, "person.born");
    assert_eq!(people.events.updated, "person.updated");
    assert_eq!(people.indexes[0].fields, ["city", "born"]);
    assert_eq!(field(people, "born").default, Some(json!("1999-12-31")));
    assert_eq!(field(people, "seen").default, Some(json!("2026-01-01T00:00:00.000Z")));
    assert_eq!(field(people, "tags").kind, Kind::Array(Box::new(Kind::String)));
    assert_eq!(field(people, "friend").reference, schema.find("people"));
    let [wave, greet] = people.actions.as_slice() else { panic!("two actions") };
    assert_eq!((wave.name.as_str(), wave.event.as_str()), ("wave-back", "person.wave_back"));
    assert_eq!(wave.handler.as_ref().unwrap().timeout, Duration::from_millis(500));
    assert_eq!(greet.handler.as_ref().unwrap().timeout, Duration::from_secs(10));
}

#[test]
fn a_rule_needs_only_its_condition_and_its_message() {
    let schema = read(
        "[collections.orders.fields]
quantity = 'integer'
[[collections.orders.actions.pay.rules]]
when = 'record.quantity != null && record.quantity > 100'
message = 'Too many.'",
    );
    let rule = &collection(&schema, "orders").actions[0].rules[0];
    assert_eq!((rule.status, rule.code.as_str()), (422, "guard_failed"));
    assert_eq!(rule.kind, "invalid_request_error");
    assert!(rule.event.is_none() && rule.set.is_empty());
}

/// The mistakes that make a rule silently never fire: whole against broken numbers, and null.
#[test]
fn rules_compare_numbers_of_both_kinds_and_survive_null() {
    let schema = read(
        "[collections.orders.fields]
price = 'number'
[[collections.orders.actions.pay.rules]]
when = 'record.price != null && record.price > 100'
message = 'Too dear.'",
    );
    let rule = &collection(&schema, "orders").actions[0].rules[0];
    let request = Map::new();
    for (price, fires) in
        [(json!(100.5), true), (json!(101), true), (json!(99.5), false), (json!(null), false)]
    {
        let record = object(json!({ "price": price }));
        let inputs =
            Inputs { record: &record, request: &request, client: None, now: String::new() };
        assert_eq!(rule.when.holds(&inputs), Ok(fires), "{price}");
    }
}
