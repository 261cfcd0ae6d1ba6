//! Values that a field takes: its limits, and what breaks conversions — nothing, empty texts,
//! digits that are no numbers, letters beyond ASCII. Always the same.

use crate::schema::{Field, Kind};
use crate::validate::{self, MAX_ARRAY_ITEMS};
use serde_json::{Value, json};

/// Whole numbers between two limits that are all tried.
const SPAN: f64 = 100.0;

/// Values the field takes, null last where it does. None, or null alone, for a declaration that is
/// hard to meet.
pub(crate) fn of(field: &Field) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for mut value in field.default.clone().into_iter().chain(candidates(field)) {
        if validate::value(field, &mut value).is_ok() && !found.contains(&value) {
            found.push(value);
        }
    }
    if !field.required {
        found.push(Value::Null);
    }
    found
}

/// A value that the field takes: its default, or one as empty as possible.
pub(crate) fn first(field: &Field) -> Option<Value> {
    let empty = [json!(""), json!(0), json!(false), json!({}), json!([])];
    let fits = |value: &Value| validate::value(field, &mut value.clone()).is_ok();
    let found = field.default.clone().into_iter().chain(empty).chain(of(field));
    found.into_iter().find(|value| !value.is_null() && fits(value))
}

fn candidates(field: &Field) -> Vec<Value> {
    match &field.kind {
        Kind::String => texts(field),
        Kind::Integer => {
            let limits = [field.min, field.max].into_iter().flatten().map(|limit| limit as i64);
            // Products and quotients of floats end in other digits: 0.29 × 100 is 28.999….
            let plain = [1, 0, -1, 7, 29, 57, 1_001, 1_234_567, 999_999_999];
            let span = field.min.zip(field.max).filter(|(min, max)| max - min <= SPAN);
            let few = span.into_iter().flat_map(|(min, max)| min as i64..=max as i64);
            plain.into_iter().chain(limits).chain(few).map(Value::from).collect()
        }
        Kind::Number => {
            let limits = [field.min, field.max].into_iter().flatten();
            let plain = [12.5, 0.0, 1.0, -1.0, 0.1, 19.99, 0.29, 0.001, 1_234_567.89];
            plain.into_iter().chain(limits).map(Value::from).collect()
        }
        Kind::Boolean => vec![json!(true), json!(false)],
        Kind::Timestamp => vec![
            json!("2026-01-31T12:00:00.000Z"),
            json!("2026-01-31T12:00:00.123Z"),
            json!("1970-01-01T00:00:00.000Z"),
            json!("1900-02-28T23:59:59.999Z"),
        ],
        Kind::Date => vec![json!("2026-01-31"), json!("2024-02-29"), json!("0001-01-01")],
        Kind::Object => vec![json!({"a": 1}), json!({}), json!({"a": {"b": []}, "z": "text"})],
        Kind::Array(item) => arrays(field, item),
    }
}

fn texts(field: &Field) -> Vec<Value> {
    if !field.choices.is_empty() {
        return field.choices.iter().map(|choice| Value::from(choice.as_str())).collect();
    }
    let (least, most) = (field.min_length.unwrap_or(0), field.max_length.unwrap_or(100).min(1000));
    let ascii = ["abc", "", "a", "A b", "a b c", "a,b", "7", "12", "007", "1.50", "true"];
    let others = ["äöü", "日本語", "🦀"];
    let mut texts: Vec<String> = ascii.into_iter().chain(others).map(str::to_owned).collect();
    texts.extend(["x".repeat(least), "x".repeat(most), "1".repeat(least.max(1))]);
    texts.into_iter().map(Value::String).collect()
}

fn arrays(field: &Field, item: &Kind) -> Vec<Value> {
    let items = candidates(&Field::new(&field.name, item.clone()));
    let take = |count: usize| Value::Array(items.iter().cycle().take(count).cloned().collect());
    let limits = [field.min_length, field.max_length].into_iter().flatten();
    [1, 0, 2].into_iter().chain(limits.map(|limit| limit.min(MAX_ARRAY_ITEMS))).map(take).collect()
}
