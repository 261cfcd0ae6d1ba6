//! From query parameters to a `Query`. Everything wrong with them is reported in one problem.

use super::{
    DEFAULT_LIMIT, MAX_SEARCH_CHARACTERS, MAX_SORT_KEYS, MAX_WORD_PARTS, MAX_WORDS, Page, Query,
    SortKey, filter,
};
use crate::expand::{self, Expand};
use crate::problem::{Code, MAX_LISTED, Problem, Violation};
use crate::schema::{Builtin, Collection, CollectionIx, Field, Schema};
use serde_json::Value;
use std::collections::HashSet;

/// A list call, understood. The cursor is still sealed: opening it needs a key.
#[derive(Clone, Debug)]
pub struct ListRequest {
    pub query: Query,
    pub after: Option<String>,
    pub view: View,
}

/// How records shall be shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub expand: Expand,
    /// Only these members; `None`: all.
    pub fields: Option<Vec<String>>,
}

impl View {
    /// Whether records are served exactly as they are stored.
    pub fn is_plain(&self) -> bool {
        self.expand.is_empty() && self.fields.is_none()
    }
}

type Pairs<'a> = &'a [(String, String)];

/// Reads the parameters of a list call.
pub fn list(
    schema: &Schema,
    collection: CollectionIx,
    parent: Option<String>,
    pairs: Pairs<'_>,
) -> Result<ListRequest, Problem> {
    let mut reader = QueryReader::new(schema, collection);
    reader.repeated(pairs);
    for (name, text) in pairs {
        reader.list_parameter(name, text);
    }
    reader.page_rules();
    let QueryReader { violations, filters, sort, words, page, limit, after, view, .. } = reader;
    refuse(violations)?;
    let mut sort = sort.unwrap_or_else(|| vec![SortKey::new("created_at", true)]);
    // The log is in the order of creation, under any name of that time.
    for key in sort.iter_mut().filter(|key| key.field == "created") {
        if schema.collections[collection].builtin == Some(Builtin::Event) {
            key.field = "created_at".to_owned();
        }
    }
    let page = page.map_or(Page::First, Page::Offset);
    let revealed = Vec::new();
    let query = Query { parent, filters, sort, words, revealed, page, limit };
    Ok(ListRequest { query, after, view })
}

/// Reads the parameters of a call that shows one record.
pub fn view(schema: &Schema, collection: CollectionIx, pairs: Pairs<'_>) -> Result<View, Problem> {
    let mut reader = QueryReader::new(schema, collection);
    reader.repeated(pairs);
    for (name, text) in pairs {
        if !reader.view_parameter(name, text) {
            reader.unknown(name, "include, expand, fields");
        }
    }
    refuse(reader.violations)?;
    Ok(reader.view)
}

fn refuse(violations: Vec<Violation>) -> Result<(), Problem> {
    let Some(first) = violations.first() else { return Ok(()) };
    Err(Problem::of(first.code, violations))
}

/// Words of a text, separated by everything but letters and digits, as the search index does.
fn parts(text: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty()).count()
}

struct QueryReader<'a> {
    schema: &'a Schema,
    index: CollectionIx,
    collection: &'a Collection,
    violations: Vec<Violation>,
    filters: Vec<super::Filter>,
    sort: Option<Vec<SortKey>>,
    words: Vec<String>,
    page: Option<u64>,
    limit: u32,
    after: Option<String>,
    view: View,
}

impl<'a> QueryReader<'a> {
    fn new(schema: &'a Schema, index: CollectionIx) -> QueryReader<'a> {
        QueryReader {
            schema,
            index,
            collection: &schema.collections[index],
            violations: Vec::new(),
            filters: Vec::new(),
            sort: None,
            words: Vec::new(),
            page: None,
            limit: DEFAULT_LIMIT.min(schema.service.max_page),
            after: None,
            view: View::default(),
        }
    }

    fn invalid(&mut self, name: &str, text: &str, what: impl AsRef<str>) {
        let message = format!("`{name}` {}.", what.as_ref());
        let violation = Violation::new(name, Code::InvalidParameter, message);
        self.report(violation.value(&Value::String(text.to_owned())));
    }

    /// Lists the violation if the list has room. A URL can cause thousands of them, each with all
    /// known names.
    fn report(&mut self, violation: Violation) {
        if !self.is_full() {
            self.violations.push(violation);
        }
    }

    /// Whether no more violations are listed; the one that does not fit is mentioned.
    fn is_full(&mut self) -> bool {
        let is_full = self.violations.len() >= MAX_LISTED;
        if let Some(last) = self.violations.last_mut().filter(|_| is_full) {
            last.has_more = true;
        }
        is_full
    }

    /// Why a field of an older version cannot be asked for.
    fn converted(&self, what: &str) -> String {
        let service = &self.schema.service;
        format!(
            "cannot {what} in version {}: newer versions keep its values in another form; use a \
             newer version",
            service.version
        )
    }

    fn unknown(&mut self, name: &str, known: &str) {
        let shown: String = name.chars().take(100).collect();
        let message = format!("There is no parameter `{shown}` here; there are: {known}.");
        self.report(Violation::new(shown, Code::UnknownParameter, message));
    }

    /// A parameter given twice means two things at once. Only expansions add up.
    fn repeated(&mut self, pairs: Pairs<'_>) {
        let mut earlier = HashSet::new();
        for (name, text) in pairs {
            let adds_up = matches!(name.as_str(), "include" | "expand" | "expand[]");
            if !earlier.insert(name) && !adds_up {
                self.invalid(name, text, "is given more than once; separate values by commas");
            }
        }
    }

    fn list_parameter(&mut self, name: &str, text: &str) {
        match name {
            "page" => match text.parse::<u64>() {
                Ok(page) if page >= 1 => self.page = Some(page),
                _ => self.invalid(name, text, "must be a whole number from 1"),
            },
            // Documented as a 64-bit integer; values above the longest page are clamped.
            "limit" => match text.parse::<i64>() {
                Ok(limit) if limit >= 1 => {
                    let most = i64::from(self.schema.service.max_page);
                    self.limit = u32::try_from(limit.min(most)).unwrap_or(DEFAULT_LIMIT);
                }
                _ => self.invalid(name, text, "must be a whole number from 1"),
            },
            "after" => self.after = Some(text.to_owned()),
            "sort" => self.sort_parameter(text),
            "q" => self.search_parameter(text),
            _ if self.view_parameter(name, text) => {}
            _ => match filter::parse(self.collection, name, text) {
                Some(Ok(filter)) => self.filters.push(filter),
                Some(Err(what)) => self.invalid(name, text, what),
                None if filter::converted(self.collection, name) => {
                    self.invalid(name, text, self.converted("filter lists"));
                }
                None if self.is_full() => {}
                None => {
                    let filters = filter::names(self.collection);
                    let known: Vec<_> = super::RESERVED
                        .iter()
                        .filter(|name| **name != "expand[]")
                        .map(|name| (*name).to_owned())
                        .chain(filters.into_iter().map(|(name, _)| name))
                        .collect();
                    self.unknown(name, &known.join(", "));
                }
            },
        }
    }

    fn view_parameter(&mut self, name: &str, text: &str) -> bool {
        match name {
            "include" | "expand" | "expand[]" => self.expand_parameter(name, text),
            "fields" => self.fields_parameter(text),
            _ => return false,
        }
        true
    }

    fn expand_parameter(&mut self, name: &str, text: &str) {
        let paths: Vec<&str> = text.split(',').collect();
        if paths.len() > expand::MAX_PATHS {
            return self.invalid(name, text, format!("takes at most {} paths", expand::MAX_PATHS));
        }
        for path in paths {
            // Stripe's clients write `data.book` on lists.
            let path = path.strip_prefix("data.").unwrap_or(path);
            if let Err(what) = self.view.expand.add(self.schema, self.index, path) {
                self.invalid(name, text, format!("cannot be used: {what}"));
            }
        }
    }

    fn fields_parameter(&mut self, text: &str) {
        let mut chosen = Vec::new();
        for name in text.split(',') {
            if self.is_full() {
                break;
            }
            if self.collection.public_names().any(|public| public == name) {
                chosen.push(name.to_owned());
            } else {
                let names: Vec<_> = self.collection.public_names().collect();
                let shown: String = name.chars().take(60).collect();
                let what = format!("names no field `{shown}`; there are: {}", names.join(", "));
                self.invalid("fields", text, what);
            }
        }
        self.view.fields = Some(chosen);
    }

    fn sort_parameter(&mut self, text: &str) {
        let mut keys: Vec<SortKey> = Vec::new();
        for part in text.split(',') {
            if self.is_full() {
                break;
            }
            let (field, descending) = match part.strip_prefix('-') {
                Some(field) => (field, true),
                None => (part, false),
            };
            if keys.iter().any(|key| key.field == field) {
                self.invalid("sort", text, format!("names `{field}` twice"));
            } else if sortable(self.collection).iter().any(|name| name == field) || field == "rank"
            {
                keys.push(SortKey::new(field, descending));
            } else if filter::converted(self.collection, field) {
                self.invalid(
                    "sort",
                    text,
                    format!("cannot be by `{field}`, which {}", self.converted("sort lists")),
                );
            } else {
                let known = sortable(self.collection).join(", ");
                let shown: String = field.chars().take(60).collect();
                let what = format!("cannot be by `{shown}`; sortable are: {known}");
                self.invalid("sort", text, what);
            }
        }
        if keys.len() > MAX_SORT_KEYS {
            self.invalid("sort", text, format!("takes at most {MAX_SORT_KEYS} fields"));
        }
        self.sort = Some(keys);
    }

    fn search_parameter(&mut self, text: &str) {
        if self.collection.searched().next().is_none() {
            return self.unknown("q", "no field of this collection is searchable");
        }
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        // Operators and punctuation mean nothing here: a word is text to be found.
        let words = words.filter(|word| word.chars().any(char::is_alphanumeric));
        self.words = words.map(str::to_owned).collect();
        if self.words.is_empty() {
            self.invalid("q", text, "must have at least one word");
        } else if self.words.len() > MAX_WORDS {
            self.invalid("q", text, format!("takes at most {MAX_WORDS} words"));
        } else if text.chars().count() > MAX_SEARCH_CHARACTERS {
            self.invalid("q", text, format!("takes at most {MAX_SEARCH_CHARACTERS} characters"));
        } else if parts(text) > MAX_WORD_PARTS {
            let what = format!(
                "takes at most {MAX_WORD_PARTS} words in all, and punctuation separates words"
            );
            self.invalid("q", text, what);
        }
    }

    /// Rules between parameters.
    fn page_rules(&mut self) {
        if let Some(page) = self.page {
            if self.after.is_some() {
                self.invalid("after", "", "and `page` exclude each other");
            }
            let last = super::last_page(self.schema);
            if page > last {
                let what = format!("ends at {last}; walk further with `after` instead");
                self.invalid("page", &page.to_string(), what);
            }
        }
        let ranked = self.sort.iter().flatten().any(|key| key.field == "rank");
        if ranked && self.words.is_empty() {
            self.invalid("sort", "rank", "by rank needs a search with `q`");
        } else if ranked && self.page.is_none() {
            self.invalid(
                "sort",
                "rank",
                "by rank needs `page`: ranks shift, cursors cannot hold them",
            );
        } else if ranked && self.sort.as_ref().is_some_and(|keys| keys.len() > 1) {
            self.invalid("sort", "rank", "by rank stands alone");
        }
    }
}

/// Fields a list can be sorted by.
pub fn sortable(collection: &Collection) -> Vec<String> {
    let sorted = |field: &&Field| field.sort && !field.write_only && !field.removed;
    let declared = collection.fields.iter().filter(sorted);
    let timestamps = match collection.builtin {
        Some(Builtin::Event) => &["created"][..],
        _ => collection.timestamps(),
    };
    timestamps
        .iter()
        .map(|name| (*name).to_owned())
        .chain(declared.map(|field| field.name.clone()))
        .collect()
}
