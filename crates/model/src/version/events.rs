//! What was written under one version, told in another: records of the log, their previous
//! attributes, remembered answers, and rows that were kept before the schema changed. The one place
//! where kept texts of older versions are brought up.

use super::lens::{Lens, value_of};
use super::{Versions, View};
use crate::event::{Event, Hidden};
use crate::problem::Problem;
use crate::record::{self, Fields, Record, parse_object, push_text};
use crate::schema::{Collection, CollectionIx};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The texts of an event in some version.
struct Told<'e> {
    object: Cow<'e, str>,
    previous: Option<Cow<'e, str>>,
}

/// What the row of an event says to readers of other versions, beside the newest's envelope.
#[derive(Deserialize)]
struct Aside<'t> {
    #[serde(borrow)]
    collection: Cow<'t, str>,
    #[serde(borrow)]
    version: Cow<'t, str>,
    /// As they were written, where the newest tells them in other words.
    #[serde(borrow)]
    object: Option<&'t RawValue>,
    #[serde(borrow)]
    previous: Option<&'t RawValue>,
    #[serde(borrow)]
    hidden: Option<&'t RawValue>,
}

/// The members of an envelope, in their order.
#[derive(Deserialize)]
struct Envelope<'t> {
    #[serde(borrow)]
    id: &'t RawValue,
    #[serde(borrow)]
    object: &'t RawValue,
    #[serde(borrow, rename = "type")]
    kind: &'t RawValue,
    #[serde(borrow)]
    created: &'t RawValue,
    #[serde(borrow)]
    data: Data<'t>,
    #[serde(borrow)]
    livemode: &'t RawValue,
    #[serde(borrow)]
    pending_webhooks: &'t RawValue,
    #[serde(borrow)]
    request: &'t RawValue,
}

#[derive(Deserialize)]
struct Data<'t> {
    #[serde(borrow)]
    object: &'t RawValue,
    #[serde(borrow)]
    previous_attributes: Option<&'t RawValue>,
}

impl Versions {
    /// The envelope of an event in the version at this place; the newest is at 0.
    pub fn envelope(&self, event: &Event, version: usize, pending_webhooks: u32) -> String {
        let view = self.view(version);
        let Told { object, previous } = self.told(event, view);
        event.envelope_of(&view.date, &object, previous.as_deref(), pending_webhooks)
    }

    /// The object of an event in the version at this place.
    pub fn object<'e>(&self, event: &'e Event, version: usize) -> Cow<'e, str> {
        self.told(event, self.view(version)).object
    }

    /// What must be kept beside the newest's envelope of an event, so that `row` can tell it in
    /// other versions; nothing in a service that has but one.
    pub fn aside(&self, event: &Event) -> Option<String> {
        if self.0.len() == 1 && !self.newest().differs {
            return None;
        }
        let mut out = String::with_capacity(80);
        for (name, text) in [("collection", &event.collection), ("version", &event.api_version)] {
            out.push_str(if out.is_empty() { "{\"" } else { ",\"" });
            out.push_str(name);
            out.push_str("\":");
            push_text(&mut out, text);
        }
        // Those of the newest version stand in the envelope already.
        let written = event.api_version != self.newest().date || self.newest_lens(event).is_some();
        let object = Some(&event.object).filter(|_| written);
        let previous = event.previous.as_ref().filter(|_| written);
        let hidden = event.hidden.as_ref();
        for (name, text) in [("object", object), ("previous", previous), ("hidden", hidden)] {
            if let Some(text) = text {
                out.push_str(",\"");
                out.push_str(name);
                out.push_str("\":");
                out.push_str(text);
            }
        }
        out.push('}');
        Some(out)
    }

    /// A record of the collection of events in the version at this place. Its text is the newest's
    /// envelope, its hidden part what `aside` made.
    pub fn row(&self, record: &Record, version: usize) -> String {
        let view = self.view(version);
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(&record.body) else {
            return record.body.clone();
        };
        let shown = |text: &RawValue| text.get().to_owned();
        let (mut object, mut previous) =
            (shown(envelope.data.object), envelope.data.previous_attributes.map(shown));
        let aside = record.hidden.as_deref().and_then(|text| serde_json::from_str(text).ok());
        if let Some(aside) = aside {
            let Aside { collection, version, hidden, .. } = aside;
            if let Some(as_written) = aside.object {
                (object, previous) = (shown(as_written), aside.previous.map(shown));
            }
            let texts = Texts {
                written: &version,
                object: &object,
                previous: previous.as_deref(),
                hidden: hidden.map(RawValue::get),
            };
            let told = self.told_texts(self.kept().find(&collection), &texts, view);
            let told = (told.object.into_owned(), told.previous.map(Cow::into_owned));
            (object, previous) = told;
        }
        envelope.around(&view.date, &object, previous.as_deref())
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

    /// The texts of an event about a collection, as they were written under a date, as a version
    /// would have written them. None where they are so already.
    pub fn retold(
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
        let hidden = Hidden::parse(hidden);
        let mut after = whole(object, &hidden.object);
        let mut previous = previous.map(|text| whole(text, &hidden.previous));
        if let Some(lens) = self.written_lens(ix, written) {
            previous = previous.map(|all| lens.previous_up(&after, &all));
            after = lens.up(&after);
        }
        let lens = to.lens(ix).filter(|_| to.index > 0);
        let shape = match to.index {
            0 => &self.kept().collections[ix],
            _ => &to.schema.collections[ix],
        };
        let apart = removed(shape, &after);
        if let Some(lens) = lens {
            previous = previous.map(|all| lens.previous(&after, &all));
            after = lens.down(&after);
        }
        let hidden = Hidden {
            object: apart,
            previous: previous.as_ref().map(|all| removed(shape, all)).unwrap_or_default(),
        };
        let previous = previous.map(|all| Value::Object(public(shape, all)).to_string());
        Some((record::encode(shape, &after), previous, hidden.text()))
    }

    fn view(&self, version: usize) -> &View {
        self.0.get(version).unwrap_or(&self.0[0])
    }

    fn newest_lens(&self, event: &Event) -> Option<&Lens> {
        self.newest().lens(self.kept().find(&event.collection)?)
    }

    /// What brings up a text that was written under this date; none where it is as it is kept now.
    fn written_lens(&self, collection: CollectionIx, written: &str) -> Option<&Lens> {
        let view = self.written(written);
        // The newest view's lens shows old names beside new ones, which is not how records are
        // kept.
        if view.index == 0 { None } else { view.lens(collection) }
    }

    /// Whether a version shows texts as they were written under a date.
    pub fn shows_as_written(&self, collection: CollectionIx, written: &str, view: &View) -> bool {
        match (self.written_lens(collection, written), view.lens(collection)) {
            (None, None) => true,
            (Some(from), _) => {
                view.index == self.written(written).index && from.aliases().next().is_none()
            }
            (None, Some(_)) => false,
        }
    }

    fn told<'e>(&self, event: &'e Event, view: &View) -> Told<'e> {
        let texts = Texts {
            written: &event.api_version,
            object: &event.object,
            previous: event.previous.as_deref(),
            hidden: event.hidden.as_deref(),
        };
        // The usual case needs no look at the collection.
        if view.index == 0 && event.api_version == view.date && !view.differs {
            return texts.as_they_are();
        }
        self.told_texts(self.kept().find(&event.collection), &texts, view)
    }

    fn told_texts<'e>(
        &self,
        collection: Option<CollectionIx>,
        texts: &Texts<'e>,
        view: &View,
    ) -> Told<'e> {
        // What is published from outside has no collection whose shape could differ.
        let Some(ix) = collection else { return texts.as_they_are() };
        if self.shows_as_written(ix, texts.written, view) || is_erased(texts.object) {
            return texts.as_they_are();
        }
        let (from, to) = (self.written_lens(ix, texts.written), view.lens(ix));
        let hidden = Hidden::parse(texts.hidden);
        let mut after = whole(texts.object, &hidden.object);
        let mut previous = texts.previous.map(|text| whole(text, &hidden.previous));
        if let Some(from) = from {
            previous = previous.map(|previous| from.previous_up(&after, &previous));
            after = from.up(&after);
        }
        let shown = &view.schema.collections[ix];
        let (object, previous) = match to {
            Some(lens) => {
                let previous = previous.map(|previous| lens.previous(&after, &previous));
                (record::encode(shown, &lens.down(&after)), previous)
            }
            None => (record::encode(shown, &after), previous.map(|all| public(shown, all))),
        };
        let previous = previous.map(|fields| Cow::Owned(Value::Object(fields).to_string()));
        Told { object: Cow::Owned(object), previous }
    }
}

/// The texts of an event as the log keeps them.
struct Texts<'e> {
    written: &'e str,
    object: &'e str,
    previous: Option<&'e str>,
    hidden: Option<&'e str>,
}

impl<'e> Texts<'e> {
    fn as_they_are(&self) -> Told<'e> {
        Told { object: self.object.into(), previous: self.previous.map(Cow::Borrowed) }
    }
}

impl Envelope<'_> {
    fn around(&self, version: &str, object: &str, previous: Option<&str>) -> String {
        let previous =
            previous.map_or(String::new(), |text| format!(",\"previous_attributes\":{text}"));
        format!(
            "{{\"id\":{},\"object\":{},\"type\":{},\"api_version\":\"{version}\",\"created\":{},\
             \"data\":{{\"object\":{object}{previous}}},\"livemode\":{},\"pending_webhooks\":{},\
             \"request\":{}}}",
            self.id,
            self.object,
            self.kind,
            self.created,
            self.livemode,
            self.pending_webhooks,
            self.request
        )
    }
}

impl View {
    /// A kept row of this version in the newest shape, or what is wrong with it there. Values that
    /// stay as they are stay: a limit holds for new ones.
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
        let changed = fields.iter().filter(|(name, value)| value_of(&kept, name) != *value);
        let mut changed: Fields = changed.map(|(name, v)| (name.clone(), v.clone())).collect();
        let unsaid = |name: &String| newest.field(name).is_some_and(|field| field.required);
        let nulls = fields.iter().filter(|(name, value)| value.is_null() && unsaid(name));
        changed.extend(nulls.map(|(name, value)| (name.clone(), value.clone())));
        raised.fields = changed;
        lens.check(newest, &mut raised, &kept)?;
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

/// What only older versions show.
fn removed(collection: &Collection, fields: &Fields) -> Fields {
    let names = collection.fields.iter().filter(|field| field.removed && !field.write_only);
    names.filter_map(|field| Some((field.name.clone(), fields.get(&field.name)?.clone()))).collect()
}

/// Whether nothing is left of an object but that it was erased. Records have more members.
pub fn is_erased(object: &str) -> bool {
    const ERASED: &str = "\"erased\":true";
    object.contains(ERASED) && parse_object(object).len() == 3
}
