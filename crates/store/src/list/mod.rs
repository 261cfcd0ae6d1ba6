//! Lists: a query becomes a plan, and a plan becomes SQL. Identifiers come from the schema, values
//! are always bound. Cursor pages are keyset reads: what comes after a position is read in segments
//! that an index can serve, one range each, instead of one condition full of ORs. What differs
//! between databases is a `Dialect`'s. Runs no statement.

mod short;
mod snapshot;

pub use short::has_index;
pub use snapshot::{keys_at, merge};

use crate::{Error, Page};
use model::query::{self, Filter, Position, Query, Test};
use model::record::Scalar;
use model::{Collection, CollectionIx, Schema, Scope};

/// A cursor page ends after the record with which it reaches this size; an offset page of this size
/// is refused. 4 MiB: 100 records of 40 KiB fit, and a page is made and sent without delaying the
/// other requests of its thread for long.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of records that the thread of a request reads itself; longer reads go to the threads for
/// long reads, which serve accounts in turns. 256 KiB: a few hundred microseconds.
pub const SHORT_BYTES: usize = 256 * 1024;
/// Bytes of records in one read by ids or of children. 8 MiB: twice a page, so that a page of the
/// usual records can embed another.
pub const EMBEDDED_BYTES: usize = 8 * 1024 * 1024;

/// How one database says it. Tables are called `t`.
pub trait Dialect: Sync {
    /// The table of a collection, quoted.
    fn table(&self, collection: CollectionIx) -> &str;

    /// The column of a declared field, quoted; none where it has none.
    fn column(&self, collection: CollectionIx, field: &str) -> Option<&str>;

    /// The form of a declared field that its indexes have, where long texts have another one.
    fn shortened(&self, _: CollectionIx, _: &str) -> Option<Shortened> {
        None
    }

    /// The column of `id`, `created_at` or `updated_at`.
    fn assigned(&self, field: &str) -> String;

    /// FROM and WHERE over the rows that changed since they were created.
    fn changed(&self, collection: CollectionIx) -> &str;

    /// Whether a column matches a bound pattern with `*`.
    fn like(&self, column: &str) -> String;

    /// A sort key, with nulls as the smallest values.
    fn order(&self, column: &str, descending: bool) -> String;

    /// A filter that is no plain column of its collection, with its values.
    fn filter(&self, collection: CollectionIx, filter: &Filter) -> Option<(String, Vec<Scalar>)>;

    /// A full-text search; none where nothing can be searched.
    fn search(&self, scope: Scope, collection: CollectionIx, query: &Query) -> Option<Search>;
}

/// A column in the form that its indexes have, and the form of a value. That of a long text has a
/// NUL, which no value has.
pub struct Shortened {
    pub column: String,
    pub of: Form,
}

pub type Form = fn(&Scalar) -> Scalar;

/// A full-text search in SQL.
pub struct Search {
    /// FROM and WHERE of a list that the search index leads: in its own order, or by number.
    pub leading: String,
    /// The condition for that, and for a list in another order. Both bind `expression`.
    pub matches: String,
    pub restricts: String,
    pub expression: String,
}

/// A statement with the values of its question marks.
pub struct Statement {
    pub sql: String,
    pub values: Vec<Scalar>,
}

/// Whether an update can change a row's place in this order.
pub fn moves(query: &Query) -> bool {
    query.sort.iter().any(|key| key.field != "created_at")
}

/// Rows to read: one more than the page has shows whether there are more.
pub fn more(query: &Query) -> usize {
    query.limit as usize + 1
}

/// A page of the rows that were read.
pub fn page_of<T>(mut rows: Vec<Found<T>>, limit: usize, snapshot: i64) -> Page<T> {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let position = rows.last_mut().filter(|_| has_more).map(|last| Position {
        keys: std::mem::take(&mut last.keys),
        number: last.number,
        snapshot,
    });
    let records = rows.into_iter().map(|row| row.row).collect();
    Page { records, has_more, total: None, position, search_behind: 0 }
}

/// How many rows come before an offset page.
pub fn skipped(page: u64, limit: u32) -> u64 {
    page.saturating_sub(1).saturating_mul(u64::from(limit))
}

/// An offset page of the rows that were read after `skip` others.
pub fn offset_page_of<T>(rows: Vec<Found<T>>, skip: u64, total: u64) -> Page<T> {
    let has_more = skip.saturating_add(rows.len() as u64) < total;
    let records = rows.into_iter().map(|row| row.row).collect();
    Page { records, has_more, total: Some(total), position: None, search_behind: 0 }
}

/// A row with the values it is sorted by.
pub struct Found<T> {
    pub row: T,
    pub number: i64,
    pub keys: Vec<Scalar>,
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
    /// Where rows are sorted by a shortened form.
    pub form: Option<Form>,
    pub descending: bool,
    pub nullable: bool,
}

impl Key {
    /// Whether a value can be one of its column, in the form that the column has here.
    fn is_of(&self, value: &Scalar) -> bool {
        let Scalar::Text(text) = value else { return true };
        let is_shortened = text.contains('\0');
        match self.form {
            Some(form) => is_shortened || form(value) == *value,
            None => !is_shortened,
        }
    }
}

/// A query in terms of the tables.
pub struct Plan<'a> {
    dialect: &'a dyn Dialect,
    pub schema: &'a Schema,
    pub scope: Scope,
    pub collection: CollectionIx,
    pub keys: Vec<Key>,
    /// Order by row number alone: the order of creation, which every index contains.
    by_number: bool,
    by_rank: bool,
    /// Whether the keys of every row are wanted, or only those of the row where a page may end.
    pub every_key: bool,
    from: String,
    base: Condition,
}

impl<'a> Plan<'a> {
    pub fn new(
        dialect: &'a dyn Dialect,
        schema: &'a Schema,
        scope: Scope,
        ix: CollectionIx,
        query: &Query,
    ) -> Result<Plan<'a>, Error> {
        let collection = &schema.collections[ix];
        let by_rank = query.sort.iter().any(|key| key.field == "rank");
        let searched = !query.words.is_empty();
        let by_number = by_rank && query.sort.len() == 1
            || sorts_by_creation(query)
                && (searched || collection.is_view() || query.filters.iter().any(equals_one));
        let mut plan = Plan {
            dialect,
            schema,
            scope,
            collection: ix,
            keys: Vec::new(),
            by_number,
            by_rank: by_rank && searched,
            // Rows are merged by their keys where some have moved.
            every_key: matches!(query.page, query::Page::After(_)) && moves(query),
            from: format!("FROM {} t WHERE t.scope = ?", dialect.table(ix)),
            base: Condition { text: String::new(), values: vec![Scalar::Integer(scope.0)] },
        };
        let keys = query.sort.iter().filter(|key| key.field != "rank");
        plan.keys = keys.map(|key| plan.resolve_key(collection, key)).collect::<Result<_, _>>()?;
        if let Some(parent) = &query.parent {
            plan.restrict("t.parent = ?", [Scalar::Text(parent.clone())]);
        }
        if searched {
            plan.search(query)?;
        }
        for filter in &query.filters {
            plan.filter(collection, filter)?;
        }
        Ok(plan)
    }

    fn restrict(&mut self, text: &str, values: impl IntoIterator<Item = Scalar>) {
        self.base = std::mem::take(&mut self.base).and(text, values);
    }

    /// The search index leads where its own order is asked for; otherwise it only restricts.
    fn search(&mut self, query: &Query) -> Result<(), Error> {
        let search = self.dialect.search(self.scope, self.collection, query);
        let search = search.ok_or_else(|| unknown("searchable field"))?;
        let expression = [Scalar::Text(search.expression)];
        if self.by_number || self.by_rank {
            self.from = search.leading;
            self.restrict(&search.matches, expression);
        } else {
            self.restrict(&search.restricts, expression);
        }
        Ok(())
    }

    fn filter(&mut self, collection: &Collection, filter: &Filter) -> Result<(), Error> {
        if filter.field == "id" && collection.feed.is_some() {
            return self.filter_feed_ids(&filter.test);
        }
        if let Some((text, values)) = self.dialect.filter(self.collection, filter) {
            self.restrict(&text, values);
            return Ok(());
        }
        match (self.dialect.shortened(self.collection, &filter.field), &filter.test) {
            (Some(short), Test::AnyOf(values)) => {
                let values = values.iter().map(short.of).collect();
                self.test(&short.column, &Test::AnyOf(values));
            }
            (_, test) => self.test(&self.column(&filter.field)?, test),
        }
        Ok(())
    }

    fn test(&mut self, column: &str, test: &Test) {
        match test {
            Test::Like(patterns) => {
                let some = vec![self.dialect.like(column); patterns.len()].join(" OR ");
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
                    0 => "FALSE".to_owned(),
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
        let mut parts = Vec::new();
        if self.by_rank {
            parts.push("rank".to_owned());
        }
        if !self.by_number {
            let keys = self.keys.iter();
            parts.extend(keys.map(|key| self.dialect.order(&key.column, key.descending)));
        }
        parts.push(self.dialect.order("t.n", self.last_descends()));
        format!(" ORDER BY {}", parts.join(", "))
    }

    /// The tie-break has the direction of the last key.
    pub fn last_descends(&self) -> bool {
        self.keys.last().is_none_or(|key| key.descending)
    }

    /// Counts all rows that meet the query.
    pub fn count(&self) -> Statement {
        let sql = format!("SELECT count(*) {}{}", self.from, self.base.text);
        Statement { sql, values: self.base.values.clone() }
    }

    /// The first rows that meet the query and a further condition: these columns of them, then the
    /// sort keys.
    pub fn rows(&self, columns: &str, also: &Condition, limit: usize, skip: u64) -> Statement {
        self.select(columns, &self.from, also, limit, skip)
    }

    /// The same, of rows that changed since they were created.
    pub fn changed_rows(&self, columns: &str, also: &Condition, limit: usize) -> Statement {
        self.select(columns, self.dialect.changed(self.collection), also, limit, 0)
    }

    fn select(
        &self,
        columns: &str,
        from: &str,
        also: &Condition,
        limit: usize,
        skip: u64,
    ) -> Statement {
        let mut sql = format!("SELECT {columns}");
        for key in &self.keys {
            sql.push_str(", ");
            sql.push_str(&key.column);
        }
        sql.push(' ');
        for part in [from, &self.base.text, &also.text, &self.order(), " LIMIT ? OFFSET ?"] {
            sql.push_str(part);
        }
        let limits = [
            Scalar::Integer(limit as i64),
            Scalar::Integer(i64::try_from(skip).unwrap_or(i64::MAX)),
        ];
        let values = self.base.values.iter().chain(&also.values).cloned().chain(limits).collect();
        Statement { sql, values }
    }

    /// What lies after a position and meets a condition: conditions that are to be read one after
    /// the other until there are enough rows.
    pub fn after(&self, position: &Position, also: &Condition) -> Result<Vec<Condition>, Error> {
        if position.keys.len() != self.keys.len() {
            return Err(unknown("position"));
        }
        // That of an earlier release or of another engine has another order among long texts.
        if !self.keys.iter().zip(&position.keys).all(|(key, value)| key.is_of(value)) {
            return Err(Error::SnapshotTooOld);
        }
        let segments = self.segments(position).into_iter();
        let both = |segment: Condition| {
            let mut condition = also.clone();
            condition.text.push_str(&segment.text);
            condition.values.extend(segment.values);
            condition
        };
        Ok(segments.map(both).collect())
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

    fn resolve_key(&self, collection: &Collection, key: &query::SortKey) -> Result<Key, Error> {
        let short = self.dialect.shortened(self.collection, &key.field);
        let (column, form) = match (&key.shown, short) {
            (Some(by), _) => (shown(by, &self.column(&key.field)?), None),
            (None, Some(short)) => (short.column, Some(short.of)),
            (None, None) => (self.column(&key.field)?, None),
        };
        // Required ones too: an action may set what a request may not.
        let nullable = collection.field(&key.field).is_some() || key.shown.is_some();
        let (field, shown) = (key.field.clone(), key.shown.clone());
        Ok(Key { field, shown, column, form, descending: key.descending, nullable })
    }

    /// The column of a field; only those the schema knows have one.
    fn column(&self, field: &str) -> Result<String, Error> {
        if matches!(field, "id" | "created_at" | "updated_at") {
            return Ok(format!("t.{}", self.dialect.assigned(field)));
        }
        let column = self.dialect.column(self.collection, field);
        column.map(|column| format!("t.{column}")).ok_or_else(|| unknown(field))
    }
}

fn equals_one(filter: &Filter) -> bool {
    matches!(&filter.test, Test::AnyOf(values) if values.len() == 1)
}

fn sorts_by_creation(query: &Query) -> bool {
    matches!(query.sort.as_slice(), [only] if only.field == "created_at")
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

fn unknown(what: &str) -> Error {
    Error::Failed(format!("the list has no such {what}").into())
}
