//! What a generated client offers, independent of its language: the declared collections with their
//! records, bodies, filters and actions, and the events. Made from the schema of one version.

use super::names::{Scope, pascal, type_name};
use model::expand;
use model::query;
use model::schema::{Collection, CollectionIx, Field, Kind, Operations, Schema};
use model::webhook::catalogue::{self, About};

pub struct Contract {
    /// The class of the client.
    pub class: String,
    pub service: String,
    pub version: String,
    /// In file order; parents before their children.
    pub resources: Vec<Resource>,
    pub events: Vec<Event>,
}

/// A collection.
pub struct Resource {
    /// In the schema, such as `payment-intents`.
    pub collection: String,
    pub object: String,
    /// The name of its record type, and the beginning of the others.
    pub base: String,
    /// The class with its operations.
    pub class: String,
    pub description: Option<String>,
    /// The whole path of a collection without a parent, otherwise the segment below the parent.
    pub path: String,
    /// Places in `Contract::resources`.
    pub parent: Option<usize>,
    pub children: Vec<usize>,
    /// The path of polls, if it is a feed.
    pub poll: Option<String>,
    pub operations: Operations,
    pub members: Vec<Member>,
    pub inputs: Vec<Input>,
    pub filters: Vec<Filter>,
    pub bounds: Vec<Filter>,
    pub sort: Vec<String>,
    pub searchable: bool,
    pub expansions: Vec<Expansion>,
    pub actions: Vec<Action>,
    pub enums: Vec<Enum>,
}

/// A field of a record. Every record has it.
pub struct Member {
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
    pub note: Note,
}

/// A field of a body.
pub struct Input {
    pub name: String,
    pub kind: Type,
    /// A create must have it.
    pub required: bool,
    pub nullable: bool,
    pub note: Note,
}

/// A query parameter of a list.
pub struct Filter {
    pub name: String,
    pub kind: Type,
}

/// What a comment says about a field.
#[derive(Default)]
pub struct Note {
    pub text: Option<String>,
    pub deprecated: bool,
}

/// Records that can be embedded.
pub struct Expansion {
    pub name: String,
    /// Place in `Contract::resources`.
    pub target: usize,
    /// A list of children, not the record that a field refers to.
    pub many: bool,
    pub nullable: bool,
}

pub struct Action {
    pub name: String,
    pub params: Vec<Input>,
    /// The type of its parameters, if it has any.
    pub params_type: String,
    pub description: Option<String>,
}

pub struct Enum {
    pub name: String,
    pub values: Vec<String>,
    /// The action whose parameter it is the type of, if any, and the name of the field.
    of: (String, String),
}

/// A type of events that leave the service.
pub struct Event {
    pub name: String,
    pub class: String,
    /// Place in `Contract::resources`; none for published events.
    pub resource: Option<usize>,
    pub has_previous: bool,
    /// Its name on the live channels, if that is another one: the record itself is sent then.
    pub live_name: Option<String>,
    pub description: Option<String>,
}

#[derive(Clone, PartialEq)]
pub enum Type {
    Text,
    Integer,
    Number,
    Boolean,
    Timestamp,
    Date,
    Object,
    List(Box<Type>),
    /// The word that the service sends in `object`.
    Word(String),
    /// The name of an enum.
    Enum(String),
}

impl Contract {
    /// `reserved`: the names that the file of the language uses itself.
    pub fn new(schema: &Schema, reserved: &[&str]) -> Contract {
        let mut scope = Scope::new(reserved);
        let own: Vec<CollectionIx> = ordered(schema);
        let place = |collection| own.iter().position(|one| *one == collection);
        let mut resources: Vec<Resource> =
            own.iter().map(|index| resource(schema, *index, &place, &mut scope)).collect();
        for at in 0..resources.len() {
            if let Some(parent) = resources[at].parent {
                resources[parent].children.push(at);
            }
        }
        let events = events(schema, &place, &mut scope);
        let class = scope.base(
            &type_name(&schema.service.name, "Service"),
            &["Event", "Message"].map(str::to_owned),
            "Service",
        );
        let class = scope.class(&class, "Client");
        let (service, version) = (schema.service.name.clone(), schema.service.version.clone());
        Contract { class, service, version, resources, events }
    }
}

/// The declared collections that this version serves, parents before their children.
fn ordered(schema: &Schema) -> Vec<CollectionIx> {
    let depth = |index: &CollectionIx| {
        std::iter::successors(schema.collections[*index].parent, |at| {
            schema.collections[*at].parent
        })
        .count()
    };
    let declared = schema.routed().filter(|(_, collection)| collection.builtin.is_none());
    let mut all: Vec<CollectionIx> = declared.map(|(index, _)| index).collect();
    all.sort_by_key(depth);
    all
}

fn resource(
    schema: &Schema,
    index: CollectionIx,
    place: &dyn Fn(CollectionIx) -> Option<usize>,
    scope: &mut Scope,
) -> Resource {
    let collection = &schema.collections[index];
    let base = scope.base(&pascal(&collection.object), &endings(collection), "Record");
    let class = scope.class(&pascal(&collection.name), "Collection");
    let parent = collection.parent.and_then(place);
    let mount = schema.service.mount.trim_end_matches('/');
    let path = match parent {
        Some(_) => collection.name.clone(),
        None => format!("{mount}/{}", collection.name),
    };
    let enums = enums(collection, &base);
    let (filters, bounds) = filters(collection, &enums);
    let feed = collection.feed.as_ref();
    let poll = feed.map(|_| format!("{}/{}", schema.live.mount, collection.name));
    Resource {
        collection: collection.name.clone(),
        object: collection.object.clone(),
        class,
        description: collection.description.clone(),
        path,
        parent,
        children: Vec::new(),
        poll,
        operations: collection.operations,
        members: members(schema, index, &enums),
        inputs: inputs(&collection.fields, &enums, ""),
        filters,
        bounds,
        sort: query::sortable(collection),
        searchable: collection.searched().next().is_some(),
        expansions: expansions(schema, index, place),
        actions: actions(collection, &base, &enums),
        enums,
        base,
    }
}

/// The ends of the names of every collection's types.
const ENDINGS: [&str; 6] = ["", "Create", "Update", "Query", "Sort", "Expansions"];

/// The ends of all names of a collection's types.
fn endings(collection: &Collection) -> Vec<String> {
    let mut all: Vec<String> = ENDINGS.iter().map(|ending| (*ending).to_owned()).collect();
    all.extend(enums(collection, "").into_iter().map(|one| one.name));
    all.extend(collection.actions.iter().map(|action| format!("{}Params", pascal(&action.name))));
    all
}

/// The enums of the fields and of the parameters of actions, each with a name of its own.
fn enums(collection: &Collection, base: &str) -> Vec<Enum> {
    let mut all: Vec<Enum> = Vec::new();
    let mut taken: Vec<String> = ENDINGS.iter().map(|ending| format!("{base}{ending}")).collect();
    let params = collection.actions.iter().map(|one| (pascal(&one.name), one.params.as_slice()));
    let fields = std::iter::once((String::new(), collection.fields.as_slice()));
    for (part, fields) in fields.chain(params) {
        for field in fields.iter().filter(|field| !field.choices.is_empty() && !field.removed) {
            let mut name = format!("{base}{part}{}", pascal(&field.name));
            while taken.contains(&name) || name.ends_with("Params") {
                name.push_str("Value");
            }
            taken.push(name.clone());
            let of = (part.clone(), field.name.clone());
            all.push(Enum { name, values: distinct(&field.choices), of });
        }
    }
    all
}

/// Each value once: an older version may have one word for several states.
fn distinct(values: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    all
}

/// The type of a field; `part` is empty, or the action whose parameter it is.
fn kind_of(field: &Field, enums: &[Enum], part: &str) -> Type {
    let mut known = enums.iter();
    let known = known.find(|one| one.of.0 == part && one.of.1 == field.name);
    known.map_or_else(|| type_of(&field.kind), |one| Type::Enum(one.name.clone()))
}

fn type_of(kind: &Kind) -> Type {
    match kind {
        Kind::String => Type::Text,
        Kind::Integer => Type::Integer,
        Kind::Number => Type::Number,
        Kind::Boolean => Type::Boolean,
        Kind::Timestamp => Type::Timestamp,
        Kind::Date => Type::Date,
        Kind::Object => Type::Object,
        Kind::Array(items) => Type::List(Box::new(type_of(items))),
    }
}

fn note(field: &Field) -> Note {
    Note { text: field.description.clone(), deprecated: field.deprecated.is_some() }
}

fn members(schema: &Schema, index: CollectionIx, enums: &[Enum]) -> Vec<Member> {
    let collection = &schema.collections[index];
    let assigned = |name: &str, kind: Type| Member {
        name: name.to_owned(),
        kind,
        nullable: false,
        note: Note::default(),
    };
    let member = |name: &str| match (name, collection.field(name)) {
        (_, Some(field)) => Member {
            name: name.to_owned(),
            kind: kind_of(field, enums, ""),
            nullable: !schema.is_never_null(index, field),
            note: note(field),
        },
        ("id", None) if collection.feed.is_some() => assigned(name, Type::Integer),
        ("object", None) => assigned(name, Type::Word(collection.object.clone())),
        ("id", None) => assigned(name, Type::Text),
        (_, None) => assigned(name, Type::Timestamp),
    };
    collection.public_names().map(member).collect()
}

/// The fields of a body. Old names of fields still work, but new code has no use for them.
fn inputs(fields: &[Field], enums: &[Enum], part: &str) -> Vec<Input> {
    let writable = fields.iter().filter(|field| field.is_writable() && field.alias_of.is_none());
    writable
        .map(|field| Input {
            name: field.name.clone(),
            kind: kind_of(field, enums, part),
            required: field.must_be_sent(),
            nullable: !field.required,
            note: note(field),
        })
        .collect()
}

/// The filters by value, and the bounds.
fn filters(collection: &Collection, enums: &[Enum]) -> (Vec<Filter>, Vec<Filter>) {
    let is_value = |name: &str| {
        matches!(name, "id" | "created_at" | "updated_at")
            || collection.field(name).is_some_and(|field| field.filterable() && !field.write_only)
    };
    let named = query::filter_names(collection).into_iter();
    let named = named.filter(|(name, _)| !query::RESERVED.contains(&name.as_str()));
    let of = |(name, kind): (String, Kind)| {
        let field = collection.field(&name);
        let kind = field.map_or_else(|| type_of(&kind), |field| kind_of(field, enums, ""));
        Filter { name, kind }
    };
    let (values, bounds): (Vec<_>, Vec<_>) = named.partition(|(name, _)| is_value(name));
    (values.into_iter().map(of).collect(), bounds.into_iter().map(of).collect())
}

fn expansions(
    schema: &Schema,
    index: CollectionIx,
    place: &dyn Fn(CollectionIx) -> Option<usize>,
) -> Vec<Expansion> {
    let collection = &schema.collections[index];
    let names = expand::expandable(schema, index).into_iter();
    names
        .filter_map(|name| {
            let field = collection.field(&name).filter(|field| field.reference.is_some());
            let target = match field {
                Some(field) => field.reference?,
                None => {
                    let mut children = schema.children(index);
                    children.find(|(_, child)| expand::child_name(&child.name) == name)?.0
                }
            };
            Some(Expansion {
                target: place(target)?,
                many: field.is_none(),
                nullable: field.is_some_and(|field| !schema.is_never_null(index, field)),
                name,
            })
        })
        .collect()
}

fn actions(collection: &Collection, base: &str, enums: &[Enum]) -> Vec<Action> {
    let action = |action: &model::schema::Action| {
        let name = pascal(&action.name);
        Action {
            params: inputs(&action.params, enums, &name),
            params_type: format!("{base}{name}Params"),
            description: action.description.clone(),
            name: action.name.clone(),
        }
    };
    collection.actions.iter().map(action).collect()
}

/// The events of declared collections and of applications.
fn events(
    schema: &Schema,
    place: &dyn Fn(CollectionIx) -> Option<usize>,
    scope: &mut Scope,
) -> Vec<Event> {
    let mut all = Vec::new();
    for kind in catalogue::of(schema) {
        let (resource, live_name) = match kind.about {
            About::Published => (None, None),
            About::Record(collection) => {
                let declared = &schema.collections[collection];
                let is_new = declared.events.created == kind.name;
                let feed = declared.feed.as_ref().filter(|_| is_new);
                let Some(place) = place(collection) else { continue };
                (Some(place), feed.map(|feed| feed.live_name.clone()))
            }
        };
        all.push(Event {
            name: kind.name.to_owned(),
            class: scope.name(&format!("{}Event", type_name(kind.name, "Event")), "2"),
            resource,
            has_previous: kind.has_previous,
            live_name,
            description: kind.description.map(str::to_owned),
        });
    }
    all
}
