//! Limits that only newer versions have: old clients go on under their own.

use super::*;
use crate::problem::Code;
use crate::validate::Mode;

fn violations(result: Result<Fields, crate::problem::Problem>) -> Vec<(String, Code)> {
    let violations = result.err().map(|problem| problem.violations.clone()).unwrap_or_default();
    violations.into_iter().map(|one| (one.field, one.code)).collect()
}

#[test]
fn each_version_applies_its_own_limits() {
    let fields = "title = { type = 'string', max_length = 5 }\n\
                  pages = { type = 'integer', min = 1, max = 9 }\n\
                  slug = { type = 'string', pattern = '^[a-z]+$', min_length = 2 }\n\
                  tags = { type = 'array', items = 'string', max_length = 1 }";
    let versions = service(
        fields,
        &[
            "limits = { field = 'title', was = { max_length = 10 } }
             limits = { field = 'pages' }
             limits = { field = 'slug', was = { pattern = '^[a-z0-9]+$' } }
             limits = { field = 'tags', was = { min_length = 1, max_length = 2 } }",
            "limits = { field = 'title', was = { max_length = 20 } }",
        ],
    );
    let long = |count: usize| json!("x".repeat(count));
    for (version, name, value, wrong) in [
        (0, "title", long(6), Some(Code::TooLong)),
        (1, "title", long(6), None),
        (1, "title", long(11), Some(Code::TooLong)),
        (2, "title", long(11), None),
        (2, "title", long(21), Some(Code::TooLong)),
        (0, "pages", json!(10), Some(Code::TooLarge)),
        (0, "pages", json!(0), Some(Code::TooSmall)),
        (1, "pages", json!(-10), None),
        (2, "pages", json!(1000), None),
        (1, "pages", json!("ten"), Some(Code::WrongType)),
        (0, "slug", json!("a1"), Some(Code::PatternMismatch)),
        (1, "slug", json!("1"), None),
        (2, "slug", json!("A"), Some(Code::PatternMismatch)),
        (0, "tags", json!(["a", "b"]), Some(Code::TooLong)),
        (1, "tags", json!(["a", "b"]), None),
        (1, "tags", json!([]), Some(Code::TooShort)),
        (0, "tags", json!([]), None),
    ] {
        let view = versions.get(version).unwrap();
        let sent = object(json!({ name: value }));
        let expected: Vec<(String, Code)> =
            wrong.map(|code| (name.to_owned(), code)).into_iter().collect();
        let made = view.body(0, sent.clone(), Mode::Create);
        if wrong.is_none() {
            assert_eq!(made.as_ref().unwrap()[name], sent[name], "{version} {sent:?}");
        }
        assert_eq!(violations(made), expected, "{version} {sent:?}");
    }
}

#[test]
fn old_limits_apply_together_with_other_changes_of_the_field() {
    // Newest first: renamed, must be there, limited, was a number.
    let versions = service(
        "title = { type = 'string', required = true, max_length = 3 }",
        &[
            "rename = { from = 'name', to = 'title' }",
            "required = { field = 'name', fill = 'x' }",
            "limits = { field = 'name', was = { max_length = 6 } }",
            "convert = { field = 'name', from = { type = 'integer', min = 0 }, \
             up = 'string(value)', down = 'int(value)', lossy = true }",
        ],
    );
    let made = |version: usize, sent: Value| {
        versions.get(version).unwrap().body(0, object(sent), Mode::Create)
    };
    let long = made(2, json!({ "name": "long" }));
    assert_eq!(violations(long), [("name".to_owned(), Code::TooLong)]);
    assert_eq!(made(3, json!({ "name": "longer" })).unwrap()["title"], "longer");
    assert_eq!(made(3, json!({})).unwrap()["title"], "x");
    assert_eq!(made(4, json!({ "name": 123_456 })).unwrap()["title"], "123456");
    let error = made(4, json!({ "name": 1_234_567 })).unwrap_err();
    assert_eq!(error.violations[0].field, "name", "{error:?}");
    // Rows of the old version are brought to the newest as they are.
    let row = object(json!({ "name": "longer" }));
    assert_eq!(versions.get(3).unwrap().raise(0, &row).unwrap()["title"], "longer");
    assert!(versions.get(2).unwrap().raise(0, &row).is_err());
}

/// In other units they cannot be compared, so only those of the version hold.
#[test]
fn old_limits_apply_to_converted_fields() {
    let versions = service(
        "price = { type = 'integer', max = 100 }\ntags = { type = 'array', items = 'string' }\n\
         kind = { type = 'string', enum = ['a', 'bb'], max_length = 2 }",
        &[
            "convert = { field = 'price', from = { type = 'number', max = 1 }, \
             up = 'int(math.round(value * 100.0))', down = 'double(value) / 100.0' }
             convert = { field = 'tags', from = { type = 'string', max_length = 3 }, \
             up = '[value]', down = 'value[0]', lossy = true }
             enum_map = { field = 'kind', values = { ccc = 'bb' } }",
            "limits = { field = 'price', was = { max = 50 } }
             limits = { field = 'tags', was = { max_length = 6 } }
             limits = { field = 'kind' }",
        ],
    );
    for (version, name, value, kept) in [
        (1, "price", json!(2), None),
        (2, "price", json!(2), Some(json!(200))),
        (2, "price", json!(51), None),
        (1, "tags", json!("long"), None),
        (2, "tags", json!("longer"), Some(json!(["longer"]))),
        (2, "tags", json!("too long"), None),
        (1, "kind", json!("ccc"), None),
        (2, "kind", json!("ccc"), Some(json!("bb"))),
    ] {
        let view = versions.get(version).unwrap();
        let made = view.body(0, object(json!({ name: value })), Mode::Create);
        assert_eq!(made.ok().map(|made| made[name].clone()), kept, "{version} {name} {value}");
    }
}

#[test]
fn impossible_old_limits_are_refused() {
    let kind = "kind = { type = 'string', enum = ['aa', 'bb'] }";
    let default = "title = { type = 'string', default = 'long' }";
    for (field, name, was, wrong) in [
        ("title = 'string'", "titel", "{}", "`titel` is no field of `books`"),
        ("title = 'string'", "title", "{ max = 3 }", "`max` = 3 is no limit of type string"),
        ("pages = 'integer'", "pages", "{ min = 0.5 }", "0.5 is no limit of type integer"),
        ("pages = 'integer'", "pages", "{ min = 5, max = 3 }", "`min` 5 is above `max` 3"),
        (default, "title", "{ max_length = 3 }", "`default`: `title`"),
        ("flag = 'boolean'", "flag", "{}", "`flag` is of type boolean, which"),
        ("title = 'string'", "title", "{}", "has these limits in the newer version, too"),
        (kind, "kind", "{ max_length = 1 }", "`was` takes no value of the `enum` of `kind`"),
        ("title = 'string'", "title", "{ enum = ['a'] }", "unknown key `enum`"),
        ("title = 'string'", "title", "3", "`was` must be a table"),
        ("title = 'string'", "title", "{ pattern = '(' }", "`pattern` is no regular expression"),
    ] {
        let change = format!("limits = {{ field = '{name}', was = {was} }}");
        let found = parse(&file(field, &[&change])).unwrap_err();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|one| one.contains(wrong)), "{wrong}: {found:?}");
    }
}
