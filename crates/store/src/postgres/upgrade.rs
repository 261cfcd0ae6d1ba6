//! Bringing the tables of a PostgreSQL database to a schema, in one transaction that no other node
//! runs at the same time. `crate::upgrade` decides what is done, and to which row.

use super::connect::{Cells, Client};
use super::layout::{self, Table, column_name, column_type, quote, table_name};
use super::param::{Param, params};
use super::session::Session;
use super::shared::Locks;
use super::{idempotency, open, search, timers, usage};
use crate::Error;
use crate::options::Options;
use crate::upgrade::{self, EXAMPLES, EventTexts, ResponseTexts, Rewritten, Row, Tables};
use model::evolve::{Accept, Plan, Step, Stored, evolve};
use model::record::{Fields, Scalar, parse_object};
use model::version::Versions;
use model::{Collection, CollectionIx, Schema, Scope, Timestamp};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Layout of the tables that do not depend on the schema.
pub const FORMAT: i64 = 1;
/// Rows and events read at a time: they are changed while they are walked.
const PAGE: i64 = 1_000;
/// Bytes of events or stored responses after which a page ends.
const PAGE_BYTES: usize = 4 << 20;

const VALUE: &str = "SELECT value FROM meta WHERE name = $1";
const SET_VALUE: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) \
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// Indexes of a table, and whether one is unique or has a column of a list as it is. Other forms
/// than a B-tree take texts of any length.
const INDEXES: &str = "SELECT c.relname::text, i.indisunique OR (m.amname = 'btree' AND \
    EXISTS (SELECT 1 FROM unnest(i.indkey::int2[]) AS key JOIN pg_attribute a \
    ON a.attrelid = i.indrelid AND a.attnum = key WHERE a.attname = ANY($2))) \
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam \
    JOIN pg_class t ON t.oid = i.indrelid \
    JOIN pg_namespace s ON s.oid = t.relnamespace \
    WHERE t.relname = $1 AND s.nspname = current_schema() AND NOT i.indisprimary";
/// How long a start waits for readers of a table that it must change, or whose index that refuses
/// values it must remove, and how long it does for those of all other indexes together.
const READERS_WAIT: Duration = Duration::from_secs(3);
/// Of that, how long it waits for the first time. Each further time is twice as long: what comes
/// behind waits for it, and that may be a write for which all nodes wait.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// And each one, even if the others have waited so long.
const LEAST_WAIT: Duration = Duration::from_millis(50);

pub async fn value(client: &Client, name: &str) -> Result<Option<String>, Error> {
    client.row(VALUE, params![name]).await?.map(|row| row.cell(0)).transpose()
}

pub async fn set_value(client: &Client, name: &str, value: &str) -> Result<(), Error> {
    client.execute(SET_VALUE, params![name, value]).await.map(drop)
}

/// Brings the tables to a schema, inside the open transaction of the session. Takes the lock of the
/// log when it is known that the tables can be changed.
pub fn apply(
    session: &Session,
    stored: Option<Stored>,
    versions: &Versions,
    options: &Options,
    locks: &Locks,
) -> Result<Stored, Error> {
    let edition = &options.edition;
    let schema = &**versions.kept();
    let work = Work { session, schema, tables: Vec::new() };
    if edition.accept == Accept::Nothing {
        refuse_older(stored.as_ref(), schema)?;
    }
    let plan = evolve(stored.as_ref(), versions, edition.accept);
    let text = match stored.is_some() {
        true => work.run(value(work.client()?, "schema_text"))?,
        false => None,
    };
    let before = text.as_deref().and_then(upgrade::served_before);
    let before = before.map(|schema| Versions::new(&Arc::new(schema)));
    let accepted = match &before {
        Some(before) => {
            let known = (stored.as_ref(), &plan);
            upgrade::review(&work, before.kept(), versions, edition, known)?
        }
        None => Vec::new(),
    };
    let plan = plan.map_err(Error::Refused)?;
    if let Some(stored) = &stored {
        check_readers(&work, stored, &plan)?;
    }
    work.run(open::lock_log(work.client()?, locks))?;
    if stored.is_none() {
        create_base(&work, (options.clock)())?;
    }
    let work = Work { tables: layout::tables(schema, &plan.stored), ..work };
    upgrade::check(&work, schema, &plan)?;
    if let Some(before) = &before {
        upgrade::convert_log(&work, before, versions, edition.accept)?;
    }
    let unchanged = stored.as_ref() == Some(&plan.stored);
    if !unchanged {
        upgrade::carry_out(&work, versions, &plan)?;
    }
    let mut unneeded = Vec::new();
    for ix in 0..schema.collections.len() {
        unneeded.extend(create_indexes(&work, ix)?);
    }
    let edited = edition.text.is_some() && edition.text != text;
    if edited || !unchanged {
        upgrade::refuse(upgrade::unstable(&work, versions)?)?;
    }
    let client = work.client()?;
    work.run(timers::drop_unknown(client, schema))?;
    keep(&work, &plan.stored, edition.text.as_deref().or(text.as_deref()))?;
    drop_indexes(&work, unneeded)?;
    for edit in accepted {
        tracing::warn!(%edit, "an edit of the schema is accepted");
    }
    Ok(plan.stored)
}

/// A node with an older file than the one that is served must not take the tables back, unless its
/// operator says so.
fn refuse_older(stored: Option<&Stored>, schema: &Schema) -> Result<(), Error> {
    let (Some(served), own) =
        (stored.and_then(|one| one.version.as_ref()), &schema.service.version)
    else {
        return Ok(());
    };
    if served <= own {
        return Ok(());
    }
    Err(Error::Refused(vec![format!(
        "the database is at version {served} of the schema, and this file ends with {own}: start \
         this node with the newer schema file"
    )]))
}

/// Says what the tables are now. Nodes that work with something else notice it by the edition.
fn keep(work: &Work<'_>, stored: &Stored, text: Option<&str>) -> Result<(), Error> {
    let described =
        serde_json::to_string(stored).map_err(|error| Error::Failed(Box::new(error)))?;
    work.run(keep_described(work.client()?, &described, text))
}

/// The same, with the description as text.
pub async fn keep_described(
    client: &Client,
    described: &str,
    text: Option<&str>,
) -> Result<(), Error> {
    let edition = Sha256::new_with_prefix(described).chain_update(text.unwrap_or_default());
    let edition: String =
        edition.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    if value(client, "edition").await?.as_ref() == Some(&edition) {
        return Ok(());
    }
    set_value(client, "schema", described).await?;
    if let Some(text) = text {
        set_value(client, "schema_text", text).await?;
    }
    set_value(client, "edition", &edition).await
}

fn create_base(work: &Work<'_>, now: Timestamp) -> Result<(), Error> {
    let client = work.client()?;
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| Error::Failed(Box::new(error)))?;
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    work.run(async {
        client.batch(layout::BASE).await?;
        set_value(client, "application", "restive").await?;
        set_value(client, "format", &FORMAT.to_string()).await?;
        set_value(client, "cursor_key", &key).await?;
        usage::begin(client, now).await
    })
}

/// Creates the indexes that are missing. Returns those that are not needed any more.
fn create_indexes(work: &Work<'_>, ix: CollectionIx) -> Result<Vec<FoundIndex>, Error> {
    let wanted = layout::indexes(work.schema, ix);
    if work.schema.collections[ix].is_view() {
        return Ok(Vec::new());
    }
    let (there, unneeded) = work.sorted_indexes(ix)?;
    let is_there = |name: &String| there.iter().any(|one| one.name == *name);
    let missing = || wanted.iter().filter(|index| !is_there(&index.name));
    for index in missing() {
        work.batch(&index.create)?;
    }
    // What an index has in another form than its column has not been measured yet.
    let table = &work.tables[ix].name;
    let rows = format!("SELECT 1::bigint FROM {table} LIMIT 1");
    if missing().next().is_some() && !work.query(&rows, &[])?.is_empty() {
        work.batch(&format!("ANALYZE {table}"))?;
    }
    Ok(unneeded)
}

/// Drops indexes. This comes last and waits for little in all: it keeps other nodes from reading
/// the tables, and all of them from writing.
fn drop_indexes(work: &Work<'_>, mut unneeded: Vec<FoundIndex>) -> Result<(), Error> {
    if unneeded.is_empty() {
        return Ok(());
    }
    unneeded.sort_by_key(|index| !index.refuses_values);
    let began = Instant::now();
    for index in &unneeded {
        let left = match index.refuses_values {
            true => READERS_WAIT,
            false => READERS_WAIT.saturating_sub(began.elapsed()).max(LEAST_WAIT),
        };
        let left = left.as_millis();
        work.batch(&format!("SAVEPOINT before; SET LOCAL lock_timeout = '{left}ms'"))?;
        match work.batch(&format!("DROP INDEX {}", quote(&index.name))) {
            Ok(()) => work.batch("RELEASE before")?,
            Err(Error::Busy) if index.refuses_values => return Err(index.is_read()),
            Err(Error::Busy) => {
                tracing::warn!(index = %index.name, "an index that is not needed any more stays \
                    until the next start, since another session reads its table");
                work.batch("ROLLBACK TO before")?;
            }
            Err(error) => return Err(error),
        }
    }
    work.batch("SET LOCAL lock_timeout = '60s'")
}

/// Refuses a start that must change a table which another session reads: before any node waits for
/// it, and before work that may take long.
fn check_readers(work: &Work<'_>, stored: &Stored, plan: &Plan) -> Result<(), Error> {
    let is_stored = |name: &str| stored.collections.iter().any(|known| known.name == name);
    let collections = &work.schema.collections;
    // Each with the reason why it must not be read.
    let mut tables = BTreeMap::new();
    for (ix, collection) in collections.iter().enumerate() {
        if collection.is_view() || !is_stored(&collection.name) {
            continue;
        }
        let (_, unneeded) = work.sorted_indexes(ix)?;
        if let Some(index) = unneeded.iter().find(|index| index.refuses_values) {
            tables.insert(table_name(&collection.name), index.is_read());
        }
    }
    for step in plan.steps.iter().filter(|_| *stored != plan.stored) {
        let name = match step {
            Step::AddColumn { collection: ix, .. }
            | Step::DropColumn { collection: ix, .. }
            | Step::Rewrite(ix) => &collections[*ix].name,
            Step::Delete(name) => name,
            _ => continue,
        };
        if is_stored(name) {
            let name = table_name(name);
            tables.insert(name.clone(), is_read(&name));
        }
    }
    for (table, refusal) in tables {
        if !may_change(work, &table)? {
            return Err(refusal);
        }
    }
    Ok(())
}

/// Whether nobody reads a table for longer than a start waits.
fn may_change(work: &Work<'_>, table: &str) -> Result<bool, Error> {
    let (mut wait, mut waited) = (FIRST_WAIT, Duration::ZERO);
    while waited < READERS_WAIT {
        let limit = wait.as_millis();
        work.batch(&format!("SAVEPOINT before; SET LOCAL lock_timeout = '{limit}ms'"))?;
        let locked = work.batch(&format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", quote(table)));
        match locked {
            // Given back: the others may read the table meanwhile.
            Ok(()) | Err(Error::Busy) => work.batch("ROLLBACK TO before; RELEASE before")?,
            Err(error) => return Err(error),
        }
        if locked.is_ok() {
            return Ok(true);
        }
        // waits for: those who came behind
        std::thread::sleep(FIRST_WAIT);
        waited += wait;
        wait *= 2;
    }
    Ok(false)
}

fn is_read(table: &str) -> Error {
    Error::Refused(vec![format!(
        "the table {table} must be changed, but another session reads it, as pg_dump does: start \
         again when that has ended"
    )])
}

/// An index of a table.
struct FoundIndex {
    name: String,
    /// Values that the schema allows: two that are the same, or one that is too long.
    refuses_values: bool,
}

impl FoundIndex {
    fn is_read(&self) -> Error {
        Error::Refused(vec![format!(
            "the index {} must be removed, but another session reads its table, as pg_dump does: \
             start again when that has ended",
            self.name
        )])
    }
}

/// The tables, inside the transaction that upgrades them.
struct Work<'a> {
    session: &'a Session,
    schema: &'a Schema,
    tables: Vec<Table>,
}

impl Work<'_> {
    fn client(&self) -> Result<&Client, Error> {
        self.session.client()
    }

    /// Takes as long as it takes: large tables are rewritten.
    fn run<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.session.run_long(work)
    }

    fn batch(&self, sql: &str) -> Result<(), Error> {
        self.run(self.client()?.batch(sql))
    }

    fn execute(&self, sql: &str, values: &[Param<'_>]) -> Result<(), Error> {
        self.run(self.client()?.execute(sql, values)).map(drop)
    }

    fn query(&self, sql: &str, values: &[Param<'_>]) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.run(self.client()?.query(sql, values))
    }

    fn collection(&self, ix: CollectionIx) -> (&Collection, String) {
        let collection = &self.schema.collections[ix];
        (collection, quote(&table_name(&collection.name)))
    }

    /// But for the primary key.
    fn indexes_of(&self, collection: &Collection) -> Result<Vec<FoundIndex>, Error> {
        let long = layout::shortened_columns(collection);
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let rows = self.query(INDEXES, params![table_name(&collection.name), long])?;
        let found = rows
            .iter()
            .map(|row| Ok(FoundIndex { name: row.cell(0)?, refuses_values: row.cell(1)? }));
        found.collect()
    }

    /// Those that the schema wants, and those that it does not.
    fn sorted_indexes(
        &self,
        ix: CollectionIx,
    ) -> Result<(Vec<FoundIndex>, Vec<FoundIndex>), Error> {
        let wanted = layout::indexes(self.schema, ix);
        let is_wanted = |found: &FoundIndex| wanted.iter().any(|one| one.name == found.name);
        let found = self.indexes_of(&self.schema.collections[ix])?;
        Ok(found.into_iter().partition(is_wanted))
    }

    /// Changes a table, for which nobody may read it. All nodes wait for this.
    fn alter(&self, table: &str, sql: &str) -> Result<(), Error> {
        let limit = READERS_WAIT.as_millis();
        let altered = self.batch(&format!(
            "SET LOCAL lock_timeout = '{limit}ms'; {sql}; SET LOCAL lock_timeout = '60s'"
        ));
        altered.map_err(|error| match error {
            Error::Busy => is_read(table),
            other => other,
        })
    }

    fn set_words(&self, ix: CollectionIx, number: i64, fields: &Fields) -> Result<(), Error> {
        let Some(searched) = &self.tables[ix].search else { return Ok(()) };
        let sql =
            format!("UPDATE {} SET search = $1::text::tsvector WHERE n = $2", self.tables[ix].name);
        self.execute(&sql, params![search::vector(searched, fields), number])
    }
}

/// A value of a typed column, with the type that it is cast to: null has none of its own.
fn cast(kind: &str, mark: usize) -> String {
    format!(
        "${mark}::text::{}",
        kind.split(' ').next().map_or("text", |first| match first {
            "double" => "double precision",
            "bigint" => "bigint",
            _ => "text",
        })
    )
}

/// A scalar as text that the database casts.
fn as_text(value: &Scalar) -> Param<'static> {
    match value {
        Scalar::Null => Param::Text(None),
        Scalar::Integer(whole) => Param::from(whole.to_string()),
        Scalar::Number(number) => Param::from(format!("{number:?}")),
        Scalar::Text(text) => Param::from(text.clone()),
    }
}

fn whole(row: &Row) -> Fields {
    let mut fields = parse_object(&row.body);
    fields.extend(parse_object(row.hidden.as_deref().unwrap_or("{}")));
    fields
}

impl Tables for Work<'_> {
    fn each_row(
        &self,
        name: &str,
        visit: &mut dyn FnMut(Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sql = format!(
            "SELECT n, scope, id, body, hidden FROM {} WHERE n > $1 ORDER BY n LIMIT {PAGE}",
            quote(&table_name(name))
        );
        let mut last = 0;
        loop {
            let before = last;
            for row in self.query(&sql, params![last])? {
                last = row.cell(0)?;
                visit(Row {
                    number: last,
                    scope: Scope(row.cell(1)?),
                    id: row.cell(2)?,
                    body: row.cell(3)?,
                    hidden: row.cell(4)?,
                })?;
            }
            if last == before {
                return Ok(());
            }
        }
    }

    fn exists(&self, collection: CollectionIx, scope: Scope, id: &str) -> Result<bool, Error> {
        let (_, table) = self.collection(collection);
        let sql = format!("SELECT 1::bigint FROM {table} WHERE id = $1 AND scope = $2");
        Ok(!self.query(&sql, params![id, scope.0])?.is_empty())
    }

    fn create(&self, collection: CollectionIx) -> Result<(), Error> {
        self.batch(&layout::create_table(&self.schema.collections[collection]))
    }

    fn drop(&self, name: &str) -> Result<(), Error> {
        let table = table_name(name);
        self.alter(&table, &format!("DROP TABLE {}", quote(&table)))
    }

    fn add_column(&self, collection: CollectionIx, field: &str) -> Result<(), Error> {
        let (declared, table) = self.collection(collection);
        let Some(field) = declared.field(field) else { return Ok(()) };
        let (column, kind) = (column_name(&field.name), column_type(&field.kind));
        self.alter(&table, &format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))
    }

    fn drop_column(&self, collection: CollectionIx, field: &str) -> Result<(), Error> {
        // The indexes that name it go with it.
        let (_, table) = self.collection(collection);
        let column = column_name(field);
        self.alter(&table, &format!("ALTER TABLE {table} DROP COLUMN {column}"))
    }

    fn set_column(
        &self,
        collection: CollectionIx,
        field: &str,
        number: i64,
        value: &Scalar,
    ) -> Result<(), Error> {
        let (declared, table) = self.collection(collection);
        let Some(declared) = declared.field(field) else { return Ok(()) };
        let value_of = cast(column_type(&declared.kind), 1);
        let sql = format!("UPDATE {table} SET {} = {value_of} WHERE n = $2", column_name(field));
        self.execute(&sql, &[as_text(value), number.into()])
    }

    fn set_texts(
        &self,
        collection: CollectionIx,
        number: i64,
        body: &str,
        hidden: Option<&str>,
    ) -> Result<(), Error> {
        let (_, table) = self.collection(collection);
        let sql = format!("UPDATE {table} SET body = $1, hidden = $2 WHERE n = $3");
        self.execute(&sql, params![body, hidden, number])
    }

    fn rebuild_search(&self, collection: CollectionIx) -> Result<(), Error> {
        self.drop_search(collection)?;
        let (declared, _) = self.collection(collection);
        self.each_row(&declared.name, &mut |row| {
            self.set_words(collection, row.number, &whole(&row))
        })
    }

    fn drop_search(&self, collection: CollectionIx) -> Result<(), Error> {
        let (_, table) = self.collection(collection);
        self.batch(&format!("UPDATE {table} SET search = NULL WHERE search IS NOT NULL"))
    }

    fn begin_rewrite(&self, collection: CollectionIx) -> Result<(), Error> {
        let (declared, table) = self.collection(collection);
        // Values that are unique in the end need not be so on the way. The indexes are made again
        // afterwards.
        for index in self.indexes_of(declared)? {
            self.alter(&table, &format!("DROP INDEX {}", quote(&index.name)))?;
        }
        let sql = "SELECT column_name::text FROM information_schema.columns WHERE \
                   table_schema = current_schema() AND table_name = $1 AND \
                   column_name LIKE 'f\\_%'";
        for row in self.query(sql, params![table_name(&declared.name)])? {
            let name: String = row.cell(0)?;
            self.alter(&table, &format!("ALTER TABLE {table} DROP COLUMN {}", quote(&name)))?;
        }
        for field in declared.columns() {
            self.add_column(collection, &field.name)?;
        }
        Ok(())
    }

    fn rewrite(
        &self,
        collection: CollectionIx,
        number: i64,
        rewritten: &Rewritten,
    ) -> Result<(), Error> {
        let table = &self.tables[collection];
        let (mut sets, mut values) = (String::new(), Vec::new());
        values.extend(params![table.shape, &rewritten.body].iter().cloned());
        values.push(Param::from(rewritten.hidden.as_deref()));
        values.push(Param::from(number));
        for (place, (column, value)) in table.columns.iter().zip(&rewritten.columns).enumerate() {
            sets.push_str(&format!(", {} = {}", column.name, cast(column.kind, 5 + place)));
            values.push(as_text(value));
        }
        let sql = format!(
            "UPDATE {} SET shape = $1, body = $2, hidden = $3{sets} WHERE n = $4",
            table.name
        );
        self.execute(&sql, &values)
    }

    fn duplicates(
        &self,
        collection: CollectionIx,
        field: usize,
    ) -> Result<Vec<(String, String)>, Error> {
        let table = &self.tables[collection];
        let Some(column) = table.columns.iter().find(|column| column.place == field) else {
            return Ok(Vec::new());
        };
        let sql = format!(
            "SELECT min(id), max(id) FROM {} WHERE {1} IS NOT NULL GROUP BY scope, {1} \
             HAVING count(*) > 1 LIMIT $1",
            table.name, column.name
        );
        let rows = self.query(&sql, params![EXAMPLES as i64])?;
        rows.iter().map(|row| Ok((row.cell(0)?, row.cell(1)?))).collect()
    }

    fn rename_timers(&self, old: &Collection, collection: CollectionIx) -> Result<(), Error> {
        let new = &self.schema.collections[collection];
        self.run(timers::rename(self.client()?, old, new))
    }

    fn events_of(&self, date: &str, after: i64) -> Result<Vec<EventTexts>, Error> {
        let sql = "SELECT seq, collection, object, previous, hidden FROM log \
                   WHERE seq > $1 AND api_version = $2 ORDER BY seq LIMIT $3";
        let (mut page, mut bytes) = (Vec::new(), 0);
        for row in self.query(sql, params![after, date, PAGE])? {
            let event = EventTexts {
                seq: row.cell(0)?,
                collection: row.cell(1)?,
                object: row.cell(2)?,
                previous: row.cell(3)?,
                hidden: row.cell(4)?,
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
        let sql = "UPDATE log SET api_version = $2, object = $3, previous = $4, hidden = $5 \
                   WHERE seq = $1";
        let values = params![*seq, version, object, previous.as_deref(), hidden.as_deref()];
        self.execute(sql, values)
    }

    fn responses_of(&self, date: &str, after: i64) -> Result<Vec<ResponseTexts>, Error> {
        let limits = (PAGE, PAGE_BYTES);
        self.run(idempotency::written_under(self.client()?, date, after, limits))
    }

    fn set_response(
        &self,
        number: i64,
        version: &str,
        texts: (&str, Option<&str>),
    ) -> Result<(), Error> {
        self.run(idempotency::set_texts(self.client()?, number, version, texts))
    }
}
