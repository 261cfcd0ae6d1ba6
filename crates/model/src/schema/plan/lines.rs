//! The lines of TOML that declare an edit. Where only the author knows a value, it stands there as
//! one to be replaced.

use crate::schema::{Field, Kind};
use serde_json::Value;

pub(super) fn change(collection: &str, operation: &str) -> String {
    format!("[[versions.changes]]\ncollection = \"{collection}\"\n{operation}\n")
}

pub(super) fn version(date: &str) -> String {
    format!("[[versions]]\ndate = \"{date}\"\n")
}

pub(super) fn mount(path: &str, date: &str) -> String {
    format!("[[mounts]]\npath = \"{path}\"\nversion = \"{date}\"\n")
}

pub(super) fn rename(collection: &str, from: &str, to: &str) -> String {
    change(collection, &format!("rename = {{ from = \"{from}\", to = \"{to}\" }}"))
}

pub(super) fn removed(collection: &str, field: &str) -> String {
    change(collection, &format!("removed = {{ field = \"{field}\" }}"))
}

pub(super) fn code(collection: &str, from: &str) -> String {
    change(collection, &format!("code = {{ from = \"{from}\", to = \"the_new_code\" }}"))
}

pub(super) fn default(collection: &str, field: &str, was: Option<&Value>) -> String {
    let was = was.map(|was| format!(", was = {}", value(was))).unwrap_or_default();
    change(collection, &format!("default = {{ field = \"{field}\"{was} }}"))
}

/// `required` or `optional`.
pub(super) fn filled(collection: &str, operation: &str, field: &Field) -> String {
    let fill = value(&field.default.clone().unwrap_or_else(|| some(&field.kind)));
    change(collection, &format!("{operation} = {{ field = \"{}\", fill = {fill} }}", field.name))
}

pub(super) fn enum_map(collection: &str, field: &str, gone: &str, known: &str) -> String {
    let values = format!("{} = {}", key(gone), value(&Value::from(known)));
    change(collection, &format!("enum_map = {{ field = \"{field}\", values = {{ {values} }} }}"))
}

/// A change of type, where there is a conversion between the two.
pub(super) fn retype(collection: &str, old: &Field, new: &Field) -> Option<String> {
    let scalar = |kind: &Kind| matches!(kind, Kind::Integer | Kind::Number | Kind::Boolean);
    let by = match (&old.kind, &new.kind) {
        (Kind::String, kind) | (kind, Kind::String) if scalar(kind) => "by = \"text\"",
        (Kind::Integer, Kind::Timestamp) | (Kind::Timestamp, Kind::Integer) => {
            "by = \"milliseconds\""
        }
        (Kind::Array(item), one) | (one, Kind::Array(item)) if **item == *one => "by = \"list\"",
        (Kind::Integer, Kind::Number) | (Kind::Number, Kind::Integer) => "factor = 1",
        _ => return None,
    };
    let items = match &old.kind {
        Kind::Array(item) => format!(", items = \"{}\"", item.name()),
        _ => String::new(),
    };
    let from = format!("{{ type = \"{}\"{items} }}", old.kind.name());
    let name = &old.name;
    Some(change(collection, &format!("retype = {{ field = \"{name}\", from = {from}, {by} }}")))
}

/// Any value of the kind.
fn some(kind: &Kind) -> Value {
    match kind {
        Kind::String => Value::from(""),
        Kind::Integer | Kind::Number => Value::from(0),
        Kind::Boolean => Value::from(false),
        Kind::Timestamp => Value::from("1970-01-01T00:00:00Z"),
        Kind::Date => Value::from("1970-01-01"),
        Kind::Object => Value::Object(serde_json::Map::new()),
        Kind::Array(_) => Value::Array(Vec::new()),
    }
}

/// JSON as TOML; they differ in tables only, and in null, which TOML does not have.
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
        other => other.to_string(),
    }
}

fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => Value::from(name).to_string(),
    }
}
