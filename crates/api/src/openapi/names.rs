//! Names of components and operations: one base per collection, from its object name. The schema
//! author chooses object names, so derived names could collide; this file keeps them apart.

use model::schema::{Action, Collection, CollectionIx, Schema};
use model::webhook::catalogue::EventKind;
use std::collections::{BTreeMap, HashSet};

pub const PING_OUTCOME: &str = "PingOutcome";
pub const POSITION: &str = "StreamPosition";
pub const TOKEN: &str = "ChannelToken";
pub const TOKEN_REQUEST: &str = "ChannelTokenRequest";
pub const PRESENCE: &str = "Presence";
pub const PRESENCE_LIST: &str = "PresenceList";
pub const ACCOUNT: &str = "Account";
pub const ACCOUNT_UPDATE: &str = "AccountUpdate";
pub const USAGE: &str = "VersionUsage";
pub const COLLECTION_USAGE: &str = "DeprecatedCollectionUsage";
pub const FIELD_USAGE: &str = "DeprecatedFieldUsage";
pub const USAGE_LIST: &str = "VersionUsageList";
pub const ACCOUNT_LIST: &str = "AccountList";
pub const ACCOUNT_NAME: &str = "AccountName";
pub const ACCOUNT_CHANGE: &str = "AccountChange";
pub const REQUEST: &str = "Request";
pub const REQUEST_LIST: &str = "RequestList";
pub const STATS: &str = "Stats";
pub const NEW_KEY: &str = "NewKey";
pub const ROLL: &str = "KeyRoll";
/// A record of which an event shows no fields.
pub const RECORD_REFERENCE: &str = "RecordReference";
pub const EVENT_CAUSE: &str = "EventCause";
pub const EVENT_ACTOR: &str = "EventActor";
/// The members that all events have.
pub const ENVELOPE: &str = "EventEnvelope";
/// A type of event, or a pattern of types.
pub const EVENT_PATTERN: &str = "EventPattern";
/// What a live channel can be asked for.
pub const LIVE_TYPE: &str = "LiveType";

/// Components that exist for every schema.
const FIXED: &[&str] = &[
    "Error",
    "FlatError",
    "Violation",
    "JsonObject",
    "Deleted",
    "Health",
    PING_OUTCOME,
    POSITION,
    TOKEN,
    TOKEN_REQUEST,
    PRESENCE,
    PRESENCE_LIST,
    ACCOUNT,
    ACCOUNT_UPDATE,
    USAGE,
    COLLECTION_USAGE,
    FIELD_USAGE,
    USAGE_LIST,
    ACCOUNT_LIST,
    ACCOUNT_NAME,
    ACCOUNT_CHANGE,
    NEW_KEY,
    REQUEST,
    REQUEST_LIST,
    STATS,
    ROLL,
    RECORD_REFERENCE,
    EVENT_CAUSE,
    EVENT_ACTOR,
    // Parameters, which end like those with the id of a record.
    "LastEventId",
    "StreamLastEventId",
    "Pagination",
    "ErrorCode",
    "ViolationCode",
    EVENT_PATTERN,
    LIVE_TYPE,
    ENVELOPE,
    "Timestamp",
    "Date",
    "TextFilter",
    "IntegerFilter",
    "IntegerBound",
    "NumberFilter",
    "NumberBound",
    "BooleanFilter",
    "TimestampFilter",
    "TimestampBound",
    "DateFilter",
    "DateBound",
];

/// Verbs of the resource operations, in `<verb><Object>`.
const VERBS: &[&str] = &["list", "create", "get", "replace", "update", "delete", "poll"];

pub struct Names {
    bases: Vec<String>,
    /// The bases in the plural, for lists.
    plurals: Vec<String>,
    /// By type of event.
    events: BTreeMap<String, String>,
}

impl Names {
    pub fn new(schema: &Schema, kinds: &[EventKind<'_>]) -> Names {
        let mut taken: HashSet<String> = FIXED.iter().map(|name| (*name).to_owned()).collect();
        let mut events = BTreeMap::new();
        for kind in kinds {
            let mut name = format!("{}Event", pascal(kind.name));
            // `a.b_c` and `a_b.c` would have the same name.
            while !taken.insert(name.clone()) {
                name.push('2');
            }
            events.insert(kind.name.to_owned(), name);
        }
        let bases = schema.collections.iter().map(|collection| {
            let mut base = pascal(&collection.object);
            while family(&base, collection).iter().any(|name| taken.contains(name)) {
                base.push_str("Record");
            }
            taken.extend(family(&base, collection));
            base
        });
        let bases: Vec<String> = bases.collect();
        let plurals = plurals(schema, &bases);
        Names { bases, plurals, events }
    }

    /// The envelope of the events of one type.
    pub fn event(&self, kind: &str) -> &str {
        self.events.get(kind).map_or("", String::as_str)
    }

    /// The record as events show it.
    pub fn snapshot(&self, collection: CollectionIx) -> String {
        format!("{}Snapshot", self.bases[collection])
    }

    /// Old values of the record's fields.
    pub fn previous(&self, collection: CollectionIx) -> String {
        format!("{}Previous", self.bases[collection])
    }

    pub fn record(&self, collection: CollectionIx) -> &str {
        &self.bases[collection]
    }

    pub fn list(&self, collection: CollectionIx) -> String {
        format!("{}List", self.bases[collection])
    }

    pub fn create(&self, collection: CollectionIx) -> String {
        format!("{}Create", self.bases[collection])
    }

    /// Any event about the record.
    pub fn events(&self, collection: CollectionIx) -> String {
        format!("{}Event", self.bases[collection])
    }

    /// The response with one record.
    pub fn one(&self, collection: CollectionIx) -> String {
        format!("{}Record", self.bases[collection])
    }

    /// The response with a page of records.
    pub fn page(&self, collection: CollectionIx) -> String {
        format!("{}Page", self.bases[collection])
    }

    /// The parameter that chooses the members of a record.
    pub fn fields(&self, collection: CollectionIx) -> String {
        format!("{}Fields", self.bases[collection])
    }

    /// The parameter that embeds related records.
    pub fn expand(&self, collection: CollectionIx) -> String {
        format!("{}Expand", self.bases[collection])
    }

    pub fn update(&self, collection: CollectionIx) -> String {
        format!("{}Update", self.bases[collection])
    }

    pub fn params(&self, collection: CollectionIx, action: &Action) -> String {
        format!("{}{}Params", self.bases[collection], pascal(&action.name))
    }

    /// The component of the path parameter with the record's id.
    pub fn id(&self, collection: CollectionIx) -> String {
        format!("{}Id", self.bases[collection])
    }

    /// `createBook`, `listBooks`.
    pub fn operation(&self, verb: &str, collection: CollectionIx) -> String {
        match verb {
            "list" => format!("list{}", self.plurals[collection]),
            _ => format!("{verb}{}", self.bases[collection]),
        }
    }

    /// `cancelOrder`; an action with the name of a resource operation gets another id.
    pub fn action(&self, collection: CollectionIx, action: &Action) -> String {
        let name = pascal(&action.name);
        let mut chars = name.chars();
        let verb: String =
            chars.next().into_iter().flat_map(char::to_lowercase).chain(chars).collect();
        if VERBS.contains(&verb.as_str()) {
            format!("run{name}On{}", self.bases[collection])
        } else {
            format!("{verb}{}", self.bases[collection])
        }
    }
}

/// The name of each collection, which its author wrote in the plural: `categories` becomes
/// `Categories`. Where two collections would share one, as children of different parents can, or
/// where the base is not the object's own name, the base with an `s`.
fn plurals(schema: &Schema, bases: &[String]) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let named = schema.collections.iter().zip(bases).map(|(collection, base)| {
        let mut plural = match *base == pascal(&collection.object) {
            true => pascal(&collection.name),
            false => format!("{base}s"),
        };
        while !taken.insert(plural.clone()) {
            plural = if plural == format!("{base}s") {
                format!("{plural}2")
            } else {
                format!("{base}s")
            };
        }
        plural
    });
    named.collect()
}

/// Every component of a collection.
fn family(base: &str, collection: &Collection) -> Vec<String> {
    let fixed = [
        "", "List", "Create", "Update", "Id", "Snapshot", "Previous", "Event", "Record", "Page",
        "Fields", "Expand",
    ];
    let params = collection.actions.iter().map(|action| format!("{}Params", pascal(&action.name)));
    fixed.into_iter().map(str::to_owned).chain(params).map(|end| format!("{base}{end}")).collect()
}

/// `payment_intent`, `payment-intent` and `payment.intent` become `PaymentIntent`.
pub fn pascal(name: &str) -> String {
    let words = name.split(['_', '-', '.']).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let mut chars = word.chars();
            chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect::<String>()
        })
        .collect()
}
