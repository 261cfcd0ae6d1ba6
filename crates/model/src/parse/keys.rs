//! Every key the schema file knows, table by table. The reader refuses all others; a test compares
//! the published JSON Schema with these lists. Does not know the meaning of the keys.

pub(super) const FILE: &[&str] =
    &["service", "events", "webhooks", "live", "collections", "versions", "mounts", "origins"];

/// `[events]`: the log.
pub(super) const LOG: &[&str] = &["retention", "max_backlog", "types"];

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
    "deprecated",
    "sunset",
    "link",
];

pub(super) const FEED: &[&str] = &["live_name", "author"];

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
    "on_delete",
    "write_only",
    "read_only",
    "description",
    "deprecated",
    "sunset",
    "link",
];

/// A parameter of an action: a field that is read once and not stored.
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
pub(super) const STATE_FIELD: &[&str] =
    &["type", "description", "sort", "filter", "deprecated", "sunset", "link"];

pub(super) const STATES: &[&str] = &["field", "initial", "names"];

pub(super) const ACTION: &[&str] =
    &["description", "from", "to", "event", "params", "rules", "set", "handler"];

pub(super) const HANDLER: &[&str] = &["url", "timeout", "secret", "headers"];

pub(super) const RULE: &[&str] =
    &["when", "status", "type", "code", "message", "param", "extra", "set", "to", "event"];

pub(super) const TIMED: &[&str] = &["from", "to", "after", "event", "set"];

pub(super) const VERSION: &[&str] =
    &["date", "description", "deprecated", "sunset", "link", "changes"];

pub(super) const MOUNT: &[&str] = &["path", "version"];

/// The operations of a change; each change has exactly one of them.
pub(super) const CHANGE_OPERATIONS: &[&str] = &[
    "rename",
    "move",
    "convert",
    "enum_map",
    "default",
    "limits",
    "optional",
    "required",
    "removed",
    "collection_added",
    "collection_removed",
    "code",
    "breaks",
];

pub(super) const CHANGE: &[&str] = &[
    "collection",
    "action",
    "description",
    "rename",
    "move",
    "convert",
    "enum_map",
    "default",
    "limits",
    "optional",
    "required",
    "removed",
    "collection_added",
    "collection_removed",
    "code",
    "breaks",
];

/// The keys of an entry with `breaks`.
pub(super) const BREAK: &[&str] = &["breaks", "description"];

pub(super) const RENAME: &[&str] = &["from", "to", "beside"];
pub(super) const MOVE: &[&str] = &["from", "to", "existing"];
pub(super) const CONVERT: &[&str] = &["field", "from", "up", "down", "lossy"];
pub(super) const ENUM_MAP: &[&str] = &["field", "values", "down"];
pub(super) const CHANGED_DEFAULT: &[&str] = &["field", "was"];
pub(super) const LIMITS: &[&str] = &["field", "was"];
pub(super) const WERE: &[&str] = &["min", "max", "min_length", "max_length", "pattern"];
pub(super) const FILLED: &[&str] = &["field", "fill"];
pub(super) const REMOVED: &[&str] = &["field", "value"];
pub(super) const CODE: &[&str] = &["from", "to"];

/// A field as it was before a change.
pub(super) const OLD_FIELD: &[&str] = &[
    "name",
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
    "filter",
    "sort",
    "description",
];

pub(super) const KINDS: &[&str] =
    &["string", "integer", "number", "boolean", "timestamp", "date", "object", "array"];

pub(super) const OPERATIONS: &[&str] = &["list", "get", "create", "replace", "update", "delete"];
