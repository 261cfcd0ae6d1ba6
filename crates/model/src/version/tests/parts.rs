//! Texts that were put together from several fields, and what stands for nothing: clients that
//! change one part leave the others as they are, and are shown what they sent.

use super::*;

const MERGE: &str = "merge = { from = [{ name = 'a', type = 'string', pattern = '^[^-]+$', \
                     required = true }, { name = 'b', type = 'string' }], to = 't', by = '-' }";

/// What clients of the oldest version make of a kept record, by PATCH and by PUT; none where it is
/// refused. They are shown what they sent.
#[track_caller]
fn writes(fields: &str, changes: &[&str], cases: &[(Value, Value, Option<Value>)]) {
    let versions = service(fields, changes);
    let (_, lens) = oldest(&versions);
    for (kept, patch, expected) in cases {
        let (kept, patch) = (object(kept.clone()), object(patch.clone()));
        let mut wanted = lens.down(&kept);
        wanted.extend(patch.clone());
        for changes in [lens.merge(&kept, &patch), lens.replace(&kept, &wanted)] {
            let marked = changes.values().any(validate::is_marked);
            let mut after = kept.clone();
            after.extend(changes);
            assert_eq!(marked, expected.is_none(), "{patch:?} on {kept:?}: {after:?}");
            if let Some(expected) = expected {
                assert_eq!(Value::Object(after.clone()), *expected, "{patch:?} on {kept:?}");
                assert_eq!(lens.down(&after), wanted, "{patch:?} on {kept:?}");
            }
        }
    }
}

#[test]
fn parts_of_what_stands_for_nothing_are_kept_once_another_is_written() {
    let optional = "optional = { field = 't', fill = 'x-y' }";
    let renamed = "rename = { from = 't', to = 'text' }";
    let cases = |name: &str| {
        [
            (json!({}), json!({"a": "q"}), Some(json!({ name: "q-y" }))),
            (json!({}), json!({"a": "q", "b": "y"}), Some(json!({ name: "q-y" }))),
            (json!({}), json!({"b": "q"}), Some(json!({ name: "x-q" }))),
            (json!({}), json!({"b": null}), Some(json!({ name: "x" }))),
            (json!({}), json!({"b": "y"}), Some(json!({}))),
            (json!({ name: "p-q" }), json!({"a": "r"}), Some(json!({ name: "r-q" }))),
        ]
    };
    writes("t = 'string'", &[optional, MERGE], &cases("t"));
    let optional = "optional = { field = 'text', fill = 'x-y' }";
    writes("text = 'string'", &[optional, renamed, MERGE], &cases("text"));
}

#[test]
fn a_part_that_would_be_read_as_another_is_refused_wherever_the_text_is() {
    let list = "retype = { field = 't', from = 'string', by = 'list' }";
    let cases = [
        (json!({"t": []}), json!({"b": "x"}), None),
        (json!({"t": ["p"]}), json!({"b": "x"}), Some(json!({"t": ["p-x"]}))),
        (json!({"t": ["p-q"]}), json!({"a": "x"}), Some(json!({"t": ["x-q"]}))),
    ];
    writes("t = { type = 'array', items = 'string' }", &[list, MERGE], &cases);
    let moved = "move = { from = { name = 't', type = 'string' }, to = 'o.t', existing = true }";
    let cases = [
        (json!({"o": {"t": 5}}), json!({"b": "x"}), None),
        (json!({"o": {"z": 1}}), json!({"b": "x"}), None),
        (json!({"o": {"t": "p"}}), json!({"b": "x"}), Some(json!({"o": {"t": "p-x"}}))),
    ];
    writes("o = 'object'", &[moved, MERGE], &cases);
    let above = "merge = { from = [{ name = 't', type = 'string', pattern = '^[^ ]+$', \
                 required = true }, { name = 'c', type = 'string' }], to = 'u', by = ' ' }";
    let cases = [
        (json!({"u": "one"}), json!({"c": "x"}), Some(json!({"u": "one x"}))),
        (json!({"u": "one x"}), json!({"b": "y"}), Some(json!({"u": "one-y x"}))),
    ];
    writes("u = 'string'", &[above, MERGE], &cases);
}

#[test]
fn what_is_filled_for_newer_versions_is_not_put_beside_what_is_written() {
    let list = "retype = { field = 't', from = { type = 'string', required = true }, by = 'list' }";
    let merge = MERGE
        .replace("name = 'b', type = 'string'", "name = 'b', type = 'string', required = true");
    let required = "required = { field = 'b', fill = 'fi' }";
    let cases = [
        (json!({"t": ["one"]}), json!({"a": "two"}), Some(json!({"t": ["two"]}))),
        (json!({"t": ["one"]}), json!({"a": "two", "b": null}), Some(json!({"t": ["two"]}))),
        (json!({"t": ["one"]}), json!({"b": "x"}), Some(json!({"t": ["one-x"]}))),
    ];
    let fields = "t = { type = 'array', items = 'string', required = true }";
    writes(fields, &[list, &merge, required], &cases);
    let above = "merge = { from = [{ name = 'c', type = 'string', pattern = '^[^ ]+$', \
                 required = true }, { name = 't', type = 'string' }], to = 'u', by = ' ' }";
    let cases = [
        (json!({"u": "x one"}), json!({"a": "two"}), Some(json!({"u": "x two"}))),
        (json!({"u": "x one"}), json!({"b": "y"}), Some(json!({"u": "x one-y"}))),
        (json!({"u": "x one-y"}), json!({"c": "z"}), Some(json!({"u": "z one-y"}))),
    ];
    writes("u = 'string'", &[above, &merge, required], &cases);
}

#[test]
fn what_is_filled_stays_out_of_a_text_that_was_split_since() {
    let split = "split = { from = { name = 't', type = 'string' }, to = ['p', 'r'], by = '-' }";
    let merge = MERGE.replace(
        "name = 'b', type = 'string'",
        "name = 'b', type = 'string', \
                 pattern = '^[^-]+$', required = true }, { name = 'c', type = 'string'",
    );
    let optional = "optional = { field = 'c', fill = 'fi' }";
    let cases = [
        (json!({"p": "Zoe"}), json!({"a": "x y"}), Some(json!({"p": "x y"}))),
        (json!({"p": "Zoe"}), json!({"b": "x"}), Some(json!({"p": "Zoe", "r": "x"}))),
        (json!({"p": "Zoe"}), json!({"c": "x"}), None),
        (json!({"p": "Zoe", "r": "y"}), json!({"a": "x"}), Some(json!({"p": "x", "r": "y"}))),
        (json!({"p": "Zoe", "r": "y-z"}), json!({"b": "x"}), Some(json!({"p": "Zoe", "r": "x-z"}))),
    ];
    writes("p = 'string'\nr = 'string'", &[split, &merge, optional], &cases);
}

#[test]
fn what_is_taken_away_is_gone_from_all_parts() {
    let split = "split = { from = { name = 't', type = 'string' }, to = ['p', 'r'], by = '-' }";
    let number = "retype = { field = 't', from = 'integer', by = 'text' }";
    let cases = [
        (json!({"p": "", "r": "12"}), json!({"t": null}), Some(json!({"p": null, "r": null}))),
        (json!({"p": "", "r": "12"}), json!({"t": 12}), Some(json!({"p": "12", "r": null}))),
    ];
    writes("p = 'string'\nr = 'string'", &[split, number], &cases);
}

#[test]
fn an_object_stays_as_it_is_kept_when_members_that_became_fields_are_written() {
    let first = "move = { from = 'o.x', to = 'x' }";
    let second = "move = { from = 'o.y', to = 'y' }";
    let fields = "o = 'object'\nx = 'integer'\ny = 'integer'";
    let versions = service(fields, &[first, second]);
    let (_, lens) = oldest(&versions);
    for (kept, patch, expected) in [
        (json!({"x": 1, "y": 2}), json!({"x": 3}), json!({"x": 3})),
        (json!({"x": 1, "y": 2}), json!({"y": null}), json!({"y": null})),
        // It is shown as an object still, in the version between as well.
        (json!({"x": 1, "y": 2}), json!({"x": null}), json!({"o": {}, "x": null})),
        (json!({"x": 1}), json!({"x": null}), json!({"o": {}, "x": null})),
        (json!({"x": 1, "y": 2}), json!({"z": 3}), json!({"o": {"z": 3}})),
        (json!({"o": {}, "x": 1}), json!({"x": 3}), json!({"x": 3})),
        (json!({"o": {"z": 1}, "x": 1}), json!({"x": 3, "z": null}), json!({"o": {}, "x": 3})),
    ] {
        let changes = lens.merge(&object(kept.clone()), &object(json!({ "o": patch })));
        assert_eq!(Value::Object(changes), expected, "{patch} on {kept}");
    }
}

#[test]
fn a_field_that_was_a_member_for_a_while_changes_with_nothing_beside_it() {
    let finer = "enum_map = { field = 'e', values = { aa = 'bb' }, down = { cc = 'aa' } }";
    let left = "move = { from = 'o.m', to = 'e' }";
    let entered = "move = { from = { name = 'f', type = 'string', enum = ['aa'] }, to = 'o.m', \
                   existing = true }";
    let fields = "o = 'object'\ne = { type = 'string', enum = ['bb', 'cc'] }";
    let cases = [
        (json!({"e": "cc"}), json!({"o": {"z": 1}}), Some(json!({"e": "cc", "o": {"z": 1}}))),
        // The object that it is shown beside `f` is still there.
        (json!({"e": "cc"}), json!({"f": null}), Some(json!({"e": null, "o": {}}))),
        (json!({"e": "cc", "o": {"z": 1}}), json!({"o": {"m": 1}}), None),
    ];
    writes(fields, &[finer, left, entered], &cases);
    let list = "retype = { field = 'e', from = 'string', by = 'list' }";
    let entered = "move = { from = { name = 't', type = 'string' }, to = 'o.m', existing = true }";
    let fields = "o = 'object'\ne = { type = 'array', items = 'string' }";
    let required = "required = { field = 'b', fill = 'fi' }";
    let merge = MERGE
        .replace("name = 'b', type = 'string'", "name = 'b', type = 'string', required = true");
    let cases = [(json!({"e": ["one"]}), json!({"a": "two"}), Some(json!({"e": ["two"]})))];
    writes(fields, &[list, left, entered, &merge, required], &cases);
}

#[test]
fn what_is_left_out_and_means_what_is_shown_changes_nothing() {
    for (field, change, required, kept) in [
        (
            "e = { type = 'string', enum = ['bb', 'cc'], required = true }",
            "enum_map = { field = 'e', values = { aa = 'bb' }, down = { cc = 'aa' } }",
            "required = { field = 'e', fill = 'aa' }",
            json!("cc"),
        ),
        (
            "e = { type = 'array', items = 'string', required = true }",
            "retype = { field = 'e', from = { type = 'string', required = true }, by = 'list' }",
            "required = { field = 'e', fill = 'F' }",
            json!(["F", "G"]),
        ),
    ] {
        let versions = service(&format!("{field}\nu = 'string'"), &[change, required]);
        let (_, lens) = oldest(&versions);
        let kept = object(json!({ "e": kept }));
        assert_eq!(lens.merge(&kept, &object(json!({"e": null}))), Fields::new(), "{change}");
        let put = Value::Object(lens.replace(&kept, &object(json!({"u": "4"}))));
        assert_eq!(put, json!({"u": "4"}), "{change}");
    }
}
