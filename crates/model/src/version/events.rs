//! Converts texts that were written under one version to another: events of the log, their previous
//! attributes, remembered responses, and rows stored before the schema changed. No other file
//! converts stored texts of older versions up.

use super::lens::{Lens, value_of};
use super::{Versions, View};
use crate::event::{Event, Hidden};
use crate::problem::Problem;
use crate::raw::{Raw, push_member};
use crate::record::{self, Fields, Record, parse_object};
use crate::schema::{Collection, CollectionIx};
use serde_json::Value;
use std::borrow::Cow;

/// The texts of an event: its object, what that was before, and what only older versions show.
struct Texts<'e> {
    object: Cow<'e, str>,
    previous: Option<Cow<'e, str>>,
    hidden: Option<&'e str>,
}

impl Versions {
    /// The envelope of an event in the version at this place; the newest is at 0.
    pub fn envelope(&self, event: &Event, version: usize, pending_webhooks: u32) -> String {
        let view = self.view(version);
        let Texts { object, previous, .. } = self.texts(event, view);
        event.envelope_of(&view.date, &object, previous.as_deref(), pending_webhooks)
    }

    /// The object of an event in the version at this place.
    pub fn object<'e>(&self, event: &'e Event, version: usize) -> Cow<'e, str> {
        self.texts(event, self.view(version)).object
    }

    /// The most that the formulas can cost when an event is shown in the version at this place.
    pub fn event_units(&self, event: &Event, version: usize) -> u64 {
        let view = self.view(version);
        let Some(ix) = self.kept().find(&event.collection) else { return 0 };
        if self.shows_as_written(ix, &event.api_version, view) {
            return 0;
        }
        let bytes = event.object.len() + event.previous.as_ref().map_or(0, String::len);
        event_units(self.written(&event.api_version), view, ix, bytes)
    }

    /// The same for `row`, of a record of so many bytes.
    pub fn row_units(&self, version: usize, bytes: usize) -> u64 {
        let view = self.view(version);
        let of = |ix| self.iter().map(move |written| event_units(written, view, ix, bytes));
        (0..self.kept().collections.len()).flat_map(of).max().unwrap_or(0)
    }

    /// The data that is stored next to the newest envelope of an event, so that `row` can convert
    /// it to other versions. None in a service with one version.
    pub fn note(&self, event: &Event) -> Option<String> {
        if self.0.len() == 1 && !self.newest().differs {
            return None;
        }
        let mut out = String::with_capacity(80);
        for (name, text) in [("collection", &event.collection), ("version", &event.api_version)] {
            push_member(&mut out, name, &Value::from(text.as_str()).to_string());
        }
        // The envelope has those of the newest version already.
        let lens = self.kept().find(&event.collection).and_then(|ix| self.newest().lens(ix));
        let written = event.api_version != self.newest().date || lens.is_some();
        let object = Some(&event.object).filter(|_| written);
        let previous = event.previous.as_ref().filter(|_| written);
        let hidden = event.hidden.as_ref();
        for (name, text) in [("object", object), ("previous", previous), ("hidden", hidden)] {
            text.into_iter().for_each(|text| push_member(&mut out, name, text));
        }
        Some(out + "}")
    }

    /// A record of the collection of events in the version at this place. Its text is the newest's
    /// envelope, its hidden part what `note` made.
    pub fn row(&self, record: &Record, version: usize) -> String {
        let view = self.view(version);
        let envelope = Raw::read(&record.body, None);
        let data = Raw::read(envelope.text("data"), None);
        let note = Raw::read(record.hidden.as_deref().unwrap_or("{}"), None);
        let name = |text: &str| serde_json::from_str::<String>(text).unwrap_or_default();
        // The texts as they were written, if the newest version writes them differently.
        let (object, previous) = match note.find("object") {
            Some(object) => (object, note.find("previous")),
            None => (data.text("object"), data.find("previous_attributes")),
        };
        let previous = previous.map(Cow::Borrowed);
        let texts = Texts { object: object.into(), previous, hidden: note.find("hidden") };
        let collection = self.kept().find(&name(note.text("collection")));
        let texts = self.shown(collection, &name(note.text("version")), texts, view);
        let mut shown = String::with_capacity(texts.object.len() + 64);
        push_member(&mut shown, "object", &texts.object);
        if let Some(previous) = &texts.previous {
            push_member(&mut shown, "previous_attributes", previous);
        }
        shown.push('}');
        let date = Value::from(view.date.as_str()).to_string();
        let mut out = String::with_capacity(record.body.len() + 64);
        for (member, text) in envelope.members() {
            let text = match member {
                "api_version" => &date,
                "data" => &shown,
                _ => text,
            };
            push_member(&mut out, member, text);
        }
        if out.is_empty() { record.body.clone() } else { out + "}" }
    }

    /// Text and hidden part of a record, as they were written under a date, in the newest shape.
    pub fn record(
        &self,
        collection: CollectionIx,
        written: &str,
        body: String,
        hidden: Option<String>,
    ) -> (String, Option<String>) {
        let Some(lens) = self.written_lens(collection, written) else { return (body, hidden) };
        if is_erased(&body) {
            return (body, None);
        }
        let fields = lens.up(&whole(&body, &parse_object(hidden.as_deref().unwrap_or("{}"))));
        let newest = &self.kept().collections[collection];
        (record::encode(newest, &fields), record::encode_hidden(newest, &fields))
    }

    /// Converts the texts of an event about a collection, written under a date, to the form in
    /// which another version writes them. None if they have that form already.
    pub fn converted(
        &self,
        collection: &str,
        written: &str,
        (object, previous, hidden): (&str, Option<&str>, Option<&str>),
        to: &View,
    ) -> Option<(String, Option<String>, Option<String>)> {
        let ix = self.kept().find(collection)?;
        if written == to.date || is_erased(object) {
            return None;
        }
        let texts = Texts { object: object.into(), previous: previous.map(Into::into), hidden };
        // The newest view's lens shows old names next to new ones; the log does not have them.
        let (shape, lens) = match to.index {
            0 => (&self.kept().collections[ix], None),
            _ => (&to.schema.collections[ix], to.lens(ix)),
        };
        let (object, previous, hidden) = self.rewritten(ix, written, &texts, shape, lens);
        Some((object, previous, hidden.text()))
    }

    /// Whether the newest version has a value for everything in such a text. Where it has none,
    /// converting the text would lose it.
    pub fn survives(
        &self,
        collection: &str,
        written: &str,
        object: &str,
        hidden: Option<&str>,
    ) -> bool {
        let Some(ix) = self.kept().find(collection).filter(|_| !is_erased(object)) else {
            return true;
        };
        let after = whole(object, &Hidden::parse(hidden).object);
        self.written_lens(ix, written).is_none_or(|lens| lens.raise(&after).faults.is_empty())
    }

    fn view(&self, version: usize) -> &View {
        self.0.get(version).unwrap_or(&self.0[0])
    }

    /// The lens that brings up a text that was written under this date. None if the newest version
    /// would write the same text.
    fn written_lens(&self, collection: CollectionIx, written: &str) -> Option<&Lens> {
        let view = self.written(written);
        // The lens of the newest view shows old names next to new ones; stored records do not have
        // them.
        if view.index == 0 { None } else { view.lens(collection) }
    }

    /// Whether a version shows texts as they were written under a date.
    pub fn shows_as_written(&self, collection: CollectionIx, written: &str, view: &View) -> bool {
        match self.written_lens(collection, written) {
            Some(from) => {
                view.index == self.written(written).index && from.aliases().next().is_none()
            }
            None => view.lens(collection).is_none(),
        }
    }

    fn texts<'e>(&self, event: &'e Event, view: &View) -> Texts<'e> {
        let (object, previous) = (Cow::from(&event.object), event.previous.as_ref().map(Cow::from));
        let texts = Texts { object, previous, hidden: event.hidden.as_deref() };
        // The usual case needs no look at the collection.
        if view.index == 0 && event.api_version == view.date && !view.differs {
            return texts;
        }
        self.shown(self.kept().find(&event.collection), &event.api_version, texts, view)
    }

    /// Texts that were written under a date, as a version shows them.
    fn shown<'e>(
        &self,
        collection: Option<CollectionIx>,
        written: &str,
        texts: Texts<'e>,
        view: &View,
    ) -> Texts<'e> {
        // A published event has no collection whose shape could differ.
        let Some(ix) = collection else { return texts };
        if self.shows_as_written(ix, written, view) || is_erased(&texts.object) {
            return texts;
        }
        let (shape, lens) = (&view.schema.collections[ix], view.lens(ix));
        let (object, previous, _) = self.rewritten(ix, written, &texts, shape, lens);
        Texts { object: object.into(), previous: previous.map(Into::into), hidden: None }
    }

    /// Texts that were written under a date, in a shape that the lens shows; without a lens, in
    /// the newest. Returns the object, its previous values, and what the shape does not show.
    fn rewritten(
        &self,
        collection: CollectionIx,
        written: &str,
        texts: &Texts<'_>,
        shape: &Collection,
        lens: Option<&Lens>,
    ) -> (String, Option<String>, Hidden) {
        let hidden = Hidden::parse(texts.hidden);
        let mut after = whole(&texts.object, &hidden.object);
        let mut previous = texts.previous.as_ref().map(|text| whole(text, &hidden.previous));
        if let Some(lens) = self.written_lens(collection, written) {
            previous = previous.map(|all| lens.previous_up(&after, &all));
            after = lens.up(&after);
        }
        let object = removed(shape, &after);
        let hidden_previous = previous.as_ref().map(|all| removed(shape, all));
        if let Some(lens) = lens {
            previous = previous.map(|all| lens.previous(&after, &all));
            after = lens.down(&after);
        }
        let previous = previous.map(|all| Value::Object(public(shape, all)).to_string());
        let hidden = Hidden { object, previous: hidden_previous.unwrap_or_default() };
        (record::encode(shape, &after), previous, hidden)
    }
}

impl View {
    /// A stored row of this version in the newest shape, or the reason why it does not fit there.
    /// Limits do not apply to values that stay the same.
    pub fn raise(&self, collection: CollectionIx, kept: &Fields) -> Result<Fields, Problem> {
        let mut kept = kept.clone();
        self.schema.collections[collection].complete(&mut kept);
        let Some(lens) = self.lens(collection) else { return Ok(kept) };
        let mut raised = lens.raise(&kept);
        let mut fields = std::mem::take(&mut raised.fields);
        let newest = &self.newest.collections[collection];
        newest.complete(&mut fields);
        for field in newest.fields.iter().filter(|field| field.required && !field.removed) {
            fields.entry(field.name.clone()).or_insert(Value::Null);
        }
        let is_required = |name: &str| newest.field(name).is_some_and(|field| field.required);
        raised.fields = fields.clone();
        raised.fields.retain(|name, value| {
            value_of(&kept, name) != value || value.is_null() && is_required(name)
        });
        lens.check(&mut raised, &kept)?;
        fields.extend(raised.fields);
        Ok(fields)
    }
}

fn whole(text: &str, hidden: &Fields) -> Fields {
    let mut fields = parse_object(text);
    fields.extend(hidden.iter().map(|(name, value)| (name.clone(), value.clone())));
    fields
}

fn public(collection: &Collection, mut fields: Fields) -> Fields {
    fields.retain(|name, _| collection.public_names().any(|public| public == name));
    fields
}

/// The fields that only older versions show.
fn removed(collection: &Collection, fields: &Fields) -> Fields {
    let names = collection.fields.iter().filter(|field| field.removed && !field.write_only);
    names.filter_map(|field| Some((field.name.clone(), fields.get(&field.name)?.clone()))).collect()
}

/// The object is brought up and down, and so is what it was before the change.
fn event_units(written: &View, shown: &View, collection: CollectionIx, bytes: usize) -> u64 {
    let up = written.formula_units((collection, None), bytes);
    2 * 2 * up + 3 * shown.formula_units((collection, None), bytes)
}

/// Whether only the mark of an erasure is left of an object. Records have more members.
pub fn is_erased(object: &str) -> bool {
    const ERASED: &str = "\"erased\":true";
    object.contains(ERASED) && parse_object(object).len() == 3
}
