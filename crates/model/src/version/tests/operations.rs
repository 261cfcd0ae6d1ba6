//! Each operation alone: records down, creates, PATCH and PUT up, queries, what changed.

use super::*;
use crate::query::{self, Filter, Page, Query, SortKey, Test};
use crate::record::Scalar;

/// What one change means for the version before it.
struct Case {
    fields: &'static str,
    change: &'static str,
    /// A kept record and how it is shown.
    shown: &'static [(&'static str, &'static str)],
    /// A create of the old version and what is kept.
    created: &'static [(&'static str, &'static str)],
    /// A kept record, a PATCH, and what changes.
    patched: &'static [(&'static str, &'static str, &'static str)],
    /// The same for a PUT.
    replaced: &'static [(&'static str, &'static str, &'static str)],
}

const NONE: Case =
    Case { fields: "", change: "", shown: &[], created: &[], patched: &[], replaced: &[] };

fn json_of(text: &str) -> Fields {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Without nulls and without what the service assigns.
fn plain(fields: &Fields) -> Fields {
    let mut plain = fields.clone();
    plain.retain(|name, value| !value.is_null() && !validate::ASSIGNED.contains(&name.as_str()));
    plain
}

impl Case {
    fn check(&self) {
        let versions = service(self.fields, &[self.change]);
        let (view, lens) = oldest(&versions);
        for (kept, shown) in self.shown {
            let (kept, shown) = (json_of(kept), json_of(shown));
            assert_eq!(plain(&lens.down(&kept)), shown, "{}: down {kept:?}", self.change);
            let text = lens.show(&record(&versions.newest().schema, &kept));
            let encoded = record::encode(&view.schema.collections[0], &lens.down(&kept));
            assert_eq!(text, encoded, "{}: show {kept:?}", self.change);
        }
        for (sent, kept) in self.created {
            let made = view.body(0, json_of(sent), Mode::Create).unwrap();
            assert_eq!(plain(&made), json_of(kept), "{}: create {sent}", self.change);
        }
        for (current, sent, changes) in self.patched {
            let patch = view.body(0, json_of(sent), Mode::Merge).unwrap();
            let changed = lens.merge(&json_of(current), &patch);
            assert_eq!(changed, json_of(changes), "{}: patch {current} {sent}", self.change);
        }
        for (current, sent, changes) in self.replaced {
            let put = view.body(0, json_of(sent), Mode::Replace).unwrap();
            let changed = lens.replace(&json_of(current), &put);
            assert_eq!(changed, json_of(changes), "{}: put {current} {sent}", self.change);
        }
    }
}

#[test]
fn a_renamed_field_keeps_its_old_name_for_old_clients() {
    Case {
        fields: "title = { type = 'string', required = true }\npages = 'integer'",
        change: "rename = { from = 'name', to = 'title' }",
        shown: &[(r#"{"title":"Dune","pages":3}"#, r#"{"name":"Dune","pages":3}"#)],
        created: &[(r#"{"name":"Dune"}"#, r#"{"title":"Dune"}"#)],
        patched: &[
            (r#"{"title":"Dune","pages":3}"#, r#"{"name":"Emma"}"#, r#"{"title":"Emma"}"#),
            (r#"{"title":"Dune","pages":3}"#, r#"{"pages":null}"#, r#"{"pages":null}"#),
            (r#"{"title":"Dune"}"#, r#"{"name":"Dune"}"#, "{}"),
        ],
        replaced: &[(
            r#"{"title":"Dune","pages":3}"#,
            r#"{"name":"Emma"}"#,
            r#"{"title":"Emma","pages":null}"#,
        )],
    }
    .check();
}

#[test]
fn a_field_that_moved_into_an_object_stays_where_it_was_for_old_clients() {
    let into = Case {
        fields: "details = 'object'",
        change: "move = { from = 'isbn', to = 'details.isbn' }",
        shown: &[(r#"{"details":{"isbn":"1","x":2}}"#, r#"{"isbn":"1"}"#), ("{}", "{}")],
        created: &[(r#"{"isbn":"1"}"#, r#"{"details":{"isbn":"1"}}"#), ("{}", "{}")],
        patched: &[
            (
                r#"{"details":{"isbn":"1","x":2}}"#,
                r#"{"isbn":"2"}"#,
                r#"{"details":{"isbn":"2","x":2}}"#,
            ),
            (r#"{"details":{"isbn":"1"}}"#, r#"{"isbn":null}"#, r#"{"details":{}}"#),
        ],
        replaced: &[(r#"{"details":{"isbn":"1","x":2}}"#, r#"{}"#, r#"{"details":{"x":2}}"#)],
    };
    into.check();
    Case {
        change: "move = { from = { name = 'isbn', type = 'integer' }, to = 'details.isbn', \
                 existing = true }",
        shown: &[(r#"{"details":{"isbn":1,"x":2}}"#, r#"{"isbn":1,"details":{"x":2}}"#)],
        created: &[(r#"{"isbn":1,"details":{"x":2}}"#, r#"{"details":{"isbn":1,"x":2}}"#)],
        patched: &[(
            r#"{"details":{"isbn":1,"x":2}}"#,
            r#"{"details":{"y":3}}"#,
            r#"{"details":{"isbn":1,"x":2,"y":3}}"#,
        )],
        replaced: &[(r#"{"details":{"isbn":1}}"#, r#"{}"#, r#"{"details":null}"#)],
        ..into
    }
    .check();
}

#[test]
fn a_member_that_became_a_field_stays_a_member_for_old_clients() {
    Case {
        fields: "details = 'object'\nisbn = 'string'",
        change: "move = { from = 'details.isbn', to = 'isbn' }",
        shown: &[
            (r#"{"isbn":"1","details":{"x":2}}"#, r#"{"details":{"isbn":"1","x":2}}"#),
            (r#"{"isbn":"1"}"#, r#"{"details":{"isbn":"1"}}"#),
        ],
        created: &[
            (r#"{"details":{"isbn":"1"}}"#, r#"{"isbn":"1","details":{}}"#),
            (r#"{"details":{}}"#, r#"{"details":{}}"#),
        ],
        patched: &[(
            r#"{"isbn":"1","details":{"x":2}}"#,
            r#"{"details":{"isbn":"2"}}"#,
            r#"{"isbn":"2"}"#,
        )],
        replaced: &[(
            r#"{"isbn":"1","details":{"x":2}}"#,
            r#"{"details":{"isbn":"1"}}"#,
            r#"{"details":{}}"#,
        )],
    }
    .check();
}

#[test]
fn a_member_that_old_clients_cannot_see_stays_when_they_write() {
    Case {
        fields: "extra = 'object'\nsku = 'string'",
        change: "move = { from = 'extra.sku', to = 'sku' }",
        shown: &[(
            r#"{"sku":"top","extra":{"sku":"in","k":1}}"#,
            r#"{"extra":{"sku":"top","k":1}}"#,
        )],
        patched: &[
            (
                r#"{"sku":"top","extra":{"sku":"in","k":1}}"#,
                r#"{"extra":{"u":2}}"#,
                r#"{"extra":{"sku":"in","k":1,"u":2}}"#,
            ),
            (
                r#"{"sku":"top","extra":{"sku":"in"}}"#,
                r#"{"extra":{"sku":"new"}}"#,
                r#"{"sku":"new"}"#,
            ),
        ],
        replaced: &[(
            r#"{"sku":"top","extra":{"sku":"in","k":1}}"#,
            r#"{"extra":{"u":2}}"#,
            r#"{"sku":null,"extra":{"sku":"in","u":2}}"#,
        )],
        ..NONE
    }
    .check();
    Case {
        fields: "one = 'object'\ntwo = 'object'",
        change: "move = { from = 'one.w', to = 'two.w' }",
        patched: &[(
            r#"{"one":{"w":1},"two":{"w":2}}"#,
            r#"{"one":{"u":3}}"#,
            r#"{"one":{"w":1,"u":3}}"#,
        )],
        ..NONE
    }
    .check();
}

#[test]
fn a_split_field_is_one_text_for_old_clients() {
    Case {
        fields: "first = 'string'\nlast = 'string'",
        change: "split = { from = { name = 'name', type = 'string' }, to = ['first', 'last'], \
                 by = ' ' }",
        shown: &[
            (r#"{"first":"Ada","last":"King Noel"}"#, r#"{"name":"Ada King Noel"}"#),
            (r#"{"last":"King"}"#, r#"{"name":"King"}"#),
            ("{}", "{}"),
        ],
        created: &[
            (r#"{"name":"Ada King Noel"}"#, r#"{"first":"Ada","last":"King Noel"}"#),
            (r#"{"name":"Ada"}"#, r#"{"first":"Ada"}"#),
        ],
        patched: &[
            (r#"{"first":"Ada","last":"King"}"#, r#"{"name":"Ada Noel"}"#, r#"{"last":"Noel"}"#),
            (r#"{"first":"Ada","last":"King"}"#, "{}", "{}"),
            // What was read is sent back: nothing changes, although it would be split elsewhere.
            (r#"{"first":null,"last":"King"}"#, r#"{"name":"King"}"#, "{}"),
        ],
        replaced: &[(r#"{"first":"Ada","last":"King"}"#, "{}", r#"{"first":null,"last":null}"#)],
    }
    .check();
}

#[test]
fn merged_fields_stay_apart_for_old_clients() {
    Case {
        fields: "name = 'string'",
        change: "merge = { from = [{ name = 'first', type = 'string', required = true, \
                 pattern = '^[^ ]*$' }, { name = 'last', type = 'string' }], to = 'name', by = ' \
                 ' }",
        shown: &[(r#"{"name":"Ada King Noel"}"#, r#"{"first":"Ada","last":"King Noel"}"#)],
        created: &[
            (r#"{"first":"Ada","last":"King"}"#, r#"{"name":"Ada King"}"#),
            (r#"{"first":"Ada"}"#, r#"{"name":"Ada"}"#),
        ],
        patched: &[(r#"{"name":"Ada King"}"#, r#"{"first":"Eve"}"#, r#"{"name":"Eve King"}"#)],
        replaced: &[(r#"{"name":"Ada King"}"#, r#"{"first":"Eve"}"#, r#"{"name":"Eve"}"#)],
    }
    .check();
}

#[test]
fn a_field_of_another_type_has_its_old_one_for_old_clients() {
    Case {
        fields: "price = 'integer'",
        change: "retype = { field = 'price', from = 'number', factor = 100 }",
        shown: &[(r#"{"price":1255}"#, r#"{"price":12.55}"#)],
        created: &[(r#"{"price":12.5}"#, r#"{"price":1250}"#)],
        patched: &[(r#"{"price":1255}"#, r#"{"price":1}"#, r#"{"price":100}"#)],
        replaced: &[(r#"{"price":1255}"#, r#"{"price":12.55}"#, "{}")],
    }
    .check();
    Case {
        fields: "at = 'timestamp'",
        change: "retype = { field = 'at', from = 'integer', by = 'seconds' }",
        shown: &[(r#"{"at":"1970-01-01T00:01:00.500Z"}"#, r#"{"at":60}"#)],
        created: &[(r#"{"at":60}"#, r#"{"at":"1970-01-01T00:01:00.000Z"}"#)],
        // The half second stays, since the client did not see it.
        patched: &[(r#"{"at":"1970-01-01T00:01:00.500Z"}"#, r#"{"at":60}"#, "{}")],
        ..NONE
    }
    .check();
    Case {
        fields: "code = 'string'",
        change: "retype = { field = 'code', from = 'integer', by = 'text' }",
        shown: &[(r#"{"code":"42"}"#, r#"{"code":42}"#), (r#"{"code":"x"}"#, "{}")],
        created: &[(r#"{"code":42}"#, r#"{"code":"42"}"#)],
        ..NONE
    }
    .check();
    Case {
        fields: "tags = { type = 'array', items = 'string' }",
        change: "retype = { field = 'tags', from = 'string', by = 'list' }",
        shown: &[(r#"{"tags":["a","b"]}"#, r#"{"tags":"a"}"#)],
        created: &[(r#"{"tags":"a"}"#, r#"{"tags":["a"]}"#)],
        patched: &[(r#"{"tags":["a","b"]}"#, r#"{"tags":"a"}"#, "{}")],
        ..NONE
    }
    .check();
    Case {
        fields: "size = { type = 'string', enum = ['small', 'large'] }",
        change: "retype = { field = 'size', from = 'boolean', map = { true = 'large', \
                 false = 'small' } }",
        shown: &[(r#"{"size":"large"}"#, r#"{"size":true}"#)],
        created: &[(r#"{"size":false}"#, r#"{"size":"small"}"#)],
        ..NONE
    }
    .check();
}

#[test]
fn old_clients_keep_their_words_for_values() {
    Case {
        fields: "kind = { type = 'string', enum = ['new', 'cancelled', 'refunded'], \
                 default = 'cancelled' }",
        change: "enum_map = { field = 'kind', values = { canceled = 'cancelled' }, \
                 down = { refunded = 'canceled' } }",
        shown: &[
            (r#"{"kind":"cancelled"}"#, r#"{"kind":"canceled"}"#),
            (r#"{"kind":"refunded"}"#, r#"{"kind":"canceled"}"#),
            (r#"{"kind":"new"}"#, r#"{"kind":"new"}"#),
        ],
        created: &[
            (r#"{"kind":"canceled"}"#, r#"{"kind":"cancelled"}"#),
            ("{}", r#"{"kind":"cancelled"}"#),
        ],
        patched: &[
            (r#"{"kind":"refunded"}"#, r#"{"kind":"canceled"}"#, "{}"),
            (r#"{"kind":"refunded"}"#, r#"{"kind":"new"}"#, r#"{"kind":"new"}"#),
        ],
        ..NONE
    }
    .check();
}

#[test]
fn what_is_required_or_optional_is_so_for_those_who_knew_it_so() {
    Case {
        fields: "lang = 'string'",
        change: "optional = { field = 'lang', fill = 'en' }",
        shown: &[("{}", r#"{"lang":"en"}"#)],
        created: &[(r#"{"lang":"de"}"#, r#"{"lang":"de"}"#)],
        replaced: &[("{}", r#"{"lang":"en"}"#, "{}")],
        ..NONE
    }
    .check();
    Case {
        fields: "lang = { type = 'string', required = true }",
        change: "required = { field = 'lang', fill = 'en' }",
        shown: &[(r#"{"lang":"en"}"#, r#"{"lang":"en"}"#)],
        created: &[("{}", r#"{"lang":"en"}"#), (r#"{"lang":null}"#, r#"{"lang":"en"}"#)],
        patched: &[(r#"{"lang":"de"}"#, r#"{"lang":null}"#, r#"{"lang":"en"}"#)],
        ..NONE
    }
    .check();
    let versions = service(
        "lang = { type = 'string', default = 'de' }",
        &["default = { field = 'lang', was = 'en' }"],
    );
    let view = versions.get(1).unwrap();
    assert!(view.lens(0).is_none(), "records look the same");
    let made = view.body(0, Fields::new(), Mode::Create).unwrap();
    assert_eq!(Value::Object(made), json!({"lang": "en"}));
}

#[test]
fn removed_fields_live_on_for_old_clients() {
    Case {
        fields: "title = 'string'\nnick = 'string'",
        change: "removed = { field = 'nick' }",
        shown: &[(r#"{"title":"T","nick":"N"}"#, r#"{"title":"T","nick":"N"}"#)],
        created: &[(r#"{"nick":"N"}"#, r#"{"nick":"N"}"#)],
        patched: &[(r#"{"nick":"N"}"#, r#"{"nick":"M"}"#, r#"{"nick":"M"}"#)],
        ..NONE
    }
    .check();
    Case {
        fields: "title = 'string'",
        change: "removed = { field = { name = 'stock', type = 'integer' }, value = 7 }",
        shown: &[(r#"{"title":"T"}"#, r#"{"title":"T","stock":7}"#)],
        patched: &[(r#"{"title":"T"}"#, r#"{"stock":7}"#, "{}")],
        ..NONE
    }
    .check();
    let versions = service(
        "title = 'string'\nnick = { type = 'string', filter = true, sort = true }",
        &["removed = { field = 'nick' }"],
    );
    let newest = &versions.newest().schema.collections[0];
    assert!(versions.newest().lens(0).is_none());
    assert!(!newest.public_names().any(|name| name == "nick"));
    let sent = object(json!({"nick": "N"}));
    for mode in [Mode::Create, Mode::Replace, Mode::Merge] {
        let problem = validate::body(newest, sent.clone(), mode).unwrap_err();
        assert_eq!(problem.violations[0].code, Code::UnknownField);
    }
    assert!(query::filter_names(newest).iter().all(|(name, _)| name != "nick"));
    assert!(!query::sortable(newest).contains(&"nick".to_owned()));
}

#[test]
fn collections_come_and_go_with_their_versions() {
    let file = "[collections.books]\n[collections.pens]\n[collections.maps]\n\
        [[versions]]\ndate = '2003-01-01'\n[[versions.changes]]\ncollection = 'pens'\n\
        collection_removed = true\n[[versions]]\ndate = '2002-01-01'\n[[versions.changes]]\n\
        collection = 'maps'\ncollection_added = true\n[[versions]]\ndate = '2001-01-01'";
    let versions = Versions::new(&Arc::new(parse(file).unwrap()));
    let served = |index: usize| -> Vec<bool> {
        (0..3).map(|collection| versions.get(index).unwrap().serves(collection)).collect()
    };
    assert_eq!(served(0), [true, false, true]);
    assert_eq!(served(1), [true, true, true]);
    assert_eq!(served(2), [true, true, false]);
    let names: Vec<&str> = versions.newest().schema.routed().map(|(_, c)| &*c.name).collect();
    assert_eq!(names[..2], ["books", "maps"]);
}

pub(super) fn asked(filters: &[(&str, Test)], sort: &[&str]) -> Query {
    let filter =
        |(field, test): &(&str, Test)| Filter { field: (*field).into(), test: test.clone() };
    let key = |field: &&str| SortKey::new(field, false);
    Query {
        parent: None,
        filters: filters.iter().map(filter).collect(),
        sort: sort.iter().map(key).collect(),
        words: Vec::new(),
        revealed: Vec::new(),
        page: Page::First,
        limit: 10,
    }
}

#[test]
fn a_rounded_value_is_found_by_all_that_is_rounded_to_it() {
    let versions = service(
        "size = { type = 'integer', filter = true }
         part = { type = 'number', filter = true }
         due = { type = 'timestamp', filter = true }",
        &[
            "retype = { field = 'size', from = 'integer', factor = 10 }
           retype = { field = 'part', from = 'integer', factor = 0.01 }
           retype = { field = 'due', from = 'integer', by = 'seconds' }",
            "optional = { field = 'due', fill = 7 }",
        ],
    );
    let (_, lens) = oldest(&versions);
    let asks = |field: &str, test: Test| {
        let mut query = asked(&[(field, test)], &[]);
        lens.query(&mut query);
        query.filters.remove(0).test
    };
    let one = |value: i64| Test::AnyOf(vec![Scalar::Integer(value)]);
    let whole = |first, last| (Scalar::Integer(first), Scalar::Integer(last));
    // Halves go away from zero.
    for (value, first, last) in [(15, 145, 154), (-15, -154, -145), (0, -4, 4)] {
        assert_eq!(asks("size", one(value)), Test::Within(vec![whole(first, last)]));
        let [least, most] = [Test::Min, Test::Max].map(|side| side(Scalar::Integer(value)));
        assert_eq!(asks("size", least), Test::Min(Scalar::Integer(first)));
        assert_eq!(asks("size", most), Test::Max(Scalar::Integer(last)));
    }
    let Test::Within(spans) = asks("part", one(150)) else { panic!() };
    let [(Scalar::Number(first), Scalar::Number(last))] = spans[..] else { panic!("{spans:?}") };
    assert!((1.4949..1.4951).contains(&first) && (1.5049..1.5051).contains(&last), "{spans:?}");
    let null = (Scalar::Null, Scalar::Null);
    assert_eq!(asks("due", one(7)), Test::Within(vec![whole(7_000, 7_999), null]));
}

/// An index serves what it can; what may be shown as null, or as what stands for it, is looked at.
#[test]
fn ranges_are_asked_of_what_is_shown() {
    let versions = service(
        "size = { type = 'integer', filter = true }
         rank = { type = 'integer', filter = true, required = true }
         due = { type = 'integer', filter = true }
         seen = { type = 'integer', filter = true }
         code = { type = 'string', filter = true }",
        &["optional = { field = 'size', fill = 7 }
           required = { field = 'rank', fill = 7 }
           retype = { field = 'due', from = 'timestamp', by = 'milliseconds' }
           rename = { from = 'saw', to = 'seen' }
           retype = { field = 'code', from = 'integer', by = 'text' }"],
    );
    let (_, lens) = oldest(&versions);
    let at_least = Test::Min(Scalar::Integer(9));
    for (field, translated, looks) in [
        ("size", None, true),
        ("rank", Some(at_least.clone()), false),
        ("due", Some(at_least.clone()), true),
        ("saw", Some(at_least.clone()), false),
        ("code", None, true),
    ] {
        let mut query = asked(&[(field, at_least.clone())], &[]);
        lens.query(&mut query);
        let tests: Vec<Test> = query.filters.into_iter().map(|filter| filter.test).collect();
        let shown = looks.then(|| Test::Shown {
            by: query::Shown { version: lens.version, field: field.to_owned(), whole: false },
            test: Box::new(at_least.clone()),
        });
        assert_eq!(tests, translated.into_iter().chain(shown).collect::<Vec<_>>(), "{field}");
    }
}

/// A collection with a filter of each kind, and its past.
fn filtered() -> Versions {
    service(
        "title = { type = 'string', filter = true, sort = true }
         price = { type = 'integer', filter = true, sort = true }
         at = { type = 'timestamp', filter = true, sort = true }
         kind = { type = 'string', enum = ['new', 'cancelled', 'refunded'], filter = true }
         lang = { type = 'string', filter = true }
         code = { type = 'string', filter = true, sort = true }
         first = { type = 'string', filter = true }
         last = 'string'",
        &["rename = { from = 'name', to = 'title' }
           retype = { field = 'price', from = 'number', factor = 100 }
           retype = { field = 'at', from = 'integer', by = 'seconds' }
           enum_map = { field = 'kind', values = { canceled = 'cancelled' }, down = { refunded = \
           'canceled' } }
           optional = { field = 'lang', fill = 'en' }
           retype = { field = 'code', from = 'integer', by = 'text' }
           split = { from = { name = 'who', type = 'string' }, to = ['first', 'last'], by = ' ' }"],
    )
}

#[test]
fn lists_are_asked_in_the_words_of_the_version() {
    let text = |text: &str| Scalar::Text(text.into());
    let versions = filtered();
    let (view, lens) = oldest(&versions);
    let any = |values: &[Scalar]| Test::AnyOf(values.to_vec());
    let whole = |first, last| (Scalar::Integer(first), Scalar::Integer(last));
    let cases = [
        ("name", any(&[text("a")]), vec![("title", any(&[text("a")]))]),
        ("price", any(&[Scalar::Number(12.5)]), vec![("price", any(&[Scalar::Integer(1250)]))]),
        ("price", any(&[Scalar::Number(0.001)]), vec![("price", any(&[]))]),
        (
            "price",
            Test::Min(Scalar::Number(0.125)),
            vec![("price", Test::Min(Scalar::Integer(13)))],
        ),
        (
            "at",
            any(&[Scalar::Integer(60)]),
            vec![("at", Test::Within(vec![whole(60_000, 60_999)]))],
        ),
        (
            "at",
            any(&[Scalar::Integer(0), Scalar::Integer(-1)]),
            vec![("at", Test::Within(vec![whole(0, 999), whole(-1_000, -1)]))],
        ),
        ("at", Test::Max(Scalar::Integer(60)), vec![("at", Test::Max(Scalar::Integer(60_999)))]),
        (
            "kind",
            any(&[text("canceled")]),
            vec![("kind", any(&[text("cancelled"), text("refunded")]))],
        ),
        ("kind", any(&[Scalar::Null]), vec![("kind", any(&[Scalar::Null]))]),
        ("lang", any(&[text("en")]), vec![("lang", any(&[text("en"), Scalar::Null]))]),
        ("lang", any(&[Scalar::Null]), vec![("lang", any(&[]))]),
        ("code", any(&[Scalar::Integer(42)]), vec![("code", any(&[text("42")]))]),
        ("id", any(&[text("x")]), vec![("id", any(&[text("x")]))]),
    ];
    for (field, test, expected) in cases {
        let mut query = asked(&[(field, test.clone())], &["name", "created_at"]);
        lens.query(&mut query);
        let expected: Vec<Filter> = expected
            .into_iter()
            .map(|(field, test)| Filter { field: field.into(), test })
            .collect();
        assert_eq!(query.filters, expected, "{field} {test:?}");
        let keys: Vec<&str> = query.sort.iter().map(|key| &*key.field).collect();
        assert_eq!(keys, ["title", "created_at"]);
    }
    let old = &view.schema.collections[0];
    let filters: Vec<String> = query::filter_names(old).into_iter().map(|(name, _)| name).collect();
    assert!(!filters.contains(&"who".to_owned()) && filters.contains(&"name".to_owned()));
    assert!(query::sortable(old).contains(&"price".to_owned()));
    assert!(query::sortable(old).contains(&"code".to_owned()));
}

#[test]
fn events_tell_old_clients_what_changed_for_them() {
    let versions = service(
        "title = 'string'\nfirst = 'string'\nlast = 'string'\n\
         kind = { type = 'string', enum = ['cancelled', 'refunded'] }",
        &["rename = { from = 'name', to = 'title' }
           split = { from = { name = 'who', type = 'string' }, to = ['first', 'last'], by = ' ' }
           enum_map = { field = 'kind', values = { canceled = 'cancelled' }, down = { refunded = \
           'canceled' } }"],
    );
    let (_, lens) = oldest(&versions);
    let after = object(json!({"title":"B","first":"Ada","last":"King","kind":"refunded"}));
    for (previous, expected) in [
        (json!({"title":"A"}), json!({"name":"A"})),
        (json!({"last":null}), json!({"who":"Ada"})),
        // Looks the same to them.
        (json!({"kind":"cancelled"}), json!({})),
        (json!({"updated_at":"x"}), json!({})),
    ] {
        let told = lens.previous(&after, &object(previous.clone()));
        assert_eq!(Value::Object(told), expected, "{previous}");
    }
    let old = object(json!({"name":"B","who":"Ada King","kind":"canceled"}));
    let raised = lens.previous_up(&old, &object(json!({"who":"Ada Noel"})));
    assert_eq!(Value::Object(raised), json!({"last":"Noel"}));
}

#[test]
fn lists_are_sorted_by_what_is_shown() {
    let versions = service(
        "kind = { type = 'string', enum = ['a', 'b'], sort = true }
         lang = { type = 'string', sort = true }
         level = { type = 'integer', required = true, sort = true }
         price = { type = 'integer', sort = true }
         first = { type = 'string', sort = true }
         last = 'string'",
        &["enum_map = { field = 'kind', values = { z = 'a' } }
           optional = { field = 'lang', fill = 'en' }
           required = { field = 'level', fill = 7 }
           retype = { field = 'price', from = 'number', factor = 100 }
           split = { from = { name = 'who', type = 'string', sort = true }, to = ['first', \
           'last'], by = ' ' }"],
    );
    let (view, lens) = oldest(&versions);
    // In the order of kept values where it is that of the shown ones: an index has it.
    for (field, shown) in [("kind", true), ("lang", true), ("level", false), ("price", false)] {
        assert!(
            query::sortable(&view.schema.collections[0]).contains(&field.to_owned()),
            "{field}"
        );
        let mut query = asked(&[], &[field]);
        lens.query(&mut query);
        let by = |whole| query::Shown { version: 1, field: field.to_owned(), whole };
        let expected = shown.then(|| by(false));
        assert_eq!((&query.sort[0].field, &query.sort[0].shown), (&field.to_owned(), &expected));
    }
    // What is made of several is looked at record by record, if the old field says so.
    assert!(query::sortable(&view.schema.collections[0]).contains(&"who".to_owned()));
    let mut query = asked(&[], &["who"]);
    lens.query(&mut query);
    let whole = query::Shown { version: 1, field: "who".to_owned(), whole: true };
    assert_eq!(query.sort[0].shown, Some(whole));
}

#[test]
fn a_fill_is_found_also_where_a_number_is_too_large_to_be_shown() {
    let versions = service(
        "n = { type = 'number', filter = true }",
        &[
            "retype = { field = 'n', from = 'integer', factor = 1 }",
            "optional = { field = 'n', fill = 30 }",
        ],
    );
    let (view, lens) = oldest(&versions);
    let shown = lens.down(&object(json!({"n": 1e21})));
    assert_eq!(shown["n"], 30);
    let mut query = asked(&[("n", Test::AnyOf(vec![Scalar::Integer(30)]))], &[]);
    lens.query(&mut query);
    let [Filter { test: Test::Shown { .. }, .. }] = &query.filters[..] else {
        panic!("{:?}", query.filters)
    };
    let looked_at = versions.shown(view.index, 0, "n", &Scalar::Number(1e21));
    assert_eq!(looked_at, Scalar::Integer(30));
}

#[test]
fn a_fill_is_found_by_its_value() {
    let versions = service(
        "rank = { type = 'integer', required = true, filter = true }",
        &["required = { field = 'rank', fill = 7 }"],
    );
    let (_, lens) = oldest(&versions);
    let mut query = asked(&[("rank", Test::AnyOf(vec![Scalar::Integer(7)]))], &[]);
    lens.query(&mut query);
    assert_eq!(query.filters[0].test, Test::AnyOf(vec![Scalar::Integer(7)]));
}

/// A parameter may have been called what every record has.
#[test]
fn a_parameter_that_was_called_like_what_a_service_assigns_is_raised_by_its_new_name() {
    let text = "[collections.books]\nfields = { title = 'string' }\n\
                actions.lend.params = { reader = 'string' }\n[[versions]]\ndate = '2001-01-01'\n\
                [[versions.changes]]\ncollection = 'books'\naction = 'lend'\n\
                rename = { from = 'id', to = 'reader' }\n[[versions]]\ndate = '2000-01-01'\n";
    let versions = Versions::new(&Arc::new(parse(text).unwrap()));
    let view = versions.iter().last().unwrap();
    let raised = view.params(0, 0, object(json!({"id": "x"}))).unwrap();
    assert_eq!(raised, object(json!({"reader": "x"})));
}
