//! The straightforward model: each change applied to a whole record, one after the other. Slow,
//! plain, and what the composed lens is held to.

use crate::record::Fields;
use crate::schema::{Change, Kind, Operation, Path, Retyping};
use crate::time::Timestamp;
use serde_json::{Map, Value, json};

/// A record of the newer shape in the older one.
pub fn down(change: &Change, newer: &Fields) -> Fields {
    let mut record = newer.clone();
    match &change.operation {
        Operation::Rename { from, to, .. } => {
            let value = take(&mut record, to);
            record.insert(from.clone(), value);
        }
        Operation::Move { from, to, existing, field } => {
            let mut value = take_path(&mut record, to);
            if to.member.is_some() && !existing {
                record.remove(&to.field);
            }
            if from.member.is_none() && field.is_none() && !value.is_string() {
                value = Value::Null;
            }
            put_path(&mut record, from, value);
        }
        Operation::Split { from, to, by } => {
            let parts: Vec<Value> = to.iter().map(|name| take(&mut record, name)).collect();
            record.insert(from.name.clone(), join(&parts, by));
        }
        Operation::Merge { from, to, by } => {
            let whole = take(&mut record, to);
            for (place, field) in from.iter().enumerate() {
                record.insert(field.name.clone(), part(&whole, by, place, from.len()));
            }
        }
        Operation::Retype { field, from, by } => {
            let value = take(&mut record, field);
            record.insert(field.clone(), retype_down(by, &from.kind, &value));
        }
        Operation::EnumMap { field, values, down } => {
            let value = take(&mut record, field);
            let known = down.iter().find(|(new, _)| value == json!(new)).map(|(_, old)| old);
            let was = values.iter().find(|(_, new)| value == json!(new)).map(|(old, _)| old);
            record.insert(field.clone(), known.or(was).map_or(value, |old| json!(old)));
        }
        Operation::Optional { field, fill } => {
            let value = take(&mut record, field);
            record.insert(field.clone(), if value.is_null() { fill.clone() } else { value });
        }
        Operation::Required { .. } => {}
        Operation::Gone { field, value } => {
            record.insert(field.name.clone(), value.clone());
        }
        _ => {}
    }
    record
}

/// A record of the older shape in the newer one; `base` is the record as it is there now.
pub fn up(change: &Change, older: &Fields, base: &Fields) -> Fields {
    let mut record = older.clone();
    match &change.operation {
        Operation::Rename { from, to, .. } => {
            let value = take(&mut record, from);
            record.insert(to.clone(), value);
        }
        Operation::Move { from, to, existing, field } => {
            let mut value = take_path(&mut record, from);
            // What newer clients have in the old place, the older version does not see.
            let unseen = take_path(&mut base.clone(), from);
            if from.member.is_some() && !unseen.is_null() {
                put_path(&mut record, from, unseen);
            }
            // What the old field could not say stays.
            let unsaid = take_path(&mut base.clone(), to);
            let text = from.member.is_none() && field.is_none();
            if text && value.is_null() && !unsaid.is_string() {
                value = unsaid;
            }
            if to.member.is_some() && !existing {
                let whole = base.get(&to.field).cloned().unwrap_or_default();
                record.insert(to.field.clone(), whole);
                // What this version shows of it is not the base's, but what was sent.
                take_path(&mut record, to);
            }
            put_path(&mut record, to, value);
        }
        Operation::Split { from, to, by } => {
            let whole = take(&mut record, &from.name);
            for (place, name) in to.iter().enumerate() {
                record.insert(name.clone(), part(&whole, by, place, to.len()));
            }
        }
        Operation::Merge { from, to, by } => {
            let parts: Vec<Value> =
                from.iter().map(|field| take(&mut record, &field.name)).collect();
            record.insert(to.clone(), join(&parts, by));
        }
        Operation::Retype { field, by, .. } => {
            let value = take(&mut record, field);
            record.insert(field.clone(), retype_up(by, &value));
        }
        Operation::EnumMap { field, values, .. } => {
            let value = take(&mut record, field);
            let is = values.iter().find(|(old, _)| value == json!(old)).map(|(_, new)| json!(new));
            record.insert(field.clone(), is.unwrap_or(value));
        }
        Operation::Required { field, fill } => {
            let value = take(&mut record, field);
            record.insert(field.clone(), if value.is_null() { fill.clone() } else { value });
        }
        Operation::Gone { field, .. } => {
            record.remove(&field.name);
        }
        _ => {}
    }
    record
}

fn take(record: &mut Fields, name: &str) -> Value {
    record.remove(name).unwrap_or_default()
}

fn take_path(record: &mut Fields, path: &Path) -> Value {
    let Some(member) = &path.member else { return take(record, &path.field) };
    let Some(Value::Object(object)) = record.get_mut(&path.field) else { return Value::Null };
    object.remove(member).unwrap_or_default()
}

fn put_path(record: &mut Fields, path: &Path, value: Value) {
    let Some(member) = &path.member else {
        record.insert(path.field.clone(), value);
        return;
    };
    if value.is_null() {
        take_path(record, path);
        return;
    }
    let object = record.entry(path.field.clone()).or_insert(Value::Null);
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    object[member] = value;
}

fn join(parts: &[Value], by: &str) -> Value {
    let texts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
    if texts.is_empty() { Value::Null } else { json!(texts.join(by)) }
}

fn part(whole: &Value, by: &str, place: usize, count: usize) -> Value {
    let Some(text) = whole.as_str() else { return Value::Null };
    let pieces: Vec<&str> = text.splitn(count, by).collect();
    pieces.get(place).map_or(Value::Null, |piece| json!(piece))
}

fn retype_down(by: &Retyping, old: &Kind, value: &Value) -> Value {
    match (by, value) {
        (_, Value::Null) => Value::Null,
        (Retyping::Text, Value::String(text)) => {
            let number = text.parse::<i64>().ok().filter(|number| number.to_string() == *text);
            number.map_or(Value::Null, |number| json!(number))
        }
        (Retyping::Seconds, Value::String(text)) => {
            json!(Timestamp::parse(text).unwrap().0.div_euclid(1000))
        }
        (Retyping::List, Value::Array(items)) => items.first().cloned().unwrap_or_default(),
        (Retyping::Factor { times, .. }, Value::Number(number)) => {
            let exact = number.as_f64().unwrap() / times;
            let short: f64 = format!("{exact:.14e}").parse().unwrap();
            assert_eq!(*old, Kind::Number);
            if short.fract() == 0.0 { json!(short as i64) } else { json!(short) }
        }
        other => panic!("{other:?}"),
    }
}

fn retype_up(by: &Retyping, value: &Value) -> Value {
    match (by, value) {
        (_, Value::Null) => Value::Null,
        (Retyping::Text, Value::Number(number)) => json!(number.to_string()),
        (Retyping::Seconds, Value::Number(number)) => {
            json!(Timestamp(number.as_i64().unwrap() * 1000).to_iso())
        }
        (Retyping::List, value) => json!([value]),
        (Retyping::Factor { times, .. }, Value::Number(number)) => {
            json!((number.as_f64().unwrap() * times).round() as i64)
        }
        other => panic!("{other:?}"),
    }
}
