//! Edits that no change hides: each can be declared with `breaks`, and the file is safe with it.

use super::*;

const SHOP: &str = "[service]
version = '2026-01-01'
[collections.people.fields]
name = 'string'
[collections.authors.fields]
name = 'string'
[collections.books]
states = { field = 'status', initial = 'new', names = ['new', 'old', 'lost'] }
[collections.books.fields]
status = { type = 'string', sort = true }
title = { type = 'string', filter = true, sort = true, search = true }
nick = 'string'
isbn = { type = 'string', unique = true }
kind = { type = 'string', enum = ['a', 'b', 'c'] }
pages = { type = 'integer', min = 0, max = 9 }
by = { ref = 'authors' }
[collections.books.actions.sell]
from = ['new', 'lost']
to = 'old'
params = { whom = 'string' }
set = { nick = 'sold' }
[[collections.books.actions.sell.rules]]
when = 'record.isbn == null'
code = 'no_isbn'
message = 'No isbn.'
[[collections.books.timed]]
from = 'lost'
to = 'old'
after = '1m'
";

/// Old and new text of the file, and words of the edit.
const EDITS: &[(&str, &str, &str)] = &[
    ("nick = 'string'", "nick = { type = 'string', unique = true }", "became `unique`"),
    ("nick = 'string'", "nick = { type = 'string', read_only = true }", "became `read_only`"),
    ("nick = 'string'", "nick = { type = 'string', enum = ['sold', 'gone'] }", "has an `enum` now"),
    ("['a', 'b', 'c']", "['a', 'b']", "gone from the `enum`: `c`"),
    ("ref = 'authors'", "ref = 'people'", "refers to `people`, not `authors`"),
    (", sort = true, search", ", search", "sorting by it is gone"),
    ("filter = true, ", "", "filtering by it is gone"),
    (", search = true", "", "searching in it is gone"),
    ("nick = 'string'", "nick = { type = 'string', search = true }", "searching in it is new"),
    ("from = ['new', 'lost']", "from = ['new']", "allowed in `new` only"),
    ("to = 'old'\nparams", "to = 'lost'\nparams", "leads to `lost`, not `old`"),
    ("'record.isbn == null'", "'record.isbn == \"\"'", "the rule of `no_isbn` changed"),
    ("code = 'no_isbn'", "status = 409\ncode = 'no_isbn'", "answers otherwise"),
    ("set = { nick = 'sold' }", "set = { nick = 'gone' }", "what it sets as `nick` changed"),
    ("after = '1m'", "after = '2h'", "`1m` became `2h`"),
    ("initial = 'new'", "initial = 'lost'", "`new` became `lost`"),
    ("[service]", "[service]\nmax_page = 10", "100 became 10"),
    (
        "[service]",
        "[service]\nrate_limit = { requests = 5, window = '1m' }",
        "allows 5 requests in 1m, which is less",
    ),
    ("[collections.books]", "[collections.books]\nrequire_if_match = true", "switched on"),
    ("[collections.books]", "[collections.books]\nobject = 'tome'", "`book` became `tome`"),
    (
        "nick = 'string'",
        "nick = 'string'\ncode = { type = 'string', unique = true, required = true }",
        "a new required field",
    ),
    (
        "nick = 'string'",
        "nick = 'string'\nof = { ref = 'authors', required = true }",
        "a new required field",
    ),
    ("unique = true }", "unique = true, required = true }", "became required"),
];

#[test]
fn an_edit_that_no_change_declares_is_reported_with_a_breaks_line() {
    for (from, to, words) in EDITS {
        assert!(SHOP.contains(from), "{from}");
        let new = SHOP.replacen(from, to, 1);
        let edits = plan(&read(SHOP), &read(&new));
        let edit = edits.iter().find(|edit| edit.what.contains(words));
        let edit = edit.unwrap_or_else(|| panic!("{words}: {edits:#?}"));
        assert_eq!(edit.class, Class::NeedsVersion, "{edit:?}");
        let lines = edit.lines.clone().unwrap_or_default();
        assert!(lines.contains(&format!("breaks = \"{}: ", edit.place)), "{words}: {lines}");
        let (_, left) = with_proposals(&new, SHOP);
        assert!(left.iter().all(|edit| edit.class == Class::Safe), "{words}: {left:#?}");
        let declared = left.iter().find(|one| (&one.place, &one.what) == (&edit.place, &edit.what));
        let why = declared.map(|edit| edit.why.as_str());
        assert_eq!(why, Some("declared by `breaks`; clients notice it"), "{left:#?}");
    }
}

fn with_break(text: &str, date: &str, words: &str) -> String {
    let newest =
        format!("[[versions]]\ndate = '{date}'\n[[versions.changes]]\nbreaks = '{words}'\n");
    let past = newest + "[[versions]]\ndate = '2026-01-01'\n";
    text.replace("version = '2026-01-01'\n", "") + &past
}

#[test]
fn a_break_declares_only_the_edit_that_it_names() {
    let unique = SHOP.replace("nick = 'string'", "nick = { type = 'string', unique = true }");
    for words in ["books.nick: became unique", "books.title: became `unique`"] {
        let edits = plan(&read(SHOP), &read(&with_break(&unique, "2026-02-01", words)));
        assert!(edits.iter().any(|edit| edit.class == Class::NeedsVersion), "{edits:#?}");
    }
    // A break does not replace a change: without a rename, the stored values have no name any more.
    let renamed = SHOP.replace("nick = 'string'", "alias = 'string'").replace("nick =", "alias =");
    let edits = plan(&read(SHOP), &read(&renamed));
    let words = format!("{}: {}", edits[0].place, edits[0].what);
    let edits = plan(&read(SHOP), &read(&with_break(&renamed, "2026-02-01", &words)));
    let gone = edits.iter().find(|edit| edit.place == "books.nick").unwrap();
    assert_eq!(gone.class, Class::NeedsVersion, "{edits:#?}");
    // Not what loses data.
    let dropped = SHOP.replace("isbn = { type = 'string', unique = true }\n", "");
    let dropped = dropped.replace("record.isbn", "record.nick");
    let words = "books.isbn: the field is gone";
    let edits = plan(&read(SHOP), &read(&with_break(&dropped, "2026-02-01", words)));
    assert!(edits.iter().any(|edit| edit.class == Class::Destructive), "{edits:#?}");
}

#[test]
fn a_break_of_a_version_that_was_served_declares_nothing_new() {
    let old = with_break(SHOP, "2026-02-01", "books.nick: became `read_only`");
    let new = old.replace("nick = 'string'", "nick = { type = 'string', read_only = true }");
    let edits = plan(&read(&old), &read(&new));
    assert_eq!((edits.len(), edits[0].class), (1, Class::NeedsVersion), "{edits:#?}");
}

#[test]
fn an_edit_that_loses_data_is_reported_with_the_lines_that_keep_it() {
    for (from, to, said) in [
        (
            "isbn = { type = 'string', unique = true }\n",
            "",
            "# isbn = { type = \"string\", unique = true }",
        ),
        ("after = '1m'", "after = '1m'\n[events]\nretention = '7d'", "retention = \"30d\""),
        (
            "[collections.people.fields]",
            "[collections.people]\nfeed = true\n[collections.people.fields]",
            "feed = false",
        ),
        (
            "[collections.people.fields]",
            "[collections.people]\nparent = 'authors'\n[collections.people.fields]",
            "# without `parent`",
        ),
        (
            "nick = 'string'",
            "nick = { type = 'string', write_only = true }",
            "nick = { type = \"string\" }",
        ),
    ] {
        assert!(SHOP.contains(from), "{from}");
        let new = SHOP.replacen(from, to, 1).replace("record.isbn", "record.nick");
        let edits = plan(&read(&SHOP.replace("record.isbn", "record.nick")), &read(&new));
        let edit = edits.iter().find(|edit| edit.class == Class::Destructive);
        let lines = edit.and_then(|edit| edit.lines.clone()).unwrap_or_default();
        assert!(lines.lines().any(|line| line == said), "{said}\n{edits:#?}");
    }
}

#[test]
fn the_report_says_where_to_put_the_lines() {
    let new = SHOP.replace("nick = 'string'", "nick = { type = 'string', read_only = true }");
    let (old, new) = (read(SHOP), read(&new));
    let told = report(&plan(&old, &new), &old);
    assert_eq!(
        told,
        [
            "needs a version change: books.nick: became `read_only` (requests that send it are \
             refused)",
            "    [[versions.changes]]",
            "    breaks = \"books.nick: became `read_only`\"",
            "0 safe, 1 in need of a version change, 0 destructive",
            "The lines above stand below a `[[versions]]` entry with a newer date, and \
             `service.version` is that date; 2026-01-01 keeps an entry of its own. Clients of \
             2026-01-01 go on as before, except for what `breaks` names: no change hides that from \
             them, so put it back, or inform them.",
        ]
    );
    assert_eq!(report(&[], &old), ["0 safe, 0 in need of a version change, 0 destructive"]);
}
