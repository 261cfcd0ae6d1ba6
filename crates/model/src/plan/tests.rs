//! Each edit in its class, with the lines that declare it.

mod breaks;
mod conduct;
mod settings;

use super::*;
use crate::parse::parse;

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

/// The text with some of it replaced.
#[track_caller]
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    if from.is_empty() { text.to_owned() } else { text.replace(from, to) }
}

/// The old file with some of its text replaced, and what that means.
#[track_caller]
fn check(replacements: &[(&str, &str)], expected: &[(Class, &str)]) -> Vec<Edit> {
    let replace = |text: String, (from, to): &(&str, &str)| replaced(&text, from, to);
    let new = replacements.iter().fold(OLD.to_owned(), replace);
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
fn declared_edits_are_safe() {
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
convert = { field = 'price', from = { type = 'number', default = 0 },
  up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
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
        &[(Class::Safe, "books"), (Class::Safe, "books"), (Class::Safe, "books")],
    );
    assert_eq!(edits[1].what, "Titles may be missing.");
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

/// The file with what the plan of it proposes, until nothing more is proposed.
fn with_proposals(text: &str, old: &str) -> (String, Vec<Edit>) {
    let mut past: Vec<String> = Vec::new();
    loop {
        let dated = past.iter().enumerate().map(|(place, changes)| {
            format!("[[versions]]\ndate = '2026-0{}-01'\n{changes}", 6 - place)
        });
        let mut new = text.to_owned();
        if !past.is_empty() {
            new = text.replace("version = '2026-01-01'\n", "")
                + &dated.collect::<String>()
                + "[[versions]]\ndate = '2026-01-01'\n";
        }
        let edits = plan(&read(old), &read(&new));
        let open = edits.iter().filter(|edit| edit.class != Class::Safe);
        let lines: String = open.filter_map(|edit| edit.lines.as_deref()).collect();
        if lines.is_empty() || past.len() > 3 {
            return (new, edits);
        }
        past.push(lines);
    }
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
        (
            "pages = 'integer' }",
            "pages = 'integer', more = { type = 'integer', min = 4, required = true } }",
        ),
        ("pages = 'integer' }", "pages = { type = 'integer', default = 7 } }"),
    ] {
        let mut new = replaced(PASTED, from, to);
        if to.contains("'done'") {
            new = new.replace("to = 'old'", "to = 'done'");
        }
        let edits = plan(&read(PASTED), &read(&new));
        assert!(edits.iter().any(|edit| edit.lines.is_some()), "{to}: {edits:?}");
        let (pasted, left) = with_proposals(&new, PASTED);
        let left: Vec<&Edit> = left.iter().filter(|edit| edit.class != Class::Safe).collect();
        assert!(left.is_empty(), "{to}\n{pasted}\n{left:#?}");
    }
}

/// Only the author knows how values of another type are converted.
#[test]
fn another_type_is_proposed_with_formulas_to_be_written() {
    for (from, to, class) in [
        ("flag = 'boolean'", "flag = 'string'", Class::Destructive),
        ("pages = 'integer' }", "pages = 'string' }", Class::NeedsVersion),
    ] {
        let new = replaced(PASTED, from, to);
        let edits = plan(&read(PASTED), &read(&new));
        let [edit] = edits.as_slice() else { panic!("{edits:#?}") };
        assert_eq!(edit.class, class);
        let lines = edit.lines.as_ref().unwrap();
        assert!(lines.contains("up = \"TODO\", down = \"TODO\""), "{lines}");
        let past =
            format!("[[versions]]\ndate = '2026-02-01'\n{lines}[[versions]]\ndate = '2026-01-01'");
        let pasted = new.replace("version = '2026-01-01'\n", "") + &past;
        let found = parse(&pasted).unwrap_err();
        assert!(found[0].message.starts_with("`up` is to be written"), "{found:?}");
        let written = pasted.replace("up = \"TODO\"", "up = 'string(value)'").replace(
            "down = \"TODO\"",
            if class == Class::Destructive {
                "down = \"value == 'true'\", lossy = true"
            } else {
                "down = 'int(value)', lossy = true"
            },
        );
        let left = plan(&read(PASTED), &read(&written));
        assert!(left.iter().all(|edit| edit.class == Class::Safe), "{left:#?}");
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
convert = { field = 'price', from = 'number',
  up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
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
fn edits_of_known_versions_are_reported() {
    use Class::{Destructive, NeedsVersion, Safe};
    type Told<'a> = &'a [(Class, &'a str)];
    let cases: &[(&str, &str, Told<'_>)] = &[
        ("", "", &[]),
        (", beside = true", "", &[(NeedsVersion, "books.title")]),
        ("from = 'name'", "from = 'nom'", &[(NeedsVersion, "books"), (NeedsVersion, "books")]),
        (
            "/ 100.0' }",
            "/ 100.0', lossy = true }",
            &[(NeedsVersion, "books"), (NeedsVersion, "books")],
        ),
        ("{ c = 'b' }", "{ c = 'a' }", &[(NeedsVersion, "books"), (NeedsVersion, "books")]),
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
        let edits = plan(&read(PAST), &read(&replaced(PAST, from, to)));
        let found: Vec<(Class, &str)> = edits.iter().map(|e| (e.class, &*e.place)).collect();
        assert_eq!(found, *expected, "{to}: {edits:#?}");
    }
    let single = PAST.replace(", beside = true", "");
    let edits = plan(&read(&single), &read(PAST));
    assert_eq!((edits.len(), edits[0].class), (1, Safe), "{edits:?}");
    // A field that only older versions show has data, too.
    let dropped = PAST.replace("kept = 'integer'\n", "").replace(
        "removed = { field = 'kept' }",
        "removed = { field = { name = 'kept', type = 'integer' } }",
    );
    let edits = plan(&read(PAST), &read(&dropped));
    assert!(edits.iter().any(|edit| edit.class == Destructive), "{edits:?}");
}

#[test]
fn edits_of_settings_that_clients_notice_are_reported() {
    use Class::{Destructive, NeedsVersion, Safe};
    for (from, to, class, place) in [
        ("[service]", "[events]\nretention = '7d'\n[service]", Destructive, "events.retention"),
        ("[service]", "[events]\nretention = '70d'\n[service]", Safe, "events.retention"),
        ("[service]", "[live]\norigins = ['https://a.example']\n[service]", Safe, "live.origins"),
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
        let edits = plan(&read(PASTED), &read(&replaced(PASTED, from, to)));
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
fn another_spelling_of_the_same_meaning_is_no_edit() {
    for (from, to) in [
        ("", ""),
        ("record.a == null", "record.a==null"),
        ("set = { a = '=request.p', b = 2 }", "set = { b = 2, a = '=request.p' }"),
        ("default = 1", "default = 1.0"),
    ] {
        assert_eq!(classes(RULED, &replaced(RULED, from, to)), [], "{to}");
    }
}

#[test]
fn edits_that_only_older_versions_see_are_reported() {
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
        let told = classes(past, &replaced(past, from, to));
        assert_eq!(told, [(NeedsVersion, place.to_owned())], "{to}");
    }
    // The oldest version is removed, and the changes that describe it.
    let (fields, _) = past.split_once("[[versions]]").unwrap();
    let told = classes(past, fields);
    let places = |class| told.iter().filter(move |(one, _)| *one == class).map(|(_, place)| place);
    assert_eq!(places(NeedsVersion).collect::<Vec<_>>(), ["books.title", "versions"], "{told:?}");
    assert_eq!(places(Safe).collect::<Vec<_>>(), ["books.kept", "pens"], "{told:?}");
}
