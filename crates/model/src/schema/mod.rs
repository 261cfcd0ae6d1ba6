//! The schema: which nouns a service has and how they behave. Made from a TOML file by `parse`,
//! from then on read-only. Collections are addressed by their place (`CollectionIx`).

pub(crate) mod builtin;
pub mod diagnostic;
pub mod expression;
mod handler;
pub mod rule;
mod versions;

pub use builtin::Builtin;
pub use diagnostic::Diagnostic;
pub use expression::{CONVERSION_UNITS, Formula};
pub use handler::{Handler, Setting};
pub use rule::Rule;
pub use versions::{Break, Change, Deprecation, Limits, Mount, Operation, Path, Version};

use crate::value::Fields;
use serde_json::Value;
use std::time::Duration;

/// The schema that is served when none is given.
pub const BOOKSHOP: &str = include_str!("bookshop.toml");

/// The file that `restive init` writes: the bookshop, whose comments teach the format.
pub const INIT: &str = BOOKSHOP;

/// JSON Schema of the schema file, for editors.
pub const JSON_SCHEMA: &str = include_str!("restive.schema.json");

/// Place of a collection in `Schema::collections`.
pub type CollectionIx = usize;

#[derive(Clone, Debug)]
pub struct Schema {
    pub service: Service,
    pub events: Events,
    pub webhooks: Webhooks,
    pub live: Live,
    pub collections: Vec<Collection>,
    /// Newest first, never empty; the first is `service.version`.
    pub versions: Vec<Version>,
    /// Newest first; the first is `service.mount`.
    pub mounts: Vec<Mount>,
}

/// Settings of the whole service.
#[derive(Clone, Debug)]
pub struct Service {
    pub name: String,
    pub description: Option<String>,
    /// The newest API version, a date.
    pub version: String,
    /// Where the resources are mounted; `/v1`.
    pub mount: String,
    pub errors: ErrorShape,
    pub rate_limit: RateLimit,
    /// Longest list page; asking for more is clamped.
    pub max_page: u32,
    /// Largest request body.
    /// Values of `Link` that are sent before one of its own pages.
    pub early_hints: Vec<String>,
    pub max_body_bytes: usize,
    /// Origins whose pages may use the API and open channels; `*`: all.
    pub origins: Vec<String>,
}

/// The event log: its retention, and the events that applications may publish into it.
#[derive(Clone, Debug)]
pub struct Events {
    pub retention: Duration,
    /// How much longer the log keeps events that were not yet delivered to an enabled endpoint.
    pub max_backlog: Duration,
    /// Types that an application may publish in addition to those of the collections.
    pub published: Vec<EventType>,
}

#[derive(Clone, Debug)]
pub struct EventType {
    pub name: String,
    pub description: Option<String>,
}

/// Settings of webhook delivery.
#[derive(Clone, Debug, Default)]
pub struct Webhooks {
    /// Endpoints may be plain http and on this machine or network. For development only.
    pub development: bool,
}

/// Settings of the live channels.
#[derive(Clone, Debug)]
pub struct Live {
    /// Below it, feeds are polled and events streamed; `/api`.
    pub mount: String,
    /// Where WebSockets are opened; `/ws`.
    pub socket: String,
    /// How long a long poll is held.
    pub poll_timeout: Duration,
    /// Origins whose pages may open channels, in addition to the service's own; `*`: all.
    pub origins: Vec<String>,
    pub max_connections: usize,
    pub max_connections_per_account: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorShape {
    Structured,
    Flat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub requests: u32,
    pub window: Duration,
}

#[derive(Clone, Debug)]
pub struct Collection {
    /// Plural path segment, lower case with hyphens: `payment-intents`.
    pub name: String,
    /// Singular, snake_case: `payment_intent`. Value of `object` and head of event types.
    pub object: String,
    pub id_prefix: String,
    pub description: Option<String>,
    pub parent: Option<CollectionIx>,
    /// Declared fields, in file order.
    pub fields: Vec<Field>,
    pub states: Option<States>,
    pub actions: Vec<Action>,
    pub timed: Vec<Timed>,
    pub events: EventNames,
    pub feed: Option<Feed>,
    pub indexes: Vec<Index>,
    pub operations: Operations,
    pub require_if_match: bool,
    pub require_idempotency_key: bool,
    /// `Cache-Control` of reads.
    pub cache_control: String,
    /// Values of `Link` that are sent before a read is answered.
    pub early_hints: Vec<String>,
    /// For the service itself; has no route.
    pub internal: bool,
    /// Other versions serve it; has no route in this one.
    pub removed: bool,
    pub deprecated: Option<Deprecation>,
    /// One of the service's own.
    pub builtin: Option<Builtin>,
}

/// Which of the resource operations are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    pub list: bool,
    pub get: bool,
    pub create: bool,
    pub replace: bool,
    pub update: bool,
    pub delete: bool,
}

impl Operations {
    pub const ALL: Operations = Operations {
        list: true,
        get: true,
        create: true,
        replace: true,
        update: true,
        delete: true,
    };
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub description: Option<String>,
    pub required: bool,
    pub default: Option<Value>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Characters of a string, items of an array.
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub pattern: Option<Pattern>,
    pub choices: Vec<String>,
    /// No two records of one account and mode share a value; null is no value.
    pub unique: bool,
    pub filter: bool,
    pub sort: bool,
    pub search: bool,
    pub reference: Option<CollectionIx>,
    /// The declared effect of deleting the record that this field refers to; see `on_delete()`.
    pub on_delete: Option<OnDelete>,
    /// Accepted and stored, never served.
    pub write_only: bool,
    /// Set by actions, rules and the service, never by a request body.
    pub read_only: bool,
    /// Lists can be filtered by it; records do not show it. Only in the service's own collections.
    pub filter_only: bool,
    /// A filter value may hold `*` for any text. Only in the service's own collections.
    pub wildcards: bool,
    /// Stored, but unknown to clients of this version; others show it.
    pub removed: bool,
    /// May be null, even if it is required: clients of another version sent no value, or one that
    /// this version cannot express.
    pub voidable: bool,
    /// Newer versions keep its values in another form, so lists cannot be filtered or sorted by it.
    pub converted: bool,
    /// Clients of older versions may write values beyond its limits. Any client may send them back.
    pub outgrown: bool,
    /// The field that this is an old name of. Both are shown, and a client may send either.
    pub alias_of: Option<String>,
    pub deprecated: Option<Deprecation>,
}

/// The effect on a reference when the record that it names is deleted. It never stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// The record that is referred to cannot be deleted.
    Restrict,
    /// The record that refers is deleted, too.
    Cascade,
    /// The reference becomes null.
    SetNull,
}

impl OnDelete {
    pub const ALL: [OnDelete; 3] = [OnDelete::Restrict, OnDelete::Cascade, OnDelete::SetNull];

    pub fn name(self) -> &'static str {
        match self {
            OnDelete::Restrict => "restrict",
            OnDelete::Cascade => "cascade",
            OnDelete::SetNull => "set_null",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Timestamp,
    Date,
    Object,
    Array(Box<Kind>),
}

/// A regular expression that must match somewhere in the text; compiled once.
#[derive(Clone, Debug)]
pub struct Pattern(pub regex::Regex);

/// The state machine of a collection.
#[derive(Clone, Debug)]
pub struct States {
    /// The field that holds the state; a read-only string with `names` as choices.
    pub field: String,
    pub initial: String,
    pub names: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Action {
    /// Final path segment: `cancel`.
    pub name: String,
    pub description: Option<String>,
    /// States in which it is allowed; empty: any.
    pub from: Vec<String>,
    /// State it leads to; `None` keeps the state.
    pub to: Option<String>,
    /// Fields of the request body, which may be empty.
    pub params: Vec<Field>,
    /// Checked in order; the first that fires refuses.
    pub rules: Vec<Rule>,
    /// Fields set when it succeeds. A string value `"=…"` is a CEL expression.
    pub set: Vec<Assignment>,
    /// Event type; default `<object>.<action>` of the collection.
    pub event: String,
    pub handler: Option<Handler>,
    /// What it does in addition to `set`, in the service's own collections.
    pub native: Option<Native>,
}

/// Actions that are more than a change of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    RotateSecret,
    Ping,
    /// Sends a delivery once more, now.
    Retry,
}

/// A field set by an action, a rule or a timed transition.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub field: String,
    pub value: rule::Template,
}

/// A transition that happens by itself some time after a state was entered.
#[derive(Clone, Debug)]
pub struct Timed {
    pub from: String,
    pub to: String,
    pub after: Duration,
    pub set: Vec<Assignment>,
    pub event: String,
}

#[derive(Clone, Debug)]
pub struct EventNames {
    pub created: String,
    pub updated: String,
    pub deleted: String,
}

/// A feed: records in log order with integer ids.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Name of its records on the live channels.
    pub live_name: String,
    /// The field that holds the user who sent a record over a live channel.
    pub author: Option<String>,
}

/// A declared index over several fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub fields: Vec<String>,
}

impl Default for Events {
    fn default() -> Events {
        Events {
            // Stripe's, too.
            retention: Duration::from_secs(30 * 86_400),
            // Longer than the default retry schedule and the time until an endpoint is disabled.
            max_backlog: Duration::from_secs(7 * 86_400),
            published: Vec::new(),
        }
    }
}

impl Default for Live {
    fn default() -> Live {
        Live {
            mount: "/api".to_owned(),
            socket: "/ws".to_owned(),
            poll_timeout: Duration::from_secs(25),
            origins: Vec::new(),
            max_connections: 100_000,
            max_connections_per_account: 50_000,
        }
    }
}

impl Schema {
    /// The declared collections, with the service's own behind them.
    pub fn new(service: Service, mut collections: Vec<Collection>) -> Schema {
        collections.extend(builtin::collections(collections.len()));
        let (events, webhooks) = (Events::default(), Webhooks::default());
        let (versions, mounts) = versions::only(&service);
        let live = Live::default();
        Schema { service, events, webhooks, live, collections, versions, mounts }
    }

    pub fn find(&self, name: &str) -> Option<CollectionIx> {
        self.collections.iter().position(|collection| collection.name == name)
    }

    /// The collections that have routes, in file order.
    pub fn routed(&self) -> impl Iterator<Item = (CollectionIx, &Collection)> {
        let has_route = |collection: &Collection| !collection.internal && !collection.removed;
        self.collections.iter().enumerate().filter(move |(_, collection)| has_route(collection))
    }

    /// The feeds of any version, in file order.
    pub fn feeds(&self) -> impl Iterator<Item = (CollectionIx, &Collection)> {
        let is_feed = |collection: &Collection| !collection.internal && collection.feed.is_some();
        self.collections.iter().enumerate().filter(move |(_, collection)| is_feed(collection))
    }

    /// Whether some version has removed the collection itself; one above it is another matter.
    pub fn removes(&self, collection: CollectionIx) -> bool {
        let changes = self.versions.iter().flat_map(|version| &version.changes);
        let mut of_it = changes.filter(|change| change.collection == collection);
        of_it.any(|change| matches!(change.operation, Operation::CollectionRemoved))
    }

    /// The service's own collection of this kind; every schema has all of them.
    pub fn own(&self, builtin: Builtin) -> CollectionIx {
        let found = self.collections.iter().position(|c| c.builtin == Some(builtin));
        found.unwrap_or(self.collections.len())
    }

    pub fn children(
        &self,
        parent: CollectionIx,
    ) -> impl Iterator<Item = (CollectionIx, &Collection)> {
        self.collections.iter().enumerate().filter(move |(_, c)| c.parent == Some(parent))
    }

    /// The fields that refer to records of a collection. Without those that name a parent, whose
    /// deletion deletes its children, and without those of the service's own collections, which
    /// outlive the records they describe.
    pub fn referrers(
        &self,
        target: CollectionIx,
    ) -> impl Iterator<Item = (CollectionIx, usize, &Field)> {
        let own = |collection: &Collection| collection.builtin.is_some() || collection.internal;
        let collections = self.collections.iter().enumerate().filter(move |(_, c)| !own(c));
        collections.flat_map(move |(ix, collection)| {
            let parent = self.parent_field(ix);
            let fields = collection.fields.iter().enumerate().filter(move |(_, field)| {
                field.reference == Some(target)
                    && field.alias_of.is_none()
                    && parent != Some(&field.name)
            });
            fields.map(move |(place, field)| (ix, place, field))
        })
    }

    /// The collections that a delete in one of them may delete records of, itself first.
    pub fn deletes(&self, top: CollectionIx) -> Vec<CollectionIx> {
        let mut found = vec![top];
        let mut next = 0;
        while let Some(target) = found.get(next).copied() {
            next += 1;
            let below = self.children(target).map(|(ix, _)| ix);
            let referring = self.referrers(target);
            let cascading = referring.filter(|(.., f)| f.on_delete() == OnDelete::Cascade);
            let more: Vec<_> = below.chain(cascading.map(|(ix, ..)| ix)).collect();
            for ix in more {
                if !found.contains(&ix) {
                    found.push(ix);
                }
            }
        }
        found
    }

    /// Whether a record never has null in a field: the state, the parent, and fields that every
    /// body must have.
    pub fn is_never_null(&self, collection: CollectionIx, field: &Field) -> bool {
        let states = self.collections[collection].states.as_ref();
        states.is_some_and(|states| states.field == field.name)
            || self.parent_field(collection) == Some(field.name.as_str())
            || (field.required && !field.read_only && !field.voidable)
    }

    /// The field that names a child's parent: the parent's object name. `None` at the top level.
    pub fn parent_field(&self, child: CollectionIx) -> Option<&str> {
        Some(&self.collections[self.collections[child].parent?].object)
    }
}

/// A version without a collection does not have its child collections either.
pub(crate) fn hide_what_is_below(collections: &mut [Collection]) {
    for ix in 0..collections.len() {
        let above = std::iter::successors(Some(ix), |at| collections[*at].parent);
        // No more than there are: a collection above itself would have no end.
        let mut above = above.take(collections.len());
        collections[ix].removed = above.any(|at| collections[at].removed);
    }
}

impl Collection {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field that a client may mean: removed ones are unknown to them.
    pub fn known(&self, name: &str) -> Option<&Field> {
        self.field(name).filter(|field| !field.removed)
    }

    /// The value of a field in a record that was written without it: null, or the first state, or
    /// the default of a required field.
    pub fn absent(&self, field: &Field) -> Value {
        match &self.states {
            Some(states) if states.field == field.name => Value::from(states.initial.as_str()),
            _ => field.default.clone().filter(|_| field.required).unwrap_or_default(),
        }
    }

    /// Gives a record what it has of fields it was written without.
    pub fn complete(&self, fields: &mut Fields) {
        for field in self.fields.iter().filter(|field| field.alias_of.is_none()) {
            let value = self.absent(field);
            if !value.is_null() && !fields.contains_key(&field.name) {
                fields.insert(field.name.clone(), value);
            }
        }
    }

    /// The parameters of an action, as if they were a collection.
    pub fn form(&self, action: usize) -> Collection {
        let action = &self.actions[action];
        Collection {
            name: format!("{}.{}", self.name, action.name),
            fields: action.params.clone(),
            actions: Vec::new(),
            timed: Vec::new(),
            indexes: Vec::new(),
            states: None,
            parent: None,
            removed: false,
            ..self.clone()
        }
    }

    pub fn action(&self, name: &str) -> Option<usize> {
        self.actions.iter().position(|action| action.name == name)
    }

    /// Names of every served field in their order: `id`, `object`, declared ones, timestamps.
    /// The parent reference of a child is a declared field: `parse` adds it as the first one.
    pub fn public_names(&self) -> impl Iterator<Item = &str> {
        let served = self.fields.iter().filter(|field| field.is_served());
        ["id", "object"]
            .into_iter()
            .chain(served.map(|field| field.name.as_str()))
            .chain(self.timestamps().iter().copied())
    }

    /// The timestamps that every record has; an event has only the time at which it happened.
    pub fn timestamps(&self) -> &'static [&'static str] {
        match self.builtin {
            Some(Builtin::Event) => &[],
            _ => &["created_at", "updated_at"],
        }
    }

    /// Whether the store keeps its rows in tables of its own, not as records.
    pub fn is_view(&self) -> bool {
        self.builtin.is_some_and(Builtin::is_view)
    }

    /// Declared fields that have a typed column.
    pub fn columns(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.has_column())
    }

    pub fn searched(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.search && !field.removed)
    }
}

impl Field {
    /// A plain optional field of this kind, everything else off.
    pub fn new(name: &str, kind: Kind) -> Field {
        Field {
            name: name.to_owned(),
            kind,
            description: None,
            required: false,
            default: None,
            min: None,
            max: None,
            min_length: None,
            max_length: None,
            pattern: None,
            choices: Vec::new(),
            unique: false,
            filter: false,
            sort: false,
            search: false,
            reference: None,
            on_delete: None,
            write_only: false,
            read_only: false,
            filter_only: false,
            wildcards: false,
            removed: false,
            voidable: false,
            converted: false,
            outgrown: false,
            alias_of: None,
            deprecated: None,
        }
    }

    pub fn is_alias_of(&self, field: &Field) -> bool {
        self.alias_of.as_deref() == Some(field.name.as_str())
    }

    /// Whether a whole body must have the field: a default replaces a missing one.
    pub fn must_be_sent(&self) -> bool {
        self.required && self.default.is_none() && self.is_writable()
    }

    /// Whether request bodies may have it.
    pub fn is_writable(&self) -> bool {
        !self.read_only && !self.removed
    }

    /// Whether records show it.
    pub fn is_served(&self) -> bool {
        !self.write_only && !self.filter_only && !self.removed
    }

    pub fn has_column(&self) -> bool {
        self.unique || self.filter || self.sort || self.reference.is_some()
    }

    /// The effect on a record when the record that this field refers to is deleted. A field that
    /// clients of this version do not know never prevents a deletion.
    pub fn on_delete(&self) -> OnDelete {
        match self.on_delete {
            _ if self.removed => OnDelete::SetNull,
            Some(said) => said,
            None if self.required => OnDelete::Restrict,
            None => OnDelete::SetNull,
        }
    }

    /// References are filterable: finding "the orders of this book" is why they exist.
    pub fn filterable(&self) -> bool {
        self.filter || self.unique || self.reference.is_some()
    }
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::Timestamp => "timestamp",
            Kind::Date => "date",
            Kind::Object => "object",
            Kind::Array(_) => "array",
        }
    }

    /// The name, with the type of the items.
    pub fn described(&self) -> String {
        match self {
            Kind::Array(item) => format!("array of {}", item.described()),
            other => other.name().to_owned(),
        }
    }

    pub fn is_scalar(&self) -> bool {
        !matches!(self, Kind::Object | Kind::Array(_))
    }
}

impl Feed {
    /// Ids of feed records are commit sequences, written as JSON integers.
    pub fn id_value(id: &str) -> Value {
        id.parse::<i64>().map_or(Value::Null, Value::from)
    }
}

impl Action {
    /// Why the action is not possible in a state, in the words that it has for states. An older
    /// version may have one word for several: the message names each once.
    pub(crate) fn wrong_state(&self, object: &str, state: &str) -> String {
        let name = &self.name;
        let mut needed: Vec<&str> = Vec::new();
        for word in self.from.iter().map(String::as_str) {
            if !needed.contains(&word) {
                needed.push(word);
            }
        }
        if needed.contains(&state) {
            return format!(
                "`{name}` is not possible in the state the {object} is in, which this version \
                 shows as `{state}`."
            );
        }
        let needed = needed.join(" or ");
        format!("`{name}` is not possible while the {object} is `{state}`; it needs {needed}.")
    }
}
