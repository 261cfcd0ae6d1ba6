//! Walking on in the order of the first page. Rows that changed since then take part with the sort
//! keys they had, which the log still knows; they show what they are now. So no row that existed
//! throughout is skipped or repeated, however often its key changes.

use super::list::{Condition, Found, Key, Plan};
use super::{erasure, log, retention};
use crate::Error;
use model::event::Hidden;
use model::query::Position;
use model::record::{Fields, Scalar, parse_object, to_scalar};
use model::version::is_erased;
use model::{Collection, Record, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::cmp::Ordering;

/// Rows that may have changed since the first page; beyond that the walk must start anew.
const MOVED: usize = 10_000;

const BEFORE: &str = concat!(
    "SELECT ",
    erasure::object!("log"),
    ", api_version, ",
    erasure::aside!("log", "hidden"),
    " FROM log WHERE record = ?1 AND seq <= ?2 AND collection = ?3 AND scope = ?4 \
     ORDER BY seq DESC LIMIT 1"
);

/// The rows after a position, in the order of its snapshot.
pub fn after(
    connection: &Connection,
    plan: &Plan<'_>,
    position: &Position,
    limit: usize,
) -> Result<Vec<Found<Record>>, Error> {
    let snapshot = || Scalar::Integer(position.snapshot);
    if !changed_since(connection, plan, position.snapshot)? {
        return plan.after(connection, position, &Condition::default(), limit);
    }
    // What the log has forgotten, nobody can tell any more.
    if retention::oldest(connection)? > position.snapshot + 1 {
        return Err(Error::SnapshotTooOld);
    }
    let still = Condition::default().and("t.version <= ?", [snapshot()]);
    let mut rows = plan.after(connection, position, &still, limit)?;
    let moved = Condition::default().and("t.version > ? AND t.n <= ?", [snapshot(), snapshot()]);
    let moved = plan.changed(connection, &moved, MOVED + 1)?;
    if moved.len() > MOVED {
        return Err(Error::SnapshotTooOld);
    }
    for mut row in moved {
        // Where a row stood is not known any more when its event was erased or has expired. To skip
        // it in silence would be wrong: the walk must start again.
        let keys = keys_then(connection, plan, &row, position.snapshot)?;
        row.keys = keys.ok_or(Error::SnapshotTooOld)?;
        if order(plan, (&row.keys, row.number), (&position.keys, position.number)).is_gt() {
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| order(plan, (&a.keys, a.number), (&b.keys, b.number)));
    rows.truncate(limit);
    Ok(rows)
}

/// Whether the collection may have changed. The sequences in memory answer, unless this transaction
/// sees a commit that they do not know yet.
fn changed_since(
    connection: &Connection,
    plan: &Plan<'_>,
    snapshot: i64,
) -> Result<bool, rusqlite::Error> {
    let visible = log::newest(connection)?.0;
    let known = plan.shared.state.newest();
    Ok(visible > known || plan.shared.state.seqs.of(plan.scope, plan.collection) > snapshot)
}

/// The sort keys a row had at the snapshot; `None` when nothing tells them any more.
fn keys_then(
    connection: &Connection,
    plan: &Plan<'_>,
    row: &Found<Record>,
    snapshot: i64,
) -> Result<Option<Vec<Scalar>>, Error> {
    let collection = &plan.shared.schema.collections[plan.collection];
    let found: Option<(String, String, Option<String>)> = connection
        .prepare_cached(BEFORE)?
        .query_row(params![row.kept.id, snapshot, collection.name, plan.scope.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((object, written, hidden)) = found else { return Ok(None) };
    if is_erased(&object) {
        return Ok(None);
    }
    let hidden = Value::Object(Hidden::parse(hidden.as_deref()).object).to_string();
    let versions = &plan.shared.versions;
    let (body, hidden) = versions.record(plan.collection, &written, object, Some(hidden));
    let mut fields: Fields = parse_object(&body);
    fields.extend(parse_object(hidden.as_deref().unwrap_or("{}")));
    let key = |key: &Key| {
        let kept = key_of(collection, &fields, &key.field);
        match &key.shown {
            Some(by) => by.of(kept),
            None => kept,
        }
    };
    Ok(Some(plan.keys.iter().map(key).collect()))
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
