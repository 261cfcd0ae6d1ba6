//! The names in the filter of a webhook endpoint: `event`, as it is sent. The types of the events
//! determine which objects it can hold.

use super::scope::{self, Scope};
use super::shape::{Member, Object, Shape, Type};
use super::words::Words;
use crate::schema::Collection;
use std::collections::BTreeSet;

/// The events that a filter sees.
#[derive(Default)]
pub struct Events {
    /// All types that a filter may name, also those of no event that it sees.
    pub types: BTreeSet<String>,
    variants: Vec<(String, Type)>,
}

impl Events {
    /// Events of this type hold a record of the collection; without one, any object.
    pub fn add(&mut self, kind: &str, collection: Option<&Collection>) {
        let object = collection.map_or(Type::of(Shape::Map), shown);
        match self.variants.iter_mut().find(|(known, _)| known == kind) {
            Some((_, before)) => *before = merged(before, &object),
            None => self.variants.push((kind.to_owned(), object)),
        }
    }

    pub fn scope(self) -> Scope {
        let object = all(self.variants.iter().map(|(_, object)| object));
        let kind = Words::kind("event type", self.types.iter().map(String::as_str));
        Scope::of_event(envelope(object, kind), self.variants)
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
