//! Lists on SQLite: runs the statements of a plan and reads their rows.

use super::layout;
use super::read::{self, FromRow};
use super::shared::Shared;
use super::{erasure, log, retention, search, views};
use crate::list::{self, Condition, Dialect, Found, Plan, Search, Statement};
use crate::{Error, Page};
use model::query::{self, Filter, Position, Query};
use model::record::Scalar;
use model::{CollectionIx, Record, Scope};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use std::cell::Cell;

/// Rows that may have changed since the first page; beyond that the list must start again.
const MOVED: usize = 10_000;
/// Bytes of these rows. All of them are in memory at once; 10,000 usual rows have 20 MiB.
const MOVED_BYTES: usize = 64 * 1024 * 1024;

const OBJECT_AT: &str = concat!(
    "SELECT ",
    erasure::object!("log"),
    ", api_version, ",
    erasure::or_null!("log", "hidden"),
    " FROM log WHERE record = ?1 AND seq <= ?2 AND collection = ?3 AND scope = ?4 \
     ORDER BY seq DESC LIMIT 1"
);

impl Dialect for Shared {
    fn table(&self, collection: CollectionIx) -> &str {
        &self.tables[collection].name
    }

    fn column(&self, collection: CollectionIx, field: &str) -> Option<&str> {
        let declared = &self.schema.collections[collection].fields;
        let mut columns = self.tables[collection].columns.iter();
        let found = columns.find(|(place, _)| declared[*place].name == field);
        found.map(|(_, column)| column.as_str())
    }

    fn assigned(&self, field: &str) -> String {
        layout::physical(field)
    }

    fn changed(&self, collection: CollectionIx) -> &str {
        &self.tables[collection].from_changed
    }

    fn like(&self, column: &str) -> String {
        format!("{column} GLOB ?")
    }

    fn order(&self, column: &str, descending: bool) -> String {
        format!("{column}{}", if descending { " DESC" } else { " ASC" })
    }

    fn filter(&self, collection: CollectionIx, filter: &Filter) -> Option<(String, Vec<Scalar>)> {
        views::filter(&self.schema, &self.tables[collection], filter)
    }

    fn search(&self, scope: Scope, collection: CollectionIx, query: &Query) -> Option<Search> {
        let table = &self.tables[collection];
        let index = table.search.as_ref()?;
        let (name, rows) = (&index.name, &table.name);
        Some(Search {
            // A cross join fixes the order of the loops: the index leads.
            leading: format!(
                "FROM {name} CROSS JOIN {rows} t ON t.n = {name}.rowid WHERE t.scope = ?"
            ),
            matches: format!("{name} MATCH ?"),
            restricts: format!("t.n IN (SELECT rowid FROM {name} WHERE {name} MATCH ?)"),
            expression: search::expression(index, scope, query)?,
        })
    }
}

/// Whether the list costs no more than the rows it returns, so that the calling thread may run it.
pub fn is_short(shared: &Shared, scope: Scope, ix: CollectionIx, query: &Query) -> bool {
    let collection = &shared.schema.collections[ix];
    let unmoved = match &query.page {
        query::Page::Offset(_) => return false,
        query::Page::First => true,
        query::Page::After(position) => {
            !list::moves(query) || shared.state.seqs.of(scope, ix) <= position.snapshot
        }
    };
    let owned = collection.parent.is_none() || query.parent.is_some();
    unmoved
        && owned
        && !collection.is_view()
        && query.words.is_empty()
        && list::has_index(&shared.schema, ix, query)
}

/// How much a list may read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// What the thread of a request may read. A longer page is not read to its end.
    Short,
    /// What a page may have. A longer one ends early.
    Page,
}

/// A page; none if it has more bytes than `room` and cannot end early.
pub fn list<T: FromRow>(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    ix: CollectionIx,
    query: &Query,
    room: Room,
) -> Result<Option<Page<T>>, Error> {
    let plan = Plan::new(shared, &shared.schema, scope, ix, query)?;
    let max_bytes = if room == Room::Short { list::SHORT_BYTES } else { list::PAGE_BYTES };
    let lister = Lister { connection, shared, plan, size: Size::new(max_bytes) };
    let page = page(&lister, query)?;
    let may_end_early = room == Room::Page && !matches!(query.page, query::Page::Offset(_));
    Ok(Some(page).filter(|_| may_end_early || !lister.size.is_cut.get()))
}

fn page<T: FromRow>(lister: &Lister<'_>, query: &Query) -> Result<Page<T>, Error> {
    let Lister { connection, shared, .. } = *lister;
    let (limit, all) = (list::more(query), Condition::default());
    let page_of = |rows: Vec<Found<T>>, snapshot| {
        // The last row only shows that there are more.
        let is_cut = lister.size.is_cut.get();
        let limit = if is_cut { rows.len() - 1 } else { query.limit as usize };
        list::page_of(rows, limit, snapshot)
    };
    match &query.page {
        query::Page::Offset(page) => consistent(connection, || lister.offset(*page, query.limit)),
        query::Page::First if list::moves(query) => consistent(connection, || {
            let (seq, _) = log::newest(connection)?;
            Ok(page_of(lister.rows(&all, limit, 0)?, seq))
        }),
        query::Page::First => {
            let seq = shared.state.newest();
            Ok(page_of(lister.rows(&all, limit, 0)?, seq))
        }
        query::Page::After(position) => consistent(connection, || {
            let rows = match list::moves(query) {
                true => lister.after_moves(position, limit)?.into_iter().map(cast).collect(),
                false => lister.after(position, &all, limit)?,
            };
            Ok(page_of(rows, position.snapshot))
        }),
    }
}

fn cast<T: FromRow>(found: Found<Record>) -> Found<T> {
    Found { row: T::of(found.row), number: found.number, keys: found.keys }
}

/// Several statements that see the same state.
fn consistent<T>(
    connection: &Connection,
    read: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    if !connection.is_autocommit() {
        return read();
    }
    connection.prepare_cached("BEGIN")?.execute([])?;
    let result = read();
    connection.prepare_cached("COMMIT")?.execute([])?;
    result
}

struct Lister<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    plan: Plan<'a>,
    size: Size,
}

/// The bytes of the rows that were read.
struct Size {
    max_bytes: usize,
    bytes: Cell<usize>,
    /// Whether more rows follow than the size allows. The last one that was read only shows that.
    is_cut: Cell<bool>,
}

impl Size {
    fn new(max_bytes: usize) -> Size {
        Size { max_bytes, bytes: Cell::new(0), is_cut: Cell::new(false) }
    }

    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn is_full(&self) -> bool {
        self.bytes.get() >= self.max_bytes
    }
}

impl Lister<'_> {
    fn offset<T: FromRow>(&self, page: u64, limit: u32) -> Result<Page<T>, Error> {
        let Statement { sql, values } = self.plan.count();
        let total: i64 = self
            .connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(values.iter().map(read::Bound)), |row| row.get(0))?;
        let total = u64::try_from(total).unwrap_or(0);
        let skip = list::skipped(page, limit);
        let rows = match skip < total {
            true => self.rows(&Condition::default(), limit as usize, skip)?,
            false => Vec::new(),
        };
        Ok(list::offset_page_of(rows, skip, total))
    }

    fn rows<T: FromRow>(
        &self,
        condition: &Condition,
        limit: usize,
        skip: u64,
    ) -> Result<Vec<Found<T>>, Error> {
        let (columns, width) = T::columns(&self.shared.tables[self.plan.collection]);
        self.read(&self.plan.rows(columns, condition, limit, skip), width, limit, &self.size)
    }

    fn read<T: FromRow>(
        &self,
        statement: &Statement,
        width: usize,
        limit: usize,
        size: &Size,
    ) -> Result<Vec<Found<T>>, Error> {
        let table = &self.shared.tables[self.plan.collection];
        let collection = &self.shared.schema.collections[self.plan.collection];
        let mut prepared = self.connection.prepare_cached(&statement.sql)?;
        let mut rows =
            prepared.query(params_from_iter(statement.values.iter().map(read::Bound)))?;
        let mut found = Vec::with_capacity(limit.min(128));
        while let Some(row) = rows.next()? {
            size.is_cut.set(size.is_full());
            let text = T::read(row, table, collection)?;
            size.add(text.bytes());
            // The last row only shows whether there are more, and the page ends before it. Number
            // and keys are needed only there, unless rows are to be merged.
            let may_end = found.len() + 2 >= limit || size.is_full();
            let (number, keys) = match self.plan.every_key || may_end {
                true => {
                    let places = width..width + self.plan.keys.len();
                    let keys = places.map(|place| row.get_ref(place).map(read::scalar_of));
                    (row.get(0)?, keys.collect::<Result<_, _>>()?)
                }
                false => (0, Vec::new()),
            };
            found.push(Found { row: text, number, keys });
            if size.is_cut.get() {
                break;
            }
        }
        Ok(found)
    }

    /// The rows after a position that also meet a condition.
    fn after<T: FromRow>(
        &self,
        position: &Position,
        also: &Condition,
        limit: usize,
    ) -> Result<Vec<Found<T>>, Error> {
        let mut found = Vec::new();
        for condition in self.plan.after(position, also)? {
            found.extend(self.rows(&condition, limit - found.len(), 0)?);
            if found.len() == limit || self.size.is_cut.get() {
                break;
            }
        }
        Ok(found)
    }

    /// The rows after a position, in the order of its snapshot.
    fn after_moves(&self, position: &Position, limit: usize) -> Result<Vec<Found<Record>>, Error> {
        let snapshot = || Scalar::Integer(position.snapshot);
        if !self.changed_since(position.snapshot)? {
            return self.after(position, &Condition::default(), limit);
        }
        // The log must still hold every change since then.
        if retention::oldest(self.connection)? > position.snapshot + 1 {
            return Err(Error::SnapshotTooOld);
        }
        let unchanged = Condition::default().and("t.version <= ?", [snapshot()]);
        let rows = self.after(position, &unchanged, limit)?;
        // Rows that end early say nothing about what follows them.
        let limit = if self.size.is_cut.get() { rows.len() } else { limit };
        let changed =
            Condition::default().and("t.version > ? AND t.n <= ?", [snapshot(), snapshot()]);
        let (columns, width) = Record::columns(&self.shared.tables[self.plan.collection]);
        let statement = self.plan.changed_rows(columns, &changed, MOVED + 1);
        let size = Size::new(MOVED_BYTES);
        let mut moved: Vec<Found<Record>> = self.read(&statement, width, MOVED + 1, &size)?;
        if moved.len() > MOVED || size.is_cut.get() {
            return Err(Error::SnapshotTooOld);
        }
        for row in &mut moved {
            // The place of a row is unknown when its event was erased or has expired. To skip it in
            // silence would be wrong: the list must start again.
            let keys = self.keys_at(&row.row.id, position.snapshot)?;
            row.keys = keys.ok_or(Error::SnapshotTooOld)?;
        }
        let mut rows = list::merge(&self.plan, rows, moved, position, limit);
        self.cut(&mut rows);
        Ok(rows)
    }

    /// Ends merged rows one after the row with which the page is full.
    fn cut(&self, rows: &mut Vec<Found<Record>>) {
        let mut bytes = 0;
        let full = rows.iter().position(|row| {
            bytes += row.row.bytes();
            bytes >= self.size.max_bytes
        });
        if let Some(last) = full.filter(|last| last + 1 < rows.len()) {
            rows.truncate(last + 2);
            self.size.is_cut.set(true);
        }
    }

    /// Whether the collection may have changed. The sequences in memory answer, unless this
    /// transaction sees a commit that they do not know yet.
    fn changed_since(&self, snapshot: i64) -> Result<bool, rusqlite::Error> {
        let (visible, state) = (log::newest(self.connection)?.0, &self.shared.state);
        let last = state.seqs.of(self.plan.scope, self.plan.collection);
        Ok(visible > state.newest() || last > snapshot)
    }

    /// The sort keys that a record had at the snapshot; `None` when they are not known any more.
    fn keys_at(&self, id: &str, snapshot: i64) -> Result<Option<Vec<Scalar>>, Error> {
        let collection = &self.shared.schema.collections[self.plan.collection];
        let mut statement = self.connection.prepare_cached(OBJECT_AT)?;
        let bound = params![id, snapshot, collection.name, self.plan.scope.0];
        let found = statement
            .query_row(bound, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        Ok(found.and_then(|event| list::keys_at(&self.plan, &self.shared.versions, event)))
    }
}

#[cfg(test)]
mod tests;
