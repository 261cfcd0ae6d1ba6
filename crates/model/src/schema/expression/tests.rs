//! What is refused and what is accepted, and that the CEL library agrees. `random` makes
//! expressions of every type for every place.

mod formula;
mod random;
mod stack;

use super::*;
use crate::parse::parse;
use crate::schema::{BOOKSHOP, Schema};
use serde_json::json;

/// One field of each kind, optional and required, and an action with a parameter of each.
pub(super) const SCHEMA: &str = "
[collections.things.fields]
flag = 'boolean'
whole = 'integer'
price = 'number'
name = 'string'
at = 'timestamp'
day = 'date'
bag = 'object'
words = { type = 'array', items = 'string' }
sizes = { type = 'array', items = 'number' }
the_flag = { type = 'boolean', required = true }
the_whole = { type = 'integer', required = true }
the_price = { type = 'number', required = true }
the_name = { type = 'string', required = true }
the_at = { type = 'timestamp', required = true }
the_day = { type = 'date', required = true }
the_bag = { type = 'object', required = true }
the_words = { type = 'array', items = 'string', required = true }
the_sizes = { type = 'array', items = 'number', required = true }
pin = { type = 'string', write_only = true }
[collections.things.states]
names = ['new', 'old']
[collections.things.actions.go.params]
whole = 'integer'
price = 'number'
name = 'string'
bag = 'object'
the_whole = { type = 'integer', required = true }
the_name = { type = 'string', required = true }
";

pub(super) fn schema() -> Schema {
    parse(SCHEMA).unwrap()
}

pub(super) fn scope() -> Scope {
    let schema = schema();
    let things = &schema.collections[0];
    Scope::of_action(things, &things.actions[0].params)
}

fn messages(text: &str) -> Vec<String> {
    let found = Expression::compile(text).map_err(|complaint| vec![complaint]);
    let found = found.and_then(|expression| expression.check(&scope()));
    let complaints = found.err().unwrap_or_default();
    complaints.into_iter().map(|c| format!("{}: {}", c.at, c.message)).collect()
}

#[track_caller]
fn accepted(text: &str) {
    assert_eq!(messages(text), Vec::<String>::new(), "{text}");
}

#[track_caller]
fn refused(text: &str, at: usize, part: &str) {
    let found = messages(text);
    let place = format!("{at}: ");
    assert!(found.iter().any(|m| m.starts_with(&place) && m.contains(part)), "{text}: {found:?}");
}

#[test]
fn a_nullable_member_needs_a_check_first() {
    refused("record.whole > 3", 6, "`record.whole` can be null here; ask first: `record.whole !=");
    for text in [
        "record.whole != null && record.whole > 3",
        "null != record.whole && record.whole > 3",
        "has(record.whole) && record.whole > 3",
        "record.whole == null || record.whole > 3",
        "!has(record.whole) || record.whole > 3",
        "!(record.whole == null) && record.whole > 3",
        "!(record.whole == null || record.price == null) && record.price > 1 && record.whole > 3",
        "record.whole != null ? record.whole > 3 : false",
        "record.whole == null ? false : record.whole > 3",
        "(record.whole != null ? record.whole : 0) > 3",
        "(record.whole == null ? false : true) && record.whole > 3",
        "record.whole == 4 && record.whole + 1 == 5",
        "(record.whole == 4 || record.whole == 5) && record.whole > 3",
        "record.whole in [1, 2, 3] && record.whole > 3",
        "record.whole == request.the_whole && record.whole > 3",
        "type(record.whole) == int && record.whole > 3",
        "record.flag != null && record.flag",
        "record.words != null && record.words.all(word, word != '')",
        "record.name != null && record.name.matches('^a+$') && matches(record.name, 'b')",
        "record.bag == null || has(record.bag.x) && record.bag.x == 'a'",
        "record.whole == null",
        "record.the_whole != null",
        "record.pin == null",
    ] {
        accepted(text);
    }
    for (text, at) in [
        ("record.whole == null && record.whole > 3", 30),
        ("record.whole != null || record.whole > 3", 30),
        ("(record.whole != null || record.price != null) && record.whole > 3", 56),
        ("record.whole == record.whole && record.whole > 3", 38),
        ("record.price != null && record.whole > 3", 30),
        ("record.whole != null ? true : record.whole > 3", 36),
        ("record.name.size() > 1", 6),
        ("record.words.all(word, true)", 6),
        ("record.whole + 1 == 2", 6),
        ("-record.whole == 1", 7),
        ("!record.flag", 7),
        ("record.flag && true", 6),
        ("record.flag ? 1 == 1 : true", 6),
        ("record.bag.x == 1", 6),
        ("has(record.bag.x)", 10),
        ("'x' in record.bag", 13),
        ("record.name in record.the_bag", 6),
        ("string(record.whole) == ''", 13),
        ("record.words[0] == ''", 6),
        ("record.the_words[record.whole] == ''", 23),
    ] {
        refused(text, at, "can be null here");
    }
}

/// The members of an `object` field are those that a client sent.
#[test]
fn a_member_that_may_be_absent_or_of_any_type_needs_a_check_first() {
    refused("record.the_bag.x == 1", 14, "`record.the_bag.x` may be absent; ask first: `has(");
    refused("record.the_bag['a b'] == 1", 14, "`record.the_bag['a b']` may be absent");
    refused(
        "has(record.the_bag.x) && record.the_bag.x > 1",
        39,
        "the type of `record.the_bag.x` is not known here; ask first: `type(record.the_bag.x) ==",
    );
    refused("has(record.the_bag.x.y)", 18, "may be absent");
    for text in [
        "has(record.the_bag.x) && record.the_bag.x == 1",
        "has(record.the_bag.x) && type(record.the_bag.x) == int && record.the_bag.x > 1",
        "has(record.the_bag.x) && type(record.the_bag.x) == string && record.the_bag.x.size() > 1",
        "has(record.the_bag.x) && record.the_bag.x == 'a' && record.the_bag.x.size() > 1",
        "has(record.the_bag.x) && record.the_bag.x in ['a', 'b'] && record.the_bag.x.size() > 1",
        "'a b' in record.the_bag && record.the_bag['a b'] == 1",
        "record.the_bag.all(key, key.size() < 9) && size(record.the_bag) < 3",
        "has(record.the_bag.x) && type(record.the_bag.x) == map && has(record.the_bag.x.y)",
        "has(record.the_bag.x) && type(record.the_bag.x) == list && size(record.the_bag.x) == 1",
        "record.the_words.exists(w, w.startsWith('a')) && record.the_words.map(w, w.size()) == [1]",
        "record.the_words.filter(w, w != '').size() > 0 && record.the_words.exists_one(w, w == '')",
        "record.the_words.filter(w, w != '').all(w, w.size() < 9)",
        "{'a': 1}.a + 1 == 2",
    ] {
        accepted(text);
    }
}

#[test]
fn operators_and_functions_accept_only_their_types() {
    refused("record.the_whole + 1.5 > 2.0", 17, "write `double(record.the_whole)`");
    refused("1.5 * record.the_whole > 2.0", 4, "write `double(record.the_whole)`");
    refused("record.the_price % 2 == 1", 17, "`%` takes integers; write `int(…)`");
    accepted("double(record.the_whole) + 1.5 > 2");
    accepted("record.the_price > 2 && record.the_sizes[0] * 2.0 > 3");
    for (text, at, part) in [
        ("record.the_name + 1 == ''", 16, "`+` is not possible with a string and an integer"),
        ("record.the_name - 'a' == ''", 16, "`-` is not possible"),
        ("record.the_name > 1", 16, "`>` is not possible with a string and an integer"),
        ("record.the_words < record.the_words", 17, "`<` is not possible"),
        ("record.the_name == 1", 16, "a string and an integer are never equal"),
        ("record.the_flag != 'x'", 16, "always unequal"),
        ("record.the_name in [1, 2]", 16, "never in a list"),
        ("1 in record.the_words", 2, "never in a list"),
        ("'a' in record.the_name", 4, "`in` takes a list or an object; this is a string"),
        ("record.the_whole && true", 6, "`&&` takes a boolean; this is an integer"),
        ("!record.the_name", 7, "`!` takes a boolean; this is a string"),
        ("record.the_whole ? 1 : 2", 6, "`?:` takes a boolean; this is an integer"),
        ("-record.the_name == ''", 7, "`-` takes a number; this is a string"),
        ("record.the_name.size(1) == 1", 20, "size takes 1 values, the target included, not 2"),
        ("record.the_name.contains(1)", 25, "contains() takes a string; this is an integer"),
        ("contains(record.the_name, 'a')", 8, "contains is called as `x.contains(…)`"),
        ("record.the_whole.int() == 1", 20, "int is called as `int(x)`"),
        ("size(record.the_whole) == 1", 11, "size() takes a string, a list or an object"),
        ("record.the_name.matches('(')", 24, "not a regular expression: unclosed group"),
        ("record.the_name.matches(request.the_name)", 31, "must be a literal string"),
        ("record.the_name.upperAscii() == ''", 26, "calls 'upperAscii', which does not exist"),
        ("dyn(1) == 1", 3, "calls 'dyn', which does not exist"),
        ("timestamp(now) > timestamp('x')", 9, "calls 'timestamp', which does not exist"),
        ("record.the_name[0] == ''", 15, "a string cannot be indexed"),
        ("record.the_words['a'] == ''", 16, "a list has no member `a`"),
        ("record.the_words[1.0] == ''", 17, "a list is indexed with an integer; this is a number"),
        ("record.the_bag[record.the_name] == 1", 21, "a member is named with a literal"),
        ("record.the_name.x == 1", 15, "a string has no member `x`"),
        ("record.the_whole.all(x, true)", 20, "a macro goes through a list; this is an integer"),
        ("record.the_words.all(w, w)", 24, "takes a boolean; this is a string"),
        ("record.the_words.all(record, true)", 20, "`record` has a meaning already"),
        ("record.the_words.all(int, true)", 20, "`int` has a meaning already"),
        ("record.the_words.all(w, record.the_words.all(v, true))", 44, "inside another one"),
        ("{1: 2}.size() == 1", 1, "the name of a member is a literal string"),
        ("{'a': 1, 'a': 2}.size() == 1", 9, "`a` stands twice in the object"),
        ("{'a': 1}.b == 1", 8, "names no member declared here"),
        ("record.the_whole / 0 == 1", 19, "`/` by zero always fails"),
        ("1u == 1", 0, "whole numbers are written without `u` here"),
        ("b'a' == 'a'", 0, "there are no bytes here"),
        ("has(record)", 4, "invalid argument to has() macro"),
        ("has({'a': 1}.a)", 3, "has() takes a member, as in `has(record.x)`"),
        (".record.the_flag", 1, "unknown name"),
        ("event.type == 'x'", 0, "unknown name `event`"),
    ] {
        refused(text, at, part);
    }
}

#[test]
fn a_condition_is_true_or_false() {
    for (text, part) in [
        ("record.the_whole", "must be true or false; it is an integer"),
        ("record.flag", "must be true or false; it is a boolean, and can be null"),
        ("null", "must be true or false; it is null"),
        ("record.the_flag ? true : null", "and can be null"),
        ("type(1)", "it is a type"),
    ] {
        let found = Expression::compile(text).unwrap().check_condition(&scope()).unwrap_err();
        assert!(found[0].message.contains(part), "{text}: {found:?}");
    }
}

#[test]
fn has_asks_for_a_value() {
    let record = json!({ "a": null, "b": 1, "bag": { "n": null } });
    let record = record.as_object().unwrap();
    let inputs =
        Inputs { record, request: &Map::new(), client: None, now: "2026-01-01T00:00:00Z".into() };
    for (text, expected) in [
        ("has(record.a)", false),
        ("has(record.b)", true),
        ("has(record.c)", false),
        ("has(record.bag.n)", false),
        ("record.bag.exists(k, k == 'n')", true),
    ] {
        let found = Expression::compile(text).unwrap().holds(&inputs);
        assert_eq!(found, Ok(expected), "{text}");
    }
}

#[test]
fn an_expression_without_a_value_is_a_fault_and_not_a_no() {
    let record = json!({ "zero": 0, "big": i64::MAX, "list": [], "text": "x", "none": null });
    let record = record.as_object().unwrap();
    let inputs = Inputs { record, request: &Map::new(), client: None, now: String::new() };
    for (text, of_value) in [
        ("1 / record.zero == 1", true),
        ("1 % record.zero == 1", true),
        ("record.big + 1 > 0", true),
        ("record.list[0] == 1", true),
        ("int(record.text) == 1", true),
        ("record.none > 1", false),
        ("record.missing", false),
        ("record.text", false),
        ("nothing == 1", false),
    ] {
        let fault = Expression::compile(text).unwrap().holds(&inputs).unwrap_err();
        assert_eq!(fault.of_value, of_value, "{text}: {fault}");
    }
    let infinite = Expression::compile("1.0 / 0.0").unwrap().evaluate(&inputs);
    assert!(infinite.is_err(), "{infinite:?}: JSON has no such number");
}

#[test]
fn a_filter_knows_the_events_that_are_subscribed_to() {
    let schema = parse(BOOKSHOP).unwrap();
    let check = |patterns: &[&str], text: &str| {
        let scope = crate::webhook::filter::scope(&schema, patterns, None);
        let expression = Expression::compile(text).unwrap();
        let complaints = expression.check_condition(&scope).err().unwrap_or_default();
        complaints.into_iter().map(|complaint| complaint.message).collect::<Vec<_>>().join("; ")
    };
    let amount = "event.data.object.amount > 1000";
    assert_eq!(check(&["payment_intent.*"], amount), "");
    assert!(check(&["*"], amount).contains("may be absent"));
    // Applications may publish events with any object, so its type is not known either.
    let asked = format!(
        "has(event.data.object.amount) && type(event.data.object.amount) == int && {amount}"
    );
    assert_eq!(check(&["*"], &asked), "");
    let several = ["payment_intent.*", "book.*"];
    assert_eq!(check(&several, &format!("has(event.data.object.amount) && {amount}")), "");
    assert!(check(&several, amount).contains("may be absent"));
    assert!(check(&["book.*"], amount).contains("names no field declared here"));
    assert!(check(&["webhook_endpoint.*"], amount).contains("may be absent"));
    for text in [
        "event.type == 'payment_intent.created' && event.data.object.amount > 1000",
        "event.type in ['payment_intent.created', 'payment_intent.canceled'] && \
         event.data.object.amount > 1000",
        "event.type.startsWith('payment_intent.') ? event.data.object.amount > 1000 : true",
        "event.type.startsWith('book.') && event.livemode && event.created > 5",
        "event.request.id != null && event.request.id.size() > 3",
        "has(event.data.previous_attributes) && has(event.data.previous_attributes.title)",
    ] {
        assert_eq!(check(&["*"], text), "", "{text}");
    }
    for (text, part) in [
        ("event.type != 'payment_intent.created' && event.data.object.amount > 9", "may be absent"),
        ("event.type == 'book.created' && event.data.object.amount > 9", "names no field"),
        ("event.typ == 'x'", "names no member declared here (did you mean `type`?)"),
        ("event.type", "must be true or false"),
        ("event.created > 'x'", "is not possible"),
        ("record.x == 1", "unknown name `record` in the expression; it can use `event`"),
        ("event.request.id.size() > 1", "can be null here"),
    ] {
        assert!(check(&["*"], text).contains(part), "{text}: {}", check(&["*"], text));
    }
}
