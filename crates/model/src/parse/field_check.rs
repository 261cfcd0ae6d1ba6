//! Which options of a field go together, and whether a value written in the file fits a field.
//! Knows one field at a time.

use super::reader::{Report, Table};
use crate::schema::{Field, Kind, OnDelete};
use crate::time::{Timestamp, is_date};
use serde_json::Value;

/// Complains about options that the field's type or its other options rule out.
pub(super) fn check(report: &mut Report<'_>, table: &Table<'_>, field: &Field) {
    check_against_kind(report, table, field);
    check_ranges(report, table, field);
    check_contradictions(report, table, field);
    match table.get("ref").is_some() {
        true => check_reference(report, table, field),
        false => {
            if let Some(at) = table.key_at("on_delete") {
                let message = "`on_delete` is for references only; add `ref` or remove it";
                report.say(at, message);
            }
        }
    }
}

fn check_against_kind(report: &mut Report<'_>, table: &Table<'_>, field: &Field) {
    let kind = &field.kind;
    let string = *kind == Kind::String;
    let numeric = matches!(kind, Kind::Integer | Kind::Number);
    let sized = matches!(kind, Kind::String | Kind::Array(_));
    let given = |key: &str| table.get(key).is_some();
    for (key, wanted, fits, what) in [
        ("min", given("min"), numeric, "integer and number fields"),
        ("max", given("max"), numeric, "integer and number fields"),
        ("min_length", given("min_length"), sized, "string and array fields"),
        ("max_length", given("max_length"), sized, "string and array fields"),
        ("pattern", given("pattern"), string, "string fields"),
        ("enum", given("enum"), string, "string fields"),
        ("items", given("items"), matches!(kind, Kind::Array(_)), "array fields"),
        ("search", field.search, string, "string fields"),
        ("unique", field.unique, kind.is_scalar(), "fields of one value"),
        ("filter", field.filter, kind.is_scalar(), "fields of one value"),
        ("sort", field.sort, kind.is_scalar(), "fields of one value"),
        ("ref", given("ref"), string, "string fields"),
    ] {
        if wanted && !fits {
            let at = table.key_at(key).unwrap_or(table.at);
            report.say(
                at,
                format!(
                    "`{key}` is for {what} only, and `{}` is of type {}; remove it or change the \
                     type",
                    field.name,
                    kind.name()
                ),
            );
        }
    }
}

pub(super) fn check_ranges(report: &mut Report<'_>, table: &Table<'_>, field: &Field) {
    if let (Some(min), Some(max)) = (field.min, field.max)
        && min > max
    {
        report.say(table.value_at("min"), format!("`min` {min} is above `max` {max}"));
    }
    if let (Some(min), Some(max)) = (field.min_length, field.max_length)
        && min > max
    {
        report.say(
            table.value_at("min_length"),
            format!("`min_length` {min} is above `max_length` {max}"),
        );
    }
    for (key, bound) in [("min", field.min), ("max", field.max)] {
        if field.kind == Kind::Integer && bound.is_some_and(|bound| bound.fract() != 0.0) {
            report.say(
                table.value_at(key),
                format!("`{key}` of an integer field must be a whole number"),
            );
        }
    }
}

fn check_contradictions(report: &mut Report<'_>, table: &Table<'_>, field: &Field) {
    let default = table.get("default").is_some();
    let hidden = "a write_only field is never served, so it cannot be searched by";
    for (key, wrong, message) in [
        (
            "default",
            field.required && default,
            "`required` and `default` contradict each other; a default makes the field optional",
        ),
        (
            "required",
            field.required && field.read_only,
            "`required` and `read_only` contradict each other; no request can send the field",
        ),
        (
            "write_only",
            field.write_only && field.read_only,
            "`write_only` and `read_only` contradict each other; keep one",
        ),
        (
            "default",
            field.unique && default,
            "a `unique` field cannot have a `default`: two records would clash",
        ),
        ("filter", field.write_only && field.filter, hidden),
        ("sort", field.write_only && field.sort, hidden),
        ("search", field.write_only && field.search, hidden),
        (
            "sort",
            field.sort && field.name == "rank",
            "`sort=rank` is the order of a search; give the field another name to sort by it",
        ),
    ] {
        if wrong {
            report.say(table.key_at(key).unwrap_or(table.at), message);
        }
    }
}

/// The values of a reference are ids, which the service makes.
fn check_reference(report: &mut Report<'_>, table: &Table<'_>, field: &Field) {
    for key in ["pattern", "enum", "min_length", "max_length", "default", "search"] {
        if let Some(at) = table.key_at(key) {
            report.say(
                at,
                format!("`{key}` has no place on a reference; `{}` holds an id", field.name),
            );
        }
    }
    if field.required && field.on_delete == Some(OnDelete::SetNull) {
        report.say(
            table.value_at("on_delete"),
            format!(
                "`{}` is required and cannot become null; use `restrict` or `cascade`, or make it \
                 optional",
                field.name
            ),
        );
    }
}

/// Whether a value of the file fits the field. The reason follows the name of the key.
pub(super) fn conforms(field: &Field, value: &Value) -> Result<(), String> {
    of_kind(&field.kind, value)?;
    if let Some(number) = value.as_f64() {
        if field.min.is_some_and(|min| number < min) {
            return Err(format!("is below `min` of `{}`", field.name));
        }
        if field.max.is_some_and(|max| number > max) {
            return Err(format!("is above `max` of `{}`", field.name));
        }
    }
    let length = match value {
        Value::String(text) => Some(text.chars().count()),
        Value::Array(items) => Some(items.len()),
        _ => None,
    };
    if let Some(length) = length {
        if field.min_length.is_some_and(|min| length < min) {
            return Err(format!("is shorter than `min_length` of `{}`", field.name));
        }
        if field.max_length.is_some_and(|max| length > max) {
            return Err(format!("is longer than `max_length` of `{}`", field.name));
        }
    }
    let Value::String(text) = value else { return Ok(()) };
    if field.pattern.as_ref().is_some_and(|pattern| !pattern.0.is_match(text)) {
        return Err(format!("does not match `pattern` of `{}`", field.name));
    }
    if !field.choices.is_empty() && !field.choices.contains(text) {
        return Err(format!("is none of the `enum` values of `{}`", field.name));
    }
    Ok(())
}

fn of_kind(kind: &Kind, value: &Value) -> Result<(), String> {
    let fits = match (kind, value) {
        (Kind::String, Value::String(_)) => true,
        (Kind::Integer, value) => value.is_i64(),
        (Kind::Number, value) => value.is_number(),
        (Kind::Boolean, value) => value.is_boolean(),
        (Kind::Timestamp, Value::String(text)) => Timestamp::parse(text).is_some(),
        (Kind::Date, Value::String(text)) => is_date(text),
        (Kind::Object, value) => value.is_object(),
        (Kind::Array(items), Value::Array(values)) => {
            return values.iter().try_for_each(|value| of_kind(items, value));
        }
        _ => false,
    };
    let want = match kind {
        Kind::String => "must be a string",
        Kind::Integer => "must be a whole number",
        Kind::Number => "must be a number",
        Kind::Boolean => "must be true or false",
        Kind::Timestamp => "must be a date and time with an offset, such as 2026-11-15T08:30:00Z",
        Kind::Date => "must be a date that exists, such as 2026-11-15",
        Kind::Object => "must be a table",
        Kind::Array(_) => "must be a list",
    };
    if fits { Ok(()) } else { Err(want.to_owned()) }
}
