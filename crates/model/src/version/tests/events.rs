//! Events that were written under one version, shown in another.

use super::*;
use crate::caller::Scope;
use crate::event::{Event, Hidden};

fn event(version: &str, object: Value, previous: Option<Value>) -> Event {
    Event {
        seq: 1,
        id: "evt_1".into(),
        scope: Scope::new(1, false),
        kind: "book.updated".into(),
        created: Timestamp(0),
        collection: "books".into(),
        record: "book_1".into(),
        api_version: version.into(),
        object: object.to_string(),
        previous: previous.map(|previous| previous.to_string()),
        hidden: None,
        request: None,
        idempotency_key: None,
    }
}

/// `data` of the event in each version, newest first.
fn shown(versions: &Versions, event: &Event) -> Vec<Value> {
    let data = |view: &Arc<View>| {
        let envelope: Value =
            serde_json::from_str(&versions.envelope(event, view.index, 0)).unwrap();
        assert_eq!(envelope["api_version"], view.date);
        // The newest envelope and the note next to it suffice to show the same.
        let row = stored(versions.envelope(event, 0, 0), versions.note(event));
        let row: Value = serde_json::from_str(&versions.row(&row, view.index)).unwrap();
        assert_eq!(row, envelope);
        let mut data = envelope["data"].clone();
        let fields = data["object"].as_object_mut().unwrap();
        fields.retain(|name, _| !validate::ASSIGNED.contains(&name.as_str()));
        data
    };
    versions.iter().map(data).collect()
}

#[test]
fn an_event_is_shown_in_every_version_whichever_it_was_written_under() {
    let versions = service(
        "label = 'string'\nprice = 'integer'",
        &[
            "rename = { from = 'title', to = 'label' }",
            &format!("rename = {{ from = 'name', to = 'title' }}\n{CENTS}"),
        ],
    );
    let shapes = [
        json!({"object": {"label": "B", "price": 250}, "previous_attributes": {"label": "A"}}),
        json!({"object": {"title": "B", "price": 250}, "previous_attributes": {"title": "A"}}),
        json!({"object": {"name": "B", "price": 2.5}, "previous_attributes": {"name": "A"}}),
    ];
    for (place, shape) in shapes.iter().enumerate() {
        let object = shape["object"].clone();
        let previous = Some(shape["previous_attributes"].clone());
        let event = event(&date(2 - place), object, previous);
        assert_eq!(shown(&versions, &event), shapes, "written under {}", event.api_version);
    }
    // Dates that the file does not know (any more) have the shape of the version before them.
    for (date, place) in [("2030-01-01", 0), ("2001-06-01", 1), ("1999-01-01", 2)] {
        assert_eq!(versions.written(date).index, place, "{date}");
    }
}

#[test]
fn a_value_without_a_counterpart_is_null_in_the_newest_version_and_stays_in_older_ones() {
    let versions = service("price = 'integer'", &[CENTS]);
    let event = event(&date(0), json!({"price": 0.001}), None);
    let [newest, oldest] = shown(&versions, &event).try_into().unwrap();
    assert_eq!(newest, json!({"object": {"price": null}}));
    assert_eq!(oldest, json!({"object": {"price": 0.001}}));
    let kept = object(json!({"id": "book_1", "price": 0.001}));
    assert!(versions.get(1).unwrap().raise(0, &kept).is_err());
}

#[test]
fn events_show_old_names_next_to_new_ones() {
    let versions =
        service("title = 'string'", &["rename = { from = 'name', to = 'title', beside = true }"]);
    let both = json!({"object": {"title": "B", "name": "B"},
        "previous_attributes": {"title": "A", "name": "A"}});
    let old = json!({"object": {"name": "B"}, "previous_attributes": {"name": "A"}});
    let of =
        |version: &str, name: &str| event(version, json!({name: "B"}), Some(json!({name: "A"})));
    assert_eq!(shown(&versions, &of(&date(0), "name")), [both.clone(), old.clone()]);
    assert_eq!(shown(&versions, &of(&date(1), "title")), [both, old]);
}

#[test]
fn events_show_removed_fields_to_versions_that_have_them() {
    let versions = service("title = 'string'\nnick = 'string'", &["removed = { field = 'nick' }"]);
    let mut event = event(&date(1), json!({"title": "B"}), Some(json!({"title": "A"})));
    let hidden =
        Hidden { object: object(json!({"nick": "n"})), previous: object(json!({"nick": "m"})) };
    event.hidden = hidden.text();
    let new = json!({"object": {"title": "B"}, "previous_attributes": {"title": "A"}});
    let old = json!({"object": {"title": "B", "nick": "n"},
        "previous_attributes": {"title": "A", "nick": "m"}});
    assert_eq!(shown(&versions, &event), [new.clone(), old.clone()]);
    // Written before the field was removed.
    event.api_version = date(0);
    event.object = old["object"].to_string();
    event.previous = Some(old["previous_attributes"].to_string());
    event.hidden = None;
    assert_eq!(shown(&versions, &event), [new, old]);
}
