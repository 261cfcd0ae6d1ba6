//! Upgrading a SQLite database: its tables, indexes and fixed layout. `crate::upgrade` decides what
//! is done, and to which row.

mod cleanup;

pub use cleanup::run as clean_up;

use super::layout::{self, Table, column_name, column_type, quote, search_name, table_name};
use super::{Options, erasure, idempotency, outbox, read, retention, search, timers, usage, views};
use crate::Error;
use crate::upgrade::{
    self, EXAMPLES, EventTexts, ResponseTexts, Rewritten, Row, ServedSchema, Tables,
};
use model::evolve::{Plan, Stored, evolve};
use model::record::Scalar;
use model::version::Versions;
use model::{Collection, CollectionIx, Schema, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Marks our files: "rstv".
pub const APPLICATION_ID: i32 = 0x7273_7476;
/// Layout of the tables that do not depend on the schema.
pub const FORMAT: i32 = 4;
/// Rows and events read at a time: they are changed while they are walked.
const PAGE: i64 = 1_000;
/// Bytes of events or stored responses after which a page ends, so that memory does not grow with
/// the size of the records.
const PAGE_BYTES: usize = 4 << 20;

/// Brings the tables to a schema, in one transaction.
pub fn apply(
    connection: &mut Connection,
    stored: Option<Stored>,
    versions: &Versions,
    options: &Options,
) -> Result<Stored, Error> {
    let edition = &options.edition;
    let schema = &**versions.kept();
    let Planned { plan, before, accepted } =
        planned(connection, stored.as_ref(), versions, edition)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    create_fixed(&transaction, stored.is_none(), (options.clock)())?;
    let tables = layout::tables(schema, &plan.stored);
    let tables = SqliteTables { connection: &transaction, schema, tables };
    upgrade::check(&tables, schema, &plan)?;
    let undated = stored.as_ref().is_some_and(|stored| stored.version.is_none());
    if let Some(view) = versions.get(plan.from).filter(|_| undated) {
        // Responses that an older release stored do not say what they were written under.
        idempotency::date(&transaction, &view.date)?;
    }
    cleanup::begin(&transaction, stored.is_none(), before.iter().chain([versions]))?;
    if let Some(before) = &before {
        upgrade::convert_log(&tables, before, versions, edition.accept)?;
    }
    let unchanged = stored.as_ref() == Some(&plan.stored);
    if !unchanged {
        upgrade::carry_out(&tables, versions, &plan)?;
        let text =
            serde_json::to_string(&plan.stored).map_err(|error| Error::Failed(Box::new(error)))?;
        transaction.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?1)", [text])?;
    }
    // Also where the schema is the same: this release may want other indexes than the last one.
    for ix in 0..schema.collections.len() {
        reconcile_indexes(&transaction, schema, ix)?;
    }
    let edited = edition.text.is_some() && edition.text != served_text(&transaction)?;
    if edited || !unchanged {
        upgrade::refuse(upgrade::unstable(&tables, versions)?)?;
    }
    complete_searches(&tables)?;
    if let Some(text) = &edition.text {
        keep_text(&transaction, text)?;
    }
    timers::drop_unknown(&transaction, schema)?;
    mark(&transaction)?;
    views::make(&transaction)?;
    transaction.commit()?;
    for edit in accepted {
        tracing::warn!(%edit, "an edit of the schema is accepted");
    }
    Ok(plan.stored)
}

/// What `apply` would do.
struct Planned {
    plan: Plan,
    before: Option<Versions>,
    accepted: Vec<model::plan::Edit>,
}

/// Plans how the tables are brought to a schema, or why not. Only reads.
fn planned(
    connection: &Connection,
    stored: Option<&Stored>,
    versions: &Versions,
    edition: &ServedSchema,
) -> Result<Planned, Error> {
    let schema = &**versions.kept();
    let plan = evolve(stored, versions, edition.accept);
    let before = match stored.is_some() {
        true => served_text(connection)?.and_then(|text| upgrade::served_before(&text)),
        false => None,
    };
    let before = before.map(|schema| Versions::new(&Arc::new(schema)));
    let accepted = match &before {
        Some(before) => {
            // Only rows are read: what their tables shall be is not decided yet.
            let tables = SqliteTables { connection, schema, tables: Vec::new() };
            upgrade::review(&tables, before.kept(), versions, edition, (stored, &plan))?
        }
        None => Vec::new(),
    };
    let plan = plan.map_err(Error::Refused)?;
    Ok(Planned { plan, before, accepted })
}

/// Refuses a schema that `apply` would refuse. Only reads.
pub fn review(
    connection: &Connection,
    stored: &Stored,
    versions: &Versions,
    edition: &ServedSchema,
) -> Result<(), Error> {
    let schema = &**versions.kept();
    let Planned { plan, .. } = planned(connection, Some(stored), versions, edition)?;
    let tables = layout::tables(schema, &plan.stored);
    upgrade::check(&SqliteTables { connection, schema, tables }, schema, &plan)
}

/// Creates the tables that do not depend on the schema, where they are missing.
fn create_fixed(connection: &Connection, is_new: bool, now: Timestamp) -> Result<(), Error> {
    if is_new {
        create_base(connection)?;
    }
    connection.execute_batch(outbox::TABLES)?;
    outbox::move_pauses(connection)?;
    for sql in [erasure::PENDING, erasure::INDEXES, retention::INDEX, timers::INDEX] {
        connection.execute_batch(sql)?;
    }
    Ok(usage::begin(connection, now)?)
}

/// Marks a new file as ours; inside the transaction that makes its tables.
fn create_base(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch(layout::BASE)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

/// Says that the tables are of this release's layout.
fn mark(connection: &Connection) -> Result<(), rusqlite::Error> {
    let format: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match format == FORMAT {
        true => Ok(()),
        false => connection.pragma_update(None, "user_version", FORMAT),
    }
}

/// The schema file that was last served. Releases that stored none leave `None`.
fn served_text(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    const TEXT: &str = "SELECT value FROM meta WHERE name = 'schema_text'";
    connection.query_row(TEXT, [], |row| row.get(0)).optional()
}

/// Stores the schema file with the data: the next start compares with it.
fn keep_text(connection: &Connection, text: &str) -> Result<(), rusqlite::Error> {
    if served_text(connection)?.as_deref() != Some(text) {
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_text', ?1)", [text])?;
    }
    Ok(())
}

/// Creates the indexes that are missing and drops those that are not needed any more.
fn reconcile_indexes(
    connection: &Connection,
    schema: &Schema,
    ix: CollectionIx,
) -> Result<(), Error> {
    let collection = &schema.collections[ix].name;
    let wanted = layout::indexes(schema, ix);
    let sql: HashMap<&str, &str> =
        wanted.iter().map(|index| (index.name.as_str(), index.create.as_str())).collect();
    drop_indexes(connection, collection, |existing| !sql.values().any(|sql| *sql == existing))?;
    let existing: HashSet<String> =
        indexes_of(connection, collection)?.into_iter().map(|(name, _)| name).collect();
    for index in wanted.iter().filter(|index| !existing.contains(&index.name)) {
        connection.execute_batch(&index.create)?;
    }
    Ok(())
}

fn indexes_of(connection: &Connection, collection: &str) -> Result<Vec<(String, String)>, Error> {
    let mut statement = connection.prepare(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ?1 \
         AND sql IS NOT NULL",
    )?;
    let rows = statement
        .query_map([table_name(collection)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(rows)
}

pub fn drop_indexes(
    connection: &Connection,
    collection: &str,
    unwanted: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    for (name, sql) in indexes_of(connection, collection)? {
        if unwanted(&sql) {
            connection.execute_batch(&format!("DROP INDEX {}", quote(&name)))?;
        }
    }
    Ok(())
}

struct SqliteTables<'a> {
    connection: &'a Connection,
    schema: &'a Schema,
    tables: Vec<Table>,
}

impl SqliteTables<'_> {
    fn collection(&self, ix: CollectionIx) -> (&Collection, String) {
        let collection = &self.schema.collections[ix];
        (collection, quote(&table_name(&collection.name)))
    }
}

impl Tables for SqliteTables<'_> {
    fn each_row(
        &self,
        name: &str,
        visit: &mut dyn FnMut(Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut select = self.connection.prepare(&format!(
            "SELECT n, scope, id, body, hidden FROM {} WHERE n > ?1 ORDER BY n LIMIT {PAGE}",
            quote(&table_name(name))
        ))?;
        let mut last = 0;
        loop {
            let before = last;
            let mut rows = select.query([last])?;
            while let Some(row) = rows.next()? {
                last = row.get(0)?;
                visit(Row {
                    number: last,
                    scope: Scope(row.get(1)?),
                    id: row.get(2)?,
                    body: row.get(3)?,
                    hidden: row.get(4)?,
                })?;
            }
            if last == before {
                return Ok(());
            }
        }
    }

    fn exists(&self, collection: CollectionIx, scope: Scope, id: &str) -> Result<bool, Error> {
        let (_, table) = self.collection(collection);
        let sql = format!("SELECT 1 FROM {table} WHERE id = ?1 AND scope = ?2");
        Ok(self.connection.prepare_cached(&sql)?.exists(params![id, scope.0])?)
    }

    fn create(&self, collection: CollectionIx) -> Result<(), Error> {
        let sql = layout::create_table(&self.schema.collections[collection]);
        self.connection.execute_batch(&sql)?;
        if let Some(search) = &self.tables[collection].search {
            self.connection.execute_batch(&search.create)?;
        }
        Ok(())
    }

    fn drop(&self, name: &str) -> Result<(), Error> {
        drop_search(self.connection, name)?;
        let table = quote(&table_name(name));
        Ok(self.connection.execute_batch(&format!("DROP TABLE {table}"))?)
    }

    fn add_column(&self, collection: CollectionIx, field: &str) -> Result<(), Error> {
        let (declared, table) = self.collection(collection);
        let Some(field) = declared.field(field) else { return Ok(()) };
        let (column, kind) = (column_name(&field.name), column_type(&field.kind));
        let sql = format!("ALTER TABLE {table} ADD COLUMN {column} {kind}");
        Ok(self.connection.execute_batch(&sql)?)
    }

    fn drop_column(&self, collection: CollectionIx, field: &str) -> Result<(), Error> {
        let (declared, table) = self.collection(collection);
        let column = column_name(field);
        drop_indexes(self.connection, &declared.name, |sql| sql.contains(&column))?;
        let sql = format!("ALTER TABLE {table} DROP COLUMN {column}");
        Ok(self.connection.execute_batch(&sql)?)
    }

    fn set_column(
        &self,
        collection: CollectionIx,
        field: &str,
        number: i64,
        value: &Scalar,
    ) -> Result<(), Error> {
        let (_, table) = self.collection(collection);
        let sql = format!("UPDATE {table} SET {} = ?1 WHERE n = ?2", column_name(field));
        self.connection.prepare_cached(&sql)?.execute(params![read::Bound(value), number])?;
        Ok(())
    }

    fn set_texts(
        &self,
        collection: CollectionIx,
        number: i64,
        body: &str,
        hidden: Option<&str>,
    ) -> Result<(), Error> {
        let (_, table) = self.collection(collection);
        let sql = format!("UPDATE {table} SET body = ?1, hidden = ?2 WHERE n = ?3");
        self.connection.prepare_cached(&sql)?.execute(params![body, hidden, number])?;
        Ok(())
    }

    fn rebuild_search(&self, collection: CollectionIx) -> Result<(), Error> {
        let name = &self.schema.collections[collection].name;
        drop_search(self.connection, name)?;
        let Some(index) = &self.tables[collection].search else { return Ok(()) };
        self.connection.execute_batch(&index.create)?;
        self.each_row(name, &mut |row| {
            let Row { number, scope, id, body, hidden } = row;
            let (version, updated) = (0, Timestamp(0));
            let record = model::Record { id, number, version, updated, body, hidden };
            search::insert(self.connection, index, scope, &record).map(drop)
        })
    }

    fn drop_search(&self, collection: CollectionIx) -> Result<(), Error> {
        drop_search(self.connection, &self.schema.collections[collection].name)
    }

    fn begin_rewrite(&self, collection: CollectionIx) -> Result<(), Error> {
        let declared = &self.schema.collections[collection];
        // A column that an index names cannot be dropped. The indexes are made again afterwards.
        drop_indexes(self.connection, &declared.name, |sql| sql.contains("\"f_"))?;
        columns(self.connection, declared, &self.tables[collection])
    }

    fn rewrite(
        &self,
        collection: CollectionIx,
        number: i64,
        rewritten: &Rewritten,
    ) -> Result<(), Error> {
        let table = &self.tables[collection];
        let mut sets = String::new();
        for (place, (_, column)) in table.columns.iter().enumerate() {
            sets.push_str(&format!(", {column} = ?{}", 5 + place));
        }
        let mut update = self.connection.prepare_cached(&format!(
            "UPDATE {} SET shape = ?1, body = ?2, hidden = ?3{sets} WHERE n = ?4",
            table.name
        ))?;
        update.raw_bind_parameter(1, table.shape)?;
        update.raw_bind_parameter(2, &rewritten.body)?;
        update.raw_bind_parameter(3, rewritten.hidden.as_deref())?;
        update.raw_bind_parameter(4, number)?;
        for (place, scalar) in rewritten.columns.iter().enumerate() {
            update.raw_bind_parameter(5 + place, read::Bound(scalar))?;
        }
        update.raw_execute()?;
        Ok(())
    }

    fn duplicates(
        &self,
        collection: CollectionIx,
        field: usize,
    ) -> Result<Vec<(String, String)>, Error> {
        let table = &self.tables[collection];
        let Some((_, column)) = table.columns.iter().find(|(place, _)| *place == field) else {
            return Ok(Vec::new());
        };
        let mut statement = self.connection.prepare(&format!(
            "SELECT min(id), max(id) FROM {} WHERE {column} IS NOT NULL GROUP BY scope, {column} \
             HAVING count(*) > 1 LIMIT ?1",
            table.name
        ))?;
        let rows = statement.query_map([EXAMPLES as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn rename_timers(&self, old: &Collection, collection: CollectionIx) -> Result<(), Error> {
        Ok(timers::rename(self.connection, old, &self.schema.collections[collection])?)
    }

    fn events_of(&self, date: &str, after: i64) -> Result<Vec<EventTexts>, Error> {
        let mut select = self.connection.prepare_cached(
            "SELECT seq, collection, object, previous, hidden FROM log \
             WHERE seq > ?1 AND api_version = ?2 ORDER BY seq LIMIT ?3",
        )?;
        let mut rows = select.query(params![after, date, PAGE])?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let event = EventTexts {
                seq: row.get(0)?,
                collection: row.get(1)?,
                object: row.get(2)?,
                previous: row.get(3)?,
                hidden: row.get(4)?,
            };
            bytes += event.bytes();
            page.push(event);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(page)
    }

    fn set_event(&self, version: &str, event: &EventTexts) -> Result<(), Error> {
        let EventTexts { seq, object, previous, hidden, .. } = event;
        let mut update = self.connection.prepare_cached(
            "UPDATE log SET api_version = ?2, object = ?3, previous = ?4, hidden = ?5 \
             WHERE seq = ?1",
        )?;
        update.execute(params![seq, version, object, previous, hidden])?;
        Ok(())
    }

    fn responses_of(&self, date: &str, after: i64) -> Result<Vec<ResponseTexts>, Error> {
        Ok(idempotency::written_under(self.connection, date, after, (PAGE, PAGE_BYTES))?)
    }

    fn set_response(
        &self,
        number: i64,
        version: &str,
        texts: (&str, Option<&str>),
    ) -> Result<(), Error> {
        Ok(idempotency::set_texts(self.connection, number, version, texts)?)
    }
}

/// Gives the table the typed columns of the schema. One of another type is dropped and added.
fn columns(connection: &Connection, collection: &Collection, table: &Table) -> Result<(), Error> {
    let mut statement = connection.prepare("SELECT name, type FROM pragma_table_info(?1)")?;
    let there = statement
        .query_map([table_name(&collection.name)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<(String, String)>, _>>()?;
    let wanted: Vec<(String, &str)> = collection
        .columns()
        .map(|field| (column_name(&field.name), column_type(&field.kind)))
        .collect();
    let mut kept = Vec::new();
    for (name, kind) in there.iter().filter(|(name, _)| name.starts_with("f_")) {
        let column = quote(name);
        if wanted.iter().any(|(name, wanted)| *name == column && wanted == kind) {
            kept.push(column);
            continue;
        }
        connection.execute_batch(&format!("ALTER TABLE {} DROP COLUMN {column}", table.name))?;
    }
    for (column, kind) in wanted.iter().filter(|(column, _)| !kept.contains(column)) {
        connection
            .execute_batch(&format!("ALTER TABLE {} ADD COLUMN {column} {kind}", table.name))?;
    }
    Ok(())
}

fn drop_search(connection: &Connection, collection: &str) -> Result<(), Error> {
    let name = quote(&search_name(collection));
    Ok(connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?)
}

/// Rebuilds indexes that an older release created without the removed fields.
fn complete_searches(tables: &SqliteTables<'_>) -> Result<(), Error> {
    for (ix, table) in tables.tables.iter().enumerate() {
        let Some(search) = &table.search else { continue };
        let name = search_name(&tables.schema.collections[ix].name);
        let columns = "SELECT count(*) FROM pragma_table_info(?1)";
        let columns: u32 = tables.connection.query_row(columns, [name], |row| row.get(0))?;
        // One more for the scope.
        if columns as usize != search.fields.len() + 1 {
            tables.rebuild_search(ix)?;
        }
    }
    Ok(())
}
