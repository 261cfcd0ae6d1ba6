//! Which tables are moved, and which columns they have. Names are those that both engines have in
//! common; each engine quotes them in its own way. What is not listed here is made new by the
//! target: indexes, search indexes, leases, presence, counts of settlements.

use super::Meta;
use crate::Error;
use ColumnKind::{Bytes, Integer, Text};
use model::evolve::Stored;
use model::parse;
use model::schema::Kind;
use model::version::Versions;
use model::{CollectionIx, Schema};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a column holds, in both engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Integer,
    Number,
    Text,
    Bytes,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: ColumnKind,
    /// The typed column of a declared field: the name is that of the field.
    pub is_field: bool,
}

/// A table to be moved.
#[derive(Clone, Debug)]
pub struct Table {
    /// Of a collection: its name, not that of its table.
    pub name: String,
    pub collection: Option<CollectionIx>,
    pub columns: Vec<Column>,
    /// The first columns are the primary key: so many of them.
    pub key: usize,
}

/// The tables with fixed columns: name, columns of the key, other columns. The log comes first,
/// because an interrupted move is recognised by its newest event.
type Fixed = (&'static str, &'static [(&'static str, ColumnKind)], usize);

const FIXED: [Fixed; 10] = [
    (
        "log",
        &[
            ("seq", Integer),
            ("id", Text),
            ("scope", Integer),
            ("type", Text),
            ("created", Integer),
            ("collection", Text),
            ("record", Text),
            ("api_version", Text),
            ("object", Text),
            ("previous", Text),
            ("request", Text),
            ("idempotency_key", Text),
            ("hidden", Text),
        ],
        1,
    ),
    (
        "tombstones",
        &[("id", Text), ("collection", Text), ("scope", Integer), ("seq", Integer), ("n", Integer)],
        2,
    ),
    (
        "remembered",
        &[
            ("n", Integer),
            ("scope", Integer),
            ("digest", Bytes),
            ("fingerprint", Bytes),
            ("created", Integer),
            ("kind", Integer),
            ("seq", Integer),
            ("number", Integer),
            ("updated", Integer),
            ("record", Text),
            ("text", Text),
            ("request", Text),
            ("api_version", Text),
            ("hidden", Text),
        ],
        1,
    ),
    (
        "timers",
        &[
            ("n", Integer),
            ("due", Integer),
            ("scope", Integer),
            ("collection", Text),
            ("parent", Text),
            ("record", Text),
            ("transition", Text),
        ],
        1,
    ),
    (
        "deliveries",
        &[
            ("n", Integer),
            ("id", Text),
            ("scope", Integer),
            ("event", Integer),
            ("endpoint", Integer),
            ("status", Integer),
            ("attempts", Integer),
            ("next", Integer),
            ("manual", Integer),
            ("created", Integer),
            ("updated", Integer),
        ],
        1,
    ),
    ("attempts", &[("delivery", Integer), ("n", Integer), ("created", Integer), ("body", Text)], 2),
    (POSITIONS, &[("endpoint", Integer), ("seq", Integer)], 1),
    (
        "endpoint_states",
        &[
            ("endpoint", Integer),
            ("paused", Integer),
            ("failures", Integer),
            ("first_failure", Integer),
            ("last_failure", Integer),
        ],
        1,
    ),
    (
        "erasing",
        &[
            ("scope", Integer),
            ("record", Text),
            ("upto", Integer),
            ("answers", Integer),
            ("seq", Integer),
            ("delivery", Integer),
            ("answer", Integer),
            ("attempt", Integer),
            ("told", Integer),
        ],
        2,
    ),
    (
        "version_usage",
        &[("account", Text), ("version", Text), ("requests", Integer), ("last", Integer)],
        2,
    ),
];

/// The one table whose rows differ between the engines: several nodes have several heads.
pub const POSITIONS: &str = "positions";

/// The columns of every collection, before those of its fields.
const RECORD: [(&str, ColumnKind); 10] = [
    ("n", Integer),
    ("id", Text),
    ("scope", Integer),
    ("parent", Text),
    ("version", Integer),
    ("created", Integer),
    ("updated", Integer),
    ("shape", Integer),
    ("body", Text),
    ("hidden", Text),
];
/// Places of columns of `RECORD`.
pub const NUMBER: usize = 0;
pub const SCOPE: usize = 2;
pub const BODY: usize = 8;
pub const HIDDEN: usize = 9;

/// What is moved: the schema that is served, and the tables that it has.
pub struct Contents {
    pub versions: Versions,
    pub stored: Stored,
    pub tables: Vec<Table>,
}

impl Contents {
    /// The error says what is wrong with the source.
    pub fn of(meta: &Meta) -> Result<Contents, Error> {
        let unreadable = |what: &str| {
            Error::Refused(vec![format!(
                "the source has no readable {what}: start `restive serve` of this release on it \
                 once, stop it, and run this command again"
            )])
        };
        let stored: Stored =
            serde_json::from_str(&meta.schema).map_err(|_| unreadable("description"))?;
        let schema = parse::parse(&meta.schema_text).map_err(|_| unreadable("schema file"))?;
        let versions = Versions::new(&Arc::new(schema));
        let tables = tables(versions.kept());
        // Views have no rows of their own.
        let kept = &versions.kept().collections;
        let views: BTreeSet<&str> =
            kept.iter().filter(|one| one.is_view()).map(|one| one.name.as_str()).collect();
        let of = |names: &mut dyn Iterator<Item = &'_ str>| -> BTreeSet<String> {
            names.filter(|name| !views.contains(name)).map(str::to_owned).collect()
        };
        let declared = of(&mut kept.iter().map(|one| one.name.as_str()));
        let described = of(&mut stored.collections.iter().map(|one| one.name.as_str()));
        match declared == described {
            true => Ok(Contents { versions, stored, tables }),
            false => Err(unreadable("schema file for all its collections")),
        }
    }
}

fn tables(schema: &Schema) -> Vec<Table> {
    let fixed = FIXED.iter().map(|(name, columns, key)| Table {
        name: (*name).to_owned(),
        collection: None,
        columns: columns.iter().map(column).collect(),
        key: *key,
    });
    let stored = schema.collections.iter().enumerate().filter(|(_, one)| !one.is_view());
    let collections = stored.map(|(ix, collection)| {
        let field = |field: &model::schema::Field| Column {
            name: field.name.clone(),
            kind: kind(&field.kind),
            is_field: true,
        };
        let fields = collection.columns().map(field);
        Table {
            name: collection.name.clone(),
            collection: Some(ix),
            columns: RECORD.iter().map(column).chain(fields).collect(),
            key: 1,
        }
    });
    fixed.chain(collections).collect()
}

fn column((name, kind): &(&str, ColumnKind)) -> Column {
    Column { name: (*name).to_owned(), kind: *kind, is_field: false }
}

fn kind(kind: &Kind) -> ColumnKind {
    match kind {
        Kind::Integer | Kind::Boolean | Kind::Timestamp => ColumnKind::Integer,
        Kind::Number => ColumnKind::Number,
        Kind::String | Kind::Date | Kind::Object | Kind::Array(_) => ColumnKind::Text,
    }
}
