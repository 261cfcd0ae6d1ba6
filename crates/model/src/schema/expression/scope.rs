//! The names in an expression, with their types: `record`, `request`, `client`, `now`; or `event`;
//! or `value` and `record`. Made from the fields of a collection and the parameters of an action.

use super::function::{self, Function};
use super::shape::{Member, Shape, Type};
use super::words::Words;
use crate::schema::{Collection, Field, Kind};

/// The variables of an expression, in the order in which messages list them.
#[derive(Clone, Debug)]
pub struct Scope {
    variables: Vec<(&'static str, Type)>,
    /// For filters: the types of events, and what `event.data.object` is in each.
    variants: Vec<(String, Type)>,
    /// Functions that can be called in addition to those of all expressions.
    pub(super) functions: &'static [Function],
}

impl Scope {
    pub(super) fn of_event(event: Type, variants: Vec<(String, Type)>) -> Scope {
        Scope { variables: vec![("event", event)], variants, functions: &[] }
    }

    /// For a formula of a `convert`. Of the fields of `record` none is certain: a value that newer
    /// versions cannot express, or that older clients did not send, is null.
    pub fn of_formula(value: &Field, record: &[Field]) -> Scope {
        let kind = |field: &Field| kind_of(&field.kind, Shape::Double);
        let members = record.iter().map(|field| Member::new(&field.name, kind(field).or_null()));
        let record = Type::object("field", members.collect());
        let variables = vec![("value", kind(value)), ("record", record)];
        Scope { variables, variants: Vec::new(), functions: function::FORMULAS }
    }

    /// The objects of all types of events that pass.
    pub(super) fn objects(&self, passes: impl Fn(&str) -> bool) -> Vec<&Type> {
        let passing = self.variants.iter().filter(|(kind, _)| passes(kind));
        passing.map(|(_, object)| object).collect()
    }

    /// For the rules and values of an action.
    pub fn of_action(collection: &Collection, params: &[Field]) -> Scope {
        let mut scope = Scope::of_transition(collection);
        // A parameter that is not sent is its default, or null.
        let members = params.iter().map(|param| {
            let kind = typed(param, Shape::Double);
            let kind = if param.required { kind } else { kind.or_null() };
            Member::new(&param.name, kind)
        });
        scope.variables[1].1 = Type::object("parameter", members.collect());
        scope.variables.insert(2, ("client", Type::of(Shape::Address)));
        scope
    }

    /// For the values of a timed transition: there is no request, and nobody asks.
    pub fn of_transition(collection: &Collection) -> Scope {
        let variables = vec![
            ("record", record(collection, Shape::Double)),
            ("request", Type::object("parameter", Vec::new())),
            ("now", Type::of(Shape::Timestamp)),
        ];
        Scope { variables, variants: Vec::new(), functions: &[] }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Type> {
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.variables.iter().map(|(name, _)| *name)
    }
}

/// A record with all its stored fields. `number`: the type of a `number`, which is always a
/// `double` in records, but not in JSON as it is sent.
pub(super) fn record(collection: &Collection, number: Shape) -> Type {
    let id = if collection.feed.is_some() { Shape::Int } else { Shape::Text };
    let mut members = vec![
        Member::new("id", Type::of(id)),
        Member::new("object", Words::kind("name of the object", [collection.object.as_str()])),
        Member::new("created_at", Type::of(Shape::Timestamp)),
        Member::new("updated_at", Type::of(Shape::Timestamp)),
    ];
    members.extend(collection.fields.iter().map(|field| member(collection, field, &number)));
    Type::object("field", members)
}

fn member(collection: &Collection, field: &Field, number: &Shape) -> Member {
    let kind = typed(field, number.clone());
    let is_state = collection.states.as_ref().is_some_and(|states| states.field == field.name);
    // The reference to the parent is the first field of a child.
    let first = collection.fields.first().filter(|_| collection.parent.is_some());
    let is_parent = first.is_some_and(|first| first.name == field.name);
    // Clients of newer versions do not send removed fields.
    let sent = field.required && !field.removed && !field.voidable;
    let always = is_state || is_parent || sent;
    Member::new(&field.name, if always { kind } else { kind.or_null() })
}

fn typed(field: &Field, number: Shape) -> Type {
    // Clients of older versions may have written other values into an outgrown field.
    if field.kind != Kind::String || field.choices.is_empty() || field.outgrown {
        return kind_of(&field.kind, number);
    }
    let noun = format!("value of `{}`", field.name);
    Words::kind(&noun, field.choices.iter().map(String::as_str))
}

fn kind_of(kind: &Kind, number: Shape) -> Type {
    Type::of(match kind {
        Kind::String => Shape::Text,
        Kind::Integer => Shape::Int,
        Kind::Number => number,
        Kind::Boolean => Shape::Bool,
        Kind::Timestamp => Shape::Timestamp,
        Kind::Date => Shape::Date,
        Kind::Object => Shape::Map,
        Kind::Array(item) => return Type::list(kind_of(item, number)),
    })
}

/// Why a computed value does not fit a field, to complete "the value …".
pub(crate) fn misfit(field: &Field, kind: &Type) -> Option<String> {
    let name = &field.name;
    if kind.shape == Shape::Any {
        let message = "is of a type that is not known here; ask first: `type(x) == string ? … : …`";
        return Some(message.to_owned());
    }
    if kind.nullable && field.required {
        return Some(format!("can be null, and `{name}` is required"));
    }
    if kind.shape == Shape::Null || fits(&field.kind, &kind.shape) {
        return None;
    }
    let hint = match (&field.kind, &kind.shape) {
        (Kind::Integer, Shape::Double | Shape::Number) => "; write `int(…)`",
        (Kind::String, shape) if shape.is_number() || *shape == Shape::Bool => {
            "; write `string(…)`"
        }
        (Kind::Timestamp | Kind::Date, shape) if shape.is_text() => {
            "; take it from a field or parameter of that type"
        }
        _ => "",
    };
    let wanted = field.kind.name();
    Some(format!("is {}, and `{name}` is of type {wanted}{hint}", kind.shape))
}

fn fits(kind: &Kind, shape: &Shape) -> bool {
    match (kind, shape) {
        (Kind::String, shape) => shape.is_text(),
        (Kind::Integer, shape) => *shape == Shape::Int,
        (Kind::Number, shape) => shape.is_number(),
        (Kind::Boolean, shape) => *shape == Shape::Bool,
        (Kind::Timestamp, shape) => *shape == Shape::Timestamp,
        (Kind::Date, shape) => *shape == Shape::Date,
        (Kind::Object, shape) => shape.is_object(),
        (Kind::Array(item), Shape::List(of)) => {
            of.shape == Shape::Nothing || !of.nullable && fits(item, &of.shape)
        }
        (Kind::Array(_), _) => false,
    }
}
