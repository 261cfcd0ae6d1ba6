//! What the filter of a webhook endpoint can name: `event`, as it is sent in the version of the
//! endpoint. Which objects it can hold follows from the types that the endpoint subscribed to.

use super::scope::{self, Scope};
use super::shape::{Member, Object, Shape, Type};
use super::words::Words;
use crate::schema::{Collection, EventNames, Schema};
use crate::version::Versions;
use crate::webhook::pattern;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The scope of a filter over the events of these patterns. Without a version, over those of all
/// versions: the endpoint follows its account.
pub fn event(schema: &Schema, patterns: &[&str], version: Option<&str>) -> Scope {
    let wanted = |kind: &str| patterns.iter().any(|wanted| pattern::matches(wanted, kind));
    let mut variants: Vec<(String, Type)> = Vec::new();
    // Of all versions, subscribed to or not: a replay can be asked for any of them.
    let mut types: BTreeSet<String> = BTreeSet::new();
    types.extend(pattern::catalogue(schema).into_iter().map(str::to_owned));
    types.insert(pattern::PING.to_owned());
    let mut add = |kind: &str, object: &Type| {
        if !wanted(kind) {
            return;
        }
        match variants.iter_mut().find(|(known, _)| known == kind) {
            Some((_, before)) => *before = merged(before, object),
            None => variants.push((kind.to_owned(), object.clone())),
        }
    };
    if schema.versions.len() < 2 {
        of_view(schema, &mut add);
        types.extend(names(schema));
    } else {
        let versions = Versions::new(&Arc::new(schema.clone()));
        let shown = |date: &str| version.is_none_or(|version| version == date);
        types.extend(versions.iter().flat_map(|view| names(&view.schema)));
        for view in versions.iter().filter(|view| shown(&view.date)) {
            of_view(&view.schema, &mut add);
        }
    }
    // Whatever is published from outside, and the service's own objects.
    let published = schema.events.published.iter().map(|kind| kind.name.as_str());
    let own = schema.collections.iter().filter(|collection| collection.builtin.is_some());
    let own = own.flat_map(pattern::kinds).chain([pattern::FAILING, pattern::EVENTS_SKIPPED]);
    published.chain(own).for_each(|kind| add(kind, &Type::of(Shape::Map)));
    let object = all(variants.iter().map(|(_, object)| object));
    let kind = Words::kind("event type", types.iter().map(String::as_str));
    Scope::of_event(envelope(object, kind), variants)
}

/// The types of all events that the collections can have had, also by operations that are not
/// offered any more.
fn names(schema: &Schema) -> BTreeSet<String> {
    let shown = schema.collections.iter().filter(|collection| !collection.internal);
    let names = shown.flat_map(|collection| {
        let EventNames { created, updated, deleted } = &collection.events;
        let usual = [created, updated, deleted].map(String::as_str);
        pattern::kinds(collection).into_iter().chain(usual)
    });
    names.map(str::to_owned).collect()
}

fn of_view(schema: &Schema, add: &mut impl FnMut(&str, &Type)) {
    for collection in &schema.collections {
        if collection.internal || collection.removed || collection.builtin.is_some() {
            continue;
        }
        let object = shown(collection);
        pattern::kinds(collection).into_iter().for_each(|kind| add(kind, &object));
    }
}

/// An object that is any of these.
pub(super) fn all<'t>(objects: impl IntoIterator<Item = &'t Type>) -> Type {
    let merged = objects.into_iter().cloned().reduce(|one, other| merged(&one, &other));
    merged.unwrap_or(Type::of(Shape::Map))
}

/// A record as it is sent: a `number` without a fraction is a whole number there.
fn shown(collection: &Collection) -> Type {
    let Type { shape: Shape::Object(all), .. } = scope::record(collection, Shape::Number) else {
        return Type::of(Shape::Map);
    };
    let served = |name: &str| collection.public_names().any(|public| public == name);
    let members = all.members.iter().filter(|member| served(&member.name)).cloned();
    Type::object("field", members.collect())
}

/// An object that is one or the other, member by member.
fn merged(one: &Type, other: &Type) -> Type {
    if one == other {
        return one.clone();
    }
    let (Shape::Object(one), Shape::Object(two)) = (&one.shape, &other.shape) else {
        return Type::of(Shape::Map);
    };
    let of = |object: &Object, name: &str| object.member(name).cloned();
    let mut members: Vec<Member> = Vec::new();
    for member in one.members.iter().chain(&two.members) {
        let name = &member.name;
        if members.iter().any(|known| known.name == *name) {
            continue;
        }
        members.push(match (of(one, name), of(two, name)) {
            (Some(first), Some(second)) => Member {
                kind: first.kind.join(&second.kind),
                always: first.always && second.always,
                name: name.clone(),
            },
            _ => Member { always: false, ..member.clone() },
        });
    }
    Type::object("field", members)
}

/// The envelope of `model::event`.
fn envelope(object: Type, kind: Type) -> Type {
    let text = || Type::of(Shape::Text);
    let previous =
        Member { always: false, ..Member::new("previous_attributes", Type::of(Shape::Map)) };
    let data = Type::object("member", vec![Member::new("object", object), previous]);
    let request =
        vec![Member::new("id", text().or_null()), Member::new("idempotency_key", text().or_null())];
    Type::object(
        "member",
        vec![
            Member::new("id", text()),
            Member::new("object", Words::kind("name of the object", ["event"])),
            Member::new("type", kind),
            Member::new("api_version", text()),
            Member::new("created", Type::of(Shape::Int)),
            Member::new("data", data),
            Member::new("livemode", Type::of(Shape::Bool)),
            Member::new("pending_webhooks", Type::of(Shape::Int)),
            Member::new("request", Type::object("member", request)),
        ],
    )
}
