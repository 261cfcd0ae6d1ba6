//! Data that earlier development states stored and the current code does not: write-only fields
//! and header values of endpoints in events and stored responses, and records without a state. The
//! cleanup runs once per data file, in slices. `Cleanup` says how far it is and which fields it
//! hides; a backend stores it with the data and visits the rows. Knows no database.

use super::EventTexts;
use super::conversion::hide_in;
use crate::idempotency::{self, REFUSED};
use model::Schema;
use model::record::parse_object;
use model::version::Versions;
use model::webhook::endpoint;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// The progress of the cleanup.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cleanup {
    pub stage: Stage,
    /// The collection whose states are filled.
    pub collection: String,
    /// Whether a record of that collection has changed.
    pub filled: bool,
    /// The last row of the stage, or of the collection, that is done.
    pub after: i64,
    /// The versions whose write-only fields are in `shapes`.
    versions: BTreeSet<String>,
    shapes: BTreeSet<Shape>,
}

/// What the cleanup works on, in this order: stored responses may need the text of an event as it
/// is before its own stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    #[default]
    Responses,
    Events,
    States,
    Done,
}

/// The write-only fields of a collection in a version.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Shape {
    collection: String,
    version: String,
    object: String,
    /// Of the service's own collections: some of their responses show a secret once, and the
    /// repetition shows it again.
    is_own: bool,
    names: BTreeSet<String>,
}

impl Cleanup {
    pub fn done() -> Cleanup {
        Cleanup { stage: Stage::Done, ..Cleanup::default() }
    }

    /// Adds the write-only fields of every version. The schema that was served before may name
    /// fields that the current one does not have.
    pub fn add(&mut self, versions: &Versions) {
        let kept = versions.kept();
        self.add_version(&kept.service.version, kept);
        for view in versions.iter() {
            self.add_version(&view.date, &view.schema);
        }
    }

    fn add_version(&mut self, version: &str, schema: &Schema) {
        self.versions.insert(version.to_owned());
        for collection in &schema.collections {
            let fields = collection.fields.iter().filter(|field| field.write_only);
            let names: BTreeSet<String> = fields.map(|field| field.name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            self.shapes.insert(Shape {
                collection: collection.name.clone(),
                version: version.to_owned(),
                object: collection.object.clone(),
                is_own: collection.builtin.is_some(),
                names,
            });
        }
    }

    /// Begins the next stage.
    pub fn advance(&mut self) {
        self.after = 0;
        self.stage = match self.stage {
            Stage::Responses => Stage::Events,
            Stage::Events => Stage::States,
            // The names are not needed any more.
            Stage::States | Stage::Done => return *self = Cleanup::done(),
        };
    }

    /// Whether events of a collection can hold what is hidden.
    pub fn concerns(&self, collection: &str, endpoints: &str) -> bool {
        collection == endpoints || self.shapes.iter().any(|shape| shape.collection == collection)
    }

    /// Hides in an event what new events do not show; false if it has nothing of this.
    /// `endpoints` is the name of the collection of webhook endpoints.
    pub fn hide_in_event(&self, version: &str, endpoints: &str, event: &mut EventTexts) -> bool {
        let names = self.names(version, |shape| shape.collection == event.collection);
        let had = hide_in(event, &names);
        let masks = event.collection == endpoints && mask(event);
        had || masks
    }

    /// A stored response without write-only fields; `None` if it has none of them.
    pub fn hide_in_response(
        &self,
        version: &str,
        kind: i64,
        texts: (&str, Option<&str>),
    ) -> Option<(String, Option<String>)> {
        if kind == REFUSED {
            // A refusal does not name its collection.
            let names = self.names(version, |shape| !shape.is_own);
            return idempotency::without(kind, texts, "", &names);
        }
        let fields = parse_object(texts.0);
        let object = fields.get("object").and_then(Value::as_str)?;
        let names = self.names(version, |shape| !shape.is_own && shape.object == object);
        idempotency::without(kind, texts, object, &names)
    }

    /// The write-only fields in a version. In a version that no schema knows: those of all.
    fn names(&self, version: &str, matches: impl Fn(&Shape) -> bool) -> Vec<&str> {
        let is_known = self.versions.contains(version);
        let shapes = self.shapes.iter().filter(|one| !is_known || one.version == version);
        shapes.filter(|one| matches(one)).flat_map(|one| &one.names).map(String::as_str).collect()
    }
}

/// Masks the header values of an endpoint in an event; false if all of them are masked.
fn mask(event: &mut EventTexts) -> bool {
    let masked = |text: &str| {
        let fields = parse_object(text);
        let masked = endpoint::masked(fields.clone());
        (masked != fields).then(|| Value::Object(masked).to_string())
    };
    let (object, previous) = (masked(&event.object), event.previous.as_deref().and_then(masked));
    let had = object.is_some() || previous.is_some();
    if let Some(object) = object {
        event.object = object;
    }
    event.previous = previous.or_else(|| event.previous.take());
    had
}
