//! Lists: a query becomes SQL whose identifiers come from the schema and whose values are bound.
//! Cursor pages are keyset reads; what comes after a position is read in segments that an index can
//! serve, one range each, instead of one condition full of ORs. Moved rows are `snapshot`'s.

use super::layout::{self, Table};
use super::read::Kept;
use super::shared::Shared;
use super::{log, read, search, snapshot, views};
use crate::{Error, Page};
use model::query::{self, Filter, Position, Query, Test};
use model::record::Scalar;
use model::{Collection, CollectionIx, Record, Schema, Scope};
use rusqlite::{Connection, Row, params_from_iter};

/// Whether the list costs no more than the rows it returns, so that the calling thread may run it.
pub fn is_short(shared: &Shared, scope: Scope, ix: CollectionIx, query: &Query) -> bool {
    let collection = &shared.schema.collections[ix];
    let unmoved = match &query.page {
        query::Page::Offset(_) => return false,
        query::Page::First => true,
        query::Page::After(position) => {
            !moves(query) || shared.state.seqs.of(scope, ix) <= position.snapshot
        }
    };
    let owned = collection.parent.is_none() || query.parent.is_some();
    unmoved
        && owned
        && !collection.is_view()
        && query.words.is_empty()
        && has_index(&shared.schema, ix, query)
}

/// Whether one index gives the rows that are wanted and no others, in order. The indexes are those
/// of `layout::indexes`.
fn has_index(schema: &Schema, ix: CollectionIx, query: &Query) -> bool {
    if query.sort.iter().any(|key| key.shown.is_some()) {
        return false;
    }
    let is_indexed = |field: &str| is_indexed(schema, ix, field);
    match query.filters.as_slice() {
        [] => match query.sort.as_slice() {
            [] => false,
            [only] => is_indexed(&only.field),
            [first, rest @ ..] => {
                let collection = &schema.collections[ix];
                // One with further fields would give equal rows in their order.
                let declared = |index: &model::schema::Index| {
                    index.fields.iter().eq(query.sort.iter().map(|key| &key.field))
                };
                rest.iter().all(|key| key.descending == first.descending)
                    && collection.indexes.iter().any(declared)
            }
        },
        // So many rows are read as there are ids. A range of ids has no end.
        [only] if only.field == "id" => match &only.test {
            Test::AnyOf(values) => !values.contains(&Scalar::Null),
            _ => false,
        },
        [only] => match &only.test {
            Test::AnyOf(values) => match values.as_slice() {
                [Scalar::Null] => sorts_by_creation(query) && is_indexed(&only.field),
                [_] => {
                    let field = schema.collections[ix].field(&only.field);
                    let unique = field.is_some_and(|field| field.unique);
                    sorts_by_creation(query) && (unique || is_indexed(&only.field))
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}

/// Whether an index has all rows of an owner by this field. That of a unique field lacks the nulls.
fn is_indexed(schema: &Schema, ix: CollectionIx, field: &str) -> bool {
    let collection = &schema.collections[ix];
    if matches!(field, "created_at" | "updated_at") {
        return true;
    }
    let declared = collection.field(field).filter(|field| field.has_column());
    let owns = schema.parent_field(ix).is_none_or(|parent| parent != field);
    owns && declared.is_some_and(|field| !field.unique || field.sort)
}

fn equals_one(filter: &Filter) -> bool {
    matches!(&filter.test, Test::AnyOf(values) if values.len() == 1)
}

fn sorts_by_creation(query: &Query) -> bool {
    matches!(query.sort.as_slice(), [only] if only.field == "created_at")
}

/// Whether an update can change a row's place in this order.
pub fn moves(query: &Query) -> bool {
    query.sort.iter().any(|key| key.field != "created_at")
}

pub fn list<T: Kept>(
    connection: &Connection,
    shared: &Shared,
    scope: Scope,
    ix: CollectionIx,
    query: &Query,
) -> Result<Page<T>, Error> {
    let plan = Plan::new(shared, scope, ix, query)?;
    match &query.page {
        query::Page::Offset(page) => {
            consistent(connection, || plan.offset(connection, *page, query.limit))
        }
        query::Page::First if moves(query) => consistent(connection, || {
            let (seq, _) = log::newest(connection)?;
            let rows = plan.rows(connection, &Condition::default(), more(query))?;
            Ok(page_of(rows, query.limit, seq))
        }),
        query::Page::First => {
            let seq = shared.state.newest();
            let rows = plan.rows(connection, &Condition::default(), more(query))?;
            Ok(page_of(rows, query.limit, seq))
        }
        query::Page::After(position) => consistent(connection, || {
            let (limit, seen) = (more(query), position.snapshot);
            if moves(query) {
                let rows = snapshot::after(connection, &plan, position, limit)?;
                let rows = rows.into_iter().map(Found::cast).collect();
                return Ok(page_of(rows, query.limit, seen));
            }
            let rows = plan.after(connection, position, &Condition::default(), limit)?;
            Ok(page_of(rows, query.limit, seen))
        }),
    }
}

/// Rows to read: one more than shown tells whether there are more.
fn more(query: &Query) -> usize {
    query.limit as usize + 1
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

fn page_of<T>(mut rows: Vec<Found<T>>, limit: u32, snapshot: i64) -> Page<T> {
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let position = rows.last_mut().filter(|_| has_more).map(|last| Position {
        keys: std::mem::take(&mut last.keys),
        number: last.number,
        snapshot,
    });
    let records = rows.into_iter().map(|row| row.kept).collect();
    Page { records, has_more, total: None, position, search_behind: 0 }
}

/// A row with the values it is sorted by.
pub struct Found<T> {
    pub kept: T,
    pub number: i64,
    pub keys: Vec<Scalar>,
}

impl Found<Record> {
    fn cast<T: Kept>(self) -> Found<T> {
        Found { kept: T::of(self.kept), number: self.number, keys: self.keys }
    }
}

/// A piece of a WHERE clause with the values of its question marks.
#[derive(Clone, Default)]
pub struct Condition {
    text: String,
    values: Vec<Scalar>,
}

impl Condition {
    pub fn and(mut self, text: &str, values: impl IntoIterator<Item = Scalar>) -> Condition {
        self.text.push_str(" AND ");
        self.text.push_str(text);
        self.values.extend(values);
        self
    }
}

pub struct Key {
    pub field: String,
    pub shown: Option<query::Shown>,
    pub column: String,
    pub descending: bool,
    pub nullable: bool,
}

/// A query in terms of the tables.
pub struct Plan<'a> {
    pub shared: &'a Shared,
    pub scope: Scope,
    pub collection: CollectionIx,
    pub keys: Vec<Key>,
    /// Order by row number alone: the order of creation, which every index carries along.
    by_number: bool,
    by_rank: bool,
    /// Whether the keys of every row are wanted, or only those of the row where a page may end.
    every_key: bool,
    from: String,
    base: Condition,
}

impl<'a> Plan<'a> {
    fn new(
        shared: &'a Shared,
        scope: Scope,
        ix: CollectionIx,
        query: &Query,
    ) -> Result<Plan<'a>, Error> {
        let table = &shared.tables[ix];
        let collection = &shared.schema.collections[ix];
        let by_rank = query.sort.iter().any(|key| key.field == "rank");
        let keys = query.sort.iter().filter(|key| key.field != "rank");
        let keys = keys.map(|key| resolve_key(table, collection, key));
        let keys = keys.collect::<Result<_, _>>()?;
        let searched = !query.words.is_empty();
        let by_number = by_rank && query.sort.len() == 1
            || sorts_by_creation(query)
                && (searched || collection.is_view() || query.filters.iter().any(equals_one));
        let mut plan = Plan {
            shared,
            scope,
            collection: ix,
            keys,
            by_number,
            by_rank: by_rank && searched,
            // Rows are merged by their keys where some have moved.
            every_key: matches!(query.page, query::Page::After(_)) && moves(query),
            from: format!("FROM {} t WHERE t.scope = ?", table.name),
            base: Condition { text: String::new(), values: vec![Scalar::Integer(scope.0)] },
        };
        if let Some(parent) = &query.parent {
            plan.restrict("t.parent = ?", [Scalar::Text(parent.clone())]);
        }
        if searched {
            plan.search(table, query)?;
        }
        for filter in &query.filters {
            plan.filter(table, collection, filter)?;
        }
        Ok(plan)
    }

    fn restrict(&mut self, text: &str, values: impl IntoIterator<Item = Scalar>) {
        self.base = std::mem::take(&mut self.base).and(text, values);
    }

    /// The search index leads where its own order is asked for, else it only restricts.
    fn search(&mut self, table: &Table, query: &Query) -> Result<(), Error> {
        let none = || unknown("searchable field");
        let search = table.search.as_ref().ok_or_else(none)?;
        let name = &search.name;
        let expression =
            Scalar::Text(search::expression(search, self.scope, query).ok_or_else(none)?);
        if self.by_number || self.by_rank {
            self.from = format!(
                "FROM {name} CROSS JOIN {} t ON t.n = {name}.rowid WHERE t.scope = ?",
                table.name
            );
            self.restrict(&format!("{name} MATCH ?"), [expression]);
        } else {
            let rows = format!("t.n IN (SELECT rowid FROM {name} WHERE {name} MATCH ?)");
            self.restrict(&rows, [expression]);
        }
        Ok(())
    }

    fn filter(
        &mut self,
        table: &Table,
        collection: &Collection,
        filter: &Filter,
    ) -> Result<(), Error> {
        if filter.field == "id" && table.feed {
            return self.filter_feed_ids(&filter.test);
        }
        if let Some((text, values)) = views::filter(&self.shared.schema, table, filter) {
            self.restrict(&text, values);
            return Ok(());
        }
        self.test(&column(table, collection, &filter.field)?, &filter.test);
        Ok(())
    }

    fn test(&mut self, column: &str, test: &Test) {
        match test {
            Test::Like(patterns) => {
                let some = vec![format!("{column} GLOB ?"); patterns.len()].join(" OR ");
                self.restrict(&format!("({some})"), patterns.iter().cloned().map(Scalar::Text));
            }
            Test::Min(value) => self.restrict(&format!("{column} >= ?"), [value.clone()]),
            Test::Max(value) => self.restrict(&format!("{column} <= ?"), [value.clone()]),
            Test::Shown { by, test } => {
                self.test(&shown(by, column), test);
            }
            Test::AnyOf(values) => {
                let some: Vec<Scalar> =
                    values.iter().filter(|value| **value != Scalar::Null).cloned().collect();
                let null = some.len() < values.len();
                let among = match some.len() {
                    0 => "0".to_owned(),
                    1 => format!("{column} = ?"),
                    many => format!("{column} IN ({})", vec!["?"; many].join(", ")),
                };
                match null {
                    true if some.is_empty() => self.restrict(&format!("{column} IS NULL"), []),
                    true => self.restrict(&format!("({among} OR {column} IS NULL)"), some),
                    false => self.restrict(&among, some),
                }
            }
        }
    }

    /// Ids of a feed are row numbers; text that is none names no row.
    fn filter_feed_ids(&mut self, test: &Test) -> Result<(), Error> {
        let number = |value: &Scalar| match value {
            Scalar::Integer(number) => Scalar::Integer(*number),
            Scalar::Text(text) => Scalar::Integer(text.parse().unwrap_or(0)),
            _ => Scalar::Integer(0),
        };
        match test {
            Test::Min(value) => self.restrict("t.n >= ?", [number(value)]),
            Test::Max(value) => self.restrict("t.n <= ?", [number(value)]),
            Test::Like(_) | Test::Shown { .. } => return Err(unknown("pattern")),
            Test::AnyOf(values) => {
                let marks = vec!["?"; values.len()].join(", ");
                self.restrict(&format!("t.n IN ({marks})"), values.iter().map(number));
            }
        }
        Ok(())
    }

    fn order(&self) -> String {
        let way = |descending| if descending { " DESC" } else { " ASC" };
        let mut parts = Vec::new();
        if self.by_rank {
            parts.push("rank".to_owned());
        }
        if !self.by_number {
            let keys = self.keys.iter();
            parts.extend(keys.map(|key| format!("{}{}", key.column, way(key.descending))));
        }
        parts.push(format!("t.n{}", way(self.last_descends())));
        format!(" ORDER BY {}", parts.join(", "))
    }

    /// The tie-break goes the way of the last key.
    pub fn last_descends(&self) -> bool {
        self.keys.last().is_none_or(|key| key.descending)
    }

    fn offset<T: Kept>(
        &self,
        connection: &Connection,
        page: u64,
        limit: u32,
    ) -> Result<Page<T>, Error> {
        let sql = format!("SELECT count(*) {}{}", self.from, self.base.text);
        let total: i64 = connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(self.base.values.iter().map(read::Bound)), |row| {
                row.get(0)
            })?;
        let skip = page.saturating_sub(1).saturating_mul(u64::from(limit));
        let total = u64::try_from(total).unwrap_or(0);
        let rows = match skip < total {
            true => self.read(connection, &Condition::default(), limit as usize, skip)?,
            false => Vec::new(),
        };
        let has_more = skip.saturating_add(rows.len() as u64) < total;
        let records = rows.into_iter().map(|row| row.kept).collect();
        Ok(Page { records, has_more, total: Some(total), position: None, search_behind: 0 })
    }

    /// The first rows that meet the query and a further condition.
    pub fn rows<T: Kept>(
        &self,
        connection: &Connection,
        condition: &Condition,
        limit: usize,
    ) -> Result<Vec<Found<T>>, Error> {
        self.read(connection, condition, limit, 0)
    }

    fn read<T: Kept>(
        &self,
        connection: &Connection,
        condition: &Condition,
        limit: usize,
        skip: u64,
    ) -> Result<Vec<Found<T>>, Error> {
        self.read_from(connection, &self.from, condition, limit, skip)
    }

    /// Rows that changed since they were made and meet the query and a further condition.
    pub fn changed(
        &self,
        connection: &Connection,
        condition: &Condition,
        limit: usize,
    ) -> Result<Vec<Found<Record>>, Error> {
        let from = &self.shared.tables[self.collection].from_changed;
        self.read_from(connection, from, condition, limit, 0)
    }

    fn read_from<T: Kept>(
        &self,
        connection: &Connection,
        from: &str,
        condition: &Condition,
        limit: usize,
        skip: u64,
    ) -> Result<Vec<Found<T>>, Error> {
        let table = &self.shared.tables[self.collection];
        let collection = &self.shared.schema.collections[self.collection];
        let (columns, width) = T::columns(table);
        let mut sql = format!("SELECT {columns}");
        for key in &self.keys {
            sql.push_str(", ");
            sql.push_str(&key.column);
        }
        sql.push(' ');
        sql.push_str(from);
        sql.push_str(&self.base.text);
        sql.push_str(&condition.text);
        sql.push_str(&self.order());
        sql.push_str(" LIMIT ? OFFSET ?");
        let limits = [
            Scalar::Integer(limit as i64),
            Scalar::Integer(i64::try_from(skip).unwrap_or(i64::MAX)),
        ];
        let values = self.base.values.iter().chain(&condition.values).chain(&limits);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values.map(read::Bound)))?;
        let mut found = Vec::with_capacity(limit.min(128));
        while let Some(row) = rows.next()? {
            // A page ends one row before the one that tells whether there are more: only there are
            // number and keys of use, unless rows are to be merged.
            let (number, keys) = match self.every_key || found.len() + 2 >= limit {
                true => (row.get(0)?, self.keys_of(row, width)?),
                false => (0, Vec::new()),
            };
            found.push(Found { kept: T::read(row, table, collection)?, number, keys });
        }
        Ok(found)
    }

    fn keys_of(&self, row: &Row<'_>, from: usize) -> Result<Vec<Scalar>, rusqlite::Error> {
        (from..from + self.keys.len())
            .map(|place| row.get_ref(place).map(read::scalar_of))
            .collect()
    }

    /// The rows after a position that also meet a condition.
    pub fn after<T: Kept>(
        &self,
        connection: &Connection,
        position: &Position,
        also: &Condition,
        limit: usize,
    ) -> Result<Vec<Found<T>>, Error> {
        if position.keys.len() != self.keys.len() {
            return Err(unknown("position"));
        }
        let mut found = Vec::new();
        for segment in self.segments(position) {
            let mut condition = also.clone();
            condition.text.push_str(&segment.text);
            condition.values.extend(segment.values);
            found.extend(self.rows(connection, &condition, limit - found.len())?);
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }

    /// What lies after a position, as consecutive ranges, nearest first. Null is smallest.
    fn segments(&self, position: &Position) -> Vec<Condition> {
        let number = Scalar::Integer(position.number);
        let beyond = if self.last_descends() { "<" } else { ">" };
        let none = Condition::default;
        if self.by_number {
            return vec![none().and(&format!("t.n {beyond} ?"), [number])];
        }
        let pairs = || self.keys.iter().zip(&position.keys);
        let one_way = self.keys.iter().all(|key| key.descending == self.last_descends());
        let full = pairs()
            .all(|(key, value)| *value != Scalar::Null && (!key.descending || !key.nullable));
        if one_way && full {
            let columns: Vec<&str> = self.keys.iter().map(|key| key.column.as_str()).collect();
            let marks = vec!["?"; columns.len()].join(", ");
            let text = format!("({}, t.n) {beyond} ({marks}, ?)", columns.join(", "));
            let values = position.keys.iter().cloned().chain([number]);
            return vec![none().and(&text, values)];
        }
        if let ([key], [value]) = (self.keys.as_slice(), position.keys.as_slice())
            && *value != Scalar::Null
        {
            let text = format!("({}, t.n) {beyond} (?, ?)", key.column);
            let nulls = none().and(&format!("{} IS NULL", key.column), []);
            return vec![none().and(&text, [value.clone(), number]), nulls];
        }
        let prefix = |count: usize| {
            pairs().take(count).fold(none(), |condition, (key, value)| match value {
                Scalar::Null => condition.and(&format!("{} IS NULL", key.column), []),
                value => condition.and(&format!("{} = ?", key.column), [value.clone()]),
            })
        };
        let mut segments = vec![prefix(self.keys.len()).and(&format!("t.n {beyond} ?"), [number])];
        for (place, (key, value)) in pairs().enumerate().collect::<Vec<_>>().into_iter().rev() {
            let column = &key.column;
            let mut add = |text: String, values: Vec<Scalar>| {
                segments.push(prefix(place).and(&text, values));
            };
            match (key.descending, value) {
                (false, Scalar::Null) => add(format!("{column} IS NOT NULL"), Vec::new()),
                (false, value) => add(format!("{column} > ?"), vec![value.clone()]),
                (true, Scalar::Null) => {}
                (true, value) => {
                    add(format!("{column} < ?"), vec![value.clone()]);
                    if key.nullable {
                        add(format!("{column} IS NULL"), Vec::new());
                    }
                }
            }
        }
        segments
    }
}

fn resolve_key(table: &Table, collection: &Collection, key: &query::SortKey) -> Result<Key, Error> {
    let mut column = column(table, collection, &key.field)?;
    if let Some(by) = &key.shown {
        column = shown(by, &column);
    }
    // Required ones too: an action may set what a request may not.
    let nullable = collection.field(&key.field).is_some() || key.shown.is_some();
    let (field, shown) = (key.field.clone(), key.shown.clone());
    Ok(Key { field, shown, column, descending: key.descending, nullable })
}

/// What an older version shows of a column, as SQL.
fn shown(by: &query::Shown, column: &str) -> String {
    let words = by
        .words
        .iter()
        .map(|(kept, shown)| format!(" WHEN {column} = {} THEN {}", literal(kept), literal(shown)));
    let null = by.fill.iter().map(|fill| format!(" WHEN {column} IS NULL THEN {}", literal(fill)));
    let cases: String = null.chain(words).collect();
    match cases.is_empty() {
        true => column.to_owned(),
        false => format!("CASE{cases} ELSE {column} END"),
    }
}

/// A value of the schema file in the text of a statement.
fn literal(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Null => "NULL".to_owned(),
        Scalar::Integer(whole) => whole.to_string(),
        Scalar::Number(number) => format!("{number:?}"),
        Scalar::Text(text) => format!("'{}'", text.replace('\'', "''")),
    }
}

/// The column of a field; only those the schema knows have one.
fn column(table: &Table, collection: &Collection, field: &str) -> Result<String, Error> {
    if matches!(field, "id" | "created_at" | "updated_at") {
        return Ok(format!("t.{}", layout::physical(field)));
    }
    let mut columns = table.columns.iter();
    let found = columns.find(|(place, _)| collection.fields[*place].name == field);
    found.map(|(_, column)| format!("t.{column}")).ok_or_else(|| unknown(field))
}

fn unknown(what: &str) -> Error {
    Error::Failed(format!("the list has no such {what}").into())
}

#[cfg(test)]
mod tests;
