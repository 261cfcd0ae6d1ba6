//! Bringing the rows of one collection up to the newest version, inside the transaction that opens
//! the database: text, hidden part and typed columns. A row that cannot be is named, and then
//! nothing is changed.

use super::layout::{Table, column_name, column_type, quote, table_name};
use super::upgrade::{EXAMPLES, drop_indexes, each_row};
use super::{read, timers};
use crate::Error;
use model::record::{self, Fields, parse_object, to_scalar};
use model::version::{Versions, View};
use model::{Collection, CollectionIx, Problem, Schema};
use rusqlite::{Connection, params};

/// Rewrites every row; says why not, if it cannot be.
pub fn collection(
    connection: &Connection,
    schema: &Schema,
    view: &View,
    ix: CollectionIx,
    table: &Table,
) -> Result<Vec<String>, Error> {
    let newest = &schema.collections[ix];
    // Columns that an index names cannot go. The rest is made anew afterwards, all at once.
    drop_indexes(connection, &newest.name, |sql| sql.contains("\"f_"))?;
    columns(connection, newest, table)?;
    let sets: String = table
        .columns
        .iter()
        .enumerate()
        .map(|(place, (_, column))| format!(", {column} = ?{}", 5 + place))
        .collect();
    let sql =
        format!("UPDATE {} SET shape = ?1, body = ?2, hidden = ?3{sets} WHERE n = ?4", table.name);
    let mut update = connection.prepare(&sql)?;
    let (mut refusals, mut rows) = (Vec::new(), 0u64);
    each_row(connection, &newest.name, |n, row| {
        let (body, hidden): (String, Option<String>) = (row.get(1)?, row.get(2)?);
        let mut fields = parse_object(&body);
        fields.extend(parse_object(hidden.as_deref().unwrap_or("{}")));
        let fields = match view.raise(ix, &fields) {
            Ok(fields) => fields,
            Err(problem) => {
                let id: String = row.get(4)?;
                if refusals.len() < EXAMPLES {
                    refusals.push(refusal(schema, newest, &id, &problem));
                }
                return Ok(());
            }
        };
        update.raw_bind_parameter(1, table.shape)?;
        update.raw_bind_parameter(2, record::encode(newest, &fields))?;
        update.raw_bind_parameter(3, record::encode_hidden(newest, &fields))?;
        update.raw_bind_parameter(4, n)?;
        for (at, (place, _)) in table.columns.iter().enumerate() {
            let scalar = scalar(newest, *place, &fields);
            update.raw_bind_parameter(5 + at, read::Bound(&scalar))?;
        }
        update.raw_execute()?;
        rows += 1;
        Ok(())
    })?;
    refusals.extend(duplicates(connection, schema, newest, table)?);
    let (collection, from, to) = (&newest.name, &view.date, &schema.service.version);
    if refusals.is_empty() {
        tracing::info!(%collection, rows, %from, %to, "records are brought to the newest version");
    }
    timers::rename(connection, &view.schema.collections[ix], newest)?;
    Ok(refusals)
}

/// Records whose values would not survive a conversion: what a client of an older version reads
/// and sends back would be kept as something else.
pub fn unstable(connection: &Connection, versions: &Versions) -> Result<Vec<String>, Error> {
    let mut refusals = Vec::new();
    for (ix, collection) in versions.kept().collections.iter().enumerate() {
        let views: Vec<_> = versions.iter().filter(|view| view.converts(ix)).collect();
        if views.is_empty() {
            continue;
        }
        each_row(connection, &collection.name, |_, row| {
            let (body, hidden): (String, Option<String>) = (row.get(1)?, row.get(2)?);
            let mut fields = parse_object(&body);
            fields.extend(parse_object(hidden.as_deref().unwrap_or("{}")));
            let found = views.iter().find_map(|view| view.unstable(ix, &fields));
            if let Some(what) = found.filter(|_| refusals.len() < EXAMPLES) {
                let id: String = row.get(4)?;
                refusals.push(format!(
                    "collection `{}`: record `{id}` does not survive a `convert`: {what}. Correct \
                     the formulas, or declare `lossy = true`.",
                    collection.name
                ));
            }
            Ok(())
        })?;
    }
    Ok(refusals)
}

fn scalar(collection: &Collection, place: usize, fields: &Fields) -> record::Scalar {
    let field = &collection.fields[place];
    fields.get(&field.name).map_or(record::Scalar::Null, |value| to_scalar(&field.kind, value))
}

fn refusal(schema: &Schema, collection: &Collection, id: &str, problem: &Problem) -> String {
    let reasons = problem.violations.iter().map(|one| one.message.as_str());
    let reasons: Vec<&str> = reasons.collect();
    let reason = match reasons.is_empty() {
        true => problem.message.clone(),
        false => reasons.join(" "),
    };
    format!(
        "collection `{}`: record `{id}` cannot be brought to version {}: {reason} Change it with \
         the schema it was written under, then try again.",
        collection.name, schema.service.version
    )
}

/// Gives the table the typed columns it shall have. One of another type is made anew.
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

/// Values that must be unique and are not any more, since several became one.
fn duplicates(
    connection: &Connection,
    schema: &Schema,
    collection: &Collection,
    table: &Table,
) -> Result<Vec<String>, Error> {
    let mut refusals = Vec::new();
    let unique = table.columns.iter().filter(|(place, _)| collection.fields[*place].unique);
    for (place, column) in unique {
        let mut statement = connection.prepare(&format!(
            "SELECT min(id), max(id) FROM {} WHERE {column} IS NOT NULL GROUP BY scope, {column} \
             HAVING count(*) > 1 LIMIT ?1",
            table.name
        ))?;
        let mut rows = statement.query(params![EXAMPLES as i64])?;
        while let Some(row) = rows.next()? {
            let (one, other): (String, String) = (row.get(0)?, row.get(1)?);
            refusals.push(format!(
                "collection `{}`: records `{one}` and `{other}` would share a value of the unique \
                 field `{}` in version {}. Change one of them first.",
                collection.name, collection.fields[*place].name, schema.service.version
            ));
        }
    }
    Ok(refusals)
}
