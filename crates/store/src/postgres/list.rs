//! Lists on PostgreSQL: runs the statements of a plan and reads their rows.

use super::bounded::{self, End};
use super::connect::{Cells, Client};
use super::layout::{self, Table, TypedColumn};
use super::param::{Param, decoded, params};
use super::read::FromRow;
use super::shared::Shared;
use super::{erasure, log, retention, search, shortened, views};
use crate::list::{self, Condition, Dialect, Found, Plan, Search, Shortened, Statement};
use crate::{Error, Page};
use model::query::{self, Filter, Position, Query};
use model::record::Scalar;
use model::{CollectionIx, Record, Scope};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// Rows that may have changed since the first page; beyond that the list must start again.
const MOVED: usize = 10_000;
/// Bytes of these rows. All of them are in memory at once; 10,000 usual rows have 20 MiB.
const MOVED_BYTES: usize = 64 * 1024 * 1024;

const OBJECTS_AT: &str = concat!(
    "SELECT q.place, l.object, l.api_version, l.hidden FROM unnest($1::text[]) WITH ORDINALITY \
     q(id, place) JOIN LATERAL (SELECT ",
    erasure::object!("log"),
    " AS object, api_version, ",
    erasure::or_null!("log", "hidden"),
    " AS hidden FROM log WHERE log.scope = $4 AND log.record = q.id AND log.seq <= $2 \
     AND log.collection = $3 ORDER BY log.seq DESC LIMIT 1) l ON true"
);

impl Dialect for Shared {
    fn table(&self, collection: CollectionIx) -> &str {
        &self.tables[collection].name
    }

    fn column(&self, collection: CollectionIx, field: &str) -> Option<&str> {
        column(self, collection, field).map(|column| column.name.as_str())
    }

    fn shortened(&self, collection: CollectionIx, field: &str) -> Option<Shortened> {
        let column = column(self, collection, field).filter(|column| column.shortens)?;
        let column = shortened::sql(&format!("t.{}", column.name));
        Some(Shortened { column, of: shortened::of })
    }

    fn assigned(&self, field: &str) -> String {
        layout::physical(field)
    }

    fn changed(&self, collection: CollectionIx) -> &str {
        &self.tables[collection].from_changed
    }

    fn like(&self, column: &str) -> String {
        views::like(column, "?")
    }

    fn order(&self, column: &str, descending: bool) -> String {
        format!("{column}{}", if descending { " DESC NULLS LAST" } else { " ASC NULLS FIRST" })
    }

    fn filter(&self, collection: CollectionIx, filter: &Filter) -> Option<(String, Vec<Scalar>)> {
        views::filter(&self.schema, &self.tables[collection], filter)
    }

    fn search(&self, _: Scope, collection: CollectionIx, query: &Query) -> Option<Search> {
        let table = &self.tables[collection];
        let expression = search::expression(table.search.as_deref()?, query)?;
        let rows = &table.name;
        // The expression has letters, digits and quotes of its own: it is quoted as a literal,
        // because a rank needs it before the values of the conditions.
        let quoted = format!("'{}'", expression.replace('\'', "''"));
        Some(Search {
            leading: format!(
                "FROM {rows} t CROSS JOIN LATERAL (SELECT -ts_rank(t.search, {quoted}::tsquery, \
                 2) AS rank) r WHERE t.scope = ?"
            ),
            matches: "t.search @@ ?::text::tsquery".to_owned(),
            restricts: "t.search @@ ?::text::tsquery".to_owned(),
            expression,
        })
    }
}

fn column<'a>(shared: &'a Shared, ix: CollectionIx, field: &str) -> Option<&'a TypedColumn> {
    let declared = &shared.schema.collections[ix].fields;
    let mut columns = shared.tables[ix].columns.iter();
    columns.find(|column| declared[column.place].name == field)
}

/// Whether the list costs no more than the rows it returns, so that it needs no turn among the long
/// reads.
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

/// Whether the list is one statement, so that it needs no transaction.
pub fn is_single(query: &Query) -> bool {
    match &query.page {
        query::Page::Offset(_) => false,
        query::Page::First => true,
        query::Page::After(_) => !list::moves(query) && query.sort.len() == 1,
    }
}

/// How much a read may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Beside the short reads of everybody.
    Short,
    /// On a connection of its own.
    Page,
}

/// A page; none if it does not fit into the room. A list that is not `is_single` runs in a
/// transaction with one snapshot.
pub async fn list<T: FromRow>(
    client: &Client,
    shared: &Shared,
    (scope, ix): (Scope, CollectionIx),
    query: &Query,
    room: Room,
) -> Result<Option<Page<T>>, Error> {
    let plan = Plan::new(shared, &shared.schema, scope, ix, query)?;
    let max_bytes = if room == Room::Short { list::SHORT_BYTES } else { list::PAGE_BYTES };
    let lister = Lister { client, shared, plan, room, size: Size::new(max_bytes) };
    let page = page(&lister, query).await?;
    Ok(Some(page).filter(|_| room == Room::Page || !lister.size.is_cut()))
}

async fn page<T: FromRow>(lister: &Lister<'_>, query: &Query) -> Result<Page<T>, Error> {
    let (limit, all) = (list::more(query), Condition::default());
    let page_of = |rows: Vec<Found<T>>, snapshot| {
        // The last row only shows that there are more.
        let is_cut = lister.size.is_cut();
        let limit = if is_cut { rows.len() - 1 } else { query.limit as usize };
        list::page_of(rows, limit, snapshot)
    };
    match &query.page {
        query::Page::Offset(page) => {
            let page = lister.offset(*page, query.limit).await?;
            match lister.size.is_cut() {
                true => Err(Error::TooLarge),
                false => Ok(page),
            }
        }
        query::Page::First => {
            let rows = lister.rows(&all, limit, 0).await?;
            Ok(page_of(rows, lister.size.seen.load(Ordering::Relaxed)))
        }
        query::Page::After(position) => {
            let rows = match list::moves(query) {
                true => {
                    let rows = lister.after_moves(position, limit).await?;
                    rows.into_iter().map(cast).collect()
                }
                false => lister.after(position, &all, limit).await?,
            };
            Ok(page_of(rows, position.snapshot))
        }
    }
}

fn cast<T: FromRow>(found: Found<Record>) -> Found<T> {
    Found { row: T::of(found.row), number: found.number, keys: found.keys }
}

struct Lister<'a> {
    client: &'a Client,
    shared: &'a Shared,
    plan: Plan<'a>,
    room: Room,
    size: Size,
}

/// The bytes of the rows that were read. A future that holds it moves between threads.
struct Size {
    max_bytes: usize,
    bytes: AtomicUsize,
    /// Whether more rows follow than the size allows. The last one that was read only shows that.
    is_cut: AtomicBool,
    /// Sequence of the newest event that the statement saw.
    seen: AtomicI64,
}

impl Size {
    fn new(max_bytes: usize) -> Size {
        let (bytes, is_cut) = (AtomicUsize::new(0), AtomicBool::new(false));
        Size { max_bytes, bytes, is_cut, seen: AtomicI64::new(0) }
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.max_bytes
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

/// The statement with the database's marks for its values. Question marks in quotes are text.
fn numbered(sql: &str) -> String {
    let (mut out, mut count, mut quote) = (String::with_capacity(sql.len() + 16), 0, None);
    for character in sql.chars() {
        match (quote, character) {
            (None, '?') => {
                count += 1;
                out.push_str(&format!("${count}"));
                continue;
            }
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
        out.push(character);
    }
    out
}

fn bound(values: &[Scalar]) -> Vec<Param<'_>> {
    values.iter().map(Param::from).collect()
}

/// A sort key as the database returned it.
fn scalar(row: &Row, place: usize) -> Result<Scalar, Error> {
    Ok(match *row.columns()[place].type_() {
        Type::INT8 => row.cell::<Option<i64>>(place)?.map(Scalar::Integer),
        Type::INT4 => row.cell::<Option<i32>>(place)?.map(|one| Scalar::Integer(one.into())),
        Type::FLOAT8 => row.cell::<Option<f64>>(place)?.map(Scalar::Number),
        _ => row.cell::<Option<String>>(place)?.map(|text| Scalar::Text(decoded(text))),
    }
    .unwrap_or(Scalar::Null))
}

impl Lister<'_> {
    fn table(&self) -> &Table {
        &self.shared.tables[self.plan.collection]
    }

    async fn offset<T: FromRow>(&self, page: u64, limit: u32) -> Result<Page<T>, Error> {
        let Statement { sql, values } = self.plan.count();
        let row = self.client.row(&numbered(&sql), &bound(&values)).await?;
        let total = row.map_or(Ok(0), |row| row.cell::<i64>(0))?;
        let total = u64::try_from(total).unwrap_or(0);
        let skip = list::skipped(page, limit);
        let rows = match skip < total {
            true => self.rows(&Condition::default(), limit as usize, skip).await?,
            false => Vec::new(),
        };
        Ok(list::offset_page_of(rows, skip, total))
    }

    async fn rows<T: FromRow>(
        &self,
        condition: &Condition,
        limit: usize,
        skip: u64,
    ) -> Result<Vec<Found<T>>, Error> {
        let (columns, width) = T::columns(self.table());
        // In the snapshot of the rows.
        let columns = format!("{columns}, (SELECT coalesce(max(seq), 0) FROM log)");
        let statement = self.plan.rows(&columns, condition, limit, skip);
        self.read(&statement, width, limit, &self.size).await
    }

    /// Reads rows: `width` columns, the newest sequence, the sort keys.
    async fn read<T: FromRow>(
        &self,
        statement: &Statement,
        width: usize,
        limit: usize,
        size: &Size,
    ) -> Result<Vec<Found<T>>, Error> {
        let (sql, values) = (numbered(&statement.sql), bound(&statement.values));
        let (table, before) = (self.table(), size.bytes.load(Ordering::Relaxed));
        let (mut bytes, end) = (
            size.max_bytes.saturating_sub(before),
            match self.room {
                Room::Short => End::At,
                Room::Page => End::After,
            },
        );
        loop {
            let texts = T::texts(table);
            let limits = (bytes, end);
            let (rows, more) = bounded::first(self.client, texts, (&sql, &values), limits).await?;
            let found = self.take(&rows, width, limit, size)?;
            if !more || size.is_cut() {
                return Ok(found);
            }
            if self.room == Room::Short {
                size.cut(true);
                return Ok(found);
            }
            // Texts of an older shape may have become shorter.
            bytes = bytes.max(1).saturating_mul(4);
            size.bytes.store(before, Ordering::Relaxed);
        }
    }

    /// Reads rows until they have their size.
    fn take<T: FromRow>(
        &self,
        rows: &[Row],
        width: usize,
        limit: usize,
        size: &Size,
    ) -> Result<Vec<Found<T>>, Error> {
        let collection = &self.shared.schema.collections[self.plan.collection];
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            size.cut(size.is_full());
            size.seen.store(row.cell(width)?, Ordering::Relaxed);
            let text = T::read(row, self.table(), collection)?;
            size.add(text.bytes());
            // The last row only shows whether there are more, and the page ends before it. Number
            // and keys are needed only there, unless rows are to be merged.
            let may_end = found.len() + 2 >= limit || size.is_full();
            let (number, keys) = match self.plan.every_key || may_end {
                true => {
                    let places = width + 1..width + 1 + self.plan.keys.len();
                    let keys = places.map(|place| scalar(row, place));
                    (row.cell(0)?, keys.collect::<Result<_, _>>()?)
                }
                false => (0, Vec::new()),
            };
            found.push(Found { row: text, number, keys });
            if size.is_cut() {
                break;
            }
        }
        Ok(found)
    }

    /// The rows after a position that also meet a condition.
    async fn after<T: FromRow>(
        &self,
        position: &Position,
        also: &Condition,
        limit: usize,
    ) -> Result<Vec<Found<T>>, Error> {
        let mut found = Vec::new();
        for condition in self.plan.after(position, also)? {
            found.extend(self.rows(&condition, limit - found.len(), 0).await?);
            if found.len() == limit || self.size.is_cut() {
                break;
            }
        }
        Ok(found)
    }

    /// The rows after a position, in the order of its snapshot.
    async fn after_moves(
        &self,
        position: &Position,
        limit: usize,
    ) -> Result<Vec<Found<Record>>, Error> {
        let snapshot = || Scalar::Integer(position.snapshot);
        if !self.changed_since(position.snapshot).await? {
            return self.after(position, &Condition::default(), limit).await;
        }
        // The log must still hold every change since then.
        if retention::oldest(self.client).await? > position.snapshot + 1 {
            return Err(Error::SnapshotTooOld);
        }
        let unchanged = Condition::default().and("t.version <= ?", [snapshot()]);
        let rows = self.after(position, &unchanged, limit).await?;
        // Rows that end early say nothing about what follows them.
        let limit = if self.size.is_cut() { rows.len() } else { limit };
        let moved = self.moved(position.snapshot).await?;
        let mut rows = list::merge(&self.plan, rows, moved, position, limit);
        self.cut(&mut rows);
        Ok(rows)
    }

    /// Rows that changed since a snapshot, with the sort keys that they had.
    async fn moved(&self, snapshot: i64) -> Result<Vec<Found<Record>>, Error> {
        let since = || Scalar::Integer(snapshot);
        let changed = Condition::default().and("t.version > ? AND t.n <= ?", [since(), since()]);
        let (columns, width) = Record::columns(self.table());
        let columns = format!("{columns}, 0::bigint");
        let statement = self.plan.changed_rows(&columns, &changed, MOVED + 1);
        let size = Size::new(MOVED_BYTES);
        let mut moved: Vec<Found<Record>> = self.read(&statement, width, MOVED + 1, &size).await?;
        if moved.len() > MOVED || size.is_cut() {
            return Err(Error::SnapshotTooOld);
        }
        let collection = &self.shared.schema.collections[self.plan.collection];
        let ids: Vec<&str> = moved.iter().map(|row| row.row.id.as_str()).collect();
        let values = params![ids, snapshot, &collection.name, self.plan.scope.0];
        let mut keys: Vec<Option<Vec<Scalar>>> = vec![None; moved.len()];
        for row in self.client.query(OBJECTS_AT, values).await? {
            let place = usize::try_from(row.cell::<i64>(0)? - 1).unwrap_or(usize::MAX);
            let event = (row.cell(1)?, row.cell(2)?, row.cell(3)?);
            if let Some(known) = keys.get_mut(place) {
                *known = list::keys_at(&self.plan, &self.shared.versions, event);
            }
        }
        for (row, keys) in moved.iter_mut().zip(keys) {
            // The place of a row is unknown when its event was erased or has expired. To skip it in
            // silence would be wrong: the list must start again.
            row.keys = keys.ok_or(Error::SnapshotTooOld)?;
        }
        Ok(moved)
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
            self.size.cut(true);
        }
    }

    /// Whether the collection may have changed. The sequences in memory answer, unless this
    /// transaction sees a commit that they do not know yet.
    async fn changed_since(&self, snapshot: i64) -> Result<bool, Error> {
        let (visible, state) = (log::newest(self.client).await?.0, &self.shared.state);
        let last = state.seqs.of(self.plan.scope, self.plan.collection);
        Ok(visible > self.shared.adopted() || last > snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn question_marks_in_quotes_are_text() {
        let sql = "SELECT \"a?\" FROM t WHERE x = ? AND y = 'it''s ?' AND z IN (?, ?)";
        let expected = "SELECT \"a?\" FROM t WHERE x = $1 AND y = 'it''s ?' AND z IN ($2, $3)";
        assert_eq!(numbered(sql), expected);
    }
}
