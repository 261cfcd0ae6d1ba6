//! Sample values for fields, within their limits.

use crate::outside::System;
use api::Outside as _;
use model::schema::{Field, Kind};
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Value, json};

/// Repetitions and texts of a pattern's sample: longer ones are not for people.
const MAX_SAMPLE_CHARS: usize = 1000;

pub struct Sample;

impl Sample {
    /// Whether a client may set the field.
    pub fn is_settable(field: &Field) -> bool {
        !field.read_only && !field.removed && !field.filter_only && field.alias_of.is_none()
    }

    /// A value that the field accepts; `None` if none can be found.
    pub fn of(field: &Field) -> Option<Value> {
        if let Some(choice) = field.choices.first() {
            return Some(json!(choice));
        }
        value(&field.kind, field)
    }

    /// A value that is not the current one.
    pub fn other(field: &Field, current: &Value) -> Option<Value> {
        let choices = field.choices.iter().map(|choice| json!(choice));
        let mut candidates: Vec<Value> = choices.collect();
        if candidates.is_empty() {
            candidates.extend(Sample::of(field));
            candidates.extend(
                match (&field.kind, current) {
                    (Kind::String, Value::String(text)) => {
                        [Some(json!(format!("{text}2"))), Some(json!(text.to_uppercase()))]
                    }
                    (Kind::Integer, Value::Number(number)) => {
                        let number = number.as_i64();
                        [number.map(|n| json!(n + 1)), number.map(|n| json!(n - 1))]
                    }
                    (Kind::Number, Value::Number(number)) => {
                        [number.as_f64().map(|n| json!(n + 1.0)), None]
                    }
                    (Kind::Boolean, Value::Bool(current)) => [Some(json!(!current)), None],
                    _ => [None, None],
                }
                .into_iter()
                .flatten(),
            );
        }
        candidates.into_iter().find(|value| value != current && fits(field, value))
    }

    /// Random letters, for ids and unique values.
    pub fn token() -> String {
        System::new().entropy().0[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn value(kind: &Kind, field: &Field) -> Option<Value> {
    let now = || System::new().now().to_iso();
    let found = match kind {
        Kind::String => return text(field),
        Kind::Integer => json!(number(field).ceil() as i64),
        Kind::Number => json!(number(field)),
        Kind::Boolean => json!(true),
        Kind::Timestamp => json!(now()),
        Kind::Date => json!(now().get(..10).unwrap_or_default()),
        Kind::Object => json!({}),
        Kind::Array(item) => {
            let count = field.min_length.unwrap_or(1).min(100);
            let plain = Field::new(&field.name, (**item).clone());
            json!(vec![value(item, &plain)?; count])
        }
    };
    Some(found)
}

/// Between the limits, and 1 if they allow it. Unique ones are random.
fn number(field: &Field) -> f64 {
    let (least, most) = (field.min.unwrap_or(f64::MIN), field.max.unwrap_or(f64::MAX));
    let wish = match field.unique {
        true => f64::from(u32::from_str_radix(&Sample::token()[..6], 16).unwrap_or(1)),
        false => 1.0,
    };
    wish.clamp(least, most)
}

fn text(field: &Field) -> Option<Value> {
    let token = Sample::token();
    let mut candidates = match field.unique {
        true => vec![format!("sample-{token}"), token.clone(), token.to_uppercase()],
        false => vec![format!("Sample {}", field.name.replace('_', " ")), "sample".to_owned()],
    };
    candidates.push(format!("sample-{token}@example.com"));
    candidates.push("https://example.com/sample".to_owned());
    if let Some(pattern) = &field.pattern {
        let parsed = regex_syntax::parse(pattern.0.as_str()).ok();
        let mut text = String::new();
        if parsed.is_some_and(|parsed| generate(&parsed, field, &mut text)) {
            candidates.push(text);
        }
    }
    // Too short or too long ones, in addition.
    let least = field.min_length.unwrap_or(0);
    let most = field.max_length.unwrap_or(usize::MAX);
    let adjusted: Vec<String> = candidates
        .iter()
        .map(|text| {
            let padded = text.chars().chain(std::iter::repeat_n('x', least.min(100_000)));
            padded.take(most.min(text.chars().count().max(least))).collect()
        })
        .collect();
    let mut all = candidates.into_iter().chain(adjusted).map(Value::String);
    all.find(|value| fits(field, value))
}

/// Whether the field accepts the value, as far as its limits say.
fn fits(field: &Field, value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            field.min_length.is_none_or(|least| length >= least)
                && field.max_length.is_none_or(|most| length <= most)
                && field.pattern.as_ref().is_none_or(|pattern| pattern.0.is_match(text))
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            field.min.is_none_or(|least| number >= least)
                && field.max.is_none_or(|most| number <= most)
        }
        _ => true,
    }
}

/// Writes a text that the expression matches; false if it gets too long.
fn generate(expression: &Hir, field: &Field, out: &mut String) -> bool {
    if out.len() > MAX_SAMPLE_CHARS {
        return false;
    }
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => {
            out.push_str(&String::from_utf8_lossy(&literal.0));
            true
        }
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges();
            let likes = |wanted: char| {
                ranges.iter().any(|range| (range.start()..=range.end()).contains(&wanted))
            };
            let liked = ['a', 'A', '1', '0'].into_iter().find(|letter| likes(*letter));
            let first = ranges.iter().map(|range| range.start()).find(|c| !c.is_control());
            liked.or(first).is_some_and(|letter| {
                out.push(letter);
                true
            })
        }
        HirKind::Class(Class::Bytes(class)) => class.ranges().first().is_some_and(|range| {
            out.push(char::from(range.start()));
            true
        }),
        HirKind::Repetition(repetition) => {
            let least = field.min_length.unwrap_or(0).min(MAX_SAMPLE_CHARS);
            let most = repetition.max.map_or(usize::MAX, |most| most as usize);
            let count = (repetition.min as usize).max(1.min(most)).max(least.min(most));
            count <= MAX_SAMPLE_CHARS && (0..count).all(|_| generate(&repetition.sub, field, out))
        }
        HirKind::Capture(capture) => generate(&capture.sub, field, out),
        HirKind::Concat(parts) => parts.iter().all(|part| generate(part, field, out)),
        HirKind::Alternation(parts) => parts.first().is_some_and(|part| generate(part, field, out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::schema::Pattern;

    #[test]
    fn samples_are_within_the_limits_of_their_fields() {
        let field = |kind: Kind, change: &dyn Fn(&mut Field)| {
            let mut field = Field::new("some_name", kind);
            change(&mut field);
            field
        };
        let pattern = |text: &'static str| {
            move |field: &mut Field| {
                field.pattern = Some(Pattern(regex_of(text)));
            }
        };
        let fields = [
            field(Kind::String, &|_| {}),
            field(Kind::String, &|field| field.max_length = Some(3)),
            field(Kind::String, &|field| field.min_length = Some(500)),
            field(Kind::String, &pattern("^[a-z]{3}$")),
            field(Kind::String, &pattern("^[0-9Xx-]{10,17}$")),
            field(Kind::String, &pattern("^(EU|US)-\\d{4}(-[A-F]+)?$")),
            field(Kind::String, &pattern("^[^@]+@[^@]+\\.[a-z]{2,}$")),
            field(Kind::Integer, &|field| (field.min, field.max) = (Some(5.0), Some(6.0))),
            field(Kind::Integer, &|field| field.max = Some(-3.0)),
            field(Kind::Number, &|field| field.min = Some(0.25)),
        ];
        for field in &fields {
            let sample = Sample::of(field).unwrap_or_else(|| panic!("{field:?}"));
            assert!(fits(field, &sample), "{sample}: {field:?}");
        }
        let choice = field(Kind::String, &|field| field.choices = vec!["a".into(), "b".into()]);
        assert_eq!(Sample::of(&choice), Some(json!("a")));
        assert_eq!(Sample::other(&choice, &json!("a")), Some(json!("b")));
        let impossible = field(Kind::String, &pattern("^a$"));
        assert_eq!(Sample::of(&impossible), Some(json!("a")));
        assert_eq!(Sample::other(&impossible, &json!("a")), None);
        let unique = field(Kind::String, &|field| field.unique = true);
        assert_ne!(Sample::of(&unique), Sample::of(&unique));
    }

    fn regex_of(text: &str) -> regex::Regex {
        regex::Regex::new(text).unwrap()
    }
}
