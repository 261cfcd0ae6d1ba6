//! The lines of TOML that declare an edit, such that the file with them is taken and the edit is
//! none any more. Where only the author knows a value, one that fits stands there.

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

    /// `rename` or `code`.
    pub fn renamed(self, operation: &str, from: &str, to: &str) -> String {
        let (from, to) = (quoted(from), quoted(to));
        self.change(&format!("{operation} = {{ from = {from}, to = {to} }}"))
    }

    /// `said`: the field as it stays declared.
    pub fn removed(self, field: &str, said: &str) -> String {
        let change = self.change(&format!("removed = {{ field = {} }}", quoted(field)));
        format!(
            "{change}# The field stays below [collections.{}.fields]:\n# {said}\n",
            self.collection
        )
    }

    /// A parameter that is taken and not looked at any more.
    pub fn ignored(self, field: &Field) -> String {
        let field = declaration(field, true);
        self.change(&format!("removed = {{ field = {field} }}"))
    }

    pub fn limits(self, field: &str, was: &Limits) -> String {
        let limits = was.entries();
        let members = limits.iter().map(|(key, limit)| format!("{key} = {}", value(limit)));
        let was = match limits.is_empty() {
            true => String::new(),
            false => format!(", was = {{ {} }}", members.collect::<Vec<_>>().join(", ")),
        };
        self.change(&format!("limits = {{ field = {}{was} }}", quoted(field)))
    }

    /// `required` or `optional`. None where no value can be made up: a reference names a record,
    /// and what is unique cannot be the same for all.
    pub fn filled(self, operation: &str, field: &Field) -> Option<String> {
        if field.reference.is_some() || field.unique && operation == "required" {
            return None;
        }
        let fill = value(&sample(field)?);
        let name = quoted(&field.name);
        Some(self.change(&format!("{operation} = {{ field = {name}, fill = {fill} }}")))
    }

    /// Only if the newer field could have the old default, too.
    pub fn default(self, was: &Field, is: &Field) -> Option<String> {
        let fits = |value: &Value| !is.unique && validate::value(is, &mut value.clone()).is_ok();
        if !was.default.as_ref().is_none_or(fits) {
            return None;
        }
        let was = was.default.as_ref().map(|was| format!(", was = {}", value(was)));
        let (field, was) = (quoted(&is.name), was.unwrap_or_default());
        Some(self.change(&format!("default = {{ field = {field}{was} }}")))
    }

    pub fn enum_map(self, field: &str, values: &[(&str, &str)]) -> String {
        let values = values.iter().map(|(old, new)| format!("{} = {}", key(old), quoted(new)));
        let values = values.collect::<Vec<_>>().join(", ");
        let field = quoted(field);
        self.change(&format!("enum_map = {{ field = {field}, values = {{ {values} }} }}"))
    }

    /// A change of type. Only the author knows how its values are converted.
    pub fn convert(self, old: &Field) -> String {
        let (name, from) = (quoted(&old.name), declaration(old, false));
        let todo = quoted(PLACEHOLDER);
        self.change(&format!(
            "convert = {{ field = {name}, from = {from}, up = {todo}, down = {todo} }}"
        ))
    }
}

/// An edit that no change undoes.
pub(super) fn breaks(edit: &str) -> String {
    format!("[[versions.changes]]\nbreaks = {}\n", quoted(edit))
}

/// Says that what follows cannot stand below the date of another change of the field.
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

/// What the file said, and where.
pub(super) fn put_back(table: &str, said: &str) -> String {
    format!("# Below [{table}], as it was:\n{said}\n")
}

/// A field as `from` declares it.
pub(super) fn declaration(field: &Field, named: bool) -> String {
    let name = named.then(|| format!("name = {}", quoted(&field.name)));
    let members: Vec<String> = name.into_iter().chain(members(field)).collect();
    format!("{{ {} }}", members.join(", "))
}

/// A field as the collection declares it.
pub(super) fn field(schema: &Schema, field: &Field) -> String {
    let mut members = members(field);
    for (key, flag) in [
        ("unique", field.unique),
        ("search", field.search),
        ("write_only", field.write_only),
        ("read_only", field.read_only),
    ] {
        members.extend(flag.then(|| format!("{key} = true")));
    }
    let target = field.reference.map(|at| quoted(&schema.collections[at].name));
    members.extend(target.map(|target| format!("ref = {target}")));
    let on_delete = field.on_delete.map(|said| quoted(said.name()));
    members.extend(on_delete.map(|said| format!("on_delete = {said}")));
    format!("{} = {{ {} }}", key(&field.name), members.join(", "))
}

fn members(field: &Field) -> Vec<String> {
    let mut members = Vec::new();
    let mut say = |key: &str, text: String| members.push(format!("{key} = {text}"));
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
    for (key, limit) in Limits::of(field).entries() {
        say(key, value(&limit));
    }
    if !field.choices.is_empty() {
        say("enum", texts(&field.choices));
    }
    for (key, _) in [("filter", field.filter), ("sort", field.sort)].iter().filter(|one| one.1) {
        say(key, "true".to_owned());
    }
    members
}

fn texts(all: &[String]) -> String {
    value(&all.iter().map(String::as_str).collect())
}

pub(super) fn states(states: &States) -> String {
    let States { field, initial, names } = states;
    let (field, initial, names) = (quoted(field), quoted(initial), texts(names));
    format!("states = {{ field = {field}, initial = {initial}, names = {names} }}")
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
