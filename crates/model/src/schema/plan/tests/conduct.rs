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
paid = 'number'
kind = { type = 'string', enum = ['a', 'b'] }
[collections.books.actions.sell]
params = { price = 'number', why = 'string' }
set = { paid = '=request.price', title = 'sold' }
rules = [
  { when = 'has(record.price) && record.price > 10', message = 'A', code = 'dear', status = 402 },
  { when = \"record.kind == 'a'\", message = 'B', code = 'kind', param = 'why' },
  { when = 'request.why == null', message = 'C', code = 'why' },
  { when = 'record.price == null', message = 'D', code = 'why',
    event = 'book.lost', to = 'lost', set = { title = 'x' } },
]
[[collections.books.timed]]
from = 'new'
to = 'old'
after = '1m'
event = 'book.aged'
set = { price = 3, title = 'aged' }
";

/// What both fields of the price and the parameter became.
const CENTS: &str = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
retype = { field = 'price', from = 'number', factor = 100 }
[[versions.changes]]
collection = 'books'
retype = { field = 'paid', from = 'number', factor = 100 }
[[versions.changes]]
collection = 'books'
action = 'sell'
retype = { field = 'price', from = 'number', factor = 100 }
[[versions]]
date = '2026-01-01'
";

fn in_cents() -> String {
    let cents = SHOP.replace("version = '2026-01-01'\n", "");
    cents
        .replace("price = 'number'", "price = 'integer'")
        .replace("paid = 'number'", "paid = 'integer'")
        + CENTS
}

/// What is told of the conduct, which is neither declared nor about values without counterpart.
#[track_caller]
fn told(old: &str, new: &str) -> Vec<(Class, String)> {
    let mut edits = plan(&read(old), &read(new));
    edits.retain(|edit| !edit.why.starts_with("declared"));
    edits.into_iter().map(|edit| (edit.class, format!("{}: {}", edit.place, edit.what))).collect()
}

/// The edits, each by its class and a part of what is told.
#[track_caller]
fn tells(old: &str, new: &str, expected: &[(Class, &str)]) {
    let told = told(old, new);
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for ((class, what), (expected, part)) in told.iter().zip(expected) {
        assert!(class == expected && what.contains(part), "{part}: {told:#?}");
    }
}

#[track_caller]
fn edited(text: &str, replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn words_that_stay_although_the_values_are_others_are_told() {
    // `record.price == null` and `paid = '=request.price'` say of cents what they said.
    tells(
        SHOP,
        &in_cents(),
        &[
            (NeedsVersion, "books.timed: what it sets as `price` looks at `price`, whose values"),
            (NeedsVersion, "the rule of `dear` looks at `price`, whose values are others now"),
        ],
    );
}

#[test]
fn words_about_values_that_are_others_now_are_the_authors_to_compare() {
    let new =
        edited(&in_cents(), &[("price > 10", "price > 1000"), ("price = 3,", "price = 300,")]);
    let hints = [
        (Safe, "books.timed: what it sets as `price` looks at `price`"),
        (Safe, "the rule of `dear` looks at `price`, whose values are others now"),
    ];
    tells(SHOP, &new, &hints);
    // All else of them is compared.
    for (from, to, part, place) in [
        ("status = 402", "status = 409", "`dear` has another `status`", 2),
        ("402", "402, type = 'odd'", "`dear` has another `type`", 2),
        ("402", "402, extra = { a = 1 }", "`dear` has another `extra`", 2),
        ("to = 'lost'", "to = 'old'", "`why` has another `to`", 2),
        ("'book.lost'", "'book.gone'", "`why` has another `event`", 2),
        ("after = '1m'", "after = '2m'", "`new` lasts 2m, not 1m", 0),
        ("'book.aged'", "'book.olden'", "`book.olden`, not `book.aged`", 0),
        ("title = 'aged'", "title = 'old'", "what it sets as `title` says something else", 1),
        ("title = 'sold'", "title = 'gone'", "what it sets as `title` says something else", 1),
        (", title = 'sold'", "", "does not set `title` any more", 1),
    ] {
        let mut expected = hints.to_vec();
        expected.insert(place, (NeedsVersion, part));
        tells(SHOP, &edited(&new, &[(from, to)]), &expected);
    }
}

#[test]
fn what_is_said_of_values_with_other_names_is_compared_by_the_old_names() {
    let past = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
enum_map = { field = 'kind', values = { a = 'z' } }
[[versions.changes]]
collection = 'books'
enum_map = { field = 'status', values = { old = 'done', lost = 'missing' } }
[[versions]]
date = '2026-01-01'
";
    let renamed = SHOP.replace("version = '2026-01-01'\n", "") + past;
    let renamed = edited(
        &renamed,
        &[
            ("['a', 'b']", "['z', 'b']"),
            ("['new', 'old', 'lost']", "['new', 'done', 'missing']"),
            ("to = 'old'", "to = 'done'"),
            ("to = 'lost'", "to = 'missing'"),
        ],
    );
    let new = edited(&renamed, &[("kind == 'a'", "kind == 'z'")]);
    tells(SHOP, &new, &[]);
    let same = "the rule of `kind` looks at `kind`, whose values are others now, with the same";
    tells(SHOP, &renamed, &[(NeedsVersion, same)]);
    let other = edited(&new, &[("kind == 'z'", "kind == 'b'")]);
    tells(SHOP, &other, &[(NeedsVersion, "the rule of `kind` says something else")]);
    let other = edited(&new, &[("to = 'missing'", "to = 'done'")]);
    tells(SHOP, &other, &[(NeedsVersion, "the rule of `why` has another `to`")]);
    // Not one value alone: what it is compared with is no word of the file.
    let old = edited(SHOP, &[("kind == 'a'", "kind == request.why")]);
    let new = edited(&renamed, &[("kind == 'a'", "kind == request.why")]);
    tells(&old, &new, &[(NeedsVersion, same)]);
    let old = edited(SHOP, &[("kind == 'a'", "kind in ['a', 'b']")]);
    let new = edited(&renamed, &[("kind == 'a'", "kind in [ 'z','b' ]")]);
    tells(&old, &new, &[]);
}

#[test]
fn a_new_value_that_old_clients_see_as_another_changes_no_words() {
    let past = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
enum_map = { field = 'kind', down = { c = 'a' } }
[[versions.changes]]
collection = 'books'
enum_map = { field = 'status', down = { stolen = 'lost' } }
[[versions]]
date = '2026-01-01'
";
    let new = SHOP.replace("version = '2026-01-01'\n", "") + past;
    let names = ("'old', 'lost']", "'old', 'lost', 'stolen']");
    let new = edited(&new, &[("['a', 'b']", "['a', 'b', 'c']"), names]);
    tells(SHOP, &new, &[]);
    tells(SHOP, &edited(&new, &[("to = 'lost'", "to = 'stolen'")]), &[]);
    let old = edited(SHOP, &[("kind == 'a'", "kind == request.why")]);
    tells(&old, &edited(&new, &[("kind == 'a'", "kind == request.why")]), &[]);
    let other = edited(&new, &[("kind == 'a'", "kind == 'c'")]);
    tells(SHOP, &other, &[(Safe, "the rule of `kind` looks at `kind`, whose values are others")]);
}

#[test]
fn what_is_set_of_fields_in_parts_is_the_authors_to_compare() {
    let past = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
split = { from = { name = 'title', type = 'string' }, to = ['head', 'tail'], by = ' ' }
[[versions]]
date = '2026-01-01'
";
    let new = SHOP.replace("version = '2026-01-01'\n", "") + past;
    let new = edited(
        &new,
        &[
            ("\ntitle = 'string'", "\nhead = 'string'\ntail = 'string'"),
            ("title = 'sold'", "head = 'sold'"),
            ("title = 'aged'", "head = 'aged'"),
            ("title = 'x'", "head = 'x'"),
        ],
    );
    let told = told(SHOP, &new);
    assert!(told.iter().all(|(class, _)| *class == Safe), "{told:#?}");
    assert_eq!(told.len(), 6, "{told:#?}");
}

#[test]
fn rules_have_an_order_and_each_its_code() {
    let rules: Vec<&str> = SHOP.lines().filter(|line| line.starts_with("  { when")).collect();
    let swapped = format!("{}\n{}", rules[1], rules[0]);
    let gone = format!("{}\n", rules[2]);
    for (from, to, expected) in [
        (&*rules[..2].join("\n"), &*swapped, vec!["the rules are tried in another order"]),
        (
            "code = 'dear', status = 402",
            "code = 'kind', status = 402",
            vec!["no rule answers with the code `dear`"],
        ),
        (&gone, "", vec!["a rule of `why` is gone"]),
        (", param = 'why'", "", vec!["the rule of `kind` has another `param`"]),
        ("param = 'why'", "param = 'price'", vec!["the rule of `kind` has another `param`"]),
    ] {
        let expected: Vec<_> = expected.iter().map(|part| (NeedsVersion, *part)).collect();
        tells(SHOP, &edited(SHOP, &[(from, to)]), &expected);
    }
    let swapped = [("'dear'", "'_'"), ("'kind'", "'dear'"), ("'_'", "'kind'")];
    tells(
        SHOP,
        &edited(SHOP, &swapped),
        &[
            (NeedsVersion, "the rule of `dear` answers with `kind`"),
            (NeedsVersion, "the rule of `kind` answers with `dear`"),
        ],
    );
    // Which of two is tried first matters to nobody where both answer alike.
    let alike =
        edited(SHOP, &[(",\n    event = 'book.lost', to = 'lost', set = { title = 'x' }", "")]);
    let rules: Vec<&str> = alike.lines().filter(|line| line.contains("code = 'why'")).collect();
    let new = edited(&alike, &[(&rules.join("\n"), &[rules[1], rules[0]].join("\n"))]);
    tells(&alike, &new, &[]);
}

#[test]
fn a_parameter_that_a_rule_names_may_have_another_name() {
    let past = "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
action = 'sell'
rename = { from = 'why', to = 'reason' }
[[versions]]
date = '2026-01-01'
";
    let new = SHOP.replace("version = '2026-01-01'\n", "") + past;
    let new = edited(
        &new,
        &[
            ("why = 'string'", "reason = 'string'"),
            ("param = 'why'", "param = 'reason'"),
            ("request.why", "request.reason"),
        ],
    );
    tells(SHOP, &new, &[]);
}

#[test]
fn a_new_field_that_an_action_sets_too_is_an_addition() {
    let field =
        ("\nprice = 'number'", "\nprice = 'number'\nat = { type = 'timestamp', read_only = true }");
    let new = edited(SHOP, &[field, ("title = 'sold'", "title = 'sold', at = '=now'")]);
    tells(SHOP, &new, &[(Safe, "books.at: a new field"), (Safe, "sets `at`, too")]);
    let new = edited(SHOP, &[("title = 'sold'", "title = 'sold', kind = 'b'")]);
    tells(SHOP, &new, &[(NeedsVersion, "sets `kind`, too")]);
}

#[test]
fn words_about_numbers_that_may_have_fractions_now_say_the_same() {
    let orders = |kind: &str| {
        format!(
            "[collections.orders.fields]\ntotal = '{kind}'\n[collections.orders.actions.pay]\n\
             params = {{ amount = '{kind}' }}\nset = {{ total = '=request.amount' }}\n\
             rules = [{{ code = 'low', message = 'm', when = 'has(request.amount) && \
             request.amount < 5 || has(record.total) && record.total > 3' }}]\n"
        )
    };
    let old = format!("[service]\nversion = '2026-01-01'\n{}", orders("integer"));
    let retype = |action: &str, field: &str| {
        format!(
            "[[versions.changes]]\ncollection = 'orders'\n{action}retype = {{ field = '{field}', \
             from = 'integer', factor = 1 }}\n"
        )
    };
    let new = format!(
        "{}[[versions]]\ndate = '2026-02-01'\n{}{}[[versions]]\ndate = '2026-01-01'\n",
        orders("number"),
        retype("", "total"),
        retype("action = 'pay'\n", "amount")
    );
    tells(&old, &new, &[]);
}

#[test]
fn rules_that_name_renamed_fields_answer_as_before() {
    let old = "[service]
version = '2026-01-01'
[collections.books.fields]
details = 'object'
isbn = 'string'
[collections.books.actions.sell]
params = { why = 'string' }
rules = [
  { when = 'record.details == null', message = 'A `details.sku`', param = 'details.sku' },
  { when = 'request.why == null', message = 'No `why` for `isbn`', param = 'why', code = 'why' },
]
";
    let renamed = old
        .replace("details", "info")
        .replace("isbn", "number")
        .replace("why", "reason")
        .replace("code = 'reason'", "code = 'why'")
        .replace("version = '2026-01-01'\n", "")
        + "[[versions]]
date = '2026-02-01'
[[versions.changes]]
collection = 'books'
rename = { from = 'details', to = 'info' }
[[versions.changes]]
collection = 'books'
rename = { from = 'isbn', to = 'number' }
[[versions.changes]]
collection = 'books'
action = 'sell'
rename = { from = 'why', to = 'reason' }
[[versions]]
date = '2026-01-01'
";
    tells(old, &renamed, &[]);
    let other = renamed.replace("param = 'info.sku'", "param = 'info.isbn'");
    tells(old, &other, &[(NeedsVersion, "has another `param`")]);
    let other = renamed.replace("No `reason`", "Some `reason`");
    tells(old, &other, &[(Safe, "has another message")]);
    // Nor is a field that only older versions have an edit of the rules that name it.
    let removed = "[[versions.changes]]\ncollection = 'books'\nremoved = { field = 'number' }\n";
    let newest = "date = '2026-02-01'\n";
    let undeclared = renamed.replace(
        "[[versions.changes]]\ncollection = 'books'\nrename = { from = 'isbn', to = 'number' }\n",
        "",
    );
    let removed = undeclared.replace(newest, &format!("{newest}{removed}"));
    tells(&removed, &removed, &[]);
}
