//! Several changes of one field, old names next to new ones, and versions without differences.

use super::*;

#[test]
fn changes_add_up_over_all_versions_between() {
    let versions = service(
        "info = 'object'\nheadline = 'string'\nprice = 'integer'",
        &[
            "rename = { from = 'details', to = 'info' }
             rename = { from = 'title', to = 'headline' }",
            &format!("move = {{ from = 'isbn', to = 'details.isbn' }}\n{CENTS}"),
            "rename = { from = 'name', to = 'title' }
             rename = { from = 'cost', to = 'price' }",
        ],
    );
    let kept = object(json!({"info": {"isbn": "1", "x": 2}, "headline": "Dune", "price": 1250}));
    for (index, expected) in [
        (1, json!({"details": {"isbn": "1", "x": 2}, "title": "Dune", "price": 1250})),
        (2, json!({"isbn": "1", "title": "Dune", "price": 12.5})),
        (3, json!({"isbn": "1", "name": "Dune", "cost": 12.5})),
    ] {
        let view = versions.get(index).unwrap();
        let lens = view.lens(0).unwrap();
        assert_eq!(Value::Object(lens.down(&kept)), expected);
        let patch = object(json!({"isbn": "2"}));
        if index > 1 {
            let changed = Value::Object(lens.merge(&kept, &patch).fields);
            assert_eq!(changed, json!({"info": {"isbn": "2", "x": 2}}));
        }
        assert_eq!(view.schema.service.version, view.date);
    }
    let (_, lens) = oldest(&versions);
    assert_eq!(lens.name_up("name"), "headline");
    for (newest, name) in [
        ("headline", Some("name")),
        ("price", Some("cost")),
        ("price.size", Some("cost")),
        ("info", Some("isbn")),
        ("info.isbn", Some("isbn")),
        ("info.x", None),
        ("id", Some("id")),
        ("no field", Some("no field")),
    ] {
        assert_eq!(lens.name_down(newest).as_deref(), name, "{newest}");
    }
    let between = versions.get(1).unwrap().lens(0).unwrap();
    assert_eq!(between.name_down("info.x").as_deref(), Some("details.x"));
    assert_eq!(between.name_down("info.x.y").as_deref(), Some("details.x.y"));
}

#[test]
fn paths_are_named_where_the_version_has_them() {
    let versions = service(
        "o = 'object'\np = 'object'\nlabels = 'object'\nname = 'string'\nk = 'object'",
        &[
            "move = { from = 'o.x', to = 'p.x', existing = true }
             move = { from = { name = 'isbn', type = 'integer' }, to = 'k.isbn', existing = true }",
            "move = { from = 'labels.name', to = 'name' }",
        ],
    );
    let (_, lens) = oldest(&versions);
    for (newest, name) in [
        ("p.x", Some("o.x")),
        ("p.x.y", Some("o.x.y")),
        ("p.z", Some("p.z")),
        ("k.isbn", Some("isbn")),
        ("k.isbn.y", None),
        ("k.z", Some("k.z")),
        ("name", Some("labels.name")),
        // In the oldest version, this path is that of `name`.
        ("labels.name", None),
        ("labels.z", Some("labels.z")),
    ] {
        assert_eq!(lens.name_down(newest).as_deref(), name, "{newest}");
    }
}

#[test]
fn a_version_that_shows_the_stored_shape_needs_no_lens() {
    let versions = service("title = 'string'", &["", "rename = { from = 'name', to = 'title' }"]);
    assert!(versions.newest().lens(0).is_none());
    assert!(versions.get(1).unwrap().lens(0).is_none(), "nothing changed after it");
    assert!(versions.get(2).unwrap().lens(0).is_some());
    assert!(versions.get(2).unwrap().lens(1).is_none(), "the service's own collections");
    let found = versions.find("2001-01-01").unwrap();
    assert_eq!((found.index, versions.find("2001-02-01").is_none()), (1, true));
    assert!(Arc::ptr_eq(&versions.newest().schema, &versions.newest().newest));
}

#[test]
fn an_old_name_next_to_the_new_one_is_shown_and_accepted_in_every_version() {
    let versions = service(
        "headline = { type = 'string', required = true, filter = true }\npages = 'integer'",
        &[
            "rename = { from = 'title', to = 'headline' }",
            "rename = { from = 'name', to = 'title', beside = true }",
        ],
    );
    let kept = object(json!({"headline": "Dune"}));
    for (index, expected) in [
        (0, json!({"headline": "Dune", "name": "Dune", "pages": null})),
        (1, json!({"title": "Dune", "name": "Dune", "pages": null})),
        (2, json!({"name": "Dune", "pages": null})),
    ] {
        let view = versions.get(index).unwrap();
        let lens = view.lens(0).unwrap();
        assert_eq!(Value::Object(lens.down(&kept)), expected, "{index}");
        let made = view.body(0, object(json!({"name": "Emma"})), Mode::Create).unwrap();
        assert_eq!(Value::Object(made), json!({"headline": "Emma"}), "{index}");
        let patch = object(json!({"name": "Emma"}));
        let changed = lens.merge(&kept, &patch);
        assert_eq!(Value::Object(changed.fields), json!({"headline": "Emma"}), "{index}");
        let problem = view.body(0, Fields::new(), Mode::Create).unwrap_err();
        assert_eq!(problem.code, Code::ValidationFailed);
        assert_eq!(problem.violations[0].code, Code::Required, "{index}");
    }
    let newest = versions.newest();
    let both = object(json!({"name": "Emma", "headline": "Emma"}));
    assert!(newest.body(0, both, Mode::Merge).is_ok());
    let both = object(json!({"name": "Emma", "headline": "Dune"}));
    let problem = newest.body(0, both, Mode::Merge).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some("name"));
}

#[test]
fn fields_that_an_old_client_does_not_send_stay_as_they_are_stored() {
    let moves = "move = { from = { name = 'code', type = 'string' }, to = 'det.code' }
                 move = { from = { name = 'list', type = 'array', items = 'string' }, \
                 to = 'det.list' }
                 move = { from = { name = 'p', type = 'integer' }, to = 'det.p' }";
    let earlier = "convert = { field = 'code', from = 'integer', up = 'string(value)', \
                   down = 'int(value)', lossy = true }
                   convert = { field = 'list', from = 'string', up = '[value]', \
                   down = 'value[0]', lossy = true }";
    let versions = service("det = 'object'", &[moves, earlier]);
    let (_, lens) = oldest(&versions);
    let kept = object(json!({"det": {"code": "x", "list": ["a", "b"], "p": 1, "more": true}}));
    let changed = json!({"det": {"code": "x", "list": ["a", "b"], "p": 7, "more": true}});
    assert_eq!(Value::Object(lens.merge(&kept, &object(json!({"p": 7}))).fields), changed);
    let mut whole = lens.down(&kept);
    whole.insert("p".into(), json!(7));
    assert_eq!(Value::Object(lens.replace(&kept, &whole).fields), changed);
}

#[test]
fn a_moved_field_shows_only_its_own_values() {
    let change = "move = { from = { name = 'kind', type = 'string', enum = ['a', 'b'] }, \
                  to = 'det.kind' }";
    let versions = service("det = 'object'", &[change]);
    let (_, lens) = oldest(&versions);
    for (kept, shown) in [(json!("a"), json!("a")), (json!("zzz"), json!(null))] {
        let kept = object(json!({"det": {"kind": kept, "k": 1}}));
        assert_eq!(lens.down(&kept)["kind"], shown);
    }
}
