//! Each operation alone: records down, creates, PATCH and PUT up, queries, what changed.

use super::*;
use crate::query::{self, Filter, Page, Query, SortKey, Test};
use crate::record::Scalar;

/// What one change means for the version before it.
struct Case {
    fields: &'static str,
    change: &'static str,
    /// A stored record and how it is shown.
    shown: &'static [(&'static str, &'static str)],
    /// A create of the old version and the stored record.
    created: &'static [(&'static str, &'static str)],
    /// A stored record, a PATCH, and the changed fields.
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
            let text = lens.show(&record(&versions.newest().schema.collections[0], &kept));
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
            assert_eq!(changed.fields, json_of(changes), "{}: patch {current} {sent}", self.change);
        }
        for (current, sent, changes) in self.replaced {
            let put = view.body(0, json_of(sent), Mode::Replace).unwrap();
            let changed = lens.replace(&json_of(current), &put);
            assert_eq!(changed.fields, json_of(changes), "{}: put {current} {sent}", self.change);
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
fn a_converted_field_has_its_old_type_for_old_clients() {
    Case {
        fields: "price = 'integer'",
        change: CENTS,
        shown: &[
            (r#"{"price":1255}"#, r#"{"price":12.55}"#),
            (r#"{"price":29}"#, r#"{"price":0.29}"#),
        ],
        created: &[(r#"{"price":12.5}"#, r#"{"price":1250}"#), ("{}", "{}")],
        patched: &[
            (r#"{"price":1255}"#, r#"{"price":1}"#, r#"{"price":100}"#),
            (r#"{"price":1255}"#, r#"{"price":null}"#, r#"{"price":null}"#),
        ],
        replaced: &[(r#"{"price":1255}"#, r#"{"price":12.55}"#, "{}")],
    }
    .check();
    Case {
        fields: "at = 'timestamp'",
        change: "convert = { field = 'at', from = 'integer', up = 'from_millis(value * 1000)', \
                 down = 'to_millis(value) / 1000', lossy = true }",
        shown: &[(r#"{"at":"1970-01-01T00:01:00.500Z"}"#, r#"{"at":60}"#)],
        created: &[(r#"{"at":60}"#, r#"{"at":"1970-01-01T00:01:00.000Z"}"#)],
        // The half second stays, since the client did not see it.
        patched: &[(r#"{"at":"1970-01-01T00:01:00.500Z"}"#, r#"{"at":60}"#, "{}")],
        ..NONE
    }
    .check();
    Case {
        fields: "code = 'string'",
        change: "convert = { field = 'code', from = 'integer', up = 'string(value)', \
                 down = 'int(value)', lossy = true }",
        shown: &[(r#"{"code":"42"}"#, r#"{"code":42}"#), (r#"{"code":"x"}"#, "{}")],
        created: &[(r#"{"code":42}"#, r#"{"code":"42"}"#)],
        ..NONE
    }
    .check();
    Case {
        fields: "tags = { type = 'array', items = 'string' }",
        change: "convert = { field = 'tags', from = 'string', up = '[value]', \
                 down = 'size(value) > 0 ? value[0] : null', lossy = true }",
        shown: &[(r#"{"tags":["a","b"]}"#, r#"{"tags":"a"}"#), (r#"{"tags":[]}"#, "{}")],
        created: &[(r#"{"tags":"a"}"#, r#"{"tags":["a"]}"#)],
        patched: &[(r#"{"tags":["a","b"]}"#, r#"{"tags":"a"}"#, "{}")],
        ..NONE
    }
    .check();
    Case {
        fields: "size = { type = 'string', enum = ['small', 'large'] }",
        change: "convert = { field = 'size', from = 'boolean', up = 'value ? \"large\" : \
                 \"small\"', down = 'value == \"large\"' }",
        shown: &[(r#"{"size":"large"}"#, r#"{"size":true}"#)],
        created: &[(r#"{"size":false}"#, r#"{"size":"small"}"#)],
        ..NONE
    }
    .check();
}

/// Formulas see the whole record as it is on their side of the change.
#[test]
fn a_conversion_may_depend_on_other_fields() {
    Case {
        fields: "price = { type = 'integer', min = 0, max = 999 }\ncurrency = 'string'",
        change: "rename = { from = 'money', to = 'currency' }
                 convert = { field = 'price', from = { type = 'integer', min = 0, max = 99900 }, \
                 up = 'record.money == \"JPY\" ? value : value / 100', \
                 down = 'record.currency == \"JPY\" ? value : value * 100' }",
        shown: &[
            (r#"{"price":5,"currency":"EUR"}"#, r#"{"price":500,"money":"EUR"}"#),
            (r#"{"price":5,"currency":"JPY"}"#, r#"{"price":5,"money":"JPY"}"#),
        ],
        created: &[
            (r#"{"price":500,"money":"EUR"}"#, r#"{"price":5,"currency":"EUR"}"#),
            (r#"{"price":500,"money":"JPY"}"#, r#"{"price":500,"currency":"JPY"}"#),
        ],
        ..NONE
    }
    .check();
}

/// A third of a cent has no counterpart; a conversion that says so keeps the nearest.
#[test]
fn a_value_that_would_not_come_back_is_refused_unless_the_change_is_lossy() {
    let sent = || object(json!({"price": 0.001}));
    let versions = service("price = 'integer'", &[CENTS]);
    let (view, lens) = oldest(&versions);
    let problem = view.body(0, sent(), Mode::Create).unwrap_err();
    assert_eq!((problem.param.as_deref(), &problem.value), (Some("price"), &Some(json!(0.001))));
    assert_eq!(problem.violations[0].code, Code::Unsuitable);
    let kept = object(json!({"price": 5}));
    assert!(lens.check(&mut lens.merge(&kept, &sent()), &sent()).is_err());
    let lossy = CENTS.replace(" }", ", lossy = true }");
    let versions = service("price = 'integer'", &[&lossy]);
    let made = oldest(&versions).0.body(0, sent(), Mode::Create).unwrap();
    assert_eq!(made["price"], 0);
}

#[test]
fn a_record_that_does_not_survive_a_conversion_is_found() {
    let change = "convert = { field = 'code', from = 'integer', up = 'string(value)', \
                  down = 'int(value)' }";
    let versions = service("code = { type = 'string', pattern = '^[0-9]$' }", &[change]);
    let (view, _) = oldest(&versions);
    assert!(view.converts(0) && !versions.newest().converts(0));
    for (code, stable) in [("7", true), ("07", false), ("x", false)] {
        let found = view.unstable(0, &object(json!({"code": code})));
        assert_eq!(found.is_none(), stable, "{code}: {found:?}");
    }
    // Rows of the old shape that would come back as something else are not brought up.
    let change = "convert = { field = 'size', from = 'number', up = 'int(value)', \
                  down = 'double(value)' }";
    let versions = service("size = 'integer'", &[change]);
    let raise = |size: Value| versions.get(1).unwrap().raise(0, &object(json!({"size": size})));
    assert!(raise(json!(3)).is_ok());
    let problem = raise(json!(2.5)).unwrap_err();
    assert_eq!(problem.violations[0].field, "size");
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
fn fields_stay_required_or_optional_for_old_clients() {
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

/// A collection with a filter of each kind, and its past.
fn filtered() -> Versions {
    service(
        "title = { type = 'string', filter = true, sort = true }
         price = { type = 'integer', filter = true, sort = true }
         kind = { type = 'string', enum = ['new', 'cancelled', 'refunded'], filter = true, sort = \
         true }
         lang = { type = 'string', filter = true, sort = true }
         pages = { type = 'integer', filter = true, sort = true }
         rank_no = { type = 'integer', required = true, filter = true, sort = true }
         details = 'object'",
        &["rename = { from = 'name', to = 'title' }
           convert = { field = 'price', from = 'number', up = 'int(math.round(value * 100.0))', \
           down = \
           'double(value) / 100.0' }
           enum_map = { field = 'kind', values = { canceled = 'cancelled' }, down = { refunded = \
           'canceled' } }
           optional = { field = 'lang', fill = 'en' }
           optional = { field = 'pages', fill = 7 }
           required = { field = 'rank_no', fill = 7 }
           move = { from = { name = 'isbn', type = 'string', filter = true, sort = true }, to = \
           'details.isbn' }"],
    )
}

#[test]
fn list_queries_use_the_words_of_the_version() {
    let text = |text: &str| Scalar::Text(text.into());
    let versions = filtered();
    let (_, lens) = oldest(&versions);
    let any = |values: &[Scalar]| Test::AnyOf(values.to_vec());
    let least = || Test::Min(Scalar::Integer(5));
    let filled = query::Shown { words: Vec::new(), fill: Some(Scalar::Integer(7)) };
    let shown = Test::Shown { by: filled.clone(), test: Box::new(least()) };
    for (field, test, kept, expected) in [
        ("name", any(&[text("a")]), "title", any(&[text("a")])),
        ("kind", any(&[text("canceled")]), "kind", any(&[text("cancelled"), text("refunded")])),
        ("kind", any(&[text("refunded")]), "kind", any(&[])),
        ("kind", any(&[Scalar::Null]), "kind", any(&[Scalar::Null])),
        ("lang", any(&[text("en")]), "lang", any(&[text("en"), Scalar::Null])),
        ("lang", any(&[Scalar::Null]), "lang", any(&[])),
        ("pages", least(), "pages", shown),
        ("rank_no", least(), "rank_no", least()),
        ("id", any(&[text("x")]), "id", any(&[text("x")])),
    ] {
        let mut query = asked(&[(field, test.clone())], &["name", "created_at"]);
        lens.query(&mut query);
        assert_eq!(query.filters, [Filter { field: kept.into(), test: expected }], "{test:?}");
        let keys: Vec<&str> = query.sort.iter().map(|key| &*key.field).collect();
        assert_eq!(keys, ["title", "created_at"]);
    }
    // In the order of the stored values if the shown ones have the same order: an index has it.
    let mut query = asked(&[], &["name", "rank_no", "pages", "kind"]);
    lens.query(&mut query);
    let words = [("cancelled", "canceled"), ("refunded", "canceled")];
    let words = words.map(|(from, to)| (text(from), text(to))).to_vec();
    let expected = [None, None, Some(filled), Some(query::Shown { words, fill: None })];
    let shown: Vec<_> = query.sort.into_iter().map(|key| key.shown).collect();
    assert_eq!(shown, expected);
}

#[test]
fn lists_cannot_be_filtered_or_sorted_by_converted_or_moved_fields() {
    let versions = filtered();
    let (view, _) = oldest(&versions);
    let old = &view.schema.collections[0];
    let filters: Vec<String> = query::filter_names(old).into_iter().map(|(name, _)| name).collect();
    for name in ["price", "isbn"] {
        assert!(!filters.contains(&name.to_owned()), "{name}");
        assert!(!query::sortable(old).contains(&name.to_owned()), "{name}");
    }
    for (name, value) in
        [("price", "1"), ("min_price", "1"), ("sort", "-price"), ("isbn", "1"), ("sort", "isbn")]
    {
        let pairs = [(name.to_owned(), value.to_owned())];
        let problem = query::list(&view.schema, 0, None, &pairs).unwrap_err();
        assert_eq!(problem.code, Code::InvalidParameter);
        assert!(problem.message.contains("in another form"), "{}", problem.message);
    }
}

/// A parameter may have been called what every record has.
#[test]
fn a_parameter_with_the_old_name_of_an_assigned_field_gets_its_new_name() {
    let text = "[collections.books]\nfields = { title = 'string' }\n\
                actions.lend.params = { reader = 'string' }\n[[versions]]\ndate = '2001-01-01'\n\
                [[versions.changes]]\ncollection = 'books'\naction = 'lend'\n\
                rename = { from = 'id', to = 'reader' }\n[[versions]]\ndate = '2000-01-01'\n";
    let versions = Versions::new(&Arc::new(parse(text).unwrap()));
    let view = versions.iter().last().unwrap();
    let raised = view.params(0, 0, object(json!({"id": "x"}))).unwrap();
    assert_eq!(raised, object(json!({"reader": "x"})));
}
