//! Lines that are proposed: a file with them is taken, and needs what was told and nothing more.

use super::*;

const SHOP: &str = "[service]
version = '2026-01-01'
[collections.books]
states = { field = 'status', initial = 'new', names = ['new', 'old'] }
[collections.books.fields]
status = { type = 'string', sort = true }
isbn = { type = 'string', unique = true }
nick = 'string'
level = { type = 'integer', required = true, sort = true }
count = { type = 'integer', min = 0, max = 9 }
[collections.books.actions.sell]
params = { limit = 'string', pages = { type = 'integer', default = 7 } }
";

#[track_caller]
fn edits(from: &str, to: &str) -> (String, Vec<Edit>) {
    assert!(SHOP.contains(from), "{from}");
    let new = SHOP.replace(from, to);
    let edits = plan(&read(SHOP), &read(&new));
    (new, edits)
}

fn left(new: &str, edits: &[Edit]) -> Vec<String> {
    let left = plan(&read(SHOP), &read(&with_proposals(new, edits)));
    let left = left.iter().filter(|edit| edit.class != Class::Safe);
    left.map(ToString::to_string).collect()
}

#[test]
fn what_is_proposed_for_parameters_is_taken() {
    for (from, to) in [
        ("limit = 'string'", "most = 'string'"),
        ("limit = 'string', ", ""),
        ("limit = 'string'", "limit = { type = 'string', required = true }"),
        (", pages = { type = 'integer', default = 7 }", ""),
        ("limit = 'string'", "page = 'string'"),
        ("pages = { type = 'integer', default = 7 }", "pages = { type = 'string', default = '7' }"),
    ] {
        let (new, edits) = edits(from, to);
        assert!(edits.iter().any(|edit| edit.lines.is_some()), "{to}: {edits:?}");
        assert_eq!(left(&new, &edits), [""; 0], "{to}");
    }
}

#[test]
fn an_order_stays_with_the_lines() {
    let level = "level = { type = 'integer', required = true, sort = true }";
    for (from, to) in [
        ("names = ['new', 'old']", "names = ['new', 'done']"),
        ("required = true, sort = true", "sort = true"),
        (level, "level = { type = 'string', required = true, sort = true }"),
        (level, "level = { type = 'number', sort = true }"),
        (level, "level = { type = 'number', required = true, sort = true }"),
    ] {
        let (new, edits) = edits(from, to);
        assert!(edits.iter().any(|edit| edit.lines.is_some()), "{to}: {edits:#?}");
        assert_eq!(left(&new, &edits), [""; 0], "{to}");
    }
}

#[test]
fn a_field_that_a_date_changes_already_needs_a_date_of_its_own() {
    for (from, to, change) in [
        (
            "nick = 'string'",
            "alias = { type = 'string', default = 'x' }",
            "rename = { from = 'nick', to = 'alias' }",
        ),
        (
            "nick = 'string'",
            "alias = { type = 'string', required = true }",
            "rename = { from = 'nick', to = 'alias' }",
        ),
        (
            "limit = 'string'",
            "most = { type = 'string', default = 'x' }",
            "action = 'sell'\nrename = { from = 'limit', to = 'most' }",
        ),
    ] {
        let change = format!("[[versions.changes]]\ncollection = 'books'\n{change}\n");
        let newest = |date: &str| format!("[[versions]]\ndate = '{date}'\n{change}");
        let declared = SHOP.replace(from, to).replace("version = '2026-01-01'\n", "");
        let first =
            declared.clone() + &newest("2026-04-01") + "[[versions]]\ndate = '2026-01-01'\n";
        let edits = plan(&read(SHOP), &read(&first));
        let lines: Vec<&String> = edits.iter().filter_map(|edit| edit.lines.as_ref()).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("# Below a date of its own"), "{lines:?}");
        let pasted = with_proposals(&declared, &edits);
        let pasted = pasted.replace("[[versions]]\ndate = '2026-04-01'\n", &newest("2026-04-01"));
        let left = plan(&read(SHOP), &read(&pasted));
        assert!(left.iter().all(|edit| edit.class == Class::Safe), "{pasted}\n{left:#?}");
    }
}

#[test]
fn what_lists_were_asked_by_can_be_declared_where_the_old_field_is() {
    let was = "name = { type = 'string', filter = true, sort = true }";
    let is = "first = 'string'\nlast = 'string'";
    let split = |flags: &str| {
        format!(
            "split = {{ from = {{ name = 'name', type = 'string'{flags} }}, to = ['first', \
             'last'], by = ' ' }}"
        )
    };
    let told = behind(was, is, &split(""));
    for (key, what) in [("filter", "filtering by it is gone"), ("sort", "sorting by it is gone")] {
        let hint = format!("say `{key} = true` there");
        let found = |edit: &&String| edit.contains(what) && edit.contains(&hint);
        assert!(told.iter().any(|edit| found(&edit)), "{told:#?}");
    }
    let told = behind(was, is, &split(", filter = true, sort = true"));
    assert!(told.iter().all(|edit| edit.starts_with("safe: ")), "{told:#?}");
    // The lines for a value that became a list say it.
    let (new, edits) = edits(
        "level = { type = 'integer', required = true, sort = true }",
        "level = { type = 'array', items = 'integer', required = true }",
    );
    assert_eq!(left(&new, &edits), [""; 0]);
}

/// The file with one field, or one parameter, and others beside it.
fn single(field: &str, action: bool) -> String {
    let head = "[service]\nversion = '2026-01-01'\n";
    match action {
        true => format!("{head}[collections.books.actions.go.params]\nx = {field}\n"),
        false => format!("{head}[collections.books.fields]\nx = {field}\ny = 'string'\n"),
    }
}

#[test]
fn several_edits_of_one_field_are_declared_together() {
    for (was, is) in [
        ("{ type = 'integer', required = true }", "{ type = 'integer', read_only = true }"),
        ("{ type = 'integer', max = 5 }", "{ type = 'integer', min = 0, default = 9 }"),
        (
            "{ type = 'string', max_length = 3 }",
            "{ type = 'string', pattern = 'o', default = 'long' }",
        ),
        (
            "{ type = 'string', max_length = 3, required = true }",
            "{ type = 'string', pattern = 'o', default = 'long' }",
        ),
        (
            "{ type = 'string', enum = ['x', 'y'], default = 'y' }",
            "{ type = 'string', enum = ['z'], default = 'z' }",
        ),
        ("{ type = 'string', enum = ['x', 'y'] }", "{ type = 'string', enum = ['z'] }"),
        ("'integer'", "{ type = 'string', pattern = '^[A-Z]+$', required = true }"),
        (
            "{ type = 'string', enum = ['x', 'y'], max_length = 3, default = 'x' }",
            "{ type = 'string', enum = ['x', 'z'], max_length = 2, required = true }",
        ),
    ] {
        for action in [false, true] {
            if action && is.contains("read_only") {
                continue;
            }
            let (old, new) = (single(was, action), single(is, action));
            let edits = plan(&read(&old), &read(&new));
            let told = |edit: &Edit| edit.class == Class::Safe || edit.lines.is_some();
            assert!(edits.iter().all(told), "{was} {is}: {edits:#?}");
            let pasted = with_proposals(&new, &edits);
            let left = plan(&read(&old), &read(&pasted));
            let safe = left.iter().all(|edit| edit.class == Class::Safe);
            assert!(safe, "{was} {is}\n{pasted}\n{left:#?}");
        }
    }
}

#[test]
fn what_all_old_values_meet_or_nobody_reads_is_safe() {
    for (was, is) in [
        ("{ type = 'string', enum = ['red', 'blue'] }", "{ type = 'string', max_length = 10 }"),
        (
            "{ type = 'string', enum = ['red', 'blue'] }",
            "{ type = 'string', pattern = '^[a-z]+$' }",
        ),
        (
            "{ type = 'string', required = true, write_only = true }",
            "{ type = 'string', write_only = true }",
        ),
        ("'string'", "{ type = 'string', deprecated = '2026-01-01' }"),
    ] {
        let edits = plan(&read(&single(was, false)), &read(&single(is, false)));
        assert!(!edits.is_empty(), "{is}");
        assert!(edits.iter().all(|edit| edit.class == Class::Safe), "{edits:#?}");
        assert!(edits.iter().all(|edit| edit.what != "described otherwise"), "{edits:#?}");
    }
    let (was, is) =
        ("{ type = 'string', enum = ['red', 'blue'] }", "{ type = 'string', max_length = 3 }");
    let edits = plan(&read(&single(was, false)), &read(&single(is, false)));
    assert!(edits.iter().any(|edit| edit.class == Class::NeedsVersion), "{edits:#?}");
}

#[test]
fn a_field_that_became_secret_is_put_back_whole() {
    for (was, is) in [
        ("{ type = 'string', required = true, write_only = true }", "'string'"),
        ("{ type = 'boolean', write_only = true }", "{ type = 'boolean', required = true }"),
    ] {
        let edits = plan(&read(&single(was, false)), &read(&single(is, false)));
        assert_eq!((edits.len(), edits[0].class), (1, Class::Destructive), "{edits:#?}");
    }
    // Another that is secret is none of its names.
    let old = single("{ type = 'string', write_only = true }", false);
    let new = old.replace("x = { type = 'string', write_only = true }", "z = 'string'");
    let edits = plan(&read(&old), &read(&new));
    assert!(edits.iter().any(|edit| edit.what == "the field is gone"), "{edits:#?}");
}

#[test]
fn limits_behind_a_declared_change_have_lines_too() {
    for (was, is, change, kept) in [
        (
            "x = 'number'",
            "x = { type = 'integer', max = 100 }",
            "retype = { field = 'x', from = 'number', factor = 100 }",
            "x",
        ),
        (
            "x = { type = 'string', max_length = 20 }",
            "first = { type = 'string', max_length = 9 }\nlast = 'string'",
            "split = { from = { name = 'x', type = 'string', max_length = 20 }, to = ['first', \
             'last'], by = ' ' }",
            "first",
        ),
    ] {
        let head = "[collections.books.fields]\n";
        let old = format!("[service]\nversion = '2026-01-01'\n{head}{was}\n");
        let new = |lines: &str| {
            format!(
                "{head}{is}\n{lines}[[versions]]\ndate = '2026-02-01'\n[[versions.changes]]\n\
                 collection = 'books'\n{change}\n[[versions]]\ndate = '2026-01-01'\n"
            )
        };
        let edits = plan(&read(&old), &read(&new("")));
        let edit = edits.iter().find(|edit| edit.class == Class::NeedsVersion).unwrap();
        let lines = edit.lines.clone().unwrap_or_default();
        assert!(lines.starts_with("# Below a date of its own, after the one"), "{lines}");
        assert!(lines.contains(&format!("limits = {{ field = \"{kept}\" }}")), "{lines}");
        let pasted = new(&format!("[[versions]]\ndate = '2026-03-01'\n{lines}"));
        let left = plan(&read(&old), &read(&pasted));
        assert!(left.iter().all(|edit| edit.class == Class::Safe), "{pasted}\n{left:#?}");
    }
}

#[test]
fn a_rule_with_another_code_and_other_words_is_one_rule() {
    let old = "[service]
version = '2026-01-01'
[collections.books.fields]
n = 'integer'
[[collections.books.actions.go.rules]]
when = 'record.n != null && record.n > 1'
code = 'p'
message = 'No.'
";
    let new = old.replace("> 1", "> 2").replace("'p'", "'q'");
    let edits = plan(&read(old), &read(&new));
    let left = plan(&read(old), &read(&with_proposals(&new, &edits)));
    assert!(left.iter().all(|edit| edit.class == Class::Safe), "{left:#?}");
    assert!(left.iter().all(|edit| !edit.what.contains("which is no edit")), "{left:#?}");
}

#[test]
fn a_date_that_moved_is_told_with_both() {
    let old = single("'string'", false);
    let new = old.replace("2026-01-01", "2026-02-01");
    let edits = plan(&read(&old), &read(&new));
    let lines = edits[0].lines.clone().unwrap_or_default();
    let left = plan(&read(&old), &read(&(new + &lines)));
    assert!(left.iter().all(|edit| edit.class == Class::Safe), "{lines}\n{left:#?}");
}

#[test]
fn a_feed_that_was_switched_hides_no_other_edit() {
    let old = single("'number'", false);
    let new = single("'timestamp'", false).replace(
        "[collections.books.fields]",
        "[collections.books]\nfeed = true\n[collections.books.fields]",
    );
    let edits = plan(&read(&old), &read(&new));
    let told: Vec<&str> = edits.iter().map(|edit| edit.what.as_str()).collect();
    assert_eq!(told, ["`feed` was switched", "number became timestamp"], "{edits:#?}");
}

const STATES: &str = "[service]
version = '2026-01-01'
[collections.books.states]
names = ['new', 'sold', 'lost']
[collections.books.fields]
price = 'number'
tag = 'string'
[collections.books.actions.sell]
from = ['new']
to = 'sold'
[[collections.books.actions.sell.rules]]
when = 'record.price != null && record.price > 10.0 && record.tag != null && record.tag.size() > 2'
code = 'dear'
message = 'Too dear.'
[[collections.books.actions.sell.rules]]
when = \"record.status == 'lost'\"
code = 'dear'
message = 'Lost.'
[[collections.books.timed]]
from = 'new'
to = 'lost'
after = '1h'
";

/// What is told beside proposals is told as it is with them: one plan says all.
#[test]
fn what_proposals_are_about_is_told_with_them() {
    for replacements in [
        &[("'new'", "'fresh'")][..],
        &[("'lost'", "'gone'"), ("after = '1h'", "after = '2h'")],
        &[("'sold'", "'done'"), ("to = 'done'", "to = 'lost'")],
        &[("tag = 'string'", "tag = { type = 'array', items = 'string' }")],
        &[("price = 'number'", "cost = 'number'"), ("record.price", "record.cost")],
        &[("'dear'", "'costly'"), ("> 10.0", "> 20.0")],
        &[("price = 'number'", "price = 'integer'"), ("> 10.0", "> 10")],
    ] {
        let mut new = STATES.to_owned();
        for (from, to) in replacements {
            assert!(new.contains(from), "{from}");
            new = new.replace(from, to);
        }
        let edits = plan(&read(STATES), &read(&new));
        let pasted = with_proposals(&new, &edits);
        let left = plan(&read(STATES), &read(&pasted));
        assert!(left.iter().all(|edit| edit.class == Class::Safe), "{pasted}\n{left:#?}");
        let stale = |edit: &Edit| edit.what.contains("which is no edit here");
        assert!(!left.iter().any(stale), "{pasted}\n{left:#?}");
    }
}
