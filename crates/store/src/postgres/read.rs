//! Point reads: one record, a few by id, a deleted one, a key, children. Each names its scope. Runs
//! on any connection, the writer's inside its transaction included.

use super::bounded::{self, End};
use super::connect::{Cells, Client};
use super::layout::{self, Source, Table};
use super::param::{Param, params};
use super::shared::Shared;
use super::views;
use crate::cluster::{BUCKET_OF, Bucket};
use crate::commit::{By, Dependent, Dependents};
use crate::{Child, Error, open_replays};
use model::record;
use model::schema::Builtin;
use model::{Collection, CollectionIx, Record, Scope, Timestamp};
use tokio_postgres::Row;

/// A record's key in its table: text, or the row number in a feed.
pub enum Key<'a> {
    Text(&'a str),
    Number(i64),
}

impl<'a> From<Key<'a>> for Param<'a> {
    fn from(key: Key<'a>) -> Param<'a> {
        match key {
            Key::Text(text) => Param::from(text),
            Key::Number(number) => Param::from(number),
        }
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

/// Those of these ids that can exist, as one value.
pub fn keys<'a>(table: &Table, ids: impl Iterator<Item = &'a str>) -> Param<'a> {
    let (mut texts, mut numbers) = (Vec::new(), Vec::new());
    for key in ids.filter_map(|id| key(table, id)) {
        match key {
            Key::Text(text) => texts.push(text),
            Key::Number(number) => numbers.push(number),
        }
    }
    if table.feed { Param::from(numbers) } else { Param::from(texts) }
}

pub async fn record(
    client: &Client,
    shared: &Shared,
    scope: Scope,
    collection: CollectionIx,
    parent: Option<&str>,
    id: &str,
) -> Result<Option<Record>, Error> {
    let table = &shared.tables[collection];
    let Some(key) = key(table, id) else { return Ok(None) };
    let row = match (table.child, parent) {
        (true, None) => return Ok(None),
        (true, Some(parent)) => client.row(&table.by_id, params![key, scope.0, parent]).await?,
        (false, _) => client.row(&table.by_id, params![key, scope.0]).await?,
    };
    match row {
        Some(row) => Ok(Some(record_of(&row, table, &shared.schema.collections[collection])?)),
        None => Ok(None),
    }
}

/// One query, however many ids. None if the records have more than `max_bytes`.
pub async fn by_ids(
    client: &Client,
    shared: &Shared,
    scope: Scope,
    ix: CollectionIx,
    ids: &[String],
    max_bytes: usize,
) -> Result<Option<Vec<Record>>, Error> {
    let table = &shared.tables[ix];
    let collection = &shared.schema.collections[ix];
    let keys = keys(table, ids.iter().map(String::as_str));
    let values = [keys, scope.0.into()];
    let statement = (table.by_ids.as_str(), &values[..]);
    let all = read_within(client, table, collection, statement, max_bytes).await?;
    Ok(all.map(|rows| rows.into_iter().map(|(record, _)| record).collect()))
}

/// All rows of a statement; none if the records have more than `max_bytes`.
async fn read_within(
    client: &Client,
    table: &Table,
    collection: &Collection,
    statement: (&str, &[Param<'_>]),
    max_bytes: usize,
) -> Result<Option<Vec<(Record, Row)>>, Error> {
    let mut limit = max_bytes;
    loop {
        let texts = Record::texts(table);
        let (rows, more) = bounded::first(client, texts, statement, (limit, End::At)).await?;
        let (mut found, mut bytes) = (Vec::with_capacity(rows.len()), 0);
        for row in rows {
            let record = record_of(&row, table, collection)?;
            bytes += FromRow::bytes(&record);
            if bytes > max_bytes {
                return Ok(None);
            }
            found.push((record, row));
        }
        if !more {
            return Ok(Some(found));
        }
        // Texts of an older shape may have become shorter.
        limit = limit.max(1).saturating_mul(4);
    }
}

/// One query, however many parents. `TooLarge` if the records have more than `max_bytes`.
pub async fn children(
    client: &Client,
    shared: &Shared,
    scope: Scope,
    ix: CollectionIx,
    parents: &[String],
    (limit, max_bytes): (u32, usize),
) -> Result<Vec<Child>, Error> {
    let table = &shared.tables[ix];
    let collection = &shared.schema.collections[ix];
    let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
    let values = params![parents, scope.0, i64::from(limit) + 1];
    let statement = (table.newest_of_parents.as_str(), values);
    let all = read_within(client, table, collection, statement, max_bytes).await?;
    let child = |(record, row): (Record, Row)| Ok(Child { parent: row.cell(table.width)?, record });
    all.ok_or(Error::TooLarge)?.into_iter().map(child).collect()
}

/// Records that depend on one record, as many as are wanted. All nodes wait for a delete, so the
/// database sends no text behind the one that reaches the limit of bytes.
pub async fn dependents(
    client: &Client,
    shared: &Shared,
    wanted: &Dependents<'_>,
) -> Result<Vec<Dependent>, Error> {
    let Dependents { scope, collection: ix, by, max, bytes, except } = *wanted;
    let (table, collection) = (&shared.tables[ix], &shared.schema.collections[ix]);
    let (column, id) = match by {
        By::Parent(id) => ("parent", id),
        By::Field(place, id) => {
            let column = table.columns.iter().find(|column| column.place == place);
            let Some(column) = column else { return Ok(Vec::new()) };
            (column.name.as_str(), id)
        }
    };
    let sql = format!(
        "SELECT {}, t.parent FROM {} t WHERE t.{column} = $1 AND t.scope = $2 AND \
         t.n <> ALL($3) LIMIT $4",
        table.select, table.name
    );
    let except = except.iter().filter(|(collection, _)| *collection == ix);
    let except: Vec<i64> = except.map(|(_, number)| *number).collect();
    let values = params![id, scope.0, except, i64::try_from(max).unwrap_or(i64::MAX)];
    let (texts, mut limit) = (Record::texts(table), bytes);
    loop {
        let (rows, more) = bounded::first(client, texts, (&sql, values), (limit, End::At)).await?;
        let (mut found, mut read) = (Vec::with_capacity(rows.len()), 0);
        for row in &rows {
            if read >= bytes {
                break;
            }
            let record = record_of(row, table, collection)?;
            let dependent = Dependent { parent: row.cell(table.width)?, record };
            read += dependent.bytes();
            found.push(dependent);
        }
        if !more || read >= bytes {
            return Ok(found);
        }
        // Texts of an older shape may have become shorter.
        limit = limit.max(1).saturating_mul(4);
    }
}

/// A key by the value of a column that has an index without the scope.
pub async fn key_by(
    client: &Client,
    shared: &Shared,
    column: &str,
    value: &str,
) -> Result<Option<(Scope, Record)>, Error> {
    let Some(ix) = shared.schema.find(layout::KEYS) else { return Ok(None) };
    let (table, collection) = (&shared.tables[ix], &shared.schema.collections[ix]);
    let sql =
        format!("SELECT {}, t.scope FROM {} t WHERE t.{column} = $1", layout::RECORD, table.name);
    match client.row(&sql, params![value]).await? {
        Some(row) => Ok(Some((Scope(row.cell(7)?), record_of(&row, table, collection)?))),
        None => Ok(None),
    }
}

/// Records of one table in every scope.
pub async fn every(
    client: &Client,
    shared: &Shared,
    ix: CollectionIx,
    after: i64,
    max: usize,
) -> Result<Vec<(Scope, Record)>, Error> {
    every_with(client, shared, ix, "", params![after, max as i64]).await
}

/// The same, of replays only those with work left, and of accounts in these buckets.
pub async fn every_served(
    client: &Client,
    shared: &Shared,
    ix: CollectionIx,
    buckets: Option<&[Bucket]>,
    after: i64,
    max: usize,
) -> Result<Vec<(Scope, Record)>, Error> {
    let mut only = String::new();
    if shared.schema.collections[ix].builtin == Some(Builtin::Replay) {
        only.push_str(&format!(" AND t.{}", open_replays::IS_OPEN));
    }
    let Some(buckets) = buckets else {
        return every_with(client, shared, ix, &only, params![after, max as i64]).await;
    };
    only.push_str(&format!(" AND ({BUCKET_OF}) = ANY($3)"));
    let buckets: Vec<i64> = buckets.iter().map(|bucket| i64::from(*bucket)).collect();
    every_with(client, shared, ix, &only, params![after, max as i64, buckets]).await
}

async fn every_with(
    client: &Client,
    shared: &Shared,
    ix: CollectionIx,
    only: &str,
    values: &[Param<'_>],
) -> Result<Vec<(Scope, Record)>, Error> {
    let table = &shared.tables[ix];
    let sql = format!(
        "SELECT {}, t.scope FROM {} t WHERE t.n > $1{only} ORDER BY t.n LIMIT $2",
        table.select, table.name
    );
    let collection = &shared.schema.collections[ix];
    let rows = client.query(&sql, values).await?;
    let one = |row: &Row| Ok((Scope(row.cell(table.width)?), record_of(row, table, collection)?));
    rows.iter().map(one).collect()
}

/// What is read of each row: whole records, or only their public text. Column 0 is the row number.
pub trait FromRow: Sized {
    /// The columns that are needed for it, and how many these are.
    fn columns(table: &Table) -> (&str, usize);

    /// Those among them that may be large.
    fn texts(table: &Table) -> &'static [&'static str];

    fn read(row: &Row, table: &Table, collection: &Collection) -> Result<Self, Error>;

    fn of(record: Record) -> Self;

    /// The size of the texts in memory.
    fn bytes(&self) -> usize;
}

impl FromRow for Record {
    fn columns(table: &Table) -> (&str, usize) {
        (&table.select, table.width)
    }

    fn texts(table: &Table) -> &'static [&'static str] {
        match table.source {
            Source::Events => &["body", "hidden", "aside"],
            _ => &["body", "hidden"],
        }
    }

    fn read(row: &Row, table: &Table, collection: &Collection) -> Result<Record, Error> {
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

    fn texts(table: &Table) -> &'static [&'static str] {
        match table.source {
            Source::Rows => &["body"],
            _ => Record::texts(table),
        }
    }

    fn read(row: &Row, table: &Table, collection: &Collection) -> Result<String, Error> {
        match table.source {
            Source::Rows => Ok(present(row.cell(2)?, row.cell(1)?, table, collection)),
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
pub fn record_of(row: &Row, table: &Table, collection: &Collection) -> Result<Record, Error> {
    if table.source != Source::Rows {
        return views::record_of(row, table);
    }
    Ok(Record {
        number: row.cell(0)?,
        id: row.cell(1)?,
        version: row.cell(2)?,
        updated: Timestamp(row.cell(3)?),
        body: present(row.cell(5)?, row.cell(4)?, table, collection),
        hidden: match table.hides {
            true => row.cell(6)?,
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
