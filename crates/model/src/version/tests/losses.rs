//! What the proof finds: changes that lose what old clients send, or refuse what they may send.

use super::*;

/// One finding for each expected part, which it has in its text.
#[track_caller]
fn check(fields: &str, versions: &[&str], expected: &[&str]) {
    let text = file(fields, versions);
    let found: Vec<String> = match parse(&text) {
        Ok(_) => Vec::new(),
        Err(findings) => findings.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(found.len(), expected.len(), "{}\n{text}", found.join("\n"));
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\n{text}");
    }
}

#[test]
fn a_member_that_an_old_client_has_is_not_overwritten_by_what_moves_there() {
    for (change, sent, message) in [
        (
            "move = { from = 'isbn', to = 'd.isbn', existing = true }",
            json!({"isbn": "1", "d": {"isbn": "2"}}),
            "`d` has a member isbn already; the newest version keeps `isbn` there.",
        ),
        (
            "move = { from = 'isbn', to = 'd.isbn', existing = true }",
            json!({"d": {"isbn": "2", "x": 1}}),
            "`d` has a member isbn already; the newest version keeps `isbn` there.",
        ),
        (
            "move = { from = 'd.number', to = 'd.isbn' }",
            json!({"d": {"number": "1", "isbn": "2"}}),
            "`d` has a member isbn already; the newest version keeps `d.number` there.",
        ),
    ] {
        let versions = service("d = 'object'", &[change]);
        let (view, lens) = oldest(&versions);
        let problem = view.body(0, object(sent.clone()), Mode::Create).unwrap_err();
        assert_eq!(problem.code, Code::ValidationFailed, "{sent}");
        assert_eq!(problem.violations[0].code, Code::Unsuitable, "{sent}");
        assert_eq!((&*problem.message, problem.param.as_deref()), (message, Some("d")), "{sent}");
        // A kept row stops the way to the newest version.
        let problem = view.raise(0, &object(sent.clone())).unwrap_err();
        assert!(problem.message.starts_with("`d` has a member isbn already"), "{sent}");
        let patched = lens.merge(&Fields::new(), &object(sent.clone()));
        assert!(validate::is_marked(&patched["d"]), "{patched:?}");
    }
    // What this version shows goes back as it was, and null is nothing.
    let versions =
        service("d = 'object'", &["move = { from = 'isbn', to = 'd.isbn', existing = true }"]);
    let (view, lens) = oldest(&versions);
    let kept = object(json!({"d": {"isbn": "1", "x": 2}}));
    let patch = object(json!({"d": {"isbn": null, "x": 3}}));
    let changed = Value::Object(lens.merge(&kept, &patch));
    assert_eq!(changed, json!({"d": {"isbn": "1", "x": 3}}));
    let sent = object(json!({"isbn": "1", "d": {"isbn": null}}));
    let made = Value::Object(view.body(0, sent, Mode::Create).unwrap());
    assert_eq!(made, json!({"d": {"isbn": "1"}}));
}

#[test]
fn a_member_that_got_another_name_keeps_its_object_for_old_clients() {
    let versions = service("d = 'object'", &["move = { from = 'd.number', to = 'd.isbn' }"]);
    let (view, lens) = oldest(&versions);
    let shown = Value::Object(lens.down(&object(json!({"d": {"isbn": "1", "x": 2}}))));
    assert_eq!(shown, json!({"d": {"number": "1", "x": 2}}));
    let made = view.body(0, object(json!({"d": {"number": "1"}})), Mode::Create).unwrap();
    assert_eq!(Value::Object(made), json!({"d": {"isbn": "1"}}));
}

#[test]
fn each_part_of_a_long_merge_is_tried_with_all_that_it_takes() {
    let part = |name: &str, more: &str| {
        format!("{{ name = '{name}', type = 'string', required = true{more} }}")
    };
    let merge = |f7: &str| {
        let mut parts: Vec<String> =
            (1..=6).map(|n| part(&format!("f{n}"), ", pattern = '^[^ ]*$'")).collect();
        parts.push(part("f7", f7));
        parts.push(part("f8", ""));
        format!("merge = {{ from = [{}], to = 'title', by = ' ' }}", parts.join(", "))
    };
    let title = "title = { type = 'string', required = true }";
    check(title, &[&merge(", enum = ['x', 'a b']")], &["f7 = \"a b\", f8"]);
    check(title, &[&merge(", enum = ['x', 'a-b']")], &[]);
}

#[test]
fn a_separator_inside_of_a_pattern_is_found() {
    for (pattern, lossy) in [
        ("^(foo bar|baz)$", true),
        ("^(foo|bar|baz)$", false),
        ("^(x|y(u|v(w| )))$", true),
        ("^[a-z]+( [a-z]+)*$", true),
        ("^[a-z]+(-[a-z]+)*$", false),
        // Not anchored: anything may stand around it.
        ("[0-9]", true),
        ("^[0-9]", true),
        ("^[[:alpha:]]{2,}$", false),
        (r"^[\w\s]{3,10}$", true),
    ] {
        let merge = format!(
            "merge = {{ from = [{{ name = 'a', type = 'string', required = true, pattern = \
             '{pattern}' }}, {{ name = 'b', type = 'string' }}], to = 'title', by = ' ' }}"
        );
        let expected: &[&str] = if lossy { &["this change loses data: { a = "] } else { &[] };
        check("title = 'string'", &[&merge], expected);
    }
}

#[test]
fn a_change_of_texts_that_nothing_can_be_made_for_is_refused() {
    let field = "type = 'string', required = true, pattern = '^[a-c]{3}$', min_length = 5";
    let merge = format!(
        "merge = {{ from = [{{ name = 'a', type = 'string', required = true, pattern = '^[^ ]+$' \
         }}, {{ name = 'b', {field} }}], to = 'title', by = ' ' }}"
    );
    check(
        "title = 'string'",
        &[&merge],
        &["nothing proves that this change loses nothing: no value of `b` could be made"],
    );
    // What only gets another name or place is not looked into.
    let rename = "rename = { from = 'name', to = 'title' }";
    check(&format!("title = {{ {field} }}"), &[rename], &[]);
    let moved = format!("move = {{ from = {{ name = 'name', {field} }}, to = 'd.name' }}");
    check("d = 'object'", &[&moved], &[]);
    let listed = format!("retype = {{ field = 'title', from = {{ {field} }}, by = 'list' }}");
    check("title = { type = 'array', items = 'string' }", &[&listed], &[]);
}

#[test]
fn a_change_that_leaves_empty_what_is_required_is_refused() {
    for (fields, change, expected) in [
        (
            "pages = { type = 'integer', required = true }",
            "retype = { field = 'pages', from = { type = 'string', pattern = '^[1-9]$' }, by = \
             'text' }",
            "this change refuses what older clients may send: { pages = null }, sent in version \
             2000-01-01, leaves `pages` empty, which is required; declare",
        ),
        (
            "first = { type = 'string', required = true }\n\
             last = { type = 'string', required = true }",
            "split = { from = { name = 'who', type = 'string', required = true }, to = ['first', \
             'last'], by = ' ' }",
            "{ who = \"abc\" }, sent in version 2000-01-01, leaves `last` empty",
        ),
        (
            "title = { type = 'string', required = true }",
            "merge = { from = [{ name = 'a', type = 'string', pattern = '^[^ ]+$' }, { name = \
             'b', type = 'string' }], to = 'title', by = ' ' }",
            // Whatever becomes of two nulls: one alone is the first part when it comes back.
            "this change loses data: { a = null, b = \"a b\" }",
        ),
        (
            "d = 'object'\nisbn = { type = 'string', required = true }",
            "move = { from = 'd.isbn', to = 'isbn' }",
            "leaves `isbn` empty, which is required",
        ),
        (
            "n = 'number'",
            "retype = { field = 'n', from = { type = 'string', pattern = '^[1-9][.]0$' }, \
             by = 'text' }",
            "sent in version 2000-01-01, has no counterpart in `n`",
        ),
    ] {
        check(fields, &[change], &[expected]);
    }
    let retyped = "retype = { field = 'pages', from = { type = 'string', pattern = '^[1-9]$' }, \
                   by = 'text' }";
    let pages = "pages = { type = 'integer', required = true }";
    check(pages, &["required = { field = 'pages', fill = 0 }", retyped], &[]);
    check("pages = 'integer'", &[retyped], &[]);
    let must = retyped.replace("'string',", "'string', required = true,");
    check(pages, &[&must], &[]);
    // Whoever leaves out what has a default sends it.
    let filled = retyped.replace("'string',", "'string', default = '7',");
    check(pages, &[&filled], &[]);
    check(pages, &["default = { field = 'pages', was = 7 }"], &[]);
    check(
        "d = { type = 'object', required = true }",
        &["move = { from = 'isbn', to = 'd.isbn' }"],
        &[],
    );
}

#[test]
fn what_is_sent_does_not_come_back_as_nothing() {
    let list = |more: &str| {
        format!(
            "retype = {{ field = 'first', from = {{ type = 'array', items = 'string', max_length \
             = 1{more} }}, by = 'list' }}"
        )
    };
    let lost = "{ first = [] }, sent in version 2000-01-01, comes back as { first = null }";
    check("first = 'string'", &[&list("")], &[lost]);
    check("first = 'string'", &[&list(", required = true")], &[lost]);
    check("first = 'string'", &[&list(", min_length = 1")], &[]);
    check("first = 'string'", &[&list(", required = true, min_length = 1")], &[]);
}

#[test]
fn no_record_fills_a_reference_in_every_account() {
    let file = "[collections.shelves]
[collections.books.fields]
shelf = { ref = 'shelves', required = true }
[[versions]]
date = '2001-01-01'
[[versions.changes]]
collection = 'books'
required = { field = 'shelf', fill = 'shelf_1' }
[[versions]]
date = '2000-01-01'";
    let findings = parse(file).unwrap_err();
    assert_eq!(findings.len(), 1);
    let told = findings[0].to_string();
    assert!(told.contains("`shelf` is a reference, and no record is there in every"), "{told}");
}

#[test]
fn what_a_moved_field_s_old_type_cannot_say_is_null_there() {
    let versions = service(
        "d = 'object'",
        &["move = { from = 'isbn', to = 'd.isbn' }
           move = { from = { name = 'pages', type = 'integer' }, to = 'd.pages' }
           move = { from = { name = 'tags', type = 'array', items = 'string' }, to = 'd.tags' }"],
    );
    let (view, lens) = oldest(&versions);
    for (kept, shown) in [
        (
            json!({"isbn": 1, "pages": "1", "tags": "t"}),
            json!({"isbn": null, "pages": null, "tags": null}),
        ),
        (
            json!({"isbn": {"a": 1}, "pages": 1.5, "tags": ["t", 1]}),
            json!({"isbn": null, "pages": null, "tags": null}),
        ),
        (
            json!({"isbn": "1", "pages": 3, "tags": ["t"]}),
            json!({"isbn": "1", "pages": 3, "tags": ["t"]}),
        ),
    ] {
        let kept = object(json!({ "d": kept }));
        assert_eq!(Value::Object(lens.down(&kept)), shown);
        let text = lens.show(&record(&versions.newest().schema, &kept));
        assert_eq!(text, record::encode(&view.schema.collections[0], &lens.down(&kept)));
        // Sent back as it was read, it changes nothing.
        assert!(lens.replace(&kept, &lens.down(&kept)).is_empty());
    }
    // What is not seen stays when something beside it is written.
    let kept = object(json!({"d": {"isbn": 1, "pages": 3, "x": 2}}));
    let changed = Value::Object(lens.merge(&kept, &object(json!({"pages": 4}))));
    assert_eq!(changed, json!({"d": {"isbn": 1, "pages": 4, "x": 2}}));
    let changed = Value::Object(lens.replace(&kept, &object(json!({"isbn": "1"}))));
    assert_eq!(changed, json!({"d": {"isbn": "1", "x": 2}}));
    assert_eq!(lens.name_down("d.isbn").as_deref(), Some("isbn"));
    assert!(view.schema.collections[0].fields.iter().all(|field| field.voidable));
}

#[test]
fn a_member_of_another_type_does_not_pass_through_a_field_into_an_object() {
    let versions = service(
        "d = 'object'\ne = 'object'",
        &["move = { from = 'f', to = 'e.f' }", "move = { from = 'd.m', to = 'f' }"],
    );
    let (view, lens) = oldest(&versions);
    let problem = view.body(0, object(json!({"d": {"m": 7}})), Mode::Create).unwrap_err();
    assert_eq!(problem.violations[0].code, Code::Unsuitable, "{problem:?}");
    let made = view.body(0, object(json!({"d": {"m": "7"}})), Mode::Create).unwrap();
    assert_eq!(made["e"], json!({"f": "7"}));
    assert_eq!(lens.down(&made)["d"], json!({"m": "7"}));
}

#[test]
fn many_fields_move_into_one_object() {
    let moves: Vec<String> =
        (0..100).map(|n| format!("move = {{ from = 'f{n}', to = 'd.m{n}' }}")).collect();
    let versions = service("d = 'object'", &[&moves.join("\n")]);
    let (view, lens) = oldest(&versions);
    let made = view.body(0, object(json!({"f0": "a", "f99": "b"})), Mode::Create).unwrap();
    assert_eq!(Value::Object(made.clone()), json!({"d": {"m0": "a", "m99": "b"}}));
    assert_eq!(lens.down(&made)["f99"], "b");
}

#[test]
fn each_change_that_loses_is_told_once() {
    let lossy = |a: &str, b: &str, to: &str| {
        format!(
            "merge = {{ from = [{{ name = '{a}', type = 'string', required = true }}, {{ name = \
             '{b}', type = 'string' }}], to = '{to}', by = ' ' }}"
        )
    };
    let newest = format!("{}\n{}", lossy("a", "b", "one"), lossy("c", "d", "two"));
    check(
        "one = 'string'\ntwo = 'string'\nthree = 'string'",
        &[&newest, "rename = { from = 'z', to = 'a' }", &lossy("e", "f", "three")],
        &["{ a = \"a b\"", "{ c = \"a b\"", "{ e = \"a b\""],
    );
}

#[test]
fn the_reference_to_the_parent_is_not_removed_and_parameters_have_one_name() {
    for (change, expected) in [
        (
            "removed = { field = 'book' }",
            "`book` is the reference to the parent, which cannot change",
        ),
        (
            "action = 'go'\nrename = { from = 'was', to = 'why', beside = true }",
            "`beside` is for fields",
        ),
    ] {
        let file = format!(
            "[collections.books]
[collections.pages]
parent = 'books'
[collections.pages.actions.go]
params = {{ why = 'string' }}
[[versions]]
date = '2001-01-01'
[[versions.changes]]
collection = 'pages'
{change}
[[versions]]
date = '2000-01-01'"
        );
        let findings = parse(&file).unwrap_err();
        assert_eq!(findings.len(), 1, "{findings:?}");
        let told = findings[0].to_string();
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_fill_that_old_clients_send_themselves_comes_back_to_them() {
    let versions = service(
        "a = { type = 'boolean', required = true }",
        &["required = { field = 'a', fill = false }"],
    );
    let (_, lens) = oldest(&versions);
    for (sent, shown) in [(json!(true), true), (json!(false), false), (json!(null), false)] {
        let back = lens.down(&lens.up(&object(json!({ "a": sent }))));
        assert_eq!(Value::Object(back)["a"], json!(shown), "{sent}");
    }
    // What is left out means it, too.
    assert_eq!(Value::Object(lens.up(&Fields::new())), json!({ "a": false }));
}

#[test]
fn what_is_left_out_may_come_back_as_the_fill_in_the_words_of_the_version() {
    let kind = "kind = { type = 'string', enum = ['a', 'unknown'], required = true }";
    let required = "required = { field = 'kind', fill = 'unknown' }";
    let unknown = "enum_map = { field = 'kind', values = { z = 'a' }, down = { unknown = 'z' } }";
    check(kind, &[required, unknown], &[]);
    // So may a member.
    let fields = "d = 'object'\nisbn = { type = 'string', required = true }";
    let required = "required = { field = 'isbn', fill = '?' }";
    let moved = "move = { from = 'd.isbn', to = 'isbn' }";
    check(fields, &[required, moved], &[]);
    let versions = service(fields, &[required, moved]);
    let (_, lens) = oldest(&versions);
    let back = lens.down(&lens.up(&object(json!({"d": {"x": 1}}))));
    assert_eq!(Value::Object(back), json!({"d": {"isbn": "?", "x": 1}}));
}

#[test]
fn changes_of_parameters_are_proved_as_far_as_they_are_sent() {
    let params = |params: &str, change: &str| {
        format!(
            "[collections.books]\nfields = {{ title = 'string' }}\n\
             actions.sell.params = {{ {params} }}\n[[versions]]\ndate = '2001-01-01'\n\
             [[versions.changes]]\ncollection = 'books'\naction = 'sell'\n{change}\n\
             [[versions]]\ndate = '2000-01-01'\n"
        )
    };
    for (new, change, expected) in [
        (
            "n = 'integer'",
            "retype = { field = 'n', from = 'string', by = 'text' }",
            Some("{ n = \"abc\" }, sent in version 2000-01-01, has no counterpart in `n`"),
        ),
        (
            "n = { type = 'integer', required = true }",
            "retype = { field = 'n', from = { type = 'string', pattern = '^[1-9]$' }, by = \
             'text' }",
            Some("{ n = null }, sent in version 2000-01-01, leaves `n` empty, which is required"),
        ),
        // What nobody reads need not come back.
        ("n = 'timestamp'", "retype = { field = 'n', from = 'integer', by = 'seconds' }", None),
        (
            "k = { type = 'string', enum = ['a'] }",
            "enum_map = { field = 'k', values = { b = 'a', c = 'a' } }",
            None,
        ),
    ] {
        let text = params(new, change);
        let found: Vec<String> = match parse(&text) {
            Ok(_) => Vec::new(),
            Err(findings) => findings.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(found.len(), usize::from(expected.is_some()), "{}\n{text}", found.join("\n"));
        assert!(expected.is_none_or(|part| found[0].contains(part)), "{}", found.join("\n"));
    }
}

#[test]
fn a_part_that_moved_into_an_object_is_written_with_the_whole() {
    let fields = "first = 'string'\nmore = 'object'";
    let moved = "move = { from = 'last', to = 'more.last' }";
    let split = "split = { from = { name = 'full', type = 'string' }, to = ['first', 'last'], by = \
                 ' ' }";
    let versions = service(fields, &[moved, split]);
    let (_, lens) = oldest(&versions);
    for (kept, full) in [
        (json!({"more": {"last": "p", "x": 1}}), json!("d")),
        (json!({"first": "a", "more": {"last": "b"}}), json!("a c")),
        (json!({"first": "a b"}), json!("a b")),
        (json!({"first": "a b"}), json!("a")),
        (json!({"first": "a", "more": {"last": "b"}}), json!(null)),
    ] {
        let mut after = object(kept.clone());
        after.extend(lens.merge(&object(kept.clone()), &object(json!({ "full": full }))));
        assert_eq!(lens.down(&after)["full"], full, "{kept}");
        let unseen = |record: &Value| record["more"]["x"].clone();
        assert_eq!(unseen(&Value::Object(after)), unseen(&kept));
    }
}

const PRICED: &str = "n = { type = 'integer', required = true }\nt = 'string'";

#[test]
fn a_fill_that_newer_versions_refuse_is_refused_and_hides_no_other_loss() {
    let factor = "retype = { field = 'n', from = { type = 'number', required = true }, factor = \
                  100 }";
    let older = |fill: &str| {
        format!(
            "required = {{ field = 'n', fill = {fill} }}\nmerge = {{ from = [{{ name = 'a', type = \
             'string', required = true }}, {{ name = 'b', type = 'string', required = true }}], to \
             = 't', by = ' ' }}"
        )
    };
    let lost = "{ a = \"a b\", b = \"a b\" }";
    check(PRICED, &[factor, &older("0.01")], &[lost]);
    let unmeant = "what a request of version 2000-01-01 without `n` means is refused";
    check(PRICED, &[factor, &older("0.001")], &[unmeant, lost]);
    check(
        "n = { type = 'integer', max = 9 }",
        &["retype = { field = 'n', from = { type = 'number', default = 1 }, factor = 100 }"],
        &["without `n` means is refused: `n` must be at most 9"],
    );
}

#[test]
fn all_keys_of_a_map_are_tried() {
    let size = "size = { type = 'string', enum = ['small', 'large'] }";
    for from in
        ["{ type = 'integer', min = 1, max = 3 }", "{ type = 'string', pattern = '^[1-3]$' }"]
    {
        let map = |map: &str| format!("retype = {{ field = 'size', from = {from}, map = {map} }}");
        let twice = map("{ '1' = 'small', '2' = 'small', '3' = 'large' }");
        check(size, &[&twice], &["comes back as"]);
    }
    let map = "retype = { field = 'size', from = { type = 'integer', min = 1, max = 3 }, map = { \
               '1' = 'small', '3' = 'large' } }";
    check(size, &[map], &["{ size = 2 }, sent in version 2000-01-01, has no counterpart"]);
}

#[test]
fn what_a_version_between_did_not_take_is_not_taken_for_another_value() {
    let words = "enum_map = { field = 'k', values = { azure = 'blue' } }";
    let list = "retype = { field = 'k', from = { type = 'array', items = 'string', min_length = 1, \
                max_length = 1 }, by = 'list' }";
    let split = "split = { from = { name = 'w', type = 'string' }, to = ['f', 'k'], by = ' ' }";
    let moved = "move = { from = 'd.k', to = 'k' }";
    let text = "retype = { field = 'k', from = 'integer', by = 'text' }";
    let numbers = "enum_map = { field = 'k', values = { '5' = '8' } }";
    for (newer, older, sent) in [
        (words, moved, json!({"d": {"k": "blue"}})),
        (words, list, json!({"k": ["blue"]})),
        (words, split, json!({"w": "x blue"})),
        (numbers, text, json!({"k": 8})),
    ] {
        let choices = if newer == words { "'blue', 'red'" } else { "'8', '2'" };
        let fields =
            format!("d = 'object'\nf = 'string'\nk = {{ type = 'string', enum = [{choices}] }}");
        let versions = service(&fields, &[newer, older]);
        let (view, _) = oldest(&versions);
        let problem = view.body(0, object(sent.clone()), Mode::Create).unwrap_err();
        assert_eq!(problem.code, Code::ValidationFailed, "{sent}");
    }
}

#[test]
fn members_that_a_version_between_did_not_take_are_no_loss() {
    for (fields, newer, older) in [
        (
            "d = 'object'\nf = 'integer'",
            "retype = { field = 'f', from = { type = 'string', pattern = '^[1-9]$' }, by = \
             'text' }",
            "move = { from = 'd.f', to = 'f' }",
        ),
        (
            "d = 'object'\ne = 'object'",
            "move = { from = { name = 'f', type = 'string', enum = ['x', 'y'] }, to = 'e.f' }",
            "move = { from = 'd.f', to = 'f' }",
        ),
    ] {
        check(fields, &[newer, older], &[]);
    }
    // Nor is what nobody reads.
    let seconds = "retype = { field = 'n', from = 'timestamp', by = 'seconds' }";
    check("n = { type = 'integer', write_only = true }", &[seconds], &[]);
    check("n = 'integer'", &[seconds], &["this change loses data"]);
}

#[test]
fn texts_of_a_fixed_length_long_lists_of_words_and_many_separators_are_tried() {
    let words: Vec<String> = (0..45).map(|n| format!("'w{n}'")).collect();
    let words = format!(", enum = [{}, 'a b']", words.join(", "));
    for (a, by) in [
        (", min_length = 6, max_length = 6", " "),
        (words.as_str(), " "),
        (", max_length = 1", "::"),
    ] {
        let merge = format!(
            "merge = {{ from = [{{ name = 'a', type = 'string', required = true{a} }}, {{ name = \
             'b', type = 'string', required = true }}], to = 't', by = '{by}' }}"
        );
        check("t = 'string'", &[&merge], &["this change loses data"]);
    }
    let separators = ["-", "_", "/", ":", ";", "+", "*", ","];
    let part = |name: String, pattern: &str| {
        format!("{{ name = '{name}', type = 'string', required = true{pattern} }}")
    };
    let merges: Vec<String> = separators
        .iter()
        .enumerate()
        .map(|(at, by)| {
            let pattern = if *by == "," { "" } else { ", pattern = '^[a-z]+$'" };
            let (a, b) = (part(format!("a{at}"), pattern), part(format!("b{at}"), pattern));
            format!("merge = {{ from = [{a}, {b}], to = 't{at}', by = '{by}' }}")
        })
        .collect();
    let fields: Vec<String> = (0..8).map(|at| format!("t{at} = 'string'")).collect();
    check(&fields.join("\n"), &[&merges.join("\n")], &["this change loses data: { a7 = "]);
}

/// What a version between takes is so little that no sample of the older one gets there by chance.
#[test]
fn what_is_lost_on_the_way_to_a_version_that_takes_little_is_found() {
    let seconds = "retype = { field = 'a', from = 'timestamp', by = 'seconds' }";
    let merge = "merge = { from = [{ name = 'a', type = 'string' }, { name = 'b', type = 'string' \
                 }], to = 'm', by = ',' }";
    for (fields, versions) in [
        (
            "a = { type = 'string', enum = ['z'] }",
            [
                "retype = { field = 'a', from = { type = 'string', enum = ['q'] }, map = { q = \
                 'z' } }",
                "retype = { field = 'a', from = { type = 'array', items = 'string', min_length = 1 \
                 }, by = 'list' }",
            ],
        ),
        (
            "m = { type = 'string', enum = ['x'] }",
            ["enum_map = { field = 'm', values = { \"q,w,e\" = 'x' } }", merge],
        ),
        (
            "m = { type = 'array', items = 'string' }",
            [
                "retype = { field = 'm', from = { type = 'string', pattern = '^q,w,e$' }, by = \
                 'list' }",
                merge,
            ],
        ),
        (
            "a = 'integer'",
            [
                "retype = { field = 'a', from = { type = 'integer', min = 5, max = 10 }, factor = \
                 3 }",
                seconds,
            ],
        ),
        (
            "a = 'number'",
            ["retype = { field = 'a', from = 'integer', factor = 1e300, nearest = true }", seconds],
        ),
        (
            "a = 'string'",
            [
                "retype = { field = 'a', from = { type = 'integer', min = 3, max = 4 }, map = { 3 \
                 = 'few', 4 = 'many' } }",
                seconds,
            ],
        ),
    ] {
        check(fields, &versions, &["this change loses data"]);
        // As far between as they may be.
        let rename = "rename = { from = 'old', to = 'title' }";
        let fields = format!("{fields}\ntitle = 'string'");
        check(&fields, &[versions[0], rename, versions[1]], &["this change loses data"]);
    }
}

#[test]
fn a_member_that_is_kept_otherwise_stays_when_others_of_its_object_are_written() {
    let moved = "move = { from = 'info.m', to = 'm' }";
    let list = "m = { type = 'array', items = 'string' }";
    for (fields, change, kept) in [
        (list, "retype = { field = 'm', from = 'string', by = 'list' }", json!(["a", "b"])),
        ("m = 'string'", "retype = { field = 'm', from = 'integer', by = 'text' }", json!("dear")),
        ("m = 'integer'", "retype = { field = 'm', from = 'integer', factor = 100 }", json!(1234)),
        (
            "m = { type = 'string', enum = ['s', 'l', 'huge'] }",
            "retype = { field = 'm', from = { type = 'integer', min = 1, max = 2 }, \
             map = { 1 = 's', 2 = 'l' } }",
            json!("huge"),
        ),
        (
            "m = { type = 'string', enum = ['b', 'c'] }",
            "enum_map = { field = 'm', values = { a = 'b' }, down = { c = 'a' } }",
            json!("c"),
        ),
        (
            "m = 'timestamp'",
            "retype = { field = 'm', from = 'integer', by = 'seconds' }",
            json!("2026-01-01T00:00:00.500Z"),
        ),
        // Of another size than the version between took.
        (
            "m = 'integer'",
            "retype = { field = 'm', from = { type = 'number', max = 5 }, factor = 100 }",
            json!(1234),
        ),
    ] {
        let versions = service(&format!("info = 'object'\n{fields}"), &[change, moved]);
        let (_, lens) = oldest(&versions);
        let current = object(json!({"m": kept, "info": {"y": 1}}));
        let changed = lens.merge(&current, &object(json!({"info": {"x": 1}})));
        assert_eq!(Value::Object(changed), json!({"info": {"y": 1, "x": 1}}), "{change}");
        let mut sent = lens.down(&current);
        sent["info"]["x"] = json!(1);
        let changed = lens.replace(&current, &sent);
        assert_eq!(Value::Object(changed), json!({"info": {"y": 1, "x": 1}}), "{change}");
    }
}

#[test]
fn a_part_that_is_kept_otherwise_stays_when_the_other_is_written() {
    let versions = service(
        "first = 'string'\nlast = { type = 'array', items = 'string' }",
        &[
            "retype = { field = 'last', from = 'string', by = 'list' }",
            "split = { from = { name = 'name', type = 'string' }, to = ['first', 'last'], \
             by = ' ' }",
        ],
    );
    let (_, lens) = oldest(&versions);
    let current = object(json!({"first": "Ada", "last": ["B", "C"]}));
    for (name, expected) in [
        ("Eve B", json!({"first": "Eve"})),
        ("Ada D", json!({"last": ["D"]})),
        ("Ada", json!({"last": null})),
        ("Ada B", json!({})),
        ("B", json!({"first": "B", "last": null})),
    ] {
        let changed = lens.merge(&current, &object(json!({ "name": name })));
        assert_eq!(Value::Object(changed), expected, "{name}");
    }
}

#[test]
fn what_stands_for_nothing_is_not_kept_with_the_other_part() {
    let versions = service(
        "d = 'object'",
        &[
            "move = { from = { name = 'f', type = 'string' }, to = 'd.m', existing = true }",
            "merge = { from = [{ name = 'a', type = 'string', pattern = '^[^-]*$', \
             required = true }, { name = 'b', type = 'string' }], to = 'f', by = '-' }",
            "optional = { field = 'b', fill = '12' }",
        ],
    );
    let (_, lens) = oldest(&versions);
    for (kept, patch, changed) in [
        (json!({}), json!({"a": "x"}), json!({"m": "x"})),
        (json!({"m": "x"}), json!({"a": "y"}), json!({"m": "y"})),
        (json!({"m": "x-z"}), json!({"a": "y"}), json!({"m": "y-z"})),
        (json!({"m": "x"}), json!({"b": "z"}), json!({"m": "x-z"})),
        (json!({"m": "x"}), json!({"d": {"n": 1}}), json!({"m": "x", "n": 1})),
    ] {
        let raised = lens.merge(&object(json!({ "d": kept })), &object(patch.clone()));
        assert_eq!(Value::Object(raised), json!({ "d": changed }), "{patch} on {kept}");
    }
}
