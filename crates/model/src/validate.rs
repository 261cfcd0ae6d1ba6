//! Checks a request body against a collection before anything is loaded: reports all violations at
//! once and normalises values to their stored form. `decide` makes the checks that need the current
//! record (fields sent back unchanged, merged objects).

use crate::problem::{Code, Problem, UnknownNames, Violation};
use crate::record::Fields;
use crate::schema::{Collection, Field, Kind};
use crate::time::{self, Timestamp};
use crate::value::{kind_of, plain_number};
use serde_json::{Number, Value};

/// Strings without a declared `max_length` end here.
pub const MAX_STRING_CHARS: usize = 65_536;
/// Arrays without a declared `max_length` end here.
pub const MAX_ARRAY_ITEMS: usize = 1_000;
/// Free-form objects end here, as JSON text.
pub const MAX_OBJECT_BYTES: usize = 65_536;
/// Integers that every JSON reader keeps exactly.
pub const MAX_INTEGER: i64 = (1 << 53) - 1;
/// Fields that the service assigns in every collection.
pub const ASSIGNED: &[&str] = &["id", "object", "created_at", "updated_at"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Create,
    Replace,
    Merge,
}

/// Checks a create, PUT or PATCH body. In a create, defaults are filled in; in a PUT, erased fields
/// become their default or null; in a PATCH nothing is added.
pub fn body(collection: &Collection, body: Fields, mode: Mode) -> Result<Fields, Problem> {
    let (body, violations) = checked(collection, body, mode);
    finish(body, violations)
}

/// The same, with all violations.
pub(crate) fn checked(
    collection: &Collection,
    mut body: Fields,
    mode: Mode,
) -> (Fields, Vec<Violation>) {
    let (mut violations, mut unknown) = (Vec::new(), UnknownNames::default());
    for (name, value) in &mut body {
        let assigned = ASSIGNED.contains(&name.as_str());
        match collection.known(name) {
            // A read-only field that is sent back unchanged is ignored; only `decide` knows whether
            // it is.
            Some(field) if field.read_only && mode == Mode::Create => {
                violations.push(read_only(&field.name));
            }
            Some(field) if field.read_only => {}
            Some(field) => check_field(field, value, mode, &mut violations),
            None if assigned && mode == Mode::Create => violations.push(read_only(name)),
            None if assigned => {}
            None => unknown.add(&mut violations, name, |shown| {
                format!("`{}` has no field `{shown}`.", collection.name)
            }),
        }
    }
    if mode != Mode::Merge {
        complete(&collection.fields, &mut body, &mut violations);
    }
    if mode == Mode::Create {
        complete_removed(&collection.fields, &mut body);
    }
    (body, violations)
}

/// Checks fields that were brought up from an older version: the limits of the newest may be
/// tighter. Converts values to their stored form.
pub fn raised(collection: &Collection, fields: &mut Fields) -> Result<(), Problem> {
    let mut violations = Vec::new();
    for (name, value) in fields.iter_mut() {
        let Some(field) = collection.field(name).filter(|field| !field.read_only) else { continue };
        check_field(field, value, Mode::Replace, &mut violations);
    }
    match violations.is_empty() {
        true => Ok(()),
        false => Err(Problem::of(Code::ValidationFailed, violations)),
    }
}

/// Checks the parameters of an action.
pub fn params(fields: &[Field], mut params: Fields) -> Result<Fields, Problem> {
    let (mut violations, mut unknown) = (Vec::new(), UnknownNames::default());
    for (name, value) in &mut params {
        match fields.iter().find(|field| field.name == *name) {
            Some(field) => check_field(field, value, Mode::Create, &mut violations),
            None => unknown.add(&mut violations, name, |shown| {
                format!("This action has no parameter `{shown}`.")
            }),
        }
    }
    complete(fields, &mut params, &mut violations);
    finish(params, violations)
}

/// The message of a field that only the service sets.
pub fn read_only(name: &str) -> Violation {
    let message = format!("`{name}` is assigned by the service and cannot be set.");
    Violation::new(name, Code::ReadOnly, message)
}

fn finish(body: Fields, violations: Vec<Violation>) -> Result<Fields, Problem> {
    if violations.is_empty() {
        Ok(body)
    } else {
        Err(Problem::of(Code::ValidationFailed, violations))
    }
}

/// Adds defaults for missing fields. A required field must be present under one of its names.
fn complete(fields: &[Field], body: &mut Fields, violations: &mut Vec<Violation>) {
    let asked = |field: &&Field| !field.read_only && !field.removed && field.alias_of.is_none();
    for field in fields.iter().filter(asked) {
        let said = |alias: &Field| alias.is_alias_of(field) && body.contains_key(&alias.name);
        if body.contains_key(&field.name) || fields.iter().any(said) {
            continue;
        }
        match &field.default {
            Some(default) => {
                body.insert(field.name.clone(), default.clone());
            }
            None if field.required => violations.push(required(&field.name)),
            None => {}
        }
    }
}

/// Fields that clients do not know start with their defaults.
fn complete_removed(fields: &[Field], body: &mut Fields) {
    for field in fields.iter().filter(|field| field.removed) {
        if let Some(default) = &field.default {
            body.insert(field.name.clone(), default.clone());
        }
    }
}

fn required(name: &str) -> Violation {
    Violation::new(name, Code::Required, format!("`{name}` is required."))
}

fn check_field(field: &Field, value: &mut Value, mode: Mode, violations: &mut Vec<Violation>) {
    if value.is_null() {
        if field.required {
            violations.push(required(&field.name));
        }
        return;
    }
    // A merge patch of an object is no complete object yet: `decide` checks the merged one.
    if mode == Mode::Merge && field.kind == Kind::Object && value.is_object() {
        return;
    }
    if let Err(mut violation) = self::value(field, value) {
        if !field.write_only {
            violation = violation.value(value);
        }
        violations.push(violation);
    }
}

/// Checks one value that is not null and converts it to its stored form.
pub fn value(field: &Field, value: &mut Value) -> Result<(), Violation> {
    let fail = |code, message: String| Err(Violation::new(&field.name, code, message));
    if let Err((code, what)) = normalise(&field.kind, value) {
        return fail(code, format!("`{}` {what}.", field.name));
    }
    match value {
        Value::Number(number) => check_range(field, number),
        Value::String(text) if field.kind == Kind::String => check_text(field, text),
        Value::Array(items) => check_length(field, items.len(), MAX_ARRAY_ITEMS, "item"),
        Value::Object(_) if value.to_string().len() > MAX_OBJECT_BYTES => {
            fail(Code::TooLong, format!("`{}` exceeds {MAX_OBJECT_BYTES} bytes.", field.name))
        }
        _ => Ok(()),
    }
}

/// The value in its stored form, if it is one of this kind.
pub(crate) fn of_kind(kind: &Kind, mut value: Value) -> Option<Value> {
    normalise(kind, &mut value).is_ok().then_some(value)
}

/// Type check and normal form. The error completes the sentence "`field` …".
fn normalise(kind: &Kind, value: &mut Value) -> Result<(), (Code, String)> {
    let wrong = |value: &Value| {
        Err((Code::WrongType, format!("must be {}, not {}", with_article(kind), kind_of(value))))
    };
    match (kind, &mut *value) {
        (Kind::String, Value::String(text)) => no_nul(text),
        (Kind::Boolean, Value::Bool(_)) => Ok(()),
        (Kind::Integer, Value::Number(number)) => {
            *number = plain(number);
            let float = number.as_f64().unwrap_or(f64::MAX);
            match number.as_i64() {
                Some(whole) if whole.unsigned_abs() <= MAX_INTEGER.unsigned_abs() => Ok(()),
                None if float.abs() <= MAX_INTEGER as f64 => {
                    Err((Code::WrongType, "must be an integer, not a fraction".to_owned()))
                }
                _ => Err((Code::TooLarge, format!("must lie within ±{MAX_INTEGER}"))),
            }
        }
        (Kind::Number, Value::Number(number)) => {
            *number = plain(number);
            Ok(())
        }
        (Kind::Timestamp, Value::String(text)) => match Timestamp::parse(text) {
            Some(instant) => {
                *value = Value::String(instant.to_iso());
                Ok(())
            }
            None => Err((
                Code::InvalidFormat,
                "must be an ISO 8601 timestamp such as 2026-01-31T12:00:00Z".to_owned(),
            )),
        },
        (Kind::Date, Value::String(text)) if time::is_date(text) => Ok(()),
        (Kind::Date, Value::String(_)) => {
            Err((Code::InvalidFormat, "must be a date such as 2026-01-31".to_owned()))
        }
        (Kind::Object, Value::Object(_)) => free_of_nul(value),
        (Kind::Array(item_kind), Value::Array(items)) => {
            for (place, item) in items.iter_mut().enumerate() {
                normalise(item_kind, item)
                    .map_err(|(code, what)| (code, format!("item {place} {what}")))?;
            }
            Ok(())
        }
        (_, other) => wrong(other),
    }
}

/// The stored form of a number: `3.0` is 3.
pub(crate) fn plain(number: &Number) -> Number {
    let float = number.as_f64().filter(|_| number.is_f64());
    float.and_then(plain_number).unwrap_or_else(|| number.clone())
}

fn with_article(kind: &Kind) -> String {
    match kind {
        Kind::Integer | Kind::Object | Kind::Array(_) => format!("an {}", kind.name()),
        Kind::Timestamp | Kind::Date => format!("a {} string", kind.name()),
        _ => format!("a {}", kind.name()),
    }
}

fn no_nul(text: &str) -> Result<(), (Code, String)> {
    if text.contains('\0') {
        return Err((Code::InvalidCharacters, "contains a NUL character".to_owned()));
    }
    Ok(())
}

fn free_of_nul(value: &Value) -> Result<(), (Code, String)> {
    match value {
        Value::String(text) => no_nul(text),
        Value::Array(items) => items.iter().try_for_each(free_of_nul),
        Value::Object(entries) => entries
            .iter()
            .try_for_each(|(key, value)| no_nul(key).and_then(|()| free_of_nul(value))),
        _ => Ok(()),
    }
}

fn check_range(field: &Field, number: &Number) -> Result<(), Violation> {
    let float = number.as_f64().unwrap_or(f64::NAN);
    if let Some(min) = field.min.filter(|min| float < *min) {
        let message = format!("`{}` must be at least {min}.", field.name);
        return Err(Violation::new(&field.name, Code::TooSmall, message));
    }
    if let Some(max) = field.max.filter(|max| float > *max) {
        let message = format!("`{}` must be at most {max}.", field.name);
        return Err(Violation::new(&field.name, Code::TooLarge, message));
    }
    Ok(())
}

fn check_text(field: &Field, text: &str) -> Result<(), Violation> {
    check_length(field, text.chars().count(), MAX_STRING_CHARS, "character")?;
    if !field.choices.is_empty() && !field.choices.iter().any(|choice| choice == text) {
        let message = format!("`{}` must be one of: {}.", field.name, field.choices.join(", "));
        return Err(Violation::new(&field.name, Code::NotInEnum, message));
    }
    if let Some(pattern) = field.pattern.as_ref().filter(|pattern| !pattern.0.is_match(text)) {
        let message =
            format!("`{}` does not match the pattern {}.", field.name, pattern.0.as_str());
        return Err(Violation::new(&field.name, Code::PatternMismatch, message));
    }
    Ok(())
}

fn check_length(field: &Field, length: usize, ceiling: usize, unit: &str) -> Result<(), Violation> {
    let min = field.min_length.unwrap_or(0);
    let max = field.max_length.unwrap_or(ceiling);
    let so_many = |count| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    if length < min {
        let message = format!("`{}` must have at least {}.", field.name, so_many(min));
        return Err(Violation::new(&field.name, Code::TooShort, message));
    }
    if length > max {
        let message = format!("`{}` must have at most {}.", field.name, so_many(max));
        return Err(Violation::new(&field.name, Code::TooLong, message));
    }
    Ok(())
}
