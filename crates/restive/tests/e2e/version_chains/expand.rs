//! Embedded records in every version: references, parents and children, each in the shape of the
//! version, on a record and in a list.

use super::shape::Kind;
use super::{Kept, World};
use serde_json::{Value, json};

impl World<'_> {
    pub fn expand(&mut self, version: usize, collection: usize) {
        let it = self.collection(collection);
        if !it.is_served(version) {
            return;
        }
        let references = it.shapes[version].visible().filter(|field| field.kind == Kind::Ref);
        for field in references {
            self.embeds(version, collection, &field.name, 0);
        }
        if let Some(parent) = it.parent {
            self.embeds(version, collection, self.collection(parent).object, parent);
        }
        for (place, other) in self.plan.collections.iter().enumerate() {
            if other.parent == Some(collection) {
                self.embeds(version, collection, other.name, place);
            }
        }
    }

    /// Records with an embedded field of this name, from the collection at `target`.
    #[track_caller]
    fn embeds(&self, version: usize, collection: usize, name: &str, target: usize) {
        let home = self.home(collection);
        let ours = |kept: &&Kept| kept.collection == collection && kept.home == home;
        let list = format!("{}?limit=100&expand={name}", self.list_path(collection));
        let found = self.ask(version, "GET", &list, None);
        if !self.collection(target).is_served(version) {
            assert_eq!(found.status, 400, "{list}: {}", found.text);
            return;
        }
        let mut expected: Vec<Value> = Vec::new();
        for kept in self.records.iter().filter(ours) {
            let mut shown = self.shown(version, kept);
            let whole = self.embedded(version, kept, &shown[name], target);
            shown[name] = whole;
            let path = format!("{}?expand={name}", self.path(kept));
            let one = self.ask(version, "GET", &path, None).expect(200);
            assert_eq!(one, shown, "{path} in {}", self.plan.dates[version]);
            expected.insert(0, shown);
        }
        assert_eq!(found.json["data"], json!(expected), "{list} in {}", self.plan.dates[version]);
    }

    /// The record in place of an id, or the list of a record's children.
    fn embedded(&self, version: usize, kept: &Kept, id: &Value, target: usize) -> Value {
        if self.collection(target).parent != Some(kept.collection) {
            let named = |other: &&Kept| other.collection == target && other.assigned["id"] == *id;
            let found = self.records.iter().find(named);
            return found.map_or_else(|| id.clone(), |other| self.shown(version, other));
        }
        let path = self.path(kept);
        let owned = self.records.iter().rev().filter(|other| other.home == path);
        let data: Vec<Value> = owned.map(|other| self.shown(version, other)).collect();
        let url = format!("{}{path}/{}", self.plan.mount(version), self.collection(target).name);
        let pagination = json!({ "next_cursor": null, "has_more": false });
        json!({ "object": "list", "url": url, "data": data, "pagination": pagination })
    }
}
