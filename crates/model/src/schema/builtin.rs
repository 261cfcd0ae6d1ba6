//! Collections the service keeps for itself, in the same machinery as everyone else's: accounts and
//! their keys. Appended to every schema; their names are reserved.

use super::{Collection, EventNames, Field, Kind, Operations};

/// Names a schema file may not use: these collections, and the built-in routes beside them.
pub const RESERVED: &[&str] = &[
    "accounts",
    "keys",
    "account",
    "events",
    "webhook-endpoints",
    "deliveries",
    "replays",
    "channel-tokens",
    "presence",
    "version-usage",
];

pub fn collections() -> Vec<Collection> {
    vec![accounts(), keys()]
}

/// Lives in `Scope::SYSTEM`; the row number of an account is the account number of its scopes.
fn accounts() -> Collection {
    internal("accounts", "account", "acct", vec![Field::new("name", Kind::String)])
}

/// Lives in the scope the key opens. The key itself is never kept, only its digest.
fn keys() -> Collection {
    let mut digest = Field::new("digest", Kind::String);
    digest.unique = true;
    digest.required = true;
    let mut kind = Field::new("kind", Kind::String);
    kind.choices = vec!["secret".into(), "restricted".into()];
    internal(
        "keys",
        "key",
        "key",
        vec![
            digest,
            Field::new("name", Kind::String),
            kind,
            // The account's id, so that a key alone tells whose it is.
            Field::new("account", Kind::String),
            // First and last characters, for people to recognise a key by.
            Field::new("hint", Kind::String),
            Field::new("scopes", Kind::Array(Box::new(Kind::String))),
            Field::new("rate_limit", Kind::Integer),
            Field::new("expires_at", Kind::Timestamp),
            Field::new("revoked_at", Kind::Timestamp),
        ],
    )
}

fn internal(name: &str, object: &str, id_prefix: &str, fields: Vec<Field>) -> Collection {
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
        internal: true,
    }
}
