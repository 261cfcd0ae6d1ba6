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

fn read(text: &str) -> Schema {
    parse(text).unwrap_or_else(|found| panic!("{found:?}\n{text}"))
}

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
