//! Continuing a list in the order of its first page. Rows that changed since then take part with
//! the sort keys they had, which the log still holds; they show what they are now. So no row that
//! existed throughout is skipped or repeated, however often its key changes.

use super::{Found, Key, Plan};
use model::event::Hidden;
use model::query::Position;
use model::record::{Fields, Scalar, parse_object, to_scalar};
use model::version::{Versions, is_erased};
use model::{Collection, Record, Timestamp};
use serde_json::Value;
use std::cmp::Ordering;

/// The sort keys of a record as its event showed it; `None` when the event was erased. The event is
/// given by its object, the version it was written under, and its hidden part.
pub fn keys_at(
    plan: &Plan<'_>,
    versions: &Versions,
    (object, written, hidden): (String, String, Option<String>),
) -> Option<Vec<Scalar>> {
    if is_erased(&object) {
        return None;
    }
    let collection = &plan.schema.collections[plan.collection];
    let hidden = Value::Object(Hidden::parse(hidden.as_deref()).object).to_string();
    let (body, hidden) = versions.record(plan.collection, &written, object, Some(hidden));
    let mut fields: Fields = parse_object(&body);
    fields.extend(parse_object(hidden.as_deref().unwrap_or("{}")));
    let key = |key: &Key| {
        let stored = key_of(collection, &fields, &key.field);
        match (&key.shown, key.form) {
            (Some(by), _) => by.of(stored),
            (None, Some(form)) => form(&stored),
            (None, None) => stored,
        }
    };
    Some(plan.keys.iter().map(key).collect())
}

/// Rows that stayed and rows that moved, after a position and in the order of its snapshot.
pub fn merge(
    plan: &Plan<'_>,
    mut rows: Vec<Found<Record>>,
    moved: Vec<Found<Record>>,
    position: &Position,
    limit: usize,
) -> Vec<Found<Record>> {
    let place = (position.keys.as_slice(), position.number);
    rows.extend(
        moved.into_iter().filter(|row| order(plan, (&row.keys, row.number), place).is_gt()),
    );
    rows.sort_by(|a, b| order(plan, (&a.keys, a.number), (&b.keys, b.number)));
    rows.truncate(limit);
    rows
}

fn key_of(collection: &Collection, fields: &Fields, name: &str) -> Scalar {
    let value = fields.get(name).unwrap_or(&Value::Null);
    match (name, collection.field(name)) {
        ("created_at" | "updated_at", _) => value
            .as_str()
            .and_then(Timestamp::parse)
            .map_or(Scalar::Null, |instant| Scalar::Integer(instant.0)),
        (_, Some(field)) => to_scalar(&field.kind, value),
        (_, None) => value.as_str().map_or(Scalar::Null, |text| Scalar::Text(text.to_owned())),
    }
}

fn order(plan: &Plan<'_>, a: (&[Scalar], i64), b: (&[Scalar], i64)) -> Ordering {
    let directed = |ordering: Ordering, descending| match descending {
        true => ordering.reverse(),
        false => ordering,
    };
    let keys = plan.keys.iter().zip(a.0.iter().zip(b.0));
    keys.map(|(key, (a, b))| directed(compare(a, b), key.descending))
        .find(|ordering| ordering.is_ne())
        .unwrap_or_else(|| directed(a.1.cmp(&b.1), plan.last_descends()))
}

/// The database's own order: null, then numbers, then text by its bytes.
fn compare(a: &Scalar, b: &Scalar) -> Ordering {
    let rank = |scalar: &Scalar| match scalar {
        Scalar::Null => 0,
        Scalar::Integer(_) | Scalar::Number(_) => 1,
        Scalar::Text(_) => 2,
    };
    match (a, b) {
        (Scalar::Integer(a), Scalar::Integer(b)) => a.cmp(b),
        (Scalar::Number(a), Scalar::Number(b)) => a.total_cmp(b),
        (Scalar::Integer(a), Scalar::Number(b)) => (*a as f64).total_cmp(b),
        (Scalar::Number(a), Scalar::Integer(b)) => a.total_cmp(&(*b as f64)),
        (Scalar::Text(a), Scalar::Text(b)) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}
