//! What actions, rules and timed transitions do, before and after an edit.

use super::*;
use Class::{NeedsVersion, Safe};

const SHOP: &str = "[service]
version = '2026-01-01'
[collections.books]
states = { field = 'status', initial = 'new', names = ['new', 'old', 'lost'] }
[collections.books.fields]
title = 'string'
price = 'number'
[collections.books.actions.sell]
params = { price = 'number', why = 'string' }
set = { price = '=request.price', title = 'sold' }
rules = [
  { when = 'has(record.price) && record.price > 10', message = 'A', code = 'dear', status = 402 },
  { when = 'record.title == null', message = 'The `title`.', code = 'nameless' },
  { when = 'request.why == null', message = 'C', code = 'why', to = 'lost',
    event = 'book.lost' },
]
[[collections.books.timed]]
from = 'new'
to = 'old'
after = '1m'
event = 'book.aged'
set = { title = 'aged' }
";

/// The file with some of its text replaced, and a version with these changes.
#[track_caller]
fn edited(replacements: &[(&str, &str)], changes: &[&str]) -> String {
    let replace = |text: String, (from, to): &(&str, &str)| replaced(&text, from, to);
    let mut text = replacements.iter().fold(SHOP.to_owned(), replace);
    if changes.is_empty() {
        return text;
    }
    text = text.replace("version = '2026-01-01'\n", "") + "[[versions]]\ndate = '2026-02-01'\n";
    for change in changes {
        text += &format!("[[versions.changes]]\ncollection = 'books'\n{change}\n");
    }
    text + "[[versions]]\ndate = '2026-01-01'\n"
}

/// The edits that are not declared, each by its class and a part of its text.
#[track_caller]
fn check(new: &str, expected: &[(Class, &str)]) {
    let mut edits = plan(&read(SHOP), &read(new));
    edits.retain(|edit| !edit.why.starts_with("declared"));
    let found: Vec<String> = edits.iter().map(ToString::to_string).collect();
    assert_eq!(edits.len(), expected.len(), "{found:#?}");
    for (edit, (class, part)) in edits.iter().zip(expected) {
        assert!(edit.class == *class && edit.to_string().contains(part), "{part}: {found:#?}");
    }
}

#[test]
fn each_edit_of_the_behaviour_of_an_action_is_reported() {
    for (from, to, part) in [
        ("price > 10", "price > 11", "the rule of `dear` changed"),
        ("status = 402", "status = 409", "the rule of `dear` answers otherwise"),
        ("to = 'lost'", "to = 'old'", "the rule of `why` answers otherwise"),
        ("after = '1m'", "after = '2m'", "`1m` became `2m`"),
        ("'book.aged'", "'book.olden'", "`book.aged` became `book.olden`"),
        ("title = 'aged'", "title = 'old'", "what it sets as `title` changed"),
        ("title = 'sold'", "title = 'gone'", "what it sets as `title` changed"),
        (", title = 'sold'", "", "does not set `title` any more"),
        ("code = 'why'", "code = 'dear'", "no rule answers with the code `why` any more"),
    ] {
        let new = edited(&[(from, to)], &[]);
        let edits = plan(&read(SHOP), &read(&new));
        let found: Vec<String> = edits.iter().map(ToString::to_string).collect();
        let told = edits.iter().any(|edit| {
            edit.class == NeedsVersion && edit.lines.is_some() && edit.to_string().contains(part)
        });
        assert!(told, "{part}: {found:#?}");
    }
    let (first, second) = ("'has(record.price) && record.price > 10'", "'record.title == null'");
    let swapped = SHOP.replace(first, "X").replace(second, first).replace("X", second);
    let swapped = swapped.replace("'dear'", "'X'").replace("'nameless'", "'dear'");
    let swapped = swapped.replace("'X'", "'nameless'").replace(", status = 402", "");
    let swapped = swapped.replace("code = 'dear'", "code = 'dear', status = 402");
    let swapped = swapped.replace("'A'", "X").replace("'The `title`.'", "'A'");
    let swapped = swapped.replace("X", "'The `title`.'");
    check(&swapped, &[(NeedsVersion, "the rules are tried in another order")]);
    check(&edited(&[("record.price > 10'", "record.price>10'")], &[]), &[]);
    check(&edited(&[("'C'", "'D'")], &[]), &[(Safe, "has another message")]);
}

#[test]
fn rules_that_name_renamed_fields_are_compared_by_the_old_names() {
    let renames = [
        ("title = 'string'", "head = 'string'"),
        ("title = 'sold'", "head = 'sold'"),
        ("record.title", "record.head"),
        ("The `title`.", "The `head`."),
        ("title = 'aged'", "head = 'aged'"),
    ];
    check(&edited(&renames, &["rename = { from = 'title', to = 'head' }"]), &[]);
    // Before the rename is declared, they cannot be compared.
    let expected = [
        (NeedsVersion, "gone, and `head` of the same type is new"),
        (Safe, "what its actions and states do is not compared"),
    ];
    check(&edited(&renames, &[]), &expected);
}

#[test]
fn rules_about_converted_values_are_the_authors_to_compare() {
    let cents = "convert = { field = 'price', from = 'number', up = 'int(math.round(value * \
                 100.0))', down = 'double(value) / 100.0' }";
    let param = &format!("action = 'sell'\n{cents}");
    let types = [("price = 'number'", "price = 'integer'")];
    let same = edited(&types, &[cents, param]);
    check(
        &same,
        &[
            (NeedsVersion, "what it sets as `price` looks at `price`, whose values are others"),
            (NeedsVersion, "the rule of `dear` looks at `price`, whose values are others"),
        ],
    );
    let other = same
        .replace("price > 10", "price > 1000")
        .replace("=request.price", "=has(request.price) ? 100 * request.price : null");
    let look = "cannot be compared: see that it says the same of the new values";
    check(&other, &[(Safe, look), (Safe, look)]);
}
