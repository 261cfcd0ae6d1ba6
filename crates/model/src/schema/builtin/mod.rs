//! Collections of the service itself, in the same machinery as all others: accounts and keys,
//! events, webhook endpoints and the results of their deliveries. Appended to every schema; their
//! names are reserved. `decide::own` has their behaviour beyond their fields.

mod webhooks;

use super::{Collection, CollectionIx, EventNames, Field, Kind, Operations};
use serde_json::Value;

/// Which of the service's own collections one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Account,
    Key,
    /// The log itself.
    Event,
    Endpoint,
    Delivery,
    Attempt,
    Replay,
    Erasure,
}

impl Builtin {
    /// Stored outside of the records, by the store itself; reads use the same machinery.
    pub fn is_view(self) -> bool {
        matches!(self, Builtin::Event | Builtin::Delivery | Builtin::Attempt)
    }
}

/// Names that a schema file may not use: these collections, and the other built-in routes.
pub const RESERVED: &[&str] = &[
    "accounts",
    "keys",
    "account",
    "events",
    "webhook-endpoints",
    "deliveries",
    "attempts",
    "replays",
    "erasures",
    "channel-tokens",
    "presence",
    "version-usage",
    "requests",
    "stats",
    "admin",
];

/// The collections that follow `first` declared ones.
pub fn collections(first: CollectionIx) -> Vec<Collection> {
    let endpoints = first + 3;
    let deliveries = first + 4;
    vec![
        accounts(),
        keys(),
        webhooks::events(),
        webhooks::endpoints(),
        webhooks::deliveries(),
        webhooks::attempts(deliveries),
        webhooks::replays(endpoints),
        webhooks::erasures(),
    ]
}

/// Lives in `Scope::SYSTEM`; the row number of an account is the account number of its scopes.
fn accounts() -> Collection {
    let fields = vec![
        Field::new("name", Kind::String),
        // The version its requests are in when they name none; null before its first call.
        Field::new("api_version", Kind::String),
    ];
    internal(Builtin::Account, "accounts", "account", "acct", fields)
}

/// Belongs to the scope that the key opens. Only the digest of the key is stored.
fn keys() -> Collection {
    let mut digest = Field::new("digest", Kind::String);
    digest.unique = true;
    digest.required = true;
    let mut kind = Field::new("kind", Kind::String);
    kind.choices = vec!["secret".into(), "restricted".into()];
    internal(
        Builtin::Key,
        "keys",
        "key",
        "key",
        vec![
            digest,
            Field::new("name", Kind::String),
            kind,
            // The account's id, so that a key alone identifies its account.
            Field::new("account", Kind::String),
            // First and last characters, for people to recognise a key by.
            Field::new("hint", Kind::String),
            Field::new("scopes", Kind::Array(Box::new(Kind::String))),
            Field::new("rate_limit", Kind::Integer),
            // Id of the key whose quota its requests use; null: its own.
            Field::new("quota_of", Kind::String),
            Field::new("expires_at", Kind::Timestamp),
            Field::new("revoked_at", Kind::Timestamp),
        ],
    )
}

fn internal(
    builtin: Builtin,
    name: &str,
    object: &str,
    id_prefix: &str,
    fields: Vec<Field>,
) -> Collection {
    let mut collection = own(builtin, name, object, id_prefix, fields);
    collection.internal = true;
    collection
}

/// A collection of the service with everything else off.
fn own(
    builtin: Builtin,
    name: &str,
    object: &str,
    id_prefix: &str,
    fields: Vec<Field>,
) -> Collection {
    Collection {
        name: name.into(),
        object: object.into(),
        id_prefix: id_prefix.into(),
        description: None,
        parent: None,
        fields,
        states: None,
        actions: Vec::new(),
        timed: Vec::new(),
        events: EventNames {
            created: format!("{object}.created"),
            updated: format!("{object}.updated"),
            deleted: format!("{object}.deleted"),
        },
        feed: None,
        indexes: Vec::new(),
        operations: Operations::ALL,
        require_if_match: false,
        require_idempotency_key: false,
        cache_control: "no-store".into(),
        early_hints: Vec::new(),
        internal: false,
        removed: false,
        deprecated: None,
        builtin: Some(builtin),
    }
}

impl Field {
    fn about(mut self, description: &str) -> Field {
        self.description = Some(description.to_owned());
        self
    }

    fn required(mut self) -> Field {
        self.required = true;
        self
    }

    fn assigned(mut self) -> Field {
        self.read_only = true;
        self
    }

    fn filtered(mut self) -> Field {
        self.filter = true;
        self
    }

    fn default(mut self, default: impl Into<Value>) -> Field {
        self.default = Some(default.into());
        self
    }

    fn within(mut self, min: i32, max: i32) -> Field {
        (self.min, self.max) = (Some(min.into()), Some(max.into()));
        self
    }

    /// Characters, or items.
    fn sized(mut self, min: usize, max: usize) -> Field {
        (self.min_length, self.max_length) = (Some(min), Some(max));
        self
    }

    fn among(mut self, choices: &[&str]) -> Field {
        self.choices = choices.iter().map(|choice| (*choice).to_owned()).collect();
        self
    }

    /// A filter that is no member of the record.
    fn filter_only(mut self) -> Field {
        (self.filter, self.filter_only) = (true, true);
        self
    }
}
