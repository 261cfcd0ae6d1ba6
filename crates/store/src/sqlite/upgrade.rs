//! Bringing a database to a schema, in one transaction: what `model::schema::evolve` plans is
//! checked against the rows and carried out, or refused with nothing touched.

use super::layout::{self, Table, column_name, column_type, quote, search_name, table_name};
use super::{
    Edition, Options, erasure, idempotency, open, outbox, read, retell, retention, rewrite, search,
    timers, usage, views,
};
use crate::Error;
use model::record::{Scalar, parse_object, to_scalar};
use model::schema::evolve::{Accept, Check, CheckRule, Plan, Step, Stored, evolve};
use model::schema::{parse, plan};
use model::version::Versions;
use model::{CollectionIx, Schema, Scope};
use rusqlite::{Connection, Row, TransactionBehavior, params};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Examples shown of values that stand in the way.
pub const EXAMPLES: usize = 5;

pub fn apply(
    connection: &mut Connection,
    stored: Option<Stored>,
    versions: &Versions,
    options: &Options,
) -> Result<Stored, Error> {
    let edition = &options.edition;
    let schema = &**versions.kept();
    let plan = evolve(stored.as_ref(), versions, edition.accept);
    let before = match stored.is_some() {
        true => open::text(connection)?.and_then(|text| served_before(&text)),
        false => None,
    };
    let accepted = match &before {
        Some(before) => {
            let misfits = || misfits(connection, stored.as_ref(), versions, &plan);
            review(before, schema, edition, misfits)?
        }
        None => Vec::new(),
    };
    let plan = plan.map_err(Error::Refused)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if stored.is_none() {
        open::create_base(&transaction)?;
    }
    transaction.execute_batch(outbox::TABLES)?;
    outbox::move_pauses(&transaction)?;
    for sql in [erasure::PENDING, erasure::INDEXES, retention::INDEX, timers::INDEX] {
        transaction.execute_batch(sql)?;
    }
    usage::begin(&transaction, (options.clock)())?;
    let unchanged = stored.as_ref() == Some(&plan.stored);
    let mut refusals = Vec::new();
    for check in &plan.checks {
        refusals.extend(broken(&transaction, schema, check)?);
    }
    if !refusals.is_empty() {
        return Err(Error::Refused(refusals));
    }
    let undated = stored.as_ref().is_some_and(|stored| stored.version.is_none());
    if let Some(view) = versions.get(plan.from).filter(|_| undated) {
        // Rows that an older release remembered do not say what they were written under.
        idempotency::date(&transaction, &view.date)?;
    }
    if let Some(before) = before {
        retell::log(&transaction, before, versions)?;
    }
    if !unchanged {
        carry_out(&transaction, versions, &plan)?;
        let text =
            serde_json::to_string(&plan.stored).map_err(|error| Error::Failed(Box::new(error)))?;
        transaction.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?1)", [text])?;
    }
    // Also where the schema is the same: this release may want other indexes than the last one.
    for ix in 0..schema.collections.len() {
        reconcile_indexes(&transaction, schema, ix)?;
    }
    let edited = edition.text.is_some() && edition.text != open::text(&transaction)?;
    if edited || !unchanged {
        let refusals = rewrite::unstable(&transaction, versions)?;
        if !refusals.is_empty() {
            return Err(Error::Refused(refusals));
        }
    }
    complete_searches(&transaction, schema, &plan.stored)?;
    if let Some(text) = &edition.text {
        keep_text(&transaction, text)?;
    }
    timers::drop_unknown(&transaction, schema)?;
    open::mark(&transaction)?;
    views::make(&transaction)?;
    transaction.commit()?;
    for edit in accepted {
        tracing::warn!(%edit, "an edit of the schema is accepted");
    }
    Ok(plan.stored)
}

/// The schema that was served last, as this release reads it.
fn served_before(text: &str) -> Option<Schema> {
    let read = parse::parse(text).ok();
    if read.is_none() {
        // It was served by a release that took what this one does not.
        tracing::warn!("the schema that was last served cannot be read; edits are not compared");
    }
    read
}

/// Refuses edits of the schema file that are neither safe, nor declared, nor accepted. Beside them
/// stands why the data does not fit, if it does not. Says which were accepted.
fn review(
    before: &Schema,
    schema: &Schema,
    edition: &Edition,
    misfits: impl FnOnce() -> Result<Vec<String>, Error>,
) -> Result<Vec<plan::Edit>, Error> {
    let edits = plan::plan(before, schema);
    let accepted = match edition.accept {
        Accept::Nothing => plan::Class::Safe,
        Accept::Changes => plan::Class::NeedsVersion,
        Accept::Loss => plan::Class::Destructive,
    };
    if edits.iter().any(|edit| edit.class > accepted) {
        return Err(Error::Refused(plan::refusal(&edits, before, &misfits()?)));
    }
    Ok(edits.into_iter().filter(|edit| edit.class != plan::Class::Safe).collect())
}

/// Why the data does not fit: what a flag would delete, and what no flag would change.
fn misfits(
    connection: &Connection,
    stored: Option<&Stored>,
    versions: &Versions,
    plan: &Result<Plan, Vec<String>>,
) -> Result<Vec<String>, Error> {
    let mut found = plan.as_ref().err().cloned().unwrap_or_default();
    match evolve(stored, versions, Accept::Loss) {
        Ok(plan) => {
            for check in &plan.checks {
                found.extend(broken(connection, versions.kept(), check)?);
            }
        }
        Err(refusals) => {
            found.extend(
                refusals.into_iter().filter(|one| !found.contains(one)).collect::<Vec<_>>(),
            );
        }
    }
    Ok(found)
}

/// Keeps the schema file beside the data it fits: the next start compares with it.
fn keep_text(connection: &Connection, text: &str) -> Result<(), rusqlite::Error> {
    if open::text(connection)?.as_deref() != Some(text) {
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_text', ?1)", [text])?;
    }
    Ok(())
}

fn carry_out(connection: &Connection, versions: &Versions, plan: &Plan) -> Result<(), Error> {
    let schema = &**versions.kept();
    let tables = layout::tables(schema, &plan.stored);
    let mut refusals = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Create(ix) => {
                connection.execute_batch(&layout::create_table(&schema.collections[*ix]))?;
                if let Some(search) = &tables[*ix].search {
                    connection.execute_batch(&search.create)?;
                }
            }
            Step::AddColumn { collection, field } => {
                add_column(connection, schema, *collection, field)?;
            }
            Step::DropColumn { collection, field } => {
                let name = &schema.collections[*collection].name;
                drop_indexes(connection, name, |sql| sql.contains(&column_name(field)))?;
                connection.execute_batch(&format!(
                    "ALTER TABLE {} DROP COLUMN {}",
                    quote(&table_name(name)),
                    column_name(field)
                ))?;
            }
            Step::Delete(name) => {
                drop_search(connection, name)?;
                connection.execute_batch(&format!("DROP TABLE {}", quote(&table_name(name))))?;
                tracing::warn!(collection = %name, "deleted with its records, as accepted");
            }
            Step::Forget { collection, field } => {
                let name = &schema.collections[*collection].name;
                forget(connection, name, field)?;
                tracing::warn!(collection = %name, %field, "values are deleted, as accepted");
            }
            Step::RebuildSearch(ix) => rebuild_search(connection, schema, &tables, *ix)?,
            Step::DropSearch(ix) => drop_search(connection, &schema.collections[*ix].name)?,
            Step::Rewrite(ix) => {
                let Some(view) = versions.get(plan.from) else { continue };
                refusals.extend(rewrite::collection(connection, schema, view, *ix, &tables[*ix])?);
                rebuild_search(connection, schema, &tables, *ix)?;
            }
        }
    }
    match refusals.is_empty() {
        true => Ok(()),
        false => Err(Error::Refused(refusals)),
    }
}

/// Makes the indexes that are missing and drops those that nobody asks for any more.
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

fn add_column(
    connection: &Connection,
    schema: &Schema,
    ix: CollectionIx,
    name: &str,
) -> Result<(), Error> {
    let collection = &schema.collections[ix];
    let Some(field) = collection.field(name) else { return Ok(()) };
    let (table, column) = (quote(&table_name(&collection.name)), column_name(name));
    connection.execute_batch(&format!(
        "ALTER TABLE {table} ADD COLUMN {column} {}",
        column_type(&field.kind)
    ))?;
    let mut update =
        connection.prepare(&format!("UPDATE {table} SET {column} = ?1 WHERE n = ?2"))?;
    let absent = collection.absent(field);
    each_row(connection, &collection.name, |n, row| {
        let value = value_of(row, name)?.unwrap_or_else(|| absent.clone());
        let scalar = to_scalar(&field.kind, &value);
        if scalar != Scalar::Null {
            update.execute(params![read::Bound(&scalar), n])?;
        }
        Ok(())
    })
}

/// Takes a field out of every row.
fn forget(connection: &Connection, collection: &str, field: &str) -> Result<(), Error> {
    let table = quote(&table_name(collection));
    let sql = format!("UPDATE {table} SET body = ?1, hidden = ?2 WHERE n = ?3");
    let mut update = connection.prepare(&sql)?;
    each_row(connection, collection, |n, row| {
        let without = |text: &str| {
            let mut fields = parse_object(text);
            fields.remove(field).map(|_| Value::Object(fields).to_string())
        };
        let (body, hidden): (String, Option<String>) = (row.get(1)?, row.get(2)?);
        let (less, hidden_less) = (without(&body), hidden.as_deref().and_then(without));
        if less.is_some() || hidden_less.is_some() {
            update.execute(params![less.unwrap_or(body), hidden_less.or(hidden), n])?;
        }
        Ok(())
    })
}

/// Visits every row of a collection; the columns are n, body, hidden, scope, id.
pub fn each_row(
    connection: &Connection,
    collection: &str,
    mut visit: impl FnMut(i64, &Row<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    // In pages: the rows are changed while they are walked.
    const PAGE: i64 = 1_000;
    let mut select = connection.prepare(&format!(
        "SELECT n, body, hidden, scope, id FROM {} WHERE n > ?1 ORDER BY n LIMIT {PAGE}",
        quote(&table_name(collection))
    ))?;
    let mut last = 0;
    loop {
        let before = last;
        let mut rows = select.query([last])?;
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            visit(last, row)?;
        }
        if last == before {
            return Ok(());
        }
    }
}

/// A field of a row, public or hidden; `None` if the row was written without it.
fn value_of(row: &Row<'_>, field: &str) -> Result<Option<Value>, Error> {
    let body: String = row.get(1)?;
    let hidden: Option<String> = row.get(2)?;
    for text in [Some(body), hidden].into_iter().flatten() {
        if let Ok(Value::Object(mut fields)) = serde_json::from_str(&text)
            && let Some(value) = fields.remove(field)
        {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn drop_search(connection: &Connection, collection: &str) -> Result<(), Error> {
    let name = quote(&search_name(collection));
    Ok(connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?)
}

/// Makes indexes anew that an older release made without the removed fields.
fn complete_searches(
    connection: &Connection,
    schema: &Schema,
    stored: &Stored,
) -> Result<(), Error> {
    let tables = layout::tables(schema, stored);
    for (ix, table) in tables.iter().enumerate() {
        let Some(search) = &table.search else { continue };
        let name = search_name(&schema.collections[ix].name);
        let columns = "SELECT count(*) FROM pragma_table_info(?1)";
        let columns: usize =
            connection.query_row(columns, [name], |row| row.get::<_, u32>(0))? as usize;
        // One more for the scope.
        if columns != search.fields.len() + 1 {
            rebuild_search(connection, schema, &tables, ix)?;
        }
    }
    Ok(())
}

fn rebuild_search(
    connection: &Connection,
    schema: &Schema,
    tables: &[Table],
    ix: CollectionIx,
) -> Result<(), Error> {
    let collection = &schema.collections[ix].name;
    drop_search(connection, collection)?;
    let Some(search) = &tables[ix].search else { return Ok(()) };
    connection.execute_batch(&search.create)?;
    each_row(connection, collection, |n, row| {
        let record = model::Record {
            id: row.get(4)?,
            number: n,
            version: 0,
            updated: model::Timestamp(0),
            body: row.get(1)?,
            hidden: row.get(2)?,
        };
        search::insert(connection, search, Scope(row.get(3)?), &record).map(drop)
    })
}

/// Why the data breaks a check, if it does.
fn broken(
    connection: &Connection,
    schema: &Schema,
    check: &Check,
) -> Result<Option<String>, Error> {
    let collection = &schema.collections[check.collection].name;
    let mut found: Vec<String> = Vec::new();
    let mut seen: HashMap<(i64, String), u32> = HashMap::new();
    let mut rows = 0u64;
    each_row(connection, collection, |_, row| {
        rows += 1;
        let id: String = row.get(4)?;
        match &check.rule {
            CheckRule::Empty => {}
            CheckRule::NoNulls { field } => {
                if value_of(row, field)?.is_none_or(|value| value.is_null()) {
                    found.push(id);
                }
            }
            CheckRule::Unused { field, value } => {
                if value_of(row, field)?.is_some_and(|found| found == value.as_str()) {
                    found.push(id);
                }
            }
            CheckRule::NoDuplicates { field } => {
                if let Some(value) = value_of(row, field)?.filter(|value| !value.is_null()) {
                    let times = seen.entry((row.get(3)?, value.to_string())).or_default();
                    *times += 1;
                    if *times == 2 {
                        found.push(value.to_string());
                    }
                }
            }
            CheckRule::Resolves { field, target } => {
                if let Some(Value::String(named)) = value_of(row, field)? {
                    let table = quote(&table_name(&schema.collections[*target].name));
                    let sql = format!("SELECT 1 FROM {table} WHERE id = ?1 AND scope = ?2");
                    let scope: i64 = row.get(3)?;
                    if !connection.prepare_cached(&sql)?.exists(params![named, scope])? {
                        found.push(named);
                    }
                }
            }
        }
        found.truncate(EXAMPLES);
        Ok(())
    })?;
    if matches!(check.rule, CheckRule::Empty) {
        return Ok((rows > 0).then(|| check.message.clone()));
    }
    Ok((!found.is_empty()).then(|| format!("{} Found: {}.", check.message, found.join(", "))))
}
