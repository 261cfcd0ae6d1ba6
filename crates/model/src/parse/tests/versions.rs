//! Versions, mounts and deprecations in the file: what is read, and each finding at its place.

use super::findings::check;
use crate::parse::{parse, parse_at};
use crate::schema::{Deprecation, Mount};

const BOOKS: &str = "[collections.books.fields]
title = { type = 'string', required = true }
first = 'string'
last = 'string'
pages = 'integer'
details = 'object'
kind = { type = 'string', enum = ['new', 'old'] }
[collections.orders]
[collections.orders.states]
names = ['open', 'closed']
";

/// Changes of the newest version; line 1 is the first of them, each has a line of its own.
#[track_caller]
fn check_changes(changes: &[&str], expected: &[&str]) {
    let before = BOOKS.lines().count() + 2;
    let shifted: Vec<String> = expected
        .iter()
        .map(|finding| {
            let (line, rest) = finding.split_once(':').unwrap();
            format!("{}:{rest}", before + 3 * line.parse::<usize>().unwrap())
        })
        .collect();
    let shifted: Vec<&str> = shifted.iter().map(String::as_str).collect();
    check(&file(changes), &shifted);
}

fn file(changes: &[&str]) -> String {
    let mut file = format!("{BOOKS}[[versions]]\ndate = '2026-01-01'\n");
    // Three lines each: header, collection, operation.
    for change in changes {
        let change = match change.contains("collection = ") {
            true => (*change).to_owned(),
            false => format!("collection = 'books'\n{change}"),
        };
        file += &format!("[[versions.changes]]\n{change}\n");
    }
    file + "[[versions]]\ndate = '2025-01-01'\n"
}

#[test]
fn a_break_names_an_edit_and_has_no_operation() {
    let with = |change: &str| {
        format!(
            "[collections.books]\n[[versions]]\ndate = '2026-01-01'\n[[versions.changes]]\n\
             {change}\n[[versions]]\ndate = '2025-01-01'"
        )
    };
    let told = with("breaks = 'books.isbn: became `unique`'\ndescription = 'One isbn, one book.'");
    let schema = parse(&told).unwrap();
    assert_eq!(schema.versions[0].breaks[0].edit, "books.isbn: became `unique`");
    assert_eq!(schema.versions[0].breaks[0].description.as_deref(), Some("One isbn, one book."));
    let form = "`breaks` repeats an edit as `restive plan` words it, such as \"books.isbn: became \
                `unique`\", in at most 1000 characters";
    check(&with("breaks = 'isbn is unique'"), &[&format!("5:10: {form}")]);
    let long = format!("breaks = 'a: {}'", "x".repeat(1000));
    check(&with(&long), &[&format!("5:10: {form}")]);
    check(&with("breaks = 3"), &["5:10: `breaks` must be a string, not a whole number"]);
    check(
        &with("collection = 'books'\nbreaks = 'a: b'\ncollection_added = true"),
        &[
            "5:1: `breaks` stands alone, and names its place; remove `collection`",
            "7:1: `breaks` stands alone, and names its place; remove `collection_added`",
        ],
    );
    check(&with("break = 'a: b'"), &["4:1: …", "5:1: …"]);
    let oldest = "[collections.books]\n[[versions]]\ndate = '2026-01-01'\n[[versions.changes]]\n\
                  breaks = 'a: b'";
    let none = "the oldest version has no changes: no client sees what was before it";
    check(oldest, &[&format!("4:12: {none}")]);
}

#[test]
fn parameters_are_not_asked_by() {
    let file = "[collections.books.actions.sell]
params = { whom = 'string' }
[[versions]]
date = '2026-01-01'
[[versions.changes]]
collection = 'books'
action = 'sell'
convert = { field = 'whom', from = { type = 'integer', filter = true },
  up = 'string(value)', down = 'int(value)', lossy = true }
[[versions]]
date = '2025-01-01'";
    check(file, &["7:10: `filter` and `sort` are for fields: a parameter is only sent"]);
}

#[test]
fn a_file_without_versions_has_one() {
    let schema = parse("[service]\nversion = '2026-05-06'\n[collections.books]").unwrap();
    assert_eq!(schema.versions.len(), 1);
    assert_eq!(schema.versions[0].date, "2026-05-06");
    assert_eq!(schema.mounts, [Mount { path: "/v1".into(), newest: 0, oldest: 0 }]);
}

#[test]
fn versions_mounts_and_deprecations_are_read() {
    let schema = parse(
        "[service]
mount = '/v3'
[collections.books]
deprecated = 2026-01-01
[collections.books.fields]
title = { type = 'string', sunset = '2027-01-01' }
[[versions]]
date = 2026-03-01
description = 'New.'
[[versions]]
date = '2026-02-01'
[[versions]]
date = '2026-01-01'
deprecated = '2026-02-01'
sunset = '2027-02-01'
link = 'https://shop.example/old'
[[versions]]
date = '2025-01-01'
[[mounts]]
path = '/v2'
version = '2026-02-01'
[[mounts]]
path = '/v1'
version = '2025-01-01'",
    )
    .unwrap();
    assert_eq!(schema.service.version, "2026-03-01");
    let dates: Vec<&str> = schema.versions.iter().map(|version| &*version.date).collect();
    assert_eq!(dates, ["2026-03-01", "2026-02-01", "2026-01-01", "2025-01-01"]);
    let mounts: Vec<_> = schema.mounts.iter().map(|m| (&*m.path, m.newest, m.oldest)).collect();
    assert_eq!(mounts, [("/v3", 0, 0), ("/v2", 1, 2), ("/v1", 3, 3)]);
    let told = Deprecation {
        since: Some("2026-02-01".into()),
        sunset: Some("2027-02-01".into()),
        link: Some("https://shop.example/old".into()),
    };
    assert_eq!(schema.versions[2].deprecated, Some(told));
    let books = &schema.collections[0];
    let since = books.deprecated.as_ref().unwrap().since.as_deref();
    assert_eq!(since, Some("2026-01-01"));
    assert!(books.fields[0].deprecated.as_ref().unwrap().sunset.is_some());
}

#[test]
fn dates_exist_descend_and_begin_with_the_service_s() {
    check(
        "[service]
version = '2026-02-02'
[collections.books]
[[versions]]
date = '2026-01-01'
[[versions]]
date = '2026-01-01'
[[versions]]
date = '2025-02-30'
[[versions]]
colour = 'red'
[[versions]]
date = '2025-01-01'
deprecated = '2026-01-01'
sunset = '2025-12-31'
link = 'ftp://x'
[[versions.changes]]
collection = 'books'
collection_added = true",
        &[
            "2:11: `version` must be the first of [[versions]], 2026-01-01",
            "7:8: versions stand newest first, each date once; 2026-01-01 follows 2026-01-01",
            "9:8: `date` must be a date that exists, such as \"2026-11-01\"",
            "10:1: version needs `date`",
            "11:1: unknown key `colour` in version…",
            "15:10: `sunset` 2025-12-31 lies before `deprecated` 2026-01-01",
            "16:8: `link` must be an http:// or https:// URL of plain characters",
            "17:12: the oldest version has no changes: no client sees what was before it",
        ],
    );
}

#[test]
fn versions_of_the_future_are_reported_if_today_is_known() {
    let file = "[collections.books]\n[[versions]]\ndate = '2026-01-02'\n[[versions]]\n\
                date = '2026-01-01'";
    assert!(parse(file).is_ok() && parse_at(file, "2026-01-02").is_ok());
    let findings = parse_at(file, "2025-12-31").err().unwrap();
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "3:8: version 2026-01-02 lies in the future; today is 2025-12-31",
            "5:8: version 2026-01-01 lies in the future; today is 2025-12-31",
        ]
    );
    let alone = "[service]\nversion = '2026-01-02'\n[collections.books]\n";
    assert!(parse(alone).is_ok() && parse_at(alone, "2026-01-02").is_ok());
    let findings = parse_at(alone, "2025-12-31").err().unwrap();
    assert_eq!(
        findings[0].to_string(),
        "2:11: version 2026-01-02 lies in the future; today is 2025-12-31"
    );
}

#[test]
fn a_change_names_one_collection_and_one_operation() {
    check(
        &file(&[
            "",
            "collection = 'boks'\nrename = { from = 'name', to = 'title' }",
            "rename = { from = 'a', to = 'first' }\nremoved = { field = 'last' }",
        ]),
        &[
            "13:1: change needs one operation: rename, move…",
            "17:14: `collection` names `boks`, which is not declared (did you mean `books`?)",
            "22:1: a change does one thing, and this one has `rename` already; begin another…",
        ],
    );
}

// tidy: table
#[test]
fn changes_name_fields_that_exist_with_the_types_they_need() {
    for (change, expected) in [
        (
            "rename = { from = 'name', to = 'titel' }",
            "1:1: `titel` is no field of `books` in version 2026-01-01 (did you mean `title`?)",
        ),
        (
            "rename = { from = 'first', to = 'title' }",
            "1:1: `first` is a field of the newer version, too; the old one needs another name",
        ),
        (
            "rename = { from = 'id', to = 'title' }",
            "1:19: `id` is assigned by the service; remove the field",
        ),
        ("rename = { from = 'title', to = 'title' }", "1:19: `from` and `to` are the same name"),
        ("rename = { to = 'title' }", "1:1: `rename` needs `from`"),
        (
            "renam = { from = 'a', to = 'title' }",
            "1:1: unknown key `renam` in change (did you mean `rename`?)",
        ),
        (
            "move = { from = 'a', to = 'title.x' }",
            "1:1: `title` must be of type object to have members",
        ),
        (
            "move = { from = 'a', to = 'title' }",
            "1:1: `move` is for members of objects; use `rename` between fields",
        ),
        (
            "move = { from = 'a', to = 'details.b.c' }",
            "1:27: `to` must be a field, or a field and one member: a.b",
        ),
        (
            "convert = { from = 'string', up = 'value', down = 'value' }",
            "1:1: `convert` needs `field`",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(value)' }",
            "1:1: `convert` needs `down`",
        ),
        (
            "convert = { field = 'pages', from = 'text', up = 'value', down = 'value' }",
            "1:37: unknown type `text`; types: string, integer, number, boolean, timestamp, date, \
             object, array",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(', down = 'value' }",
            "1:57: not a CEL expression…",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'TODO', down = 'string(value)' }",
            "1:52: `up` is to be written: a CEL expression over `value` and `record`",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(vale)', down = \
             'string(value)' }",
            "1:57: unknown name `vale` in the expression (did you mean `value`?); it can use \
             `value` and `record`",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(value)', down = \
             'string(record.pagse)' }",
            "1:87: `record.pagse` names no field declared here (did you mean `pages`?)",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'parse(value)', down = \
             'string(value)' }",
            "1:58: the expression calls 'parse', which does not exist",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'value', down = 'string(value)' }",
            "1:53: the value is a string, and `pages` is of type integer",
        ),
        (
            "convert = { field = 'pages', from = 'number', up = 'value * 100.0', down = \
             'double(value) / 100.0' }",
            "1:53: the value is a number, and `pages` is of type integer; write `int(…)`",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'value == \"\" ? null : \
             int(value)', down = 'string(value)' }",
            "1:53: the value can be null; of a value there must come a value",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(value)', down = \
             'record.title + string(value)' }",
            "1:80: `record.title` can be null here…",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(math.round(value))', down = \
             'string(value)' }",
            "1:68: math.round() takes a number with a fraction…",
        ),
        (
            "enum_map = { field = 'title', values = { a = 'b' } }",
            "1:1: `title` has no `enum`; use `convert`",
        ),
        (
            "enum_map = { field = 'kind', values = { a = 'b' } }",
            "1:1: `b` is no value of `kind` in the newer version; there are: new, old",
        ),
        (
            "enum_map = { field = 'kind', down = { old = 'b' } }",
            "1:1: `b` is no value of `kind` in the older versions; there are: new",
        ),
        (
            "default = { field = 'pages', was = 'many' }",
            "1:1: `was`: `pages` must be an integer, not a string",
        ),
        ("limits = { was = { max = 3 } }", "1:1: `limits` needs `field`"),
        (
            "limits = { field = 'pages', was = { max_length = 3 } }",
            "1:1: `max_length` = 3 is no limit of type integer",
        ),
        (
            "limits = { field = 'pages', was = { maximum = 3, max = 2 } }",
            "1:37: unknown key `maximum` in `was`; known: min, max, min_length, max_length, \
             pattern",
        ),
        (
            "optional = { field = 'title', fill = '' }",
            "1:1: `title` is required in the newer version, too",
        ),
        (
            "required = { field = 'pages', fill = 1 }",
            "1:1: `pages` is not required in the newer version",
        ),
        ("required = { field = 'pages' }", "1:1: `required` needs `fill`"),
        (
            "removed = { field = 'gone' }",
            "1:1: `gone` is no field of `books` in version 2026-01-01",
        ),
        (
            "removed = { field = { name = 'gone', type = 'integer' }, value = 'x' }",
            "1:1: `value`: `gone` must be an integer, not a string",
        ),
        ("collection_added = false", "1:20: `collection_added` can only be true; or leave it out"),
        (
            "code = { from = 'a', to = 'b' }",
            "1:1: no rule of the collection answers with the code `b`",
        ),
        (
            "collection = 'orders'\nremoved = { field = 'status' }",
            "1:1: `status` is a field of a newer version, too",
        ),
    ] {
        check_changes(&[change], &[expected]);
    }
}

#[test]
fn changes_of_one_date_must_not_touch_the_same_field() {
    for (changes, expected) in [
        (
            ["rename = { from = 'a', to = 'title' }", "optional = { field = 'title', fill = '' }"],
            "2:1: `title` is changed by another change of the same date; let one of them be of \
             another version",
        ),
        (
            [
                "rename = { from = 'first', to = 'last' }",
                "rename = { from = 'last', to = 'first' }",
            ],
            "2:1: `first` and `last` are renamed in a circle; use a third name",
        ),
        (
            ["rename = { from = 'a', to = 'first' }", "rename = { from = 'a', to = 'last' }"],
            "2:1: `a` is changed by another change of the same date…",
        ),
        (
            ["move = { from = 'a', to = 'details.a' }", "move = { from = 'b', to = 'details.a' }"],
            "2:1: `details.a` is changed by another change of the same date…",
        ),
        (
            [
                "move = { from = 'a', to = 'details.a' }",
                "move = { from = 'b', to = 'details.b', existing = true }",
            ],
            "2:1: moves into `details` must agree on `existing`",
        ),
        (
            ["collection_added = true", "rename = { from = 'a', to = 'title' }"],
            "2:1: a version that adds or removes a collection changes nothing else of it",
        ),
    ] {
        let found: Vec<&str> = match changes[0].contains("'first', to = 'last'") {
            true => vec!["1:1: `first` is a field of the newer version, too…", expected],
            false => vec![expected],
        };
        check_changes(&changes, &found);
    }
    check_changes(
        &["move = { from = 'a', to = 'details.a' }", "move = { from = 'b', to = 'details.b' }"],
        &[],
    );
}

#[test]
fn a_fault_is_reported_once_in_chains_of_any_length() {
    check(
        &format!(
            "{BOOKS}[[versions]]\ndate = '2026-01-01'\n[[versions.changes]]\ncollection = \
             'books'\nrename = {{ from = 'b', to = 'c' }}\n[[versions]]\ndate = \
             '2025-01-01'\n[[versions.changes]]\ncollection = 'books'\nrename = {{ from = 'a', to \
             = \
             'b' }}\n[[versions]]\ndate = '2024-01-01'"
        ),
        &["15:1: `c` is no field of `books` in version 2026-01-01"],
    );
}

#[test]
fn mounts_name_versions_in_their_order_and_do_not_collide() {
    check(
        "[collections.books]
[live]
socket = '/v7'
[[versions]]
date = '2026-01-01'
[[versions]]
date = '2025-01-01'
[[mounts]]
path = '/v1'
version = '2025-01-01'
[[mounts]]
path = '/v0'
version = '2024-01-01'
[[mounts]]
path = 'v0'
version = '2026-01-01'
[[mounts]]
path = '/v7'
version = '2025-01-01'",
        &[
            "9:8: `/v1` and the mount `/v1` collide",
            "13:11: there is no version 2024-01-01; versions: 2026-01-01, 2025-01-01",
            "15:8: `path` must start with a slash and have lower-case segments, such as \"/v1\"",
            "16:11: mounts stand newest first; each begins with an older version…",
            "18:8: `/v7` and the live channel `/v7` collide",
            "19:11: mounts stand newest first; each begins with an older version…",
        ],
    );
}

#[test]
fn a_change_that_loses_something_is_refused_with_a_sample() {
    for (change, expected) in [
        (
            "enum_map = { field = 'kind', values = { a = 'new', b = 'new' } }",
            "1:1: this change loses data: `b`, sent by an older client, comes back as `a`…",
        ),
        // 0.29 × 100 is 28.999…
        (
            "convert = { field = 'pages', from = 'number', up = 'int(value * 100.0)', down = \
             'double(value) / 100.0' }",
            "1:1: this change loses data: 29 is 0.29 to older clients, and comes back as 28…",
        ),
        (
            "convert = { field = 'first', from = 'integer', up = 'string(value)', down = \
             'int(value)' }",
            "1:1: `down` fails for \"abc\"…",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(\"x\" + value)', down = \
             'string(value)' }",
            "1:1: this change loses data: 1 is \"1\" to older clients, for which `up` fails…",
        ),
        (
            "convert = { field = 'pages', from = 'string', up = 'int(\"x\" + value)', down = \
             'string(value)', lossy = true }",
            "1:1: `up` fails for all that older clients may send, such as \"abc\"…",
        ),
        (
            "convert = { field = 'pages', from = 'boolean', up = 'value ? 1 : 0', down = 'value > \
             0' }",
            "1:1: this change loses data: -1 is false to older clients, and comes back as 0…",
        ),
        (
            "convert = { field = 'title', from = { type = 'string' }, up = 'value', down = \
             'value' }",
            "1:1: this change refuses what older clients may send: `title` is required…",
        ),
        (
            "move = { from = 'details.title', to = 'title' }",
            "1:1: this change refuses what older clients may send: `title` is required…",
        ),
    ] {
        check_changes(&[change], &[expected]);
    }
    // The same where nothing can get lost.
    for change in [
        "convert = { field = 'pages', from = 'number', up = 'int(math.round(value * 100.0))', \
         down = 'double(value) / 100.0' }",
        "convert = { field = 'pages', from = { type = 'string', pattern = '^[1-9][0-9]{0,8}$' }, \
         up = 'int(value)', down = 'string(value)' }",
        "convert = { field = 'pages', from = 'timestamp', up = 'to_millis(value)', down = \
         'from_millis(value)' }",
        "convert = { field = 'first', from = { type = 'array', items = 'string' }, up = \
         'value[0]', down = '[value]' }",
        "convert = { field = 'title', from = 'string', up = 'value.lowerAscii()', down = 'value', \
         lossy = true }",
    ] {
        check_changes(&[change], &[]);
    }
}

/// A collection with fields of its own and the changes of two versions, newest first.
#[track_caller]
fn check_past(fields: &str, changes: [&str; 2], expected: &[&str]) {
    let change = |change: &str| match change {
        "" => String::new(),
        change => format!("[[versions.changes]]\ncollection = 'books'\n{change}\n"),
    };
    let [newer, older] = changes.map(change);
    let file = format!(
        "[collections.books.fields]\n{fields}\n[[versions]]\ndate = '2026-01-01'\n{newer}\
         [[versions]]\ndate = '2025-06-01'\n{older}[[versions]]\ndate = '2025-01-01'\n"
    );
    check(&file, expected);
}

#[test]
fn old_names_are_no_range_filters() {
    let fields = "price = { type = 'integer', filter = true }\nfloor = 'integer'";
    let clash = |name: &str, base: &str, line: usize| {
        format!("{line}:1: `{name}` is the range filter of `{base}`; choose another name")
    };
    check_past(
        fields,
        ["rename = { from = 'min_price', to = 'floor' }", ""],
        &[&clash("min_price", "price", 8)],
    );
    check_past(
        fields,
        ["", "rename = { from = 'max_updated_at', to = 'floor' }"],
        &[&clash("max_updated_at", "updated_at", 10)],
    );
    // In its own time neither was the range filter of the other.
    let fields = "cost = { type = 'integer', filter = true }\nfloor = 'integer'";
    let newer = "rename = { from = 'min_price', to = 'floor' }";
    let older = "rename = { from = 'price', to = 'cost' }";
    check_past(fields, [newer, older], &[&clash("min_price", "price", 13)]);
    let back = "rename = { from = 'bottom', to = 'min_price' }";
    check_past(fields, [newer, back], &[]);
    // A name next to another is a name of the newer versions, too.
    let fields = "price = { type = 'integer', filter = true }\nfloor = 'integer'";
    let beside = "rename = { from = 'min_price', to = 'floor', beside = true }";
    check_past(fields, [beside, ""], &[&clash("min_price", "price", 8)]);
}

#[test]
fn no_old_request_without_a_unique_field_means_the_same_as_another() {
    let fields = "k = { type = 'integer', required = true, unique = true }";
    let expected = "7:1: `k` is `unique`: two old requests without it would clash";
    check_past(fields, ["required = { field = 'k', fill = 0 }", ""], &[expected]);
    let fields = "k = { type = 'integer', unique = true }";
    check_past(fields, ["default = { field = 'k', was = 0 }", ""], &[expected]);
    check_past(fields, ["optional = { field = 'k', fill = 0 }", ""], &[]);
    let lossy = "convert = { field = 'k', from = 'number', up = 'int(value)', down = \
                 'double(value)', lossy = true }";
    let expected = "7:1: `k` is `unique`, so no two values may become one; remove `lossy`";
    check_past(fields, [lossy, ""], &[expected]);
    check_past(fields, [&lossy.replace(", lossy = true", ""), ""], &[]);
}
