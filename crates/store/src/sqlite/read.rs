//! Point reads: one record, a few by id, a deleted one, a key, children. Each names its scope. Runs
//! on any connection, the writer's inside its transaction included.

use super::layout::{self, Source, Table};
use super::shared::Shared;
use super::views;
use crate::rendering::DeliveryRow;
use crate::{Child, Error};
use model::record::{self, Scalar};
use model::{Collection, CollectionIx, Record, Scope, Timestamp};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

const TOMBSTONE: &str = "SELECT 1 FROM tombstones WHERE id = ?1 AND collection = ?2 AND scope = ?3";

/// A record's key in its table: text, or the row number in a feed.
pub enum Key<'a> {
    Text(&'a str),
    Number(i64),
}

impl ToSql for Key<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Key::Text(text) => ValueRef::Text(text.as_bytes()),
            Key::Number(number) => ValueRef::Integer(*number),
        }))
    }
}

/// The key of an id; `None` when no record of this table can have it.
pub fn key<'a>(table: &Table, id: &'a str) -> Option<Key<'a>> {
    if !table.feed {
        return Some(Key::Text(id));
    }
    // Only the canonical form: `7` is an id, `+7` and `007` are not.
    let canonical = !id.starts_with(['+', '0']);
    id.parse().ok().filter(|number| canonical && *number > 0).map(Key::Number)
}

pub fn record(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    collection: CollectionIx,
    parent: Option<&str>,
    id: &str,
) -> Result<Option<Record>, rusqlite::Error> {
    let table = &shared.tables[collection];
    let Some(key) = key(table, id) else { return Ok(None) };
    let mut statement = connection.prepare_cached(&table.by_id)?;
    let mut rows = match (table.child, parent) {
        (true, None) => return Ok(None),
        (true, Some(parent)) => statement.query(params![key, scope.0, parent])?,
        (false, _) => statement.query(params![key, scope.0])?,
    };
    match rows.next()? {
        Some(row) => Ok(Some(record_of(row, table, &shared.schema.collections[collection])?)),
        None => Ok(None),
    }
}

/// One delivery, with what a retry must know of it.
pub fn delivery(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    collection: CollectionIx,
    id: &str,
) -> Result<Option<DeliveryRow>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&shared.tables[collection].by_id)?;
    statement.query_row(params![id, scope.0], views::delivery_of).optional()
}

pub fn exists(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    collection: CollectionIx,
    id: &str,
) -> Result<bool, rusqlite::Error> {
    let table = &shared.tables[collection];
    let Some(key) = key(table, id) else { return Ok(false) };
    connection.prepare_cached(&table.exists)?.exists(params![key, scope.0])
}

pub fn was_deleted(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    collection: CollectionIx,
    id: &str,
) -> Result<bool, rusqlite::Error> {
    let name = &shared.schema.collections[collection].name;
    connection.prepare_cached(TOMBSTONE)?.exists(params![id, name, scope.0])
}

/// One query, however many ids. None if the records have more than `max_bytes`.
pub fn by_ids(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    ix: CollectionIx,
    ids: &[String],
    max_bytes: usize,
) -> Result<Option<Vec<Record>>, Error> {
    let table = &shared.tables[ix];
    let collection = &shared.schema.collections[ix];
    let keys = ids.iter().filter_map(|id| key(table, id)).map(|key| match key {
        Key::Text(text) => Value::from(text),
        Key::Number(number) => Value::from(number),
    });
    let keys = Value::Array(keys.collect()).to_string();
    let mut statement = connection.prepare_cached(&table.by_ids)?;
    let mut rows = statement.query(params![keys, scope.0])?;
    let (mut found, mut bytes) = (Vec::with_capacity(ids.len()), 0);
    while let Some(row) = rows.next()? {
        let record = record_of(row, table, collection)?;
        bytes += FromRow::bytes(&record);
        if bytes > max_bytes {
            return Ok(None);
        }
        found.push(record);
    }
    Ok(Some(found))
}

/// One query, however many parents. `TooLarge` if the records have more than `max_bytes`.
pub fn children(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    ix: CollectionIx,
    parents: &[String],
    (limit, max_bytes): (u32, usize),
) -> Result<Vec<Child>, Error> {
    let table = &shared.tables[ix];
    let collection = &shared.schema.collections[ix];
    let parents = Value::from(parents.to_vec()).to_string();
    let mut statement = connection.prepare_cached(&table.newest_of_parents)?;
    let mut rows = statement.query(params![parents, scope.0, i64::from(limit) + 1])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let record = record_of(row, table, collection)?;
        bytes += FromRow::bytes(&record);
        if bytes > max_bytes {
            return Err(Error::TooLarge);
        }
        found.push(Child { parent: row.get(table.width)?, record });
    }
    Ok(found)
}

pub fn key_by_digest(
    connection: &Connection,
    shared: &Shared,
    digest: &str,
) -> Result<Option<(Scope, Record)>, Error> {
    key_by(connection, shared, &layout::column_name(layout::KEY_DIGEST), digest)
}

pub fn key_by_id(
    connection: &Connection,
    shared: &Shared,
    id: &str,
) -> Result<Option<(Scope, Record)>, Error> {
    key_by(connection, shared, "id", id)
}

/// A key by the value of a column that has an index without the scope.
fn key_by(
    connection: &Connection,
    shared: &Shared,
    column: &str,
    value: &str,
) -> Result<Option<(Scope, Record)>, Error> {
    let Some(ix) = shared.schema.find(layout::KEYS) else { return Ok(None) };
    let (table, collection) = (&shared.tables[ix], &shared.schema.collections[ix]);
    let sql =
        format!("SELECT {}, t.scope FROM {} t WHERE t.{column} = ?1", layout::RECORD, table.name);
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement
        .query_row([value], |row| Ok((Scope(row.get(7)?), record_of(row, table, collection)?)))
        .optional()?;
    Ok(found)
}

/// What is read of each row: whole records, or only their public text. Column 0 is the row number.
pub trait FromRow: Sized {
    /// The columns that are needed for it, and how many these are.
    fn columns(table: &Table) -> (&str, usize);

    fn read(row: &Row<'_>, table: &Table, collection: &Collection)
    -> Result<Self, rusqlite::Error>;

    fn of(record: Record) -> Self;

    /// The size of the texts in memory.
    fn bytes(&self) -> usize;
}

impl FromRow for Record {
    fn columns(table: &Table) -> (&str, usize) {
        (&table.select, table.width)
    }

    fn read(
        row: &Row<'_>,
        table: &Table,
        collection: &Collection,
    ) -> Result<Record, rusqlite::Error> {
        record_of(row, table, collection)
    }

    fn of(record: Record) -> Record {
        record
    }

    fn bytes(&self) -> usize {
        self.body.len() + self.hidden.as_ref().map_or(0, String::len)
    }
}

impl FromRow for String {
    fn columns(table: &Table) -> (&str, usize) {
        match table.source {
            Source::Rows => ("t.n, t.shape, t.body", 3),
            _ => (&table.select, table.width),
        }
    }

    fn read(
        row: &Row<'_>,
        table: &Table,
        collection: &Collection,
    ) -> Result<String, rusqlite::Error> {
        match table.source {
            Source::Rows => Ok(present(row.get(2)?, row.get(1)?, table, collection)),
            _ => Ok(views::record_of(row, table)?.body),
        }
    }

    fn of(record: Record) -> String {
        record.body
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A record from a row of the table's `select`.
pub fn record_of(
    row: &Row<'_>,
    table: &Table,
    collection: &Collection,
) -> Result<Record, rusqlite::Error> {
    if table.source != Source::Rows {
        return views::record_of(row, table);
    }
    Ok(Record {
        number: row.get(0)?,
        id: row.get(1)?,
        version: row.get(2)?,
        updated: Timestamp(row.get(3)?),
        body: present(row.get(5)?, row.get(4)?, table, collection),
        hidden: match table.hides {
            true => row.get(6)?,
            false => None,
        },
    })
}

/// A body in the present shape: one written under an older shape is changed here, when it is read,
/// so that a schema change costs nothing at start.
fn present(body: String, shape: i64, table: &Table, collection: &Collection) -> String {
    if shape == table.shape {
        return body;
    }
    let mut fields = record::parse_object(&body);
    collection.complete(&mut fields);
    fields.insert("object".to_owned(), collection.object.as_str().into());
    record::encode(collection, &fields)
}

/// A scalar as the database binds it.
pub struct Bound<'a>(pub &'a Scalar);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Scalar::Null => ValueRef::Null,
            Scalar::Integer(number) => ValueRef::Integer(*number),
            Scalar::Number(number) => ValueRef::Real(*number),
            Scalar::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// A scalar as the database returned it.
pub fn scalar_of(value: ValueRef<'_>) -> Scalar {
    match value {
        ValueRef::Integer(number) => Scalar::Integer(number),
        ValueRef::Real(number) => Scalar::Number(number),
        ValueRef::Text(text) => Scalar::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Null | ValueRef::Blob(_) => Scalar::Null,
    }
}
