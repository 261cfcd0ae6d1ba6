//! Names and fixed SQL of the tables, one `Table` per collection, worked out once when the store
//! opens. Identifiers come from the schema and are quoted; values are always bound. Knows no
//! connection.

use super::views;
use crate::open_replays;
use model::evolve::Stored;
use model::schema::{Builtin, Field, Kind};
use model::version::Versions;
use model::{Collection, CollectionIx, Schema};
use std::sync::Arc;

/// What every statement that reads records selects, in the order `read::record_of` expects.
pub const RECORD: &str = "t.n, t.id, t.version, t.updated, t.shape, t.body, t.hidden";

/// Tables that do not depend on the schema. `n` and `seq` are row numbers, so every index carries
/// them as its last column at no cost.
pub const BASE: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE log (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, type TEXT NOT NULL,
  created INTEGER NOT NULL, collection TEXT NOT NULL, record TEXT NOT NULL,
  api_version TEXT NOT NULL, object TEXT NOT NULL, previous TEXT, request TEXT,
  idempotency_key TEXT, hidden TEXT) STRICT;
CREATE UNIQUE INDEX log_id ON log (id);
CREATE INDEX log_scope ON log (scope);
CREATE TABLE tombstones (
  id TEXT NOT NULL, collection TEXT NOT NULL, scope INTEGER NOT NULL, seq INTEGER NOT NULL,
  n INTEGER NOT NULL, PRIMARY KEY (id, collection)) STRICT, WITHOUT ROWID;
CREATE TABLE remembered (
  n INTEGER PRIMARY KEY, scope INTEGER NOT NULL, digest BLOB NOT NULL,
  fingerprint BLOB NOT NULL, created INTEGER NOT NULL, kind INTEGER NOT NULL,
  seq INTEGER NOT NULL, number INTEGER NOT NULL, updated INTEGER NOT NULL,
  record TEXT, text TEXT, request TEXT NOT NULL, api_version TEXT, hidden TEXT) STRICT;
CREATE UNIQUE INDEX remembered_key ON remembered (scope, digest);
CREATE TABLE timers (
  n INTEGER PRIMARY KEY, due INTEGER NOT NULL, scope INTEGER NOT NULL,
  collection TEXT NOT NULL, parent TEXT, record TEXT NOT NULL, transition TEXT NOT NULL) STRICT;
CREATE INDEX timers_due ON timers (due);
CREATE INDEX timers_record ON timers (record);
INSERT INTO meta VALUES ('cursor_key', randomblob(32)), ('search_position', 0);
";

/// The internal collection of API keys, and the field they are found by.
pub const KEYS: &str = "keys";
pub const KEY_DIGEST: &str = "digest";

/// The index of rows that changed since they were created, and the condition that makes the
/// database use it.
const MOVED: &str = "moved";
const HAS_CHANGED: &str = "version <> n";

/// Where the rows of a collection come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A table of its own.
    Rows,
    Events,
    Deliveries,
    Attempts,
}

/// One collection on disk.
pub struct Table {
    pub source: Source,
    /// Of events: each is shown in the newest version; without this, as it was written.
    pub versions: Option<Arc<Versions>>,
    /// What is selected of a row to read it whole, and how many columns these are.
    pub select: String,
    pub width: usize,
    /// Quoted.
    pub name: String,
    pub shape: i64,
    pub rewrites: i64,
    pub feed: bool,
    pub child: bool,
    /// Whether records have fields that are never served.
    pub hides: bool,
    /// The typed columns: place of the field in the collection, quoted column name.
    pub columns: Vec<(usize, String)>,
    /// Reads only rows that changed since they were made, by their version.
    pub from_changed: String,
    pub search: Option<SearchTable>,
    pub by_id: String,
    /// Several by id, whatever their parents: an id is unique in its collection. The ids are bound
    /// as one JSON array.
    pub by_ids: String,
    pub exists: String,
    pub insert: String,
    pub update: String,
    /// Update of a record whose typed columns stay as they are: spares their indexes.
    pub update_body: String,
    pub delete: String,
    /// Children of one parent; only useful for a child collection.
    pub of_parent: String,
    /// The newest children of each parent of a JSON array of them.
    pub newest_of_parents: String,
}

/// The full-text index of a collection: a follower of the log, keyed by row number.
pub struct SearchTable {
    /// Quoted.
    pub name: String,
    /// In column order.
    pub fields: Vec<SearchField>,
    pub create: String,
    pub insert: String,
    pub delete: String,
}

pub struct SearchField {
    pub name: String,
    /// Quoted.
    pub column: String,
    /// Whether only versions before its removal look into it.
    pub removed: bool,
}

/// An index that shall exist.
pub struct WantedIndex {
    /// Unquoted: compared with what the database lists.
    pub name: String,
    pub create: String,
}

pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub fn table_name(collection: &str) -> String {
    format!("r_{collection}")
}

pub fn search_name(collection: &str) -> String {
    format!("s_{collection}")
}

pub fn column_name(field: &str) -> String {
    quote(&format!("f_{field}"))
}

pub fn column_type(kind: &Kind) -> &'static str {
    match kind {
        Kind::Integer | Kind::Boolean | Kind::Timestamp => "INTEGER",
        Kind::Number => "REAL",
        Kind::String | Kind::Date | Kind::Object | Kind::Array(_) => "TEXT",
    }
}

/// The tables of a schema, in its order.
pub fn tables(schema: &Schema, stored: &Stored) -> Vec<Table> {
    schema.collections.iter().map(|collection| table(schema, collection, stored)).collect()
}

fn table(schema: &Schema, collection: &Collection, stored: &Stored) -> Table {
    let (source, select, width) = source(schema, collection);
    let name = quote(&table_name(&collection.name));
    let (child, feed) = (collection.parent.is_some(), collection.feed.is_some());
    let typed = collection.fields.iter().enumerate().filter(|(_, field)| field.has_column());
    let columns: Vec<(usize, String)> =
        typed.map(|(place, field)| (place, column_name(&field.name))).collect();
    let key = if feed { "t.n" } else { "t.id" };
    let of_parent = if child { " AND t.parent = ?3" } else { "" };
    let typed: String = columns.iter().map(|(_, column)| format!(", {column}")).collect();
    let marks = |from: usize| -> String {
        (0..columns.len()).map(|place| format!(", ?{}", from + place)).collect()
    };
    let sets: String = columns
        .iter()
        .enumerate()
        .map(|(place, (_, column))| format!(", {column} = ?{}", 7 + place))
        .collect();
    Table {
        source,
        versions: None,
        width,
        shape: stored.shape(&collection.name),
        rewrites: stored.rewrites(&collection.name),
        from_changed: format!(
            "FROM {name} t INDEXED BY {} WHERE {HAS_CHANGED} AND t.scope = ?",
            quote(&format!("i_{}+{MOVED}", collection.name))
        ),
        feed,
        child,
        hides: collection.fields.iter().any(|field| field.write_only || field.removed),
        search: search_table(collection),
        by_id: format!(
            "SELECT {select} FROM {name} t WHERE {key} = ?1 AND t.scope = ?2{of_parent}"
        ),
        // A cross join fixes the order of the loops: each id is looked up, the table never scanned.
        by_ids: format!(
            "SELECT {select} FROM json_each(?1) p CROSS JOIN {name} t ON {key} = p.value \
             WHERE t.scope = ?2"
        ),
        exists: format!("SELECT 1 FROM {name} t WHERE {key} = ?1 AND t.scope = ?2"),
        insert: format!(
            "INSERT INTO {name} (n, id, scope, parent, version, created, updated, shape, body, \
             hidden{typed}) VALUES (?6, ?7, ?8, ?9, ?1, ?2, ?2, ?3, ?4, ?5{})",
            marks(10)
        ),
        update: format!(
            "UPDATE {name} SET version = ?1, updated = ?2, shape = ?3, body = ?4, hidden = \
             ?5{sets} WHERE n = ?6"
        ),
        update_body: format!(
            "UPDATE {name} SET version = ?1, updated = ?2, shape = ?3, body = ?4, hidden = ?5 \
             WHERE n = ?6"
        ),
        delete: format!("DELETE FROM {name} WHERE n = ?1"),
        of_parent: format!(
            "SELECT {select}, t.parent FROM {name} t WHERE t.parent = ?1 AND t.scope = ?2 LIMIT ?3"
        ),
        // A window per parent would sort every child; a short ordered read per parent does not.
        newest_of_parents: format!(
            "SELECT {select}, t.parent FROM json_each(?1) p CROSS JOIN {name} t ON t.n IN (\
             SELECT c.n FROM {name} c WHERE c.parent = p.value AND c.scope = ?2 \
             ORDER BY c.created DESC, c.n DESC LIMIT ?3) ORDER BY p.key, t.created DESC, t.n DESC"
        ),
        columns,
        select,
        name,
    }
}

/// Where its rows come from, what is selected of them, and how many columns these are.
fn source(schema: &Schema, collection: &Collection) -> (Source, String, usize) {
    match collection.builtin {
        Some(Builtin::Event) => (Source::Events, views::events_select(schema), 15),
        Some(Builtin::Delivery) => (Source::Deliveries, views::deliveries_select(schema), 15),
        Some(Builtin::Attempt) => (Source::Attempts, RECORD.to_owned(), 7),
        _ => (Source::Rows, RECORD.to_owned(), 7),
    }
}

fn search_table(collection: &Collection) -> Option<SearchTable> {
    let field = |field: &Field| SearchField {
        name: field.name.clone(),
        column: column_name(&field.name),
        removed: field.removed,
    };
    let fields: Vec<SearchField> = searched(collection).map(field).collect();
    if fields.is_empty() {
        return None;
    }
    let name = quote(&search_name(&collection.name));
    let columns: Vec<&str> = fields.iter().map(|field| field.column.as_str()).collect();
    let marks: String = (0..fields.len()).map(|place| format!(", ?{}", 3 + place)).collect();
    Some(SearchTable {
        // `scope_` holds a word made of the scope, so that a query can demand it like any word.
        create: format!(
            "CREATE VIRTUAL TABLE {name} USING fts5(scope_, {}, content='', contentless_delete=1, \
             tokenize='unicode61 remove_diacritics 2')",
            columns.join(", ")
        ),
        insert: format!(
            "INSERT INTO {name} (rowid, scope_, {}) VALUES (?1, ?2{marks})",
            columns.join(", ")
        ),
        delete: format!("DELETE FROM {name} WHERE rowid = ?1"),
        fields,
        name,
    })
}

/// Write-only fields are never served, so a search must not reveal them either. Removed fields are
/// searched only by versions that have them.
fn searched(collection: &Collection) -> impl Iterator<Item = &Field> {
    collection.fields.iter().filter(|field| field.search && !field.write_only)
}

/// The table of a collection as it is first made.
pub fn create_table(collection: &Collection) -> String {
    let name = quote(&table_name(&collection.name));
    let typed: String = collection
        .columns()
        .map(|field| format!(", {} {}", column_name(&field.name), column_type(&field.kind)))
        .collect();
    format!(
        "CREATE TABLE {name} (n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, \
         parent TEXT, version INTEGER NOT NULL, created INTEGER NOT NULL, \
         updated INTEGER NOT NULL, shape INTEGER NOT NULL, body TEXT NOT NULL, \
         hidden TEXT{typed}) STRICT"
    )
}

/// Every index the collection shall have.
pub fn indexes(schema: &Schema, ix: CollectionIx) -> Vec<WantedIndex> {
    let collection = &schema.collections[ix];
    let table = table_name(&collection.name);
    let owner = if collection.parent.is_some() { "parent" } else { "scope" };
    let mut wanted = Vec::new();
    if collection.is_view() {
        return wanted;
    }
    let mut add = |kind: &str, suffix: &str, columns: String, tail: String| {
        let name = format!("{kind}_{}+{suffix}", collection.name);
        let unique = if kind == "u" { "UNIQUE " } else { "" };
        wanted.push(WantedIndex {
            create: format!(
                "CREATE {unique}INDEX {} ON {} ({columns}){tail}",
                quote(&name),
                quote(&table)
            ),
            name,
        });
    };
    if collection.feed.is_none() {
        add("u", "id", "id".into(), String::new());
    }
    add("i", "created", format!("{owner}, created"), String::new());
    add("i", "updated", format!("{owner}, updated"), String::new());
    // Rows that changed after they were made: creations pay nothing for it.
    add("i", MOVED, "scope, version".into(), format!(" WHERE {HAS_CHANGED}"));
    let parent_field = schema.parent_field(ix);
    for field in collection.columns() {
        let column = column_name(&field.name);
        let suffix = format!("f_{}", field.name);
        if field.unique {
            let tail = format!(" WHERE {column} IS NOT NULL");
            add("u", &suffix, format!("scope, {column}"), tail);
        }
        // A child's parent field says what `parent` says; a unique field has its index already,
        // which lacks the nulls that a sort must show.
        if parent_field != Some(&field.name) && (!field.unique || field.sort) {
            add("i", &suffix, format!("{owner}, {column}"), String::new());
        }
        // Who refers to a record is asked for whatever their parents; elsewhere the owner is the
        // scope already.
        let is_reference = field.reference.is_some() && parent_field != Some(&field.name);
        if is_reference && collection.parent.is_some() && !field.unique {
            let tail = format!(" WHERE {column} IS NOT NULL");
            add("i", &format!("r_{}", field.name), format!("scope, {column}"), tail);
        }
    }
    if collection.internal && collection.name == KEYS {
        // A key is found before its scope is known.
        add("i", "digest", column_name(KEY_DIGEST), String::new());
        // Those that count towards the limit, however many were revoked.
        add("i", "unrevoked", "scope".into(), format!(" WHERE {}", is_null("revoked_at")));
    }
    if collection.builtin == Some(Builtin::Replay) {
        add("i", open_replays::INDEX, "n".into(), format!(" WHERE {}", open_replays::IS_OPEN));
    }
    for index in &collection.indexes {
        let columns: Vec<String> = index.fields.iter().map(|field| physical(field)).collect();
        let suffix = format!("{}*", index.fields.join("*"));
        add("i", &suffix, format!("{owner}, {}", columns.join(", ")), String::new());
    }
    wanted
}

/// Whether a field that has no column is null.
pub fn is_null(field: &str) -> String {
    format!("json_extract(body, '$.{field}') IS NULL")
}

/// Column that holds a field, declared or assigned.
pub fn physical(field: &str) -> String {
    match field {
        "id" => "id".to_owned(),
        "created_at" => "created".to_owned(),
        "updated_at" => "updated".to_owned(),
        declared => column_name(declared),
    }
}
