//! Every key the schema file knows, table by table. The reader refuses all others; a test holds the
//! published JSON Schema to the same lists. Knows nothing of what the keys mean.

pub(super) const FILE: &[&str] = &["service", "events", "webhooks", "live", "collections"];

/// `[events]`: the log.
pub(super) const LOG: &[&str] = &["retention", "types"];

pub(super) const PUBLISHED: &[&str] = &["description"];

pub(super) const WEBHOOKS: &[&str] = &["development"];

pub(super) const LIVE: &[&str] = &[
    "mount",
    "socket",
    "poll_timeout",
    "origins",
    "max_connections",
    "max_connections_per_account",
];

pub(super) const SERVICE: &[&str] = &[
    "name",
    "description",
    "version",
    "mount",
    "errors",
    "max_page",
    "max_body",
    "rate_limit",
    "early_hints",
];

pub(super) const RATE_LIMIT: &[&str] = &["requests", "window"];

pub(super) const COLLECTION: &[&str] = &[
    "object",
    "id_prefix",
    "description",
    "parent",
    "require_if_match",
    "require_idempotency_key",
    "cache_control",
    "early_hints",
    "operations",
    "feed",
    "events",
    "indexes",
    "fields",
    "states",
    "actions",
    "timed",
];

pub(super) const FEED: &[&str] = &["live_name"];

pub(super) const EVENTS: &[&str] = &["created", "updated", "deleted"];

pub(super) const FIELD: &[&str] = &[
    "type",
    "items",
    "required",
    "default",
    "min",
    "max",
    "min_length",
    "max_length",
    "pattern",
    "enum",
    "unique",
    "filter",
    "sort",
    "search",
    "ref",
    "write_only",
    "read_only",
    "description",
];

/// A parameter of an action: a field that is read once and not kept.
pub(super) const PARAM: &[&str] = &[
    "type",
    "items",
    "required",
    "default",
    "min",
    "max",
    "min_length",
    "max_length",
    "pattern",
    "enum",
    "description",
];

/// A field that holds the state says only how it is shown; the rest comes from `states`.
pub(super) const STATE_FIELD: &[&str] = &["type", "description", "sort", "filter"];

pub(super) const STATES: &[&str] = &["field", "initial", "names"];

pub(super) const ACTION: &[&str] =
    &["description", "from", "to", "event", "params", "rules", "set", "handler"];

pub(super) const HANDLER: &[&str] = &["url", "timeout"];

pub(super) const RULE: &[&str] =
    &["when", "status", "type", "code", "message", "param", "extra", "set", "to", "event"];

pub(super) const TIMED: &[&str] = &["from", "to", "after", "event", "set"];

pub(super) const KINDS: &[&str] =
    &["string", "integer", "number", "boolean", "timestamp", "date", "object", "array"];

pub(super) const OPERATIONS: &[&str] = &["list", "get", "create", "replace", "update", "delete"];
