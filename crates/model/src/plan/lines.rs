//! The lines of TOML that declare an edit. With them, the file is accepted and the edit is
//! declared. If only the author knows a value, the lines have one that fits.

use crate::parse::PLACEHOLDER;
use crate::schema::{Field, Kind, Limits, Schema, States};
use crate::validate;
use crate::version::sample;
use serde_json::Value;

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

    fn operation(self, name: &str, members: Vec<(&str, String)>) -> String {
        self.change(&format!("{name} = {}", table(members)))
    }

    /// `rename` or `code`.
    pub fn renamed(self, operation: &str, from: &str, to: &str) -> String {
        self.operation(operation, vec![("from", quoted(from)), ("to", quoted(to))])
    }

    /// `declared`: the field as it stays declared.
    pub fn removed(self, field: &Field, declared: &str) -> String {
        let change = self.operation("removed", vec![("field", quoted(&field.name))]);
        let table = format!("[collections.{}.fields]", self.collection);
        format!("{change}# The field stays below {table}:\n# {declared}\n")
    }

    /// A parameter that is accepted and ignored.
    pub fn ignored(self, field: &Field) -> String {
        let name = [("name", quoted(&field.name))];
        let declaration = table(name.into_iter().chain(members(field)));
        self.operation("removed", vec![("field", declaration)])
    }

    pub fn limits(self, field: &str, was: &Limits) -> String {
        let was = limits(was);
        let was = (!was.is_empty()).then(|| ("was", table(was)));
        let field = ("field", quoted(field));
        self.operation("limits", [field].into_iter().chain(was).collect())
    }

    /// `required` or `optional`. None where no value can be made up: a reference names a record,
    /// and the values of a unique field differ.
    pub fn filled(self, operation: &str, field: &Field) -> Option<String> {
        if field.reference.is_some() || field.unique && operation == "required" {
            return None;
        }
        let fill = value(&sample(field)?);
        Some(self.operation(operation, vec![("field", quoted(&field.name)), ("fill", fill)]))
    }

    /// Only if the newer field could have the old default, too.
    pub fn default(self, was: &Field, is: &Field) -> Option<String> {
        let fits = |value: &Value| !is.unique && validate::value(is, &mut value.clone()).is_ok();
        if !was.default.as_ref().is_none_or(fits) {
            return None;
        }
        let was = was.default.as_ref().map(|was| ("was", value(was)));
        let field = ("field", quoted(&is.name));
        Some(self.operation("default", [field].into_iter().chain(was).collect()))
    }

    pub fn enum_map(self, field: &str, values: &[(&str, &str)]) -> String {
        let values = table(values.iter().map(|(old, new)| (*old, quoted(new))));
        self.operation("enum_map", vec![("field", quoted(field)), ("values", values)])
    }

    /// A change of type. Only the author knows how to convert its values.
    pub fn convert(self, old: &Field) -> String {
        let (field, from) = (("field", quoted(&old.name)), ("from", table(members(old))));
        let todo = || quoted(PLACEHOLDER);
        self.operation("convert", vec![field, from, ("up", todo()), ("down", todo())])
    }
}

/// An edit that no change hides.
pub(super) fn breaks(edit: &str) -> String {
    format!("[[versions.changes]]\nbreaks = {}\n", quoted(edit))
}

/// Adds the note that these lines need a date of their own.
pub(super) fn apart(lines: &str) -> String {
    format!("# Below an older date of its own: a date changes a field once.\n{lines}")
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

/// A field as the collection declares it.
pub(super) fn field(schema: &Schema, field: &Field) -> String {
    let mut members = members(field);
    members.extend(flags(&[
        ("unique", field.unique),
        ("search", field.search),
        ("write_only", field.write_only),
        ("read_only", field.read_only),
    ]));
    members.extend(field.reference.map(|at| ("ref", quoted(&schema.collections[at].name))));
    members.extend(field.on_delete.map(|action| ("on_delete", quoted(action.name()))));
    format!("{} = {}", key(&field.name), table(members))
}

fn members(field: &Field) -> Vec<(&'static str, String)> {
    let mut members = vec![("type", quoted(field.kind.name()))];
    if let Kind::Array(item) = &field.kind {
        members.push(("items", quoted(item.name())));
    }
    members.extend(flags(&[("required", field.required)]));
    members.extend(field.default.as_ref().map(|default| ("default", value(default))));
    members.extend(limits(&Limits::of(field)));
    members.extend((!field.choices.is_empty()).then(|| ("enum", texts(&field.choices))));
    members.extend(flags(&[("filter", field.filter), ("sort", field.sort)]));
    members
}

fn flags(flags: &[(&'static str, bool)]) -> Vec<(&'static str, String)> {
    flags.iter().filter(|(_, set)| *set).map(|(key, _)| (*key, "true".to_owned())).collect()
}

fn limits(limits: &Limits) -> Vec<(&'static str, String)> {
    limits.entries().into_iter().map(|(key, limit)| (key, value(&limit))).collect()
}

fn texts(all: &[String]) -> String {
    value(&all.iter().map(String::as_str).collect())
}

pub(super) fn states(states: &States) -> String {
    let States { field, initial, names } = states;
    let members = [("field", quoted(field)), ("initial", quoted(initial)), ("names", texts(names))];
    format!("states = {}", table(members))
}

/// An inline table.
fn table<'k>(members: impl IntoIterator<Item = (&'k str, String)>) -> String {
    let members = members.into_iter().map(|(name, value)| format!("{} = {value}", key(name)));
    format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
}

/// JSON as TOML; they differ in tables, in null, which TOML does not have, and in one character.
fn value(json: &Value) -> String {
    match json {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            table(members.map(|(name, json)| (name.as_str(), value(json))))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

pub(super) fn quoted(text: &str) -> String {
    value(&Value::from(text))
}

pub(super) fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
