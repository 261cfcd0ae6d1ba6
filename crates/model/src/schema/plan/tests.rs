//! Each edit in its class, with the lines that declare it.

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

/// The old file with some of its text replaced, and what that means.
#[track_caller]
fn check(replacements: &[(&str, &str)], expected: &[(Class, &str)]) -> Vec<Edit> {
    let mut new = OLD.to_owned();
    for (from, to) in replacements {
        assert!(new.contains(from), "{from}");
        new = new.replace(from, to);
    }
    let read = |text: &str| parse(text).unwrap_or_else(|findings| panic!("{findings:?}\n{text}"));
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
            "nick = 'integer'",
            "books.nick",
            "retype = { field = \"nick\", from = { type = \"string\" }, by = \"text\" }",
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
        ("max_length = 100", "max_length = 10", "books.title", ""),
        (", filter = true", "", "books.title", ""),
        ("params = { to_whom = 'string' }", "", "books.actions.sell.to_whom", ""),
        (
            "'no_price'",
            "'price_missing'",
            "books",
            "code = { from = \"no_price\", to = \"the_new_code\" }",
        ),
        ("[collections.books]", "[collections.books]\nid_prefix = 'bk'", "books.id_prefix", ""),
        (
            "[collections.books]",
            "[collections.books]\noperations = ['list', 'get', 'create', 'replace', 'update']",
            "books.operations",
            "",
        ),
        (
            "version = '2026-01-01'",
            "version = '2026-01-01'\nmount = '/v2'",
            "mounts",
            "path = \"/v1\"",
        ),
    ] {
        let edits = check(&[(from, to)], &[(Class::NeedsVersion, place)]);
        let lines = edits[0].lines.clone().unwrap_or_default();
        assert!(lines.contains(line), "{lines}");
        assert_eq!(lines.is_empty(), line.is_empty(), "{lines}");
    }
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
        &[(Class::Safe, "books"), (Class::Safe, "books"), (Class::Safe, "books")],
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
