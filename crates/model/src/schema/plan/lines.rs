//! The lines of TOML that declare an edit, such that the file with them is taken and the edit is
//! none any more. Where only the author knows a value, one that fits stands there.

use crate::schema::{Field, Kind};
use crate::validate;
use crate::version::sample;
use serde_json::{Number, Value};

/// Whose fields a change is about.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub collection: &'a str,
    /// The parameters of this action, not the fields of the collection.
    pub action: Option<&'a str>,
}

impl Owner<'_> {
    pub fn change(self, operation: &str) -> String {
        let action = self.action.map(|name| format!("action = {}\n", quoted(name)));
        format!(
            "[[versions.changes]]\ncollection = {}\n{}{operation}\n",
            quoted(self.collection),
            action.unwrap_or_default()
        )
    }

    pub fn rename(self, from: &str, to: &str) -> String {
        let (from, to) = (quoted(from), quoted(to));
        self.change(&format!("rename = {{ from = {from}, to = {to} }}"))
    }

    pub fn removed(self, field: &str) -> String {
        self.change(&format!("removed = {{ field = {} }}", quoted(field)))
    }

    /// A parameter that is taken and not looked at any more.
    pub fn ignored(self, field: &Field) -> String {
        let field = declaration(field, true);
        self.change(&format!("removed = {{ field = {field} }}"))
    }

    pub fn code(self, from: &str, to: &str) -> String {
        let (from, to) = (quoted(from), quoted(to));
        self.change(&format!("code = {{ from = {from}, to = {to} }}"))
    }

    pub fn default(self, field: &str, was: Option<&Value>) -> String {
        let was = was.map(|was| format!(", was = {}", value(was))).unwrap_or_default();
        self.change(&format!("default = {{ field = {}{was} }}", quoted(field)))
    }

    /// `required` or `optional`. None where no value can be made up: a reference names a record,
    /// and what is unique cannot be the same for all.
    pub fn filled(self, operation: &str, field: &Field) -> Option<String> {
        if field.reference.is_some() || field.unique && operation == "required" {
            return None;
        }
        let fill = value(&field.default.clone().or_else(|| sample(field))?);
        let name = quoted(&field.name);
        Some(self.change(&format!("{operation} = {{ field = {name}, fill = {fill} }}")))
    }

    /// What makes the field as little or as much asked for as it was.
    pub fn presence(self, was: &Field, is: &Field) -> Option<String> {
        let (operation, default) = match (was.required, is.required) {
            (false, true) => ("required", &is.default),
            (true, false) => ("optional", &None),
            _ => return self.undefault(was, is),
        };
        let filled = self.filled(operation, is)?;
        Some(match was.default == *default {
            true => filled,
            false => filled + &later(&self.undefault(was, is)?),
        })
    }

    /// Only if the newer field could have the old default, too.
    fn undefault(self, was: &Field, is: &Field) -> Option<String> {
        let fits = |value: &Value| !is.unique && validate::value(is, &mut value.clone()).is_ok();
        let fits = was.default.as_ref().is_none_or(fits);
        fits.then(|| self.default(&is.name, was.default.as_ref()))
    }

    pub fn enum_map(self, field: &str, values: &[(&str, &str)]) -> String {
        let values = values.iter().map(|(old, new)| format!("{} = {}", key(old), quoted(new)));
        let values = values.collect::<Vec<_>>().join(", ");
        let field = quoted(field);
        self.change(&format!("enum_map = {{ field = {field}, values = {{ {values} }} }}"))
    }

    /// A change of type, where there is a conversion that loses nothing, and no new limit.
    pub fn retype(self, old: &Field, new: &Field) -> Option<String> {
        let scalar = |kind: &Kind| matches!(kind, Kind::Integer | Kind::Number | Kind::Boolean);
        let single = (old.min_length, old.max_length) == (Some(1), Some(1));
        let is_whole = |value: &Value| validate::of_kind(&Kind::Integer, value.clone()).is_some();
        let by = match (&old.kind, &new.kind) {
            (kind, Kind::String) if scalar(kind) && new.choices.is_empty() => "by = \"text\"",
            (Kind::Integer, Kind::Timestamp) | (Kind::Timestamp, Kind::Integer) => {
                "by = \"milliseconds\""
            }
            (one, Kind::Array(item)) if **item == *one => "by = \"list\"",
            (Kind::Array(item), one) if **item == *one && single => "by = \"list\"",
            (Kind::Integer, Kind::Number) => "factor = 1",
            // Fractions are refused, and one that stands for nothing would be refused always.
            (Kind::Number, Kind::Integer) if old.default.as_ref().is_none_or(is_whole) => {
                "factor = 1"
            }
            _ => return None,
        };
        if new.reference.is_some() || !takes_all(old, new) {
            return None;
        }
        // A list cannot be asked by, so the old field says itself that it can.
        let asked = matches!(new.kind, Kind::Array(_));
        let (filter, sort) = (asked && old.filter, asked && old.sort);
        let old = &Field { filter, sort, ..old.clone() };
        let (name, from) = (quoted(&old.name), declaration(old, false));
        Some(self.change(&format!("retype = {{ field = {name}, from = {from}, {by} }}")))
    }
}

/// Whether every value of the old field is one of the new, whose limits stand in other units: on
/// the numbers they are compared, on lists of one they ask for nothing, else there are none.
fn takes_all(old: &Field, new: &Field) -> bool {
    // A number or truth value is one character at least, the item of a list may be none.
    let sure = usize::from(!matches!(old.kind, Kind::Array(_)));
    let least = new.min_length.is_none_or(|least| least <= sure);
    let most = new.max_length.is_none_or(|most| most >= 1 && matches!(new.kind, Kind::Array(_)));
    let is_number = |kind: &Kind| matches!(kind, Kind::Integer | Kind::Number);
    let numeric = is_number(&old.kind) && is_number(&new.kind);
    let above = |new: f64| numeric && old.min.is_some_and(|old| old >= new);
    let below = |new: f64| numeric && old.max.is_some_and(|old| old <= new);
    let numbers = new.min.is_none_or(above) && new.max.is_none_or(below);
    least && most && numbers && new.pattern.is_none() && new.choices.is_empty()
}

/// Says that what follows cannot stand below the date of another change of the field.
pub(super) fn apart(lines: &str) -> String {
    format!(
        "# Below a date of its own, before the one that changes it already: a date changes a field \
         once.\n{lines}"
    )
}

/// Says that what follows cannot stand below the same date.
pub(super) fn later(lines: &str) -> String {
    format!(
        "# Below a date of its own, before the one above: a date changes a field once.\n{lines}"
    )
}

pub(super) fn version(date: &str) -> String {
    format!("[[versions]]\ndate = \"{date}\"\n")
}

/// `newest`: no newer version is there yet, which the other mount could serve.
pub(super) fn mount(path: &str, date: &str, newest: bool) -> String {
    let first = match newest {
        true => format!("# As soon as there is a version newer than {date}:\n"),
        false => String::new(),
    };
    format!("{first}[[mounts]]\npath = {}\nversion = \"{date}\"\n", quoted(path))
}

/// A field as `from` declares it.
fn declaration(field: &Field, named: bool) -> String {
    let mut members = Vec::new();
    let mut say = |key: &str, text: String| members.push(format!("{key} = {text}"));
    if named {
        say("name", quoted(&field.name));
    }
    say("type", quoted(field.kind.name()));
    if let Kind::Array(item) = &field.kind {
        say("items", quoted(item.name()));
    }
    if field.required {
        say("required", "true".to_owned());
    }
    if let Some(default) = &field.default {
        say("default", value(default));
    }
    for (key, limit) in [("min", field.min), ("max", field.max)] {
        if let Some(limit) = limit.and_then(Number::from_f64) {
            say(key, limit.to_string());
        }
    }
    for (key, limit) in [("min_length", field.min_length), ("max_length", field.max_length)] {
        if let Some(limit) = limit {
            say(key, limit.to_string());
        }
    }
    if let Some(pattern) = &field.pattern {
        say("pattern", quoted(pattern.0.as_str()));
    }
    if !field.choices.is_empty() {
        let choices: Vec<String> = field.choices.iter().map(|choice| quoted(choice)).collect();
        say("enum", format!("[{}]", choices.join(", ")));
    }
    for (key, _) in [("filter", field.filter), ("sort", field.sort)].iter().filter(|one| one.1) {
        say(key, "true".to_owned());
    }
    format!("{{ {} }}", members.join(", "))
}

/// JSON as TOML; they differ in tables, in null, which TOML does not have, and in one character.
fn value(json: &Value) -> String {
    match json {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            let members = members.map(|(name, json)| format!("{} = {}", key(name), value(json)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

fn quoted(text: &str) -> String {
    value(&Value::from(text))
}

fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
