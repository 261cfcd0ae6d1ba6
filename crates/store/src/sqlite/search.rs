//! The search indexes: followers of the log that live in the same database. Fed by the writer in
//! bounded turns; position and index rows change in one transaction, so they never disagree.

use super::commits::Commits;
use super::layout::{SearchField, SearchTable};
use super::read;
use super::shared::Shared;
use crate::Error;
use model::query::Query;
use model::record::Fields;
use model::{Record, Scope};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Events read in one turn: some 15 ms of work, which the next commit waits for.
const TURN: i64 = 500;
/// Words of one query that count.
const WORDS: usize = 64;

/// How many events the indexes have not read; zero when there is no index.
pub fn lag(shared: &Shared) -> i64 {
    match is_used(shared) {
        true => shared.newest() - shared.search_position.load(Ordering::Acquire),
        false => 0,
    }
}

fn is_used(shared: &Shared) -> bool {
    shared.tables.iter().any(|table| table.search.is_some())
}

/// One turn: reads some events and brings the rows they are about up to date.
pub fn feed(connection: &Connection, shared: &Shared, commits: &mut Commits) -> Result<(), Error> {
    commits.mend(connection, shared)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let unread = unread(connection, shared, i64::MAX)?;
    index(connection, shared, &unread)?;
    commits.end(connection, shared)?;
    shared.readers.changed();
    shared.search_position.store(unread.upto, Ordering::Release);
    Ok(())
}

/// Records that the indexes have to look at again.
pub struct Unread {
    /// Events after `from` up to `upto` are about them.
    from: i64,
    pub upto: i64,
    records: Vec<(usize, Scope, String)>,
}

impl Unread {
    pub fn is_none(&self) -> bool {
        self.from == self.upto
    }
}

/// What the next events say that the indexes have not read, up to a sequence.
pub fn unread(connection: &Connection, shared: &Shared, upto: i64) -> Result<Unread, Error> {
    let from = shared.search_position.load(Ordering::Acquire);
    let mut unread = Unread { from, upto: from, records: Vec::new() };
    let mut seen = HashSet::new();
    let mut statement = connection.prepare_cached(
        "SELECT seq, scope, collection, record FROM log WHERE seq > ?1 AND seq <= ?2 \
         ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![from, upto, TURN])?;
    while let Some(row) = rows.next()? {
        unread.upto = row.get(0)?;
        let name = row.get_ref(2)?.as_str().unwrap_or_default();
        let Some(ix) = shared.schema.find(name) else { continue };
        let id: String = row.get(3)?;
        // The row as it is now includes what later events of this turn tell of it.
        if shared.tables[ix].search.is_some() && seen.insert((ix, id.clone())) {
            unread.records.push((ix, Scope(row.get(1)?), id));
        }
    }
    Ok(unread)
}

/// Brings the rows up to date. The events themselves are not needed any more.
pub fn index(connection: &Connection, shared: &Shared, unread: &Unread) -> Result<(), Error> {
    for (ix, scope, id) in &unread.records {
        if let Some(search) = &shared.tables[*ix].search {
            follow(connection, shared, (*ix, search), *scope, id, unread.from)?;
            std::thread::yield_now();
        }
    }
    connection
        .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'search_position'")?
        .execute([unread.upto])?;
    Ok(())
}

/// Brings one row up to date. Rows made after `from` were never indexed: there is nothing to
/// remove, and removing what is not there is dear (it leaves a mark in every segment of the index).
fn follow(
    connection: &Connection,
    shared: &Shared,
    (ix, search): (usize, &SearchTable),
    scope: Scope,
    id: &str,
    from: i64,
) -> Result<(), Error> {
    let found = read::by_ids(connection, shared, scope, ix, &[id.to_owned()])?.pop();
    let number = match &found {
        Some(record) => Some(record.number),
        None => connection
            .prepare_cached("SELECT n FROM tombstones WHERE id = ?1 AND collection = ?2")?
            .query_row(params![id, shared.schema.collections[ix].name], |row| row.get(0))
            .optional()?,
    };
    if let Some(number) = number.filter(|number| *number <= from) {
        connection.prepare_cached(&search.delete)?.execute([number])?;
    }
    match found {
        Some(record) => insert(connection, search, scope, &record),
        None => Ok(()),
    }
}

/// Adds one record to an index that does not have it.
pub fn insert(
    connection: &Connection,
    search: &SearchTable,
    scope: Scope,
    record: &Record,
) -> Result<(), Error> {
    let fields = record.fields();
    let mut statement = connection.prepare_cached(&search.insert)?;
    statement.raw_bind_parameter(1, record.number)?;
    statement.raw_bind_parameter(2, scope_word(scope))?;
    for (place, field) in search.fields.iter().enumerate() {
        statement.raw_bind_parameter(3 + place, text_of(&fields, &field.name))?;
    }
    statement.raw_execute()?;
    Ok(())
}

fn text_of(fields: &Fields, name: &str) -> Option<String> {
    match fields.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn scope_word(scope: Scope) -> String {
    format!("s{}", scope.0)
}

/// The full-text expression: the scope, and every word in the searched fields; none where there
/// are no such fields. Each word is a quoted string, so nothing in it can be an operator.
pub fn expression(search: &SearchTable, scope: Scope, query: &Query) -> Option<String> {
    let looked_into = |field: &&SearchField| !field.removed || query.revealed.contains(&field.name);
    let fields = search.fields.iter().filter(looked_into);
    let columns: Vec<&str> = fields.map(|field| field.column.as_str()).collect();
    if columns.is_empty() {
        return None;
    }
    let columns = columns.join(" ");
    let mut out = format!("scope_ : \"{}\" AND {{{columns}}} : (", scope_word(scope));
    for word in query.words.iter().take(WORDS) {
        out.push('"');
        for character in word.chars() {
            match character {
                '"' => out.push_str("\"\""),
                // The expression is read as a C string.
                '\0' => out.push(' '),
                other => out.push(other),
            }
        }
        out.push_str("\" ");
    }
    out.push(')');
    Some(out)
}
