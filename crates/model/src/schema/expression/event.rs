//! What the filter of a webhook endpoint can name: `event`, as it is sent in the version of the
//! endpoint. Which objects it can hold follows from the types that the endpoint subscribed to.

use super::scope::{self, Scope};
use super::types::{Member, Object, Shape, Type};
use crate::schema::{Collection, Schema};
use crate::version::Versions;
use crate::webhook::pattern;
use std::sync::Arc;

/// The scope of a filter over the events of these patterns. Without a version, over those of all
/// versions: the endpoint follows its account.
pub fn event(schema: &Schema, patterns: &[&str], version: Option<&str>) -> Scope {
    let mut object: Option<Type> = None;
    let mut add = |kind: Type| {
        object = Some(match object.take() {
            Some(before) => merged(&before, &kind),
            None => kind,
        });
    };
    if schema.versions.len() < 2 {
        of_view(schema, patterns, &mut add);
    } else {
        let versions = Versions::new(&Arc::new(schema.clone()));
        let wanted = |date: &str| version.is_none_or(|version| version == date);
        for view in versions.iter().filter(|view| wanted(&view.date)) {
            of_view(&view.schema, patterns, &mut add);
        }
    }
    // Whatever is published from outside, and the service's own objects.
    let published = schema.events.published.iter().map(|kind| kind.name.as_str());
    let own = schema.collections.iter().filter(|collection| collection.builtin.is_some());
    let own = own.flat_map(|collection| pattern::kinds(collection));
    let own = own.chain([pattern::FAILING, pattern::EVENTS_SKIPPED]);
    if published.chain(own).any(|kind| is_wanted(patterns, kind)) {
        add(Type::of(Shape::Map));
    }
    Scope::new(vec![("event", envelope(object.unwrap_or(Type::of(Shape::Map))))])
}

fn is_wanted(patterns: &[&str], kind: &str) -> bool {
    patterns.iter().any(|wanted| pattern::matches(wanted, kind))
}

fn of_view(schema: &Schema, patterns: &[&str], add: &mut impl FnMut(Type)) {
    for collection in &schema.collections {
        let declared = !collection.internal && !collection.removed && collection.builtin.is_none();
        let mut kinds = pattern::kinds(collection).into_iter();
        if declared && kinds.any(|kind| is_wanted(patterns, kind)) {
            add(shown(collection));
        }
    }
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
fn envelope(object: Type) -> Type {
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
            Member::new("object", text()),
            Member::new("type", text()),
            Member::new("api_version", text()),
            Member::new("created", Type::of(Shape::Int)),
            Member::new("data", data),
            Member::new("livemode", Type::of(Shape::Bool)),
            Member::new("pending_webhooks", Type::of(Shape::Int)),
            Member::new("request", Type::object("member", request)),
        ],
    )
}
