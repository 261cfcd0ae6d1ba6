//! Other types: the conversion that is proposed, and what nothing converts.

use super::*;

fn file(field: &str) -> String {
    format!("[service]\nversion = '2026-01-01'\n[collections.books.fields]\nx = {field}\n")
}

fn action(field: &str) -> String {
    format!(
        "[service]\nversion = '2026-01-01'\n[collections.books.actions.go]\nparams = {{ x = \
         {field} }}\n"
    )
}

/// The lines of the first edit, and what is left once all lines stand in the file.
#[track_caller]
fn proposed(old: &str, new: &str) -> (Edit, Vec<Edit>) {
    let edits = plan(&read(old), &read(new));
    let mut left = plan(&read(old), &read(&with_proposals(new, &edits)));
    left.retain(|edit| edit.class != Class::Safe);
    (edits[0].clone(), left)
}

#[test]
fn each_conversion_that_loses_nothing_is_found() {
    let digits = r"{ type = 'string', pattern = '^[1-9][0-9]{0,5}$' }";
    for (was, is, how) in [
        (digits, "'integer'", "by = \"text\""),
        (digits, "'number'", "by = \"text\""),
        (digits, "{ type = 'integer', min = 1, max = 999999 }", "by = \"text\""),
        ("{ type = 'string', enum = ['true', 'false'] }", "'boolean'", "by = \"text\""),
        ("{ type = 'string', enum = ['1', '2'] }", "'integer'", "by = \"text\""),
        (
            "'boolean'",
            "{ type = 'string', enum = ['off', 'on'] }",
            "map = { false = \"off\", true = \"on\" }",
        ),
        ("'boolean'", "{ type = 'string', enum = ['true', 'false'] }", "by = \"text\""),
        (
            "'boolean'",
            "{ type = 'string', enum = ['a', 'b', 'c'], default = 'a' }",
            "map = { false = \"a\", true = \"b\" }",
        ),
        (
            "{ type = 'string', enum = ['a b', 'c'] }",
            "'boolean'",
            "map = { \"a b\" = false, c = true }",
        ),
        ("{ type = 'integer', min = 0, max = 1 }", "'boolean'", "map = { 0 = false, 1 = true }"),
        (
            "{ type = 'integer', min = -1, max = 1, required = true }",
            "{ type = 'string', enum = ['x', 'y', 'z'], required = true }",
            "map = { -1 = \"x\", 0 = \"y\", 1 = \"z\" }",
        ),
        (
            "{ type = 'string', enum = ['a', 'b'] }",
            "{ type = 'integer', min = 1, max = 2 }",
            "map = { a = 1, b = 2 }",
        ),
        ("'timestamp'", "'integer'", "by = \"milliseconds\""),
        ("'integer'", "'timestamp'", "by = \"milliseconds\""),
        (
            "{ type = 'integer', unique = true }",
            "{ type = 'string', unique = true }",
            "by = \"text\"",
        ),
        (
            "{ type = 'array', items = 'string', min_length = 1, max_length = 1 }",
            "{ type = 'string', min_length = 0 }",
            "by = \"list\"",
        ),
        ("'integer'", "{ type = 'number', default = 0.5 }", "factor = 1"),
        (
            "{ type = 'integer', default = 3 }",
            "{ type = 'string', required = true }",
            "by = \"text\"",
        ),
    ] {
        for (old, new) in [(file(was), file(is)), (action(was), action(is))] {
            if old.contains("params") && was.contains("unique") {
                continue;
            }
            let (edit, left) = proposed(&old, &new);
            assert_eq!(edit.class, Class::NeedsVersion, "{was} {is}: {edit:?}");
            let lines = edit.lines.unwrap_or_default();
            assert!(lines.contains(how), "{was} {is}: {lines}");
            assert!(left.is_empty(), "{was} {is}: {left:#?}");
        }
    }
}

/// Limits of the new type are no matter of conversion: old clients go on under theirs.
#[test]
fn limits_of_the_new_type_stand_before_the_conversion() {
    for (was, is, how) in [
        (
            "{ type = 'number', min = 1, max = 5 }",
            "{ type = 'integer', min = 2, max = 5 }",
            "factor = 1",
        ),
        ("'integer'", "{ type = 'string', max_length = 3 }", "by = \"text\""),
        ("'boolean'", "{ type = 'string', min_length = 5 }", "by = \"text\""),
        (
            "{ type = 'integer', unique = true, sort = true }",
            "{ type = 'string', min_length = 3, search = true }",
            "by = \"text\"",
        ),
        (
            "'integer'",
            "{ type = 'string', pattern = '^[A-Z]+$', required = true }",
            "by = \"text\"",
        ),
        (
            "{ type = 'integer', max = 1000, required = true }",
            "{ type = 'number', max = 10, default = 5 }",
            "factor = 1",
        ),
    ] {
        let (edit, left) = proposed(&file(was), &file(is));
        let lines = edit.lines.unwrap_or_default();
        assert!(lines.contains("limits = { field = \"x\" }") && lines.contains(how), "{lines}");
        assert!(left.is_empty(), "{was} {is}: {left:#?}");
    }
}

/// What it can say only otherwise is told beside the conversion.
#[test]
fn words_that_the_new_type_lacks_are_told_beside_the_conversion() {
    let (old, new) = (file("'integer'"), file("{ type = 'string', enum = ['1', '2'] }"));
    let edits = plan(&read(&old), &read(&new));
    let told: Vec<(Class, &str)> = edits.iter().map(|edit| (edit.class, &*edit.what)).collect();
    let refused = "{ x = 0 } becomes \"0\": `x` must be one of: 1, 2";
    assert_eq!(
        told,
        [(Class::NeedsVersion, "integer became string"), (Class::NeedsVersion, refused)]
    );
    let (_, left) = proposed(&old, &new);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn a_type_that_nothing_converts_is_data_that_would_be_lost() {
    for (was, is) in [
        ("'string'", "'integer'"),
        ("{ type = 'string', pattern = '^[0-9]{3}$' }", "'integer'"),
        ("{ type = 'number', default = 0.5 }", "'integer'"),
        ("{ type = 'array', items = 'integer', min_length = 1, max_length = 1 }", "'string'"),
        ("{ type = 'array', items = 'string', min_length = 1 }", "'string'"),
        ("{ type = 'string', enum = ['a', 'b', 'c'] }", "'boolean'"),
        ("{ type = 'integer', min = 0, max = 2 }", "'boolean'"),
        ("'object'", "'string'"),
        ("'date'", "'timestamp'"),
    ] {
        let old = file(was);
        let new = file(is);
        let edits = plan(&read(&old), &read(&new));
        assert_eq!((edits.len(), edits[0].class), (1, Class::Destructive), "{edits:?}");
        // As the lines say: the old field stays, and the new one has another name.
        let lines = edits[0].lines.clone().unwrap_or_default();
        let said = lines.lines().last().and_then(|line| line.strip_prefix("# ")).unwrap();
        let both = new.replace("\nx = ", &format!("\n{said}\ny = "));
        let pasted = with_proposals(&both, &edits);
        let left = plan(&read(&old), &read(&pasted));
        assert!(left.iter().all(|edit| edit.class == Class::Safe), "{pasted}\n{left:#?}");
    }
}
