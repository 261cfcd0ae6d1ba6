//! What a list call asks for: filters, order, page, search. `parse` reads it from query parameters and
//! reports everything wrong with them at once.

use crate::record::Scalar;

#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The parent record, on a nested route.
    pub parent: Option<String>,
    pub filters: Vec<Filter>,
    /// As asked, without the tie-break that every store appends (row number, in the direction of the
    /// last key). Never empty: the default is newest first.
    pub sort: Vec<SortKey>,
    /// Words that must all occur in the searched fields; empty: no search.
    pub words: Vec<String>,
    pub page: Page,
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// `id`, `created_at`, `updated_at` or a filterable field.
    pub field: String,
    pub test: Test,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// Equal to one of them; `Scalar::Null` among them means "is null".
    AnyOf(Vec<Scalar>),
    Min(Scalar),
    Max(Scalar),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// A sortable field, `created_at`, `updated_at`, or `rank` (search relevance).
    pub field: String,
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Page {
    /// `page=N`, from 1.
    Offset(u64),
    First,
    After(Position),
}

/// Where a cursor page ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// Values of the sort keys of the last row, in their order.
    pub keys: Vec<Scalar>,
    /// Row number of the last row: the tie-break.
    pub number: i64,
    /// Newest commit when the first page was read, and its time. Rows are walked in the order they
    /// had then, so that a row whose sort key changes meanwhile is neither skipped nor repeated.
    pub snapshot: i64,
    pub snapshot_time: i64,
}
