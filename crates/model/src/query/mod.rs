//! List requests: filters, order, page, search. `parse` reads them from query parameters and
//! reports all errors at once.

mod filter;
mod parse;
#[cfg(test)]
mod tests;

pub use filter::{choices, names as filter_names};
pub use parse::{ListRequest, View, list, sortable, view};

use crate::record::Scalar;
use crate::schema::Schema;

/// Records per page when `limit` is not given.
pub const DEFAULT_LIMIT: u32 = 20;
/// Offset pages end here: skipping rows costs time for each of them. Cursors have no such end.
pub const MAX_OFFSET: u64 = 1_000_000;
/// Keys of one sort.
pub const MAX_SORT_KEYS: usize = 8;
/// Values in one any-of list.
pub const MAX_VALUES: usize = 100;
/// Words of one search, as spaces separate them.
pub const MAX_WORDS: usize = 20;
/// Words of one search in all. Punctuation inside a word separates, too, and the parts must occur
/// next to each other: the search for a long phrase cannot be interrupted.
pub const MAX_WORD_PARTS: usize = 32;
/// Characters of one search. Limits the parts where the index separates more than punctuation.
pub const MAX_SEARCH_CHARACTERS: usize = 256;
/// Parameters that mean something on every list.
pub const RESERVED: &[&str] =
    &["page", "limit", "after", "sort", "q", "include", "expand", "expand[]", "fields"];

/// The last offset page: one number for every page size, so that it can be documented.
pub fn last_page(schema: &Schema) -> u64 {
    1 + MAX_OFFSET / u64::from(schema.service.max_page.max(1))
}

#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The parent record, on a nested route.
    pub parent: Option<String>,
    pub filters: Vec<Filter>,
    /// As asked, without the tie-break that every store appends (row number, in the direction of
    /// the last key). Never empty: the default is newest first.
    pub sort: Vec<SortKey>,
    /// Words that must all occur in the searched fields; empty: no search.
    pub words: Vec<String>,
    /// Removed fields that are searched, too: an older version knows them.
    pub revealed: Vec<String>,
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
    /// Like one of these texts, in which `*` matches any text.
    Like(Vec<String>),
    /// A test of the value that an older version shows.
    Shown {
        by: Shown,
        test: Box<Test>,
    },
}

/// How an older version shows a column, if differently from how it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Stored words of an `enum` that the version shows as others.
    pub words: Vec<(Scalar, Scalar)>,
    /// The value that the version shows for null.
    pub fill: Option<Scalar>,
}

impl Shown {
    /// The value that the version shows for a stored one.
    pub fn of(&self, kept: Scalar) -> Scalar {
        if let (Scalar::Null, Some(fill)) = (&kept, &self.fill) {
            return fill.clone();
        }
        let word = self.words.iter().find(|(from, _)| *from == kept);
        word.map_or(kept, |(_, to)| to.clone())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// A sortable field, `created_at`, `updated_at`, or `rank` (search relevance).
    pub field: String,
    pub descending: bool,
    /// The order is that of the values that an older version shows.
    pub shown: Option<Shown>,
}

impl SortKey {
    pub fn new(field: &str, descending: bool) -> SortKey {
        SortKey { field: field.to_owned(), descending, shown: None }
    }
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
    /// Newest commit when the first page was read. Rows are walked in the order they had then, so
    /// that a row whose sort key changes in the meantime is neither skipped nor repeated.
    pub snapshot: i64,
}
