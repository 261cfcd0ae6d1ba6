//! Reads one field of a collection or one parameter of an action. Knows the options of a field;
//! what the collection around it demands is checked by `collection`.

use super::naming;
use super::reader::{self, Node, Report, Table, Text};
use super::{deprecation, field_check, keys};
use crate::schema::{CollectionIx, Field, Kind, OnDelete, Pattern};
use crate::spelling;
use crate::time::Timestamp;
use serde_json::Value;

/// Largest compiled pattern; a schema must not be able to take the memory of the service.
const PATTERN_BYTES: usize = 1 << 20;

/// Most values of an `enum`.
const CHOICES: usize = 1000;

/// The collections that a field may refer to.
pub(super) struct Targets<'a> {
    pub names: &'a [&'a str],
    /// Same places as `names`: whether it is a feed.
    pub feeds: &'a [bool],
}

/// Reads a field from its short form, the name of a type, or from its table.
pub(super) fn read(
    report: &mut Report<'_>,
    name: Text<'_>,
    value: Node<'_>,
    targets: &Targets<'_>,
    known: &[&str],
) -> Field {
    let what = if known == keys::PARAM { "parameter" } else { "field" };
    if let Some(short) = reader::text(value) {
        return read_short(report, name, short);
    }
    let Some(table) = value.get_ref().as_table() else {
        reader::expected(report, value, name.value, "a type name or a table of options");
        return Field::new(name.value, Kind::String);
    };
    let table = Table::new(format!("{what} `{}`", name.value), name.at, table);
    table.allow(report, known);
    let Some(kind) = read_kind(report, &table) else {
        // Without a type every further finding would be a guess.
        return Field::new(name.value, Kind::String);
    };
    let mut field = Field::new(name.value, kind);
    read_options(report, &table, &mut field);
    read_limits(report, &table, &mut field);
    field.deprecated = deprecation::read(report, &table);
    field.choices = read_choices(report, &table);
    field.reference = read_reference(report, &table, targets);
    field.on_delete = read_on_delete(report, &table);
    field_check::check(report, &table, &field);
    read_default(report, &table, &mut field);
    field
}

fn read_short(report: &mut Report<'_>, name: Text<'_>, short: Text<'_>) -> Field {
    match scalar(short.value) {
        Some(kind) => Field::new(name.value, kind),
        None => {
            match short.value {
                "array" => report.say(
                    short.at,
                    "an array needs `items`: write { type = \"array\", items = \"string\" }",
                ),
                "object" => return Field::new(name.value, Kind::Object),
                other => unknown_type(report, Text { value: other, at: short.at }),
            }
            Field::new(name.value, Kind::String)
        }
    }
}

fn scalar(name: &str) -> Option<Kind> {
    Some(match name {
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        "timestamp" => Kind::Timestamp,
        "date" => Kind::Date,
        _ => return None,
    })
}

fn unknown_type(report: &mut Report<'_>, text: Text<'_>) {
    let hint = spelling::hint(text.value, keys::KINDS.iter().copied());
    report.say(
        text.at,
        format!("unknown type `{}`{hint}; types: {}", text.value, keys::KINDS.join(", ")),
    );
}

fn read_kind(report: &mut Report<'_>, table: &Table<'_>) -> Option<Kind> {
    if table.get("type").is_none() && table.get("ref").is_some() {
        return Some(Kind::String);
    }
    let text = table.need_text(report, "type")?;
    if text.value == "object" {
        return Some(Kind::Object);
    }
    if text.value != "array" {
        let kind = scalar(text.value);
        if kind.is_none() {
            unknown_type(report, text);
        }
        return kind;
    }
    if table.get("items").is_none() {
        report.say(text.at, "an array needs `items`, the type of its values: items = \"string\"");
    }
    let items = table.text(report, "items")?;
    let kind = scalar(items.value);
    if kind.is_none() {
        report.say(items.at, "`items` must be string, integer, number, boolean, timestamp or date");
    }
    kind.map(|kind| Kind::Array(Box::new(kind)))
}

fn read_options(report: &mut Report<'_>, table: &Table<'_>, field: &mut Field) {
    field.description = table.owned_text(report, "description");
    for (key, flag) in [
        ("required", &mut field.required),
        ("unique", &mut field.unique),
        ("filter", &mut field.filter),
        ("sort", &mut field.sort),
        ("search", &mut field.search),
        ("write_only", &mut field.write_only),
        ("read_only", &mut field.read_only),
    ] {
        *flag = table.flag(report, key).unwrap_or(false);
    }
}

pub(super) fn read_limits(report: &mut Report<'_>, table: &Table<'_>, field: &mut Field) {
    field.min = table.number(report, "min");
    field.max = table.number(report, "max");
    // A length beyond 2^31 could not be met: bodies are far smaller.
    let lengths = 0..=i64::from(i32::MAX);
    let mut length = |key| {
        let found = table.integer(report, key, lengths.clone())?;
        usize::try_from(found).ok()
    };
    field.min_length = length("min_length");
    field.max_length = length("max_length");
    let Some(pattern) = table.text(report, "pattern") else { return };
    match regex::RegexBuilder::new(pattern.value).size_limit(PATTERN_BYTES).build() {
        Ok(regex) => field.pattern = Some(Pattern(regex)),
        Err(error) => {
            // The library draws the pattern over several lines; the reason is the last one.
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or("it cannot be read").trim();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            report.say(pattern.at, format!("`pattern` is no regular expression: {reason}"));
        }
    }
}

fn read_choices(report: &mut Report<'_>, table: &Table<'_>) -> Vec<String> {
    let Some(texts) = table.texts(report, "enum") else { return Vec::new() };
    let at = table.value_at("enum");
    if texts.is_empty() {
        report.say(at, "`enum` must list at least one value");
    }
    if texts.len() > CHOICES {
        report.say(at, format!("`enum` lists at most {CHOICES} values"));
        return Vec::new();
    }
    let mut choices: Vec<String> = Vec::new();
    for text in texts {
        if choices.iter().any(|choice| choice == text.value) {
            report.say(text.at, format!("`{}` stands twice in `enum`; remove one", text.value));
        } else {
            choices.push(text.value.to_owned());
        }
    }
    choices
}

fn read_reference(
    report: &mut Report<'_>,
    table: &Table<'_>,
    targets: &Targets<'_>,
) -> Option<CollectionIx> {
    let target = table.text(report, "ref")?;
    let Some(found) = targets.names.iter().position(|name| *name == target.value) else {
        let hint = spelling::hint(target.value, targets.names.iter().copied());
        report.say(
            target.at,
            format!("`ref` names the collection `{}`, which is not declared{hint}", target.value),
        );
        return None;
    };
    if targets.feeds[found] {
        report.say(
            target.at,
            format!("`{}` is a feed; its records cannot be referred to", target.value),
        );
    }
    Some(found)
}

fn read_on_delete(report: &mut Report<'_>, table: &Table<'_>) -> Option<OnDelete> {
    let text = table.text(report, "on_delete")?;
    let found = OnDelete::ALL.into_iter().find(|one| one.name() == text.value);
    if found.is_none() {
        let names = OnDelete::ALL.map(OnDelete::name);
        let hint = spelling::hint(text.value, names);
        report.say(
            text.at,
            format!("`on_delete` is {}, not `{}`{hint}", names.join(", "), text.value),
        );
    }
    found
}

fn read_default(report: &mut Report<'_>, table: &Table<'_>, field: &mut Field) {
    let Some(node) = table.get("default") else { return };
    let Some(value) = reader::json(report, node) else { return };
    match field_check::conforms(field, &value) {
        Ok(()) => field.default = Some(normal(&field.kind, value)),
        Err(reason) => report.say(node.span().start, format!("`default` {reason}")),
    }
}

/// Timestamps are stored in one form, however the file writes them.
pub(super) fn normal(kind: &Kind, value: Value) -> Value {
    match (kind, &value) {
        (Kind::Timestamp, Value::String(text)) => {
            Timestamp::parse(text).map_or(value, |instant| Value::String(instant.to_iso()))
        }
        _ => value,
    }
}

/// Says why a field cannot have this name.
pub(super) fn check_name(report: &mut Report<'_>, name: Text<'_>) {
    let word = name.value;
    if !naming::is_snake(word) {
        report.say(
            name.at,
            format!(
                "the field name `{word}` must be lower-case words joined by single underscores, at \
                 most {} characters",
                naming::NAME_CHARS
            ),
        );
    } else if naming::ASSIGNED.contains(&word) {
        report.say(name.at, format!("`{word}` is assigned by the service; remove the field"));
    } else if naming::PARAMETERS.contains(&word) {
        report.say(
            name.at,
            format!("`{word}` is a query parameter of every list; choose another field name"),
        );
    }
}
