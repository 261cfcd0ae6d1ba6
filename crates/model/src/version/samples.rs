//! Values that a field takes: its limits, and what breaks conversions — nothing, empty texts,
//! separators inside of texts, digits that are no numbers, letters beyond ASCII. Always the same.

use crate::schema::{Field, Kind};
use crate::validate::{self, MAX_ARRAY_ITEMS, MAX_INTEGER};
use serde_json::{Map, Value, json};

/// Values of one field that are not listed in the file; more would only repeat what these show.
const VALUES: usize = 60;
/// Characters of all texts of one field: long ones are few.
const CHARS: usize = 200_000;
/// Of as many digits as whole numbers have.
const LONG: i64 = 8_606_342_099_091_030;
/// Whole numbers between two limits that are all tried.
const SPAN: f64 = 100.0;

/// What the changes of a collection look for inside of values.
#[derive(Default)]
pub(crate) struct Hints {
    /// Separators of splits and merges.
    pub separators: Vec<String>,
    /// Members of objects that were moved.
    pub members: Vec<String>,
    /// Values that the file says something about.
    pub values: Vec<Value>,
}

/// Values the field takes, null last where it does. None, or null alone, for a declaration that is
/// hard to meet.
pub(crate) fn of(field: &Field, hints: &Hints) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    let mut chars = 0;
    let mut add = |mut value: Value, most: usize| {
        let fits = validate::value(field, &mut value).is_ok();
        if fits && found.len() < most && chars < CHARS && !found.contains(&value) {
            chars += value.as_str().map_or(0, str::len);
            found.push(value);
        }
    };
    let most = if field.choices.is_empty() { VALUES } else { usize::MAX };
    candidates(field, hints).into_iter().for_each(|value| add(value, most));
    hints.values.iter().for_each(|value| add(value.clone(), usize::MAX));
    if !field.required {
        found.push(Value::Null);
    }
    found
}

fn candidates(field: &Field, hints: &Hints) -> Vec<Value> {
    match &field.kind {
        Kind::String => texts(field, hints),
        Kind::Integer => {
            let limits = [field.min, field.max].into_iter().flatten().map(|limit| limit as i64);
            let plain = [1, 0, -1, 7, 1_234_567, 253_402_200_000, MAX_INTEGER, -MAX_INTEGER, LONG];
            let span = field.min.zip(field.max).filter(|(min, max)| max - min <= SPAN);
            let few = span.into_iter().flat_map(|(min, max)| min as i64..=max as i64);
            plain.into_iter().chain(limits).chain(few).map(Value::from).collect()
        }
        Kind::Number => {
            let limits = [field.min, field.max].into_iter().flatten();
            let plain = [12.5, 0.0, 1.0, -1.0, 0.1, 19.99, 0.29, 0.001, 1e21, 1e-7, 1_234_567.89];
            // More digits than floats hold, and than one of ten has room for.
            let long = [json!(LONG), json!(MAX_INTEGER + 2), json!(0.3333333333333334)];
            plain.into_iter().chain(limits).map(Value::from).chain(long).collect()
        }
        Kind::Boolean => vec![json!(true), json!(false)],
        Kind::Timestamp => vec![
            json!("2026-01-31T12:00:00.000Z"),
            json!("2026-01-31T12:00:00.123Z"),
            json!("1970-01-01T00:00:00.000Z"),
            json!("1970-01-01T00:00:00.001Z"),
            json!("1900-02-28T23:59:59.999Z"),
        ],
        Kind::Date => vec![json!("2026-01-31"), json!("2024-02-29"), json!("0001-01-01")],
        Kind::Object => objects(hints),
        Kind::Array(item) => arrays(field, item, hints),
    }
}

fn texts(field: &Field, hints: &Hints) -> Vec<Value> {
    if !field.choices.is_empty() {
        return field.choices.iter().map(|choice| Value::from(choice.as_str())).collect();
    }
    let mut texts: Vec<String> = Vec::new();
    if let Some(pattern) = &field.pattern {
        let fits = |text: &str| validate::value(field, &mut Value::from(text)).is_ok();
        let (pattern, least) = (pattern.0.as_str(), field.min_length.unwrap_or(0));
        texts.extend(super::pattern::samples(pattern, least, &hints.separators, fits));
    }
    let (least, most) = (field.min_length.unwrap_or(0), field.max_length.unwrap_or(100).min(1000));
    // Each separator once before any of them again: there may be many.
    for form in ["a{}b", "{}", "{}b", "a{}", "a{}{}b", "a{}b{}c"] {
        texts.extend(hints.separators.iter().map(|by| padded(&form.replace("{}", by), least)));
    }
    // The beginning of one, which may be all of it once two texts are joined.
    texts.extend(hints.separators.iter().filter_map(|by| {
        let begin: String = by.chars().take(by.chars().count() - 1).collect();
        (!begin.is_empty()).then(|| padded(&begin, least))
    }));
    let plain = [
        "abc",
        "",
        "a",
        "A b",
        "007",
        "12",
        "1.50",
        "1.0",
        "1e18",
        "true",
        "null",
        "äöü ß",
        "日本語",
        "🦀",
    ];
    texts.extend(plain.map(str::to_owned));
    texts.push("x".repeat(most));
    let short = texts.iter().filter(|text| text.chars().count() < least);
    let long: Vec<String> = short.map(|text| padded(text, least)).collect();
    texts.extend(long);
    texts.into_iter().map(Value::String).collect()
}

/// As long as the field asks for, with what matters at the end.
fn padded(text: &str, least: usize) -> String {
    let lacks = least.saturating_sub(text.chars().count());
    format!("{}{text}", "x".repeat(lacks))
}

fn objects(hints: &Hints) -> Vec<Value> {
    let mut objects = vec![json!({"a": 1}), json!({}), json!({"a": {"b": []}, "z": "text"})];
    // All at once first: of many, not each has its turn.
    let all = hints.members.iter().map(|member| (member.clone(), Value::from("m")));
    objects.push(Value::Object(all.collect()));
    for member in &hints.members {
        let mut only = Map::new();
        only.insert(member.clone(), Value::from("m"));
        objects.push(Value::Object(only.clone()));
        objects.push(json!({ member: 7 }));
        only.insert("other".to_owned(), Value::from(true));
        objects.push(Value::Object(only));
    }
    objects
}

fn arrays(field: &Field, item: &Kind, hints: &Hints) -> Vec<Value> {
    let items = candidates(&Field::new(&field.name, item.clone()), hints);
    let take = |count: usize| Value::Array(items.iter().cycle().take(count).cloned().collect());
    let limits = [field.min_length, field.max_length].into_iter().flatten();
    let lists =
        [1, 0, 2, 3].into_iter().chain(limits.map(|limit| limit.min(MAX_ARRAY_ITEMS))).map(take);
    lists.chain(items.iter().map(|item| Value::Array(vec![item.clone()]))).collect()
}

/// Numbers that are the same on every run.
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % below.max(1) as u64).unwrap_or(0)
    }
}
