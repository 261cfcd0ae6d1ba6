//! Each edit in its class, with the lines that declare it.

mod breaks;
mod conduct;
mod lines;
mod retyping;
mod settings;

use super::*;
use crate::schema::parse::parse;

const OLD: &str = "[service]
version = '2026-01-01'
[collections.books]
[collections.books.fields]
title = { type = 'string', required = true, max_length = 100, filter = true }
price = { type = 'number', default = 0 }
nick = 'string'
kind = { type = 'string', enum = ['a', 'b'] }
[collections.books.actions.sell]
params = { to_whom = 'string' }
[[collections.books.actions.sell.rules]]
when = 'record.price == null'
code = 'no_price'
message = 'No price.'
[collections.notes]
feed = true
[collections.pens]
";

#[track_caller]
fn read(text: &str) -> Schema {
    parse(text).unwrap_or_else(|found| panic!("{found:?}\n{text}"))
}

/// The old file with some of its text replaced, and what that means.
#[track_caller]
fn check(replacements: &[(&str, &str)], expected: &[(Class, &str)]) -> Vec<Edit> {
    let mut new = OLD.to_owned();
    for (from, to) in replacements {
        assert!(new.contains(from), "{from}");
        new = new.replace(from, to);
    }
    let edits = plan(&read(OLD), &read(&new));
    let found: Vec<(Class, &str)> = edits.iter().map(|edit| (edit.class, &*edit.place)).collect();
    let told: Vec<String> = edits.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{}", told.join("\n"));
    edits
}

#[test]
fn edits_that_no_client_notices_are_safe() {
    use Class::Safe;
    check(&[], &[]);
    check(&[("nick = 'string'", "nick = 'string'\npages = 'integer'")], &[(Safe, "books.pages")]);
    check(&[("max_length = 100", "max_length = 200")], &[(Safe, "books.title")]);
    check(&[("['a', 'b']", "['a', 'b', 'c']")], &[(Safe, "books.kind")]);
    check(&[("[collections.pens]", "[collections.pens]\n[collections.maps]")], &[(Safe, "maps")]);
    check(
        &[("[collections.pens]", "[collections.pens]\n[collections.pens.actions.fill]")],
        &[(Safe, "pens.actions.fill")],
    );
    check(
        &[("nick = 'string'", "nick = { type = 'string', filter = true }")],
        &[(Safe, "books.nick")],
    );
}

#[test]
fn edits_that_break_clients_need_a_version() {
    for (from, to, place, line) in [
        (
            "nick = 'string'",
            "alias = 'string'",
            "books.nick",
            "rename = { from = \"nick\", to = \"alias\" }",
        ),
        (
            "nick = 'string'",
            "nick = { type = 'string', required = true }",
            "books.nick",
            "required = { field = \"nick\", fill = \"\" }",
        ),
        (
            "nick = 'string'",
            "nick = 'string'\npages = { type = 'integer', required = true }",
            "books.pages",
            "required = { field = \"pages\", fill = 0 }",
        ),
        ("default = 0", "default = 1", "books.price", "default = { field = \"price\", was = 0 }"),
        (
            "['a', 'b']",
            "['a', 'c']",
            "books.kind",
            "enum_map = { field = \"kind\", values = { b = \"c\" } }",
        ),
        ("required = true, ", "", "books.title", "optional = { field = \"title\", fill = \"\" }"),
        (
            "max_length = 100",
            "max_length = 10",
            "books.title",
            "limits = { field = \"title\", was = { max_length = 100 } }",
        ),
        (", filter = true", "", "books.title", "breaks = \"books.title: filtering by it is gone\""),
        (
            "params = { to_whom = 'string' }",
            "",
            "books.actions.sell.to_whom",
            "removed = { field = { name = \"to_whom\", type = \"string\" } }",
        ),
        (
            "'no_price'",
            "'price_missing'",
            "books",
            "code = { from = \"no_price\", to = \"price_missing\" }",
        ),
        (
            "[collections.books]",
            "[collections.books]\nid_prefix = 'bk'",
            "books.id_prefix",
            "breaks = \"books.id_prefix: `book` became `bk`\"",
        ),
        (
            "[collections.books]",
            "[collections.books]\noperations = ['list', 'get', 'create', 'replace', 'update']",
            "books.operations",
            "breaks = \"books.operations: the operation `delete` is gone\"",
        ),
    ] {
        let edits = check(&[(from, to)], &[(Class::NeedsVersion, place)]);
        let lines = edits[0].lines.clone().unwrap_or_default();
        assert!(lines.contains(line), "{lines}");
    }
}

#[test]
fn urls_that_move_need_a_mount() {
    let edits = check(
        &[("version = '2026-01-01'", "version = '2026-01-01'\nmount = '/v2'")],
        &[(Class::NeedsVersion, "mounts"), (Class::Safe, "mounts")],
    );
    assert!(edits[0].lines.as_ref().is_some_and(|lines| lines.contains("path = \"/v1\"")));
}

#[test]
fn edits_that_lose_data_are_destructive() {
    use Class::Destructive;
    check(&[("nick = 'string'", "")], &[(Destructive, "books.nick")]);
    check(&[("[collections.pens]", "")], &[(Destructive, "pens")]);
    check(
        &[("[collections.pens]", "[collections.pens]\nparent = 'books'")],
        &[(Destructive, "pens")],
    );
    check(&[("feed = true", "")], &[(Destructive, "notes")]);
}

#[test]
fn what_a_version_declares_is_safe() {
    let past = "[collections.pens]
[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'nick', to = 'alias' }
[[versions.changes]]
collection = 'books'
description = 'Titles may be missing.'
optional = { field = 'title', fill = '?' }
[[versions.changes]]
collection = 'books'
retype = { field = 'price', from = { type = 'number', default = 0 }, factor = 100 }
[[versions]]
date = '2026-01-01'";
    let edits = check(
        &[
            ("version = '2026-01-01'\n", ""),
            ("nick = 'string'", "alias = 'string'"),
            ("required = true, ", ""),
            ("price = { type = 'number', default = 0 }", "price = 'integer'"),
            ("[collections.pens]", past),
        ],
        &[
            (Class::Safe, "books"),
            (Class::Safe, "books"),
            (Class::Safe, "books"),
            (Class::Safe, "books.price"),
        ],
    );
    assert_eq!(edits[1].what, "Titles may be missing.");
    // The old date is not served any more.
    check(
        &[
            ("version = '2026-01-01'\n", ""),
            (
                "[collections.pens]",
                "[collections.pens]\n[[versions]]\ndate = '2026-02-01'\n[[versions]]\ndate = \
                 '2025-01-01'",
            ),
        ],
        &[(Class::NeedsVersion, "versions")],
    );
}

const PASTED: &str = "[service]
version = '2026-01-01'
[collections.authors.fields]
name = 'string'
[collections.books]
states = { field = 'status', initial = 'new', names = ['new', 'old'] }
[collections.books.fields]
title = { type = 'string', required = true, max_length = 9 }
nick = 'string'
kind = { type = 'string', enum = ['a', 'b', 'c'], default = 'a' }
slug = { type = 'string', pattern = '^[a-z]{3}$', min_length = 3 }
tags = { type = 'array', items = 'string', min_length = 1 }
count = { type = 'integer', min = 0, max = 9, default = 3 }
rank = { type = 'integer', required = true }
flag = 'boolean'
one = { type = 'array', items = 'integer', min_length = 1, max_length = 1 }
at = 'timestamp'
weight = { type = 'number', min = 1, max = 5 }
share = { type = 'number', default = 0.5 }
odd = { type = 'string', default = \"a\\u007f'b\" }
[collections.books.actions.sell]
from = ['new']
to = 'old'
params = { whom = 'string', how = { type = 'string', enum = ['x', 'y'] }, pages = 'integer' }
[[collections.books.actions.sell.rules]]
when = 'record.slug == null'
code = 'no_nick'
message = 'No nick.'
";

/// The file with what the plan of it proposes: the date of each change is the newest that fits.
fn with_proposals(text: &str, edits: &[Edit]) -> String {
    let mut dated: Vec<(String, String)> = ["2026-04-01", "2026-03-01", "2026-02-01"]
        .map(|date| (date.to_owned(), String::new()))
        .to_vec();
    for lines in edits.iter().filter_map(|edit| edit.lines.as_ref()) {
        for (place, lines) in lines.split("# Below a date of its own").enumerate() {
            let lines = if place == 0 { lines } else { lines.split_once('\n').unwrap().1 };
            dated[place].1.push_str(lines);
        }
    }
    dated.push(("2026-01-01".to_owned(), String::new()));
    let past: String = dated
        .iter()
        .map(|(date, changes)| format!("[[versions]]\ndate = '{date}'\n{changes}"))
        .collect();
    text.replace("version = '2026-01-01'\n", "") + &past
}

#[test]
fn a_file_with_the_lines_that_are_proposed_needs_nothing_more() {
    for (from, to) in [
        ("nick = 'string'", "alias = 'string'"),
        (
            "nick = 'string'",
            "nick = 'string'\nrole = { type = 'string', enum = ['u', 'v'], required = true }",
        ),
        ("nick = 'string'", "nick = { type = 'string', required = true }"),
        ("['a', 'b', 'c'], default = 'a'", "['d', 'e', 'c'], default = 'd'"),
        ("['a', 'b', 'c'], default = 'a'", "['d', 'b', 'c'], default = 'b'"),
        ("['a', 'b', 'c'], default = 'a'", "['a', 'b', 'e'], required = true"),
        (
            "pattern = '^[a-z]{3}$', min_length = 3",
            "pattern = '^[a-z]{3}$', required = true, min_length = 3",
        ),
        ("items = 'string', min_length = 1", "items = 'string', min_length = 1, required = true"),
        ("max = 9, default = 3", "max = 9, required = true"),
        ("max = 9, default = 3", "max = 9"),
        ("max = 9, default = 3", "max = 9, default = 4"),
        ("count = { type = 'integer', min = 0, max = 9, default = 3 }", "count = 'string'"),
        (
            "count = { type = 'integer', min = 0, max = 9, default = 3 }",
            "count = { type = 'string', required = true }",
        ),
        ("rank = { type = 'integer', required", "rank = { type = 'number', required"),
        ("rank = { type = 'integer', required = true }", "rank = 'number'"),
        ("flag = 'boolean'", "flag = 'string'"),
        (
            "one = { type = 'array', items = 'integer', min_length = 1, max_length = 1 }",
            "one = 'integer'",
        ),
        ("flag = 'boolean'", "flag = { type = 'array', items = 'boolean' }"),
        ("at = 'timestamp'", "at = 'integer'"),
        ("weight = { type = 'number', min = 1, max = 5 }", "weight = 'integer'"),
        (
            "weight = { type = 'number', min = 1, max = 5 }",
            "weight = { type = 'integer', min = 0, max = 5, required = true }",
        ),
        ("odd = { type = 'string', default = \"a\\u007f'b\" }", "odd = 'string'"),
        (
            "title = { type = 'string', required = true, max_length = 9 }",
            "title = { type = 'string', max_length = 9 }",
        ),
        ("names = ['new', 'old']", "names = ['new', 'done']"),
        ("'no_nick'", "'nameless'"),
        ("whom = 'string', ", "who = 'string', "),
        ("whom = 'string', ", ""),
        ("whom = 'string', ", "whom = { type = 'string', required = true }, "),
        ("enum = ['x', 'y']", "enum = ['x', 'z']"),
        ("pages = 'integer' }", "pages = 'string' }"),
        (
            "pages = 'integer' }",
            "pages = 'integer', more = { type = 'integer', min = 4, required = true } }",
        ),
        ("pages = 'integer' }", "pages = { type = 'integer', default = 7 } }"),
    ] {
        assert!(PASTED.contains(from), "{from}");
        let mut new = PASTED.replace(from, to);
        if to.contains("'done'") {
            new = new.replace("to = 'old'", "to = 'done'");
        }
        let edits = plan(&read(PASTED), &read(&new));
        assert!(edits.iter().any(|edit| edit.lines.is_some()), "{to}: {edits:?}");
        let pasted = with_proposals(&new, &edits);
        let left = plan(&read(PASTED), &read(&pasted));
        let left: Vec<&Edit> = left.iter().filter(|edit| edit.class != Class::Safe).collect();
        assert!(left.is_empty(), "{to}\n{pasted}\n{left:#?}");
    }
}

const PAST: &str = "[collections.books.fields]
title = 'string'
price = 'integer'
kept = 'integer'
kind = { type = 'string', enum = ['a', 'b'] }
[[versions]]
date = '2026-03-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'name', to = 'title', beside = true }
[[versions.changes]]
collection = 'books'
retype = { field = 'price', from = 'number', factor = 100 }
[[versions.changes]]
collection = 'books'
removed = { field = 'kept' }
[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
enum_map = { field = 'kind', values = { c = 'b' } }
[[versions]]
date = '2026-01-01'
";

#[test]
fn what_is_said_of_known_versions_is_compared_too() {
    use Class::{Destructive, NeedsVersion, Safe};
    type Told<'a> = &'a [(Class, &'a str)];
    let cases: &[(&str, &str, Told<'_>)] = &[
        ("", "", &[]),
        (", beside = true", "", &[(NeedsVersion, "books.title")]),
        ("from = 'name'", "from = 'nom'", &[(NeedsVersion, "books"), (NeedsVersion, "books")]),
        ("factor = 100", "factor = 10", &[(NeedsVersion, "books")]),
        ("factor = 100", "factor = 100, nearest = true", &[(Safe, "books.price")]),
        ("factor = 100", "factor = 10, nearest = true", &[(NeedsVersion, "books")]),
        ("{ c = 'b' }", "{ c = 'a' }", &[(NeedsVersion, "books")]),
        (
            "[[versions.changes]]\ncollection = 'books'\n\
             enum_map = { field = 'kind', values = { c = 'b' } }\n",
            "",
            &[(NeedsVersion, "books")],
        ),
        ("kept = 'integer'", "kept = 'string'", &[(Destructive, "books.kept")]),
        (
            "'2026-02-01'\n",
            "'2026-02-01'\n[[versions.changes]]\ncollection = 'books'\n\
             default = { field = 'price', was = 1 }\n",
            &[(NeedsVersion, "books")],
        ),
        (
            "[[versions]]\ndate = '2026-01-01'\n",
            "[[versions]]\ndate = '2026-01-01'\n[[versions.changes]]\ncollection = 'books'\n\
             default = { field = 'price', was = 1 }\n[[versions]]\ndate = '2025-01-01'\n",
            &[],
        ),
        ("'2026-03-01'", "'2026-04-01'", &[(NeedsVersion, "versions")]),
    ];
    for (from, to, expected) in cases {
        assert!(PAST.contains(from), "{from}");
        let new = if from.is_empty() { PAST.to_owned() } else { PAST.replace(from, to) };
        let edits = plan(&read(PAST), &read(&new));
        let found: Vec<(Class, &str)> = edits.iter().map(|e| (e.class, &*e.place)).collect();
        assert_eq!(found, *expected, "{to}: {edits:#?}");
    }
    let single = PAST.replace(", beside = true", "");
    let edits = plan(&read(&single), &read(PAST));
    assert_eq!((edits.len(), edits[0].class), (1, Safe), "{edits:?}");
    let nearest = PAST.replace("factor = 100", "factor = 100, nearest = true");
    let edits = plan(&read(&nearest), &read(PAST));
    assert_eq!((edits.len(), edits[0].class), (1, NeedsVersion), "{edits:?}");
    assert_eq!(edits[0].place, "books.price");
    // What is kept for older versions only is data, too.
    let dropped = PAST.replace("kept = 'integer'\n", "").replace(
        "removed = { field = 'kept' }",
        "removed = { field = { name = 'kept', type = 'integer' } }",
    );
    let edits = plan(&read(PAST), &read(&dropped));
    assert!(edits.iter().any(|edit| edit.class == Destructive), "{edits:?}");
}

#[test]
fn a_field_that_is_kept_nowhere_loses_its_data() {
    let past = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
removed = { field = { name = 'nick', type = 'string' }, value = 'x' }
[[versions]]
date = '2026-01-01'
[collections.pens]";
    check(
        &[
            ("version = '2026-01-01'\n", ""),
            ("nick = 'string'\n", ""),
            ("[collections.pens]", past),
        ],
        &[(Class::Safe, "books"), (Class::Destructive, "books.nick")],
    );
}

#[test]
fn settings_that_clients_meet_are_compared() {
    use Class::{Destructive, NeedsVersion, Safe};
    for (from, to, class, place) in [
        ("[service]", "[events]\nretention = '7d'\n[service]", Destructive, "events.retention"),
        ("[service]", "[events]\nretention = '70d'\n[service]", Safe, "events.retention"),
        ("[service]", "[service]\nmax_page = 10", NeedsVersion, "service.max_page"),
        (
            "[service]",
            "[service]\nrate_limit = { requests = 5, window = '1m' }",
            NeedsVersion,
            "service.rate_limit",
        ),
        ("[service]", "[live]\norigins = ['https://a.example']\n[service]", Safe, "live.origins"),
        ("initial = 'new'", "initial = 'old'", NeedsVersion, "books.states.initial"),
        ("'record.slug == null'", "'record.slug == \"\"'", NeedsVersion, "books.actions.sell"),
        ("to = 'old'", "to = 'old'\nset = { nick = 'x' }", NeedsVersion, "books.actions.sell"),
        (
            "pages = 'integer'",
            "pages = { type = 'integer', min = 1 }",
            NeedsVersion,
            "books.actions.sell.pages",
        ),
        (
            "whom = 'string'",
            "whom = { type = 'string', enum = ['a'] }",
            NeedsVersion,
            "books.actions.sell.whom",
        ),
    ] {
        assert!(PASTED.contains(from), "{from}");
        let edits = plan(&read(PASTED), &read(&PASTED.replace(from, to)));
        assert_eq!(edits.len(), 1, "{to}: {edits:?}");
        assert_eq!((edits[0].class, &*edits[0].place), (class, place), "{to}");
    }
}

const RULED: &str = "[service]
version = '2026-01-01'
[collections.books]
states = { field = 'status', initial = 'new', names = ['new', 'old'] }
[collections.books.fields]
a = 'string'
b = { type = 'number', default = 1 }
[collections.books.actions.go]
params = { p = 'string', q = 'string' }
set = { a = '=request.p', b = 2 }
rules = [
  { when = 'record.a == null', message = 'A' },
  { when = \"record.a == 'x y'\", message = 'B' },
  { when = 'request.q == null', message = 'C', code = 'no_q' },
]
[[collections.books.timed]]
from = 'new'
to = 'old'
after = '1m'
set = { b = 3 }
";

#[track_caller]
fn classes(old: &str, new: &str) -> Vec<(Class, String)> {
    let edits = plan(&read(old), &read(new));
    edits.into_iter().map(|edit| (edit.class, edit.place)).collect()
}

#[test]
fn what_reads_otherwise_and_says_the_same_is_no_edit() {
    for (from, to) in [
        ("", ""),
        ("record.a == null", "record.a==null"),
        ("set = { a = '=request.p', b = 2 }", "set = { b = 2, a = '=request.p' }"),
        ("default = 1", "default = 1.0"),
    ] {
        let new = if from.is_empty() { RULED.to_owned() } else { RULED.replace(from, to) };
        assert_eq!(classes(RULED, &new), [], "{to}");
    }
    for (from, to) in [
        ("{ c = 'b', d = 'a' }", "{ d = 'a', c = 'b' }"),
        ("from = 'isbn'", "from = { name = 'isbn', type = 'string', description = 'No.' }"),
        ("was = 1", "was = 1.0"),
    ] {
        let past = "[collections.books.fields]
kind = { type = 'string', enum = ['a', 'b'] }
det = 'object'
price = 'number'
[[versions]]
date = '2026-03-01'
[[versions.changes]]
collection = 'books'
enum_map = { field = 'kind', values = { c = 'b', d = 'a' } }
[[versions.changes]]
collection = 'books'
move = { from = 'isbn', to = 'det.isbn' }
[[versions.changes]]
collection = 'books'
default = { field = 'price', was = 1 }
[[versions]]
date = '2026-01-01'
";
        assert!(past.contains(from), "{from}");
        assert_eq!(classes(past, &past.replace(from, to)), [], "{to}");
    }
}

#[test]
fn rules_are_compared_in_the_words_of_the_old_version() {
    use Class::{NeedsVersion, Safe};
    let past = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'a', to = 'title' }
[[versions.changes]]
collection = 'books'
action = 'go'
rename = { from = 'p', to = 'r' }
[[versions]]
date = '2026-01-01'
";
    let renamed = RULED
        .replace("version = '2026-01-01'\n", "")
        .replace("\na = 'string'", "\ntitle = 'string'")
        .replace("record.a ", "record.title ")
        .replace("{ p = 'string'", "{ r = 'string'")
        .replace("a = '=request.p'", "title = '=request.r'")
        + past;
    let declared = [(Safe, "books".to_owned()), (Safe, "books".to_owned())];
    assert_eq!(classes(RULED, &renamed), declared);
    for (from, to, place) in [
        ("'request.q == null'", "'request.q == \"z\"'", "books.actions.go"),
        ("b = 2 }", "b = 4 }", "books.actions.go"),
        ("set = { b = 3 }", "set = { b = 4 }", "books.timed"),
    ] {
        assert!(renamed.contains(from), "{from}");
        let mut expected = declared.to_vec();
        expected.push((NeedsVersion, place.to_owned()));
        assert_eq!(classes(RULED, &renamed.replace(from, to)), expected, "{to}");
    }
}

#[test]
fn what_only_older_versions_see_is_compared_too() {
    use Class::{NeedsVersion, Safe};
    let past = "[service]
version = '2026-03-01'
[collections.books.fields]
title = 'string'
kept = { type = 'string', filter = true }
[collections.pens.fields]
ink = 'string'
[[versions]]
date = '2026-03-01'
[[versions.changes]]
collection = 'books'
removed = { field = 'kept' }
[[versions.changes]]
collection = 'books'
rename = { from = 'name', to = 'title', beside = true }
[[versions.changes]]
collection = 'pens'
collection_removed = true
[[versions]]
date = '2026-01-01'
";
    for (from, to, place) in [
        ("filter = true", "max_length = 2, filter = true", "books.kept"),
        (", filter = true", "", "books.kept"),
        ("ink = 'string'", "ink = { type = 'string', max_length = 2 }", "pens.ink"),
    ] {
        assert!(past.contains(from), "{from}");
        let told = classes(past, &past.replace(from, to));
        assert_eq!(told, [(NeedsVersion, place.to_owned())], "{to}");
    }
    // The oldest version goes: what it was told by goes with it.
    let (fields, _) = past.split_once("[[versions]]").unwrap();
    let told = classes(past, fields);
    let places = |class| told.iter().filter(move |(one, _)| *one == class).map(|(_, place)| place);
    assert_eq!(places(NeedsVersion).collect::<Vec<_>>(), ["versions", "books.title"], "{told:?}");
    assert_eq!(places(Safe).collect::<Vec<_>>(), ["books.kept", "pens"], "{told:?}");
}

#[test]
fn further_edits_of_a_renamed_field_are_told_with_the_rename() {
    for (from, to) in [
        ("nick = 'string'", "alias = { type = 'string', required = true }"),
        (
            "kind = { type = 'string', enum = ['a', 'b', 'c'], default = 'a' }",
            "sorted = { type = 'string', enum = ['a', 'b', 'd'], default = 'b' }",
        ),
        ("whom = 'string', ", "who = { type = 'string', required = true }, "),
    ] {
        assert!(PASTED.contains(from), "{from}");
        let new = PASTED.replace(from, to);
        let edits = plan(&read(PASTED), &read(&new));
        let pasted = with_proposals(&new, &edits);
        let left = plan(&read(PASTED), &read(&pasted));
        let left: Vec<&Edit> = left.iter().filter(|edit| edit.class != Class::Safe).collect();
        assert!(left.is_empty(), "{to}\n{pasted}\n{left:#?}");
    }
}

/// The old file's field, the new one's, and the change that stands between them.
#[track_caller]
fn behind(was: &str, is: &str, change: &str) -> Vec<String> {
    let old = format!("[service]\nversion = '2026-01-01'\n[collections.books.fields]\n{was}\n");
    let new = format!(
        "[collections.books.fields]\n{is}\n[[versions]]\ndate = '2026-02-01'\n\
         [[versions.changes]]\ncollection = 'books'\n{change}\n[[versions]]\ndate = '2026-01-01'\n"
    );
    plan(&read(&old), &read(&new)).iter().map(ToString::to_string).collect()
}

#[test]
fn limits_behind_a_change_are_told_with_a_value_that_they_refuse() {
    for (was, is, change, told) in [
        (
            "n = 'number'",
            "n = { type = 'integer', max = 100 }",
            "retype = { field = 'n', from = 'number', factor = 100 }",
            "{ n = 1.01 } becomes 101: `n` must be at most 100",
        ),
        (
            "n = { type = 'number', min = 0, max = 5 }",
            "n = { type = 'integer', min = 0, max = 400 }",
            "retype = { field = 'n', from = { type = 'number', min = 0, max = 5 }, factor = 100 }",
            "{ n = 4.01 } becomes 401: `n` must be at most 400",
        ),
        (
            "n = 'integer'",
            "n = { type = 'string', max_length = 3 }",
            "retype = { field = 'n', from = 'integer', by = 'text' }",
            "{ n = 1111 } becomes \"1111\": `n` ",
        ),
        (
            "who = { type = 'string', max_length = 20 }",
            "first = { type = 'string', max_length = 9 }\nlast = 'string'",
            "split = { from = { name = 'who', type = 'string', max_length = 20 }, to = ['first', \
             'last'], by = ' ' }",
            "{ who = \"xxxxxxxxxx\" } becomes \"xxxxxxxxxx\": `first` ",
        ),
        (
            "a = { type = 'string', pattern = '^[^ ]+$', required = true }\nb = 'string'",
            "c = { type = 'string', enum = ['x y'], required = true }",
            "merge = { from = [{ name = 'a', type = 'string', pattern = '^[^ ]+$', required = \
             true }, { name = 'b', type = 'string' }], to = 'c', by = ' ' }",
            "`c` must be one of: x y",
        ),
        (
            "who = { type = 'string', pattern = '^[a-z]+ [a-z]+$' }",
            "first = 'string'\nlast = { type = 'string', max_length = 50 }",
            "split = { from = { name = 'who', type = 'string', pattern = '^[a-z]+ [a-z]+$' }, to = \
             ['first', 'last'], by = ' ' }",
            "`last` ",
        ),
        (
            "n = 'number'",
            "n = { type = 'string', max_length = 10 }",
            "retype = { field = 'n', from = 'number', by = 'text' }",
            "{ n = 11111111111 } becomes \"11111111111\": `n` ",
        ),
        (
            "d = 'object'",
            "d = 'object'\nisbn = { type = 'string', min_length = 3 }",
            "move = { from = 'd.isbn', to = 'isbn' }",
            "`isbn` ",
        ),
    ] {
        let edits = behind(was, is, change);
        let found =
            |edit: &&String| edit.starts_with("needs a version change") && edit.contains(told);
        assert!(edits.iter().any(|edit| found(&edit)), "{told}\n{edits:#?}");
    }
}

#[test]
fn what_is_unique_behind_a_change_is_told() {
    for (was, is, change, kept) in [
        (
            "who = { type = 'string', unique = true }",
            "first = { type = 'string', unique = true }\nlast = 'string'",
            "split = { from = { name = 'who', type = 'string' }, to = ['first', 'last'], by = ' \
             ' }",
            "first",
        ),
        (
            "a = { type = 'string', pattern = '^[^ ]+$', required = true }\nb = 'string'",
            "c = { type = 'string', unique = true, required = true }",
            "merge = { from = [{ name = 'a', type = 'string', pattern = '^[^ ]+$', required = \
             true }, { name = 'b', type = 'string' }], to = 'c', by = ' ' }",
            "c",
        ),
    ] {
        let edits = behind(was, is, change);
        let told = format!("two records may say the same, but `{kept}` is `unique`");
        let found =
            |edit: &String| edit.starts_with("needs a version change") && edit.contains(&told);
        assert!(edits.iter().any(found), "{told}\n{edits:#?}");
    }
}

#[test]
fn limits_behind_a_change_that_refuse_nothing_new_are_not_told() {
    for (was, is, change) in [
        (
            "n = { type = 'number', min = 0, max = 1 }",
            "n = { type = 'integer', min = 0, max = 100 }",
            "retype = { field = 'n', from = { type = 'number', min = 0, max = 1 }, factor = 100 }",
        ),
        (
            "n = { type = 'integer', min = 0, max = 999 }",
            "n = { type = 'string', min_length = 1, max_length = 3 }",
            "retype = { field = 'n', from = { type = 'integer', min = 0, max = 999 }, by = \
             'text' }",
        ),
        (
            "who = { type = 'string', max_length = 9 }",
            "first = { type = 'string', max_length = 9 }\n\
             last = { type = 'string', max_length = 8 }",
            "split = { from = { name = 'who', type = 'string', max_length = 9 }, to = ['first', \
             'last'], by = ' ' }",
        ),
    ] {
        let edits = behind(was, is, change);
        assert!(edits.iter().all(|edit| edit.starts_with("safe")), "{edits:#?}");
    }
}

#[test]
fn values_that_a_new_type_cannot_say_are_told_beside_the_change() {
    let change = "retype = { field = 'n', from = 'number', factor = 100 }";
    let edits = behind("n = 'number'", "n = 'integer'", change);
    let told = "safe: books.n: { n = 0.001 } has no counterpart in `n` (declared; only such values \
                are refused)";
    assert!(edits.iter().any(|edit| edit == told), "{edits:#?}");
}
