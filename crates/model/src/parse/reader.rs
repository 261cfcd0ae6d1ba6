//! Reads values out of the spanned TOML tree and reports the wrong ones with their places. Knows
//! types and places, not the meaning of keys. Every function returns `None` after a report, so that
//! each fault is reported once and reading continues.

use super::quantity;
use crate::schema::Diagnostic;
use crate::spelling;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// More than anyone reads; a file of garbage must not cost unbounded work.
const FINDINGS: usize = 100;

pub(super) type Node<'t> = &'t Spanned<DeValue<'t>>;

/// The findings so far.
pub(super) struct Report<'s> {
    source: &'s str,
    found: Vec<Diagnostic>,
}

/// A string of the file and its offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t> {
    pub value: &'t str,
    pub at: usize,
}

/// A table of the file, its entries in file order.
#[derive(Clone)]
pub(super) struct Table<'t> {
    /// The described object, for messages: "field `title`".
    pub what: String,
    pub at: usize,
    pub entries: Vec<(Text<'t>, Node<'t>)>,
}

impl<'s> Report<'s> {
    pub fn new(source: &'s str) -> Report<'s> {
        Report { source, found: Vec::new() }
    }

    /// The text of the file.
    pub fn source(&self) -> &'s str {
        self.source
    }

    pub fn say(&mut self, at: usize, message: impl Into<String>) {
        if self.has_room() {
            self.found.push(Diagnostic::at(self.source, at, message));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How much is found so far.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Whether there is room for more findings.
    pub fn has_room(&self) -> bool {
        self.found.len() < FINDINGS
    }

    /// In file order, each once.
    pub fn into_findings(mut self) -> Vec<Diagnostic> {
        self.found.sort();
        self.found.dedup();
        self.found
    }
}

impl<'t> Table<'t> {
    pub fn new(what: impl Into<String>, at: usize, table: &'t DeTable<'t>) -> Table<'t> {
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| {
                (Text { value: key.get_ref().as_ref(), at: key.span().start }, value)
            })
            .collect();
        // The map is sorted by name; the file's own order is what its author meant.
        entries.sort_by_key(|(key, _)| key.at);
        Table { what: what.into(), at, entries }
    }

    /// Complains about every key that is not one of `keys`.
    pub fn allow(&self, report: &mut Report<'_>, keys: &[&str]) {
        for (key, _) in &self.entries {
            if !keys.contains(&key.value) {
                let hint = spelling::hint(key.value, keys.iter().copied());
                let known = keys.join(", ");
                let Table { what, .. } = self;
                let text = format!("unknown key `{}` in {what}{hint}", key.value);
                // With a near miss the list would only be noise.
                let rest =
                    if hint.is_empty() { format!("; known: {known}") } else { String::new() };
                report.say(key.at, text + &rest);
            }
        }
    }

    pub fn get(&self, key: &str) -> Option<Node<'t>> {
        self.entries.iter().find(|(name, _)| name.value == key).map(|(_, value)| *value)
    }

    /// The offset of the key, if it is there.
    pub fn key_at(&self, key: &str) -> Option<usize> {
        self.entries.iter().find(|(name, _)| name.value == key).map(|(name, _)| name.at)
    }

    /// The offset of the value of the key, or of the table.
    pub fn value_at(&self, key: &str) -> usize {
        self.get(key).map_or(self.at, |value| value.span().start)
    }

    pub fn text(&self, report: &mut Report<'_>, key: &str) -> Option<Text<'t>> {
        let value = self.get(key)?;
        let found = text(value);
        if found.is_none() {
            expected(report, value, key, "a string");
        }
        found
    }

    /// As `text`, and complains when the key is missing.
    pub fn need_text(&self, report: &mut Report<'_>, key: &str) -> Option<Text<'t>> {
        if self.get(key).is_none() {
            report.say(self.at, format!("{} needs `{key}`", self.what));
        }
        self.text(report, key)
    }

    pub fn owned_text(&self, report: &mut Report<'_>, key: &str) -> Option<String> {
        self.text(report, key).map(|text| text.value.to_owned())
    }

    pub fn flag(&self, report: &mut Report<'_>, key: &str) -> Option<bool> {
        let value = self.get(key)?;
        let found = value.get_ref().as_bool();
        if found.is_none() {
            expected(report, value, key, "true or false");
        }
        found
    }

    pub fn integer(
        &self,
        report: &mut Report<'_>,
        key: &str,
        range: RangeInclusive<i64>,
    ) -> Option<i64> {
        let value = self.get(key)?;
        match integer(value.get_ref()) {
            Some(found) if range.contains(&found) => Some(found),
            Some(found) => {
                let (low, high) = range.into_inner();
                report.say(
                    value.span().start,
                    format!("`{key}` must be from {low} to {high}, not {found}"),
                );
                None
            }
            None => {
                expected(report, value, key, "a whole number");
                None
            }
        }
    }

    pub fn number(&self, report: &mut Report<'_>, key: &str) -> Option<f64> {
        let value = self.get(key)?;
        let found = number(value.get_ref()).filter(|number| number.is_finite());
        if found.is_none() {
            expected(report, value, key, "a finite number");
        }
        found
    }

    /// A duration within bounds.
    pub fn duration(
        &self,
        report: &mut Report<'_>,
        key: &str,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let text = self.text(report, key)?;
        let found = quantity::duration(text.value);
        if found.is_none() {
            let forms = "\"500ms\", \"1s\", \"5m\", \"2h\", \"3d\"";
            report.say(text.at, format!("`{key}` must be a whole number and a unit: {forms}"));
        }
        let found = found?;
        if !bounds.contains(&found) {
            let (low, high) = (quantity::show(*bounds.start()), quantity::show(*bounds.end()));
            report.say(text.at, format!("`{key}` must be from {low} to {high}"));
        }
        Some(found)
    }

    /// A list of strings.
    pub fn texts(&self, report: &mut Report<'_>, key: &str) -> Option<Vec<Text<'t>>> {
        let value = self.get(key)?;
        texts(report, value, key)
    }

    pub fn table(&self, report: &mut Report<'_>, key: &str, what: String) -> Option<Table<'t>> {
        let value = self.get(key)?;
        let found = value.get_ref().as_table();
        if found.is_none() {
            expected(report, value, key, "a table");
        }
        // A table with a header of its own is best pointed at by its name there.
        let at = self.key_at(key).unwrap_or(self.at);
        found.map(|table| Table::new(what, at, table))
    }

    /// An array of tables: `[[…]]` in the file.
    pub fn tables(&self, report: &mut Report<'_>, key: &str, what: &str) -> Vec<Table<'t>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            expected(report, value, key, "a list of tables, each under its own `[[…]]` header");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in list.iter() {
            match item.get_ref().as_table() {
                Some(table) => tables.push(Table::new(what, item.span().start, table)),
                None => expected(report, item, key, "a list of tables"),
            }
        }
        tables
    }
}

pub(super) fn text<'t>(value: Node<'t>) -> Option<Text<'t>> {
    Some(Text { value: value.get_ref().as_str()?, at: value.span().start })
}

pub(super) fn texts<'t>(
    report: &mut Report<'_>,
    value: Node<'t>,
    key: &str,
) -> Option<Vec<Text<'t>>> {
    let Some(list) = value.get_ref().as_array() else {
        expected(report, value, key, "a list of strings");
        return None;
    };
    let mut found = Vec::new();
    for item in list.iter() {
        match text(item) {
            Some(text) => found.push(text),
            None => expected(report, item, key, "a list of strings"),
        }
    }
    (found.len() == list.len()).then_some(found)
}

/// The wrong kind of value.
pub(super) fn expected(report: &mut Report<'_>, value: Node<'_>, key: &str, want: &str) {
    let got = match value.get_ref() {
        DeValue::Integer(_) if integer(value.get_ref()).is_none() => "a number beyond 64 bits",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) if !number(value.get_ref()).is_some_and(f64::is_finite) => {
            "infinite or no number at all"
        }
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::String(_) => "a string",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    report.say(value.span().start, format!("`{key}` must be {want}, not {got}"));
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let digits = value.as_integer()?;
    i64::from_str_radix(digits.as_str(), digits.radix()).ok()
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        other => integer(other).map(|whole| whole as f64),
    }
}

/// Any TOML value as JSON. Dates and times become their text.
pub(super) fn json(report: &mut Report<'_>, value: Node<'_>) -> Option<Value> {
    let at = value.span().start;
    match value.get_ref() {
        DeValue::String(text) => Some(Value::from(text.as_ref())),
        DeValue::Boolean(flag) => Some(Value::from(*flag)),
        DeValue::Datetime(datetime) => Some(Value::from(datetime.to_string())),
        DeValue::Integer(_) => {
            let found = integer(value.get_ref());
            if found.is_none() {
                report.say(at, "this whole number does not fit 64 bits");
            }
            found.map(Value::from)
        }
        DeValue::Float(_) => {
            let found = number(value.get_ref()).and_then(serde_json::Number::from_f64);
            if found.is_none() {
                report.say(at, "JSON has no such number; write a finite one");
            }
            found.map(Value::Number)
        }
        DeValue::Array(list) => {
            list.iter().map(|item| json(report, item)).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        DeValue::Table(table) => {
            let mut members = Map::new();
            for (key, value) in &Table::new("", at, table).entries {
                members.insert(key.value.to_owned(), json(report, value)?);
            }
            Some(Value::Object(members))
        }
    }
}
