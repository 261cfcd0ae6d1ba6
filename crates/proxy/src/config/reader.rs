//! Reads values from the TOML tree and collects what is wrong with them, with line and column.
//! Knows types and positions; `parse` knows what the keys mean. A function that returns `None` has
//! reported the reason, so each error is reported once and reading continues.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The most errors in one report: more than anyone reads at once.
const MAX_ERRORS: usize = 100;

pub(super) type Node<'t> = &'t Spanned<DeValue<'t>>;

/// One error of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// The first line and the first column are 1.
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// The errors found so far.
pub(super) struct Report<'s> {
    source: &'s str,
    errors: Vec<ConfigError>,
}

impl<'s> Report<'s> {
    pub(super) fn new(source: &'s str) -> Report<'s> {
        Report { source, errors: Vec::new() }
    }

    pub(super) fn add(&mut self, at: usize, message: impl Into<String>) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        let before = self.source.get(..at).unwrap_or(self.source);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count() + 1;
        self.errors.push(ConfigError { line, column, message: message.into() });
    }

    /// The errors in the order of the file.
    pub(super) fn finish(mut self) -> Vec<ConfigError> {
        self.errors.sort();
        self.errors.dedup();
        self.errors
    }
}

/// A string of the file and its offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t> {
    pub(super) value: &'t str,
    pub(super) at: usize,
}

/// A table of the file.
#[derive(Clone)]
pub(super) struct Table<'t> {
    /// What it describes, for messages.
    what: String,
    pub(super) at: usize,
    entries: Vec<(Text<'t>, Node<'t>)>,
}

impl<'t> Table<'t> {
    pub(super) fn new(what: impl Into<String>, at: usize, table: &'t DeTable<'t>) -> Table<'t> {
        let entry = |(key, value): (&'t Spanned<_>, Node<'t>)| {
            let key: &'t Spanned<std::borrow::Cow<'t, str>> = key;
            (Text { value: key.get_ref().as_ref(), at: key.span().start }, value)
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|(key, _)| key.at);
        Table { what: what.into(), at, entries }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Text<'t>, Node<'t>)> {
        self.entries.iter().copied()
    }

    /// Reports keys that are not known here.
    pub(super) fn allow(&self, report: &mut Report<'_>, known: &[&str]) {
        for (key, _) in &self.entries {
            if !known.contains(&key.value) {
                let name = key.value;
                let hint = match nearest(name, known) {
                    Some(near) => format!("; did you mean `{near}`?"),
                    None => format!("; known: {}", known.join(", ")),
                };
                report.add(key.at, format!("unknown key `{name}` in {}{hint}", self.what));
            }
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<Node<'t>> {
        self.entries.iter().find(|(name, _)| name.value == key).map(|(_, value)| *value)
    }

    pub(super) fn text(&self, report: &mut Report<'_>, key: &str) -> Option<Text<'t>> {
        let value = self.value(key)?;
        let found = text(value);
        if found.is_none() {
            wrong_type(report, value, key, "a string");
        }
        found
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &self,
        report: &mut Report<'_>,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(report, key)?;
        let found = words.iter().find(|(word, _)| *word == text.value);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let all = all.join(", ");
            report.add(text.at, format!("`{key}` is one of {all}, not `{}`", text.value));
        }
        found.map(|(_, value)| *value)
    }

    pub(super) fn flag(&self, report: &mut Report<'_>, key: &str) -> Option<bool> {
        let value = self.value(key)?;
        let found = value.get_ref().as_bool();
        if found.is_none() {
            wrong_type(report, value, key, "true or false");
        }
        found
    }

    pub(super) fn integer(
        &self,
        report: &mut Report<'_>,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let value = self.value(key)?;
        let (low, high) = (*range.start(), *range.end());
        let found = integer(value.get_ref()).filter(|found| range.contains(found));
        if found.is_none() {
            wrong_type(report, value, key, &format!("a whole number from {low} to {high}"));
        }
        found
    }

    pub(super) fn duration(
        &self,
        report: &mut Report<'_>,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let text = self.text(report, key)?;
        match duration(text.value) {
            Some(found) if range.contains(&found) => Some(found),
            Some(_) => {
                let (low, high) = (range.start(), range.end());
                report.add(text.at, format!("`{key}` must be from {low:?} to {high:?}"));
                None
            }
            None => {
                let message =
                    "must be a whole number and a unit: \"500ms\", \"1s\", \"5m\", \"2h\"";
                report.add(text.at, format!("`{key}` {message}"));
                None
            }
        }
    }

    /// A size such as `10 MiB`.
    pub(super) fn bytes(&self, report: &mut Report<'_>, key: &str) -> Option<u64> {
        let text = self.text(report, key)?;
        let found = bytes(text.value);
        if found.is_none() {
            let message = "must be a whole number and a unit: \"64KiB\", \"10MiB\", \"1GiB\"";
            report.add(text.at, format!("`{key}` {message}"));
        }
        found
    }

    /// A list of strings.
    pub(super) fn texts(&self, report: &mut Report<'_>, key: &str) -> Option<Vec<Text<'t>>> {
        let value = self.value(key)?;
        let Some(list) = value.get_ref().as_array() else {
            wrong_type(report, value, key, "a list of strings");
            return None;
        };
        let mut found = Vec::new();
        for item in list.iter() {
            match text(item) {
                Some(text) => found.push(text),
                None => wrong_type(report, item, key, "a list of strings"),
            }
        }
        (found.len() == list.len()).then_some(found)
    }

    pub(super) fn table(
        &self,
        report: &mut Report<'_>,
        key: &str,
        what: impl Into<String>,
    ) -> Option<Table<'t>> {
        let value = self.value(key)?;
        let found = table(value, what);
        if found.is_none() {
            wrong_type(report, value, key, "a table");
        }
        found
    }

    /// An array of tables: `[[…]]` in the file.
    pub(super) fn tables(&self, report: &mut Report<'_>, key: &str, what: &str) -> Vec<Table<'t>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            wrong_type(report, value, key, "a list of tables, each below its own `[[…]]` line");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in list.iter() {
            match table(item, what) {
                Some(table) => tables.push(table),
                None => wrong_type(report, item, key, "a list of tables"),
            }
        }
        tables
    }
}

pub(super) fn table<'t>(value: Node<'t>, what: impl Into<String>) -> Option<Table<'t>> {
    Some(Table::new(what, value.span().start, value.get_ref().as_table()?))
}

pub(super) fn text<'t>(value: Node<'t>) -> Option<Text<'t>> {
    Some(Text { value: value.get_ref().as_str()?, at: value.span().start })
}

pub(super) fn wrong_type(report: &mut Report<'_>, value: Node<'_>, key: &str, wanted: &str) {
    let found = match value.get_ref() {
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(_) => "a number".to_owned(),
        DeValue::Boolean(_) => "a boolean".to_owned(),
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    report.add(value.span().start, format!("`{key}` must be {wanted}, not {found}"));
}

fn integer(value: &DeValue<'_>) -> Option<u32> {
    let digits = value.as_integer()?;
    u32::from_str_radix(digits.as_str(), digits.radix()).ok()
}

/// `500ms`, `1s`, `5m`, `2h` or `3d`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (count, unit) = split(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(count.checked_mul(milliseconds)?))
}

fn bytes(text: &str) -> Option<u64> {
    let (count, unit) = split(text)?;
    let bytes = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    count.checked_mul(bytes)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

/// The known word that is most similar, if one is similar at all.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let scored = known.iter().map(|other| (distance(word, other), *other));
    let (distance, near) = scored.min()?;
    (distance <= 2.min(word.len() / 2)).then_some(near)
}

/// The number of letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
