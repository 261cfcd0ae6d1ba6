//! The search indexes: followers of the log that live in the same database. Fed by the writer in
//! bounded turns; position and index rows change in one transaction, so they never disagree.

use super::layout::{SearchField, SearchTable};
use super::read;
use super::shared::Shared;
use crate::Error;
use model::query::Query;
use model::record::Fields;
use model::{CollectionIx, Record, Scope};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Events read in one turn at most.
const TURN: i64 = 500;
/// A turn ends after the record with which it has lasted so long, or indexed so many bytes of text:
/// the next commit waits for it. What was indexed is written down at the end, which takes about as
/// long again.
const TURN_TIME: Duration = Duration::from_millis(5);
const TURN_BYTES: usize = 256 << 10;
/// Words of one query that count.
const WORDS: usize = 64;

/// One turn: reads some events and brings the rows they are about up to date. Returns how far the
/// indexes have come.
pub fn feed(connection: &Connection, shared: &Shared) -> Result<i64, Error> {
    let unread = unread(connection, shared, i64::MAX)?;
    index(connection, shared, unread, |_| Ok(()))
}

/// Records that the indexes have to look at again.
pub struct Unread {
    /// Events after `from` up to `upto` are about them.
    from: i64,
    pub upto: i64,
    records: Vec<Named>,
}

/// A record and the first event about it.
struct Named {
    seq: i64,
    collection: CollectionIx,
    scope: Scope,
    id: String,
}

impl Unread {
    /// The same, but no event after `last`.
    pub fn until(mut self, last: i64) -> Unread {
        self.upto = self.upto.min(last).max(self.from);
        self.records.retain(|record| record.seq <= last);
        self
    }

    pub fn is_none(&self) -> bool {
        self.from == self.upto
    }
}

/// What the next events say that the indexes have not read, up to a sequence.
pub fn unread(connection: &Connection, shared: &Shared, upto: i64) -> Result<Unread, Error> {
    let from = shared.state.search_position.load(Ordering::Acquire);
    let mut unread = Unread { from, upto: from, records: Vec::new() };
    let mut seen = HashSet::new();
    let mut statement = connection.prepare_cached(
        "SELECT seq, scope, collection, record FROM log WHERE seq > ?1 AND seq <= ?2 \
         ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![from, upto, TURN])?;
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        unread.upto = seq;
        let name = row.get_ref(2)?.as_str().unwrap_or_default();
        let Some(ix) = shared.schema.find(name) else { continue };
        let id: String = row.get(3)?;
        // The current row includes the changes of later events of this turn.
        if shared.tables[ix].search.is_some() && seen.insert((ix, id.clone())) {
            unread.records.push(Named { seq, collection: ix, scope: Scope(row.get(1)?), id });
        }
    }
    Ok(unread)
}

/// Brings the rows up to date, those that a turn has time for; returns how far the indexes have
/// come. The events themselves are not needed any more: `done_with` is called before each row with
/// the last one that is not.
pub fn index(
    connection: &Connection,
    shared: &Shared,
    unread: Unread,
    mut done_with: impl FnMut(i64) -> Result<(), Error>,
) -> Result<i64, Error> {
    let (began, mut bytes) = (Instant::now(), 0);
    let mut reached = unread.upto;
    for (place, record) in unread.records.iter().enumerate() {
        if place > 0 && (bytes >= TURN_BYTES || began.elapsed() >= TURN_TIME) {
            // Events in between are about rows that are up to date.
            reached = record.seq - 1;
            break;
        }
        done_with(record.seq)?;
        bytes += follow(connection, shared, record, unread.from)?;
        std::thread::yield_now();
    }
    connection
        .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'search_position'")?
        .execute([reached])?;
    Ok(reached)
}

/// Brings one row up to date; returns the bytes of text that it has. Rows created after `from` were
/// never indexed and are not deleted first: deleting a missing row is expensive (it leaves a mark
/// in every segment of the index).
fn follow(
    connection: &Connection,
    shared: &Shared,
    named: &Named,
    from: i64,
) -> Result<usize, Error> {
    let Named { collection: ix, scope, ref id, .. } = *named;
    let Some(search) = &shared.tables[ix].search else { return Ok(0) };
    let ids = std::slice::from_ref(id);
    let found = read::by_ids(connection, shared, scope, ix, ids, usize::MAX)?;
    let found = found.and_then(|mut found| found.pop());
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
        None => Ok(0),
    }
}

/// Adds one record to an index that does not have it; returns how many bytes of text.
pub fn insert(
    connection: &Connection,
    search: &SearchTable,
    scope: Scope,
    record: &Record,
) -> Result<usize, Error> {
    let fields = record.fields();
    let mut bytes = 0;
    let mut statement = connection.prepare_cached(&search.insert)?;
    statement.raw_bind_parameter(1, record.number)?;
    statement.raw_bind_parameter(2, scope_word(scope))?;
    for (place, field) in search.fields.iter().enumerate() {
        let text = text_of(&fields, &field.name);
        bytes += text.as_ref().map_or(0, String::len);
        statement.raw_bind_parameter(3 + place, text)?;
    }
    statement.raw_execute()?;
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::super::testbed::{Bed, HERE};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_turn_is_bounded_by_the_text_it_indexes() {
        let bed =
            Bed::new("[collections.books.fields]\ntitle = { type = 'string', search = true }\n");
        let words = |n: usize| (0..8_000).map(|i| format!("{n}w{i} ")).collect::<String>();
        let (shared, mut records) = (&bed.store.shared, Vec::new());
        for n in 0..12 {
            let made = bed.put(bed.create(HERE, "books", json!({ "title": words(n) }))).await;
            let (collection, scope) = (bed.ix("books"), HERE);
            records.push(Named { seq: made.version, collection, scope, id: made.id });
        }
        let seqs: Vec<i64> = records.iter().map(|record| record.seq).collect();
        let connection = Connection::open(&shared.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (newest, mut passed) = (shared.state.newest(), Vec::new());
        // From the end: what the writer has indexed by itself is replaced.
        let unread = Unread { from: newest, upto: newest, records };
        let reached = index(&connection, shared, unread, |seq| {
            passed.push(seq);
            Ok(())
        });
        let reached = reached.unwrap();
        assert_eq!(passed, seqs[..passed.len()], "in order");
        let most = TURN_BYTES.div_ceil(words(0).len());
        assert!((1..=most).contains(&passed.len()), "{} records in one turn", passed.len());
        assert_eq!(reached, seqs[passed.len()] - 1, "the next turn begins with the next one");
    }
}
