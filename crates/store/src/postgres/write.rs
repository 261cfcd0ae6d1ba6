//! The effects of a batch as statements over arrays: one for each table and kind of change, however
//! many writes there are. Several changes of one row become one. Runs no statement.

use super::connect::Step;
use super::layout::Table;
use super::param::{Param, encoded, params};
use super::shared::Shared;
use super::{erasure, idempotency, outbox, search, timers};
use crate::commit::{Effect, Put};
use crate::idempotency::NewRow;
use crate::upkeep::transition_name;
use model::event::Event;
use model::record::{Fields, Scalar};
use model::{CollectionIx, Field, Record, Scope, Timestamp};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

const APPEND: &str = "INSERT INTO log (seq, id, scope, type, created, collection, record, \
    api_version, object, previous, request, idempotency_key, hidden) SELECT * FROM \
    unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], \
    $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[])";
const BURY: &str = "INSERT INTO tombstones (id, collection, scope, seq, n) SELECT * FROM \
    unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) \
    ON CONFLICT (id, collection) DO UPDATE SET scope = excluded.scope, seq = excluded.seq, \
    n = excluded.n";
const SETTLED: &str = "UPDATE settled SET n = n + 1 WHERE slot = $1";

/// One row of a collection.
struct Row<'e> {
    scope: Scope,
    parent: Option<&'e str>,
    record: &'e Record,
    fields: &'e Fields,
    created: Timestamp,
    /// `None`: the typed columns stay as they are.
    columns: Option<&'e [Scalar]>,
}

/// What becomes of the rows of one collection, by their numbers.
#[derive(Default)]
struct Rows<'e> {
    inserted: BTreeMap<i64, Row<'e>>,
    updated: BTreeMap<i64, Row<'e>>,
    deleted: Vec<i64>,
    /// One gets a unique value of another.
    takes_over: bool,
}

/// A timer to be set.
struct Timer<'e> {
    due: i64,
    scope: Scope,
    parent: Option<&'e str>,
    transition: String,
}

/// What becomes of the timers of one record.
#[derive(Default)]
struct Timers<'e> {
    cleared: bool,
    set: Vec<Timer<'e>>,
    removed: Vec<String>,
    aside: Vec<String>,
}

/// A tombstone: scope, sequence, number.
type Tombstone = (Scope, i64, i64);

/// The effects of a batch, by tables.
#[derive(Default)]
pub struct Changes<'e> {
    rows: BTreeMap<CollectionIx, Rows<'e>>,
    tombstones: BTreeMap<(&'e str, &'e str), Tombstone>,
    events: Vec<&'e Event>,
    /// By collection and record, in the order in which they came.
    timers: HashMap<(&'e str, &'e str), Timers<'e>>,
    order: Vec<(&'e str, &'e str)>,
    remembered: Vec<&'e NewRow>,
    retries: Vec<(i64, Timestamp)>,
    erasures: Vec<(Scope, &'e str, i64)>,
}

impl<'e> Changes<'e> {
    pub fn of(shared: &'e Shared, effects: &'e [Effect]) -> Changes<'e> {
        let mut changes = Changes::default();
        for effect in effects {
            changes.add(shared, effect);
        }
        changes
    }

    fn add(&mut self, shared: &'e Shared, effect: &'e Effect) {
        let name = |ix: &CollectionIx| shared.schema.collections[*ix].name.as_str();
        match effect {
            Effect::Put(put) => self.put(put),
            Effect::Delete { scope, collection, id, number, seq } => {
                let rows = self.rows.entry(*collection).or_default();
                rows.updated.remove(number);
                if rows.inserted.remove(number).is_none() {
                    rows.deleted.push(*number);
                }
                self.tombstones.insert((id, name(collection)), (*scope, *seq, *number));
            }
            Effect::Append { event, .. } => self.events.push(event),
            Effect::SetTimers { scope, collection, parent, id, timers } => {
                let declared = &shared.schema.collections[*collection];
                let timer = |timer: &model::decide::TimerDraft| {
                    let transition = transition_name(declared, timer.transition)?;
                    let (due, parent) = (timer.due.0, parent.as_deref());
                    Some(Timer { due, scope: *scope, parent, transition })
                };
                let set = timers.iter().filter_map(timer).collect();
                *self.timers_of(name(collection), id) =
                    Timers { cleared: true, set, ..Timers::default() };
            }
            Effect::RemoveTimer { collection, id, transition } => {
                let declared = &shared.schema.collections[*collection];
                let Some(transition) = transition_name(declared, *transition) else { return };
                let timers = self.timers_of(name(collection), id);
                timers.set.retain(|timer| timer.transition != transition);
                timers.removed.push(transition);
            }
            Effect::SetTimerAside(timer) => {
                let timers = self.timers_of(&timer.collection, &timer.id);
                let set = timers.set.iter_mut();
                for set in set.filter(|set| set.transition == timer.transition) {
                    set.due = timers::NEVER;
                }
                timers.aside.push(timer.transition.clone());
            }
            Effect::Remember(row) => self.remembered.push(row),
            Effect::RetryDelivery { number, now } => self.retries.push((*number, *now)),
            Effect::Erase { scope, resource, upto } => {
                self.erasures.push((*scope, resource, *upto));
            }
        }
    }

    fn put(&mut self, put: &'e Put) {
        let Put { scope, collection, parent, record, fields, is_new, columns, takes_over } = put;
        let rows = self.rows.entry(*collection).or_default();
        rows.takes_over |= takes_over;
        let (parent, columns) = (parent.as_deref(), columns.as_deref());
        let row = Row { scope: *scope, parent, record, fields, created: record.updated, columns };
        let known = match rows.inserted.get_mut(&record.number) {
            Some(known) => Some(known),
            None => rows.updated.get_mut(&record.number),
        };
        match known {
            Some(known) => {
                let (created, parent) = (known.created, known.parent);
                let columns = columns.or(known.columns);
                *known = Row { created, parent, columns, ..row };
            }
            None if *is_new => drop(rows.inserted.insert(record.number, row)),
            None => drop(rows.updated.insert(record.number, row)),
        }
    }

    fn timers_of(&mut self, collection: &'e str, id: &'e str) -> &mut Timers<'e> {
        let (timers, order) = (&mut self.timers, &mut self.order);
        timers.entry((collection, id)).or_insert_with(|| {
            order.push((collection, id));
            Timers::default()
        })
    }

    /// Rows of stored responses, which may need a look into the database before they are written.
    pub fn remembered(&self) -> &[&'e NewRow] {
        &self.remembered
    }

    /// The statements, in the order in which they must run. `remembered` are the rows of stored
    /// responses as they shall be written.
    pub fn steps(self, shared: &Shared, remembered: &[NewRow]) -> Vec<Step> {
        let mut steps = Vec::new();
        // Values that are given up can be taken by others in the same batch.
        for (ix, rows) in &self.rows {
            if !rows.deleted.is_empty() {
                let sql = format!("DELETE FROM {} WHERE n = ANY($1)", shared.tables[*ix].name);
                steps.push(Step::new(sql, params![rows.deleted.clone()]));
            }
        }
        for (ix, rows) in &self.rows {
            let table = &shared.tables[*ix];
            let (whole, bodies): (Vec<_>, Vec<_>) =
                rows.updated.values().partition(|row| row.columns.is_some());
            if rows.takes_over {
                let fields = &shared.schema.collections[*ix].fields;
                steps.extend(give_up(table, fields, &whole));
            }
            steps.extend(update(table, &whole, true));
            steps.extend(update(table, &bodies, false));
        }
        for (ix, rows) in &self.rows {
            let inserted: Vec<&Row<'_>> = rows.inserted.values().collect();
            steps.extend(insert(&shared.tables[*ix], &inserted));
        }
        steps.extend(bury(&self.tombstones));
        steps.extend(append(&self.events));
        self.set_timers(&mut steps);
        if !remembered.is_empty() {
            let scopes: Vec<i64> = remembered.iter().map(|row| row.scope.0).collect();
            let digests: Vec<&[u8]> = remembered.iter().map(|row| &row.digest[..]).collect();
            steps.push(Step::new(idempotency::GIVE_UP_KEYS, params![scopes, digests]));
            let values = idempotency::values(remembered);
            steps.push(Step { sql: idempotency::KEEP.into(), values });
        }
        for (number, now) in &self.retries {
            steps.push(Step::new(outbox::RETRY, params![*number, now.0]));
        }
        if !self.retries.is_empty() {
            steps.push(Step::new(SETTLED, params![shared.slot]));
        }
        for (scope, resource, upto) in &self.erasures {
            steps.push(Step::new(erasure::BEGIN, params![scope.0, *resource, *upto]));
        }
        steps
    }

    fn set_timers(&self, steps: &mut Vec<Step>) {
        let all = || self.order.iter().map(|key| (key, &self.timers[key]));
        let cleared: Vec<_> = all().filter(|(_, timers)| timers.cleared).collect();
        if !cleared.is_empty() {
            let ids: Vec<&str> = cleared.iter().map(|(key, _)| key.1).collect();
            let names: Vec<&str> = cleared.iter().map(|(key, _)| key.0).collect();
            steps.push(Step::new(timers::CLEAR, params![ids, names]));
        }
        for (sql, removes) in [(timers::REMOVE, true), (timers::SET_ASIDE, false)] {
            let of = |timers: &'_ Timers<'e>| match removes {
                true => timers.removed.clone(),
                false => timers.aside.clone(),
            };
            let some: Vec<_> = all()
                .flat_map(|(key, timers)| of(timers).into_iter().map(move |name| (key, name)))
                .collect();
            let some = || some.iter();
            let ids: Vec<&str> = some().map(|(key, _)| key.1).collect();
            if ids.is_empty() {
                continue;
            }
            let names: Vec<&str> = some().map(|(key, _)| key.0).collect();
            let transitions: Vec<&str> = some().map(|(_, name)| name.as_str()).collect();
            steps.push(Step::new(sql, params![ids, names, transitions]));
        }
        let set: Vec<_> = all().flat_map(|(key, t)| t.set.iter().map(move |t| (key, t))).collect();
        if !set.is_empty() {
            let values = params![
                set.iter().map(|(_, timer)| timer.due).collect::<Vec<i64>>(),
                set.iter().map(|(_, timer)| timer.scope.0).collect::<Vec<i64>>(),
                set.iter().map(|(key, _)| key.0).collect::<Vec<&str>>(),
                set.iter().map(|(_, timer)| timer.parent).collect::<Vec<Option<&str>>>(),
                set.iter().map(|(key, _)| key.1).collect::<Vec<&str>>(),
                set.iter().map(|(_, timer)| timer.transition.as_str()).collect::<Vec<&str>>(),
            ];
            steps.push(Step::new(timers::SET, values));
        }
    }
}

/// The values that an insert and an update have in common: number, version, time, body, hidden
/// part, words.
fn common(table: &Table, rows: &[&Row<'_>]) -> Vec<Param<'static>> {
    let words = |row: &&Row<'_>| {
        table.search.as_ref().map(|searched| Cow::Owned(search::vector(searched, row.fields)))
    };
    vec![
        Param::from(rows.iter().map(|row| row.record.number).collect::<Vec<i64>>()),
        Param::from(rows.iter().map(|row| row.record.version).collect::<Vec<i64>>()),
        Param::from(rows.iter().map(|row| row.record.updated.0).collect::<Vec<i64>>()),
        Param::from(rows.iter().map(|row| row.record.body.as_str()).collect::<Vec<&str>>()).owned(),
        Param::from(
            rows.iter().map(|row| row.record.hidden.as_deref()).collect::<Vec<Option<&str>>>(),
        )
        .owned(),
        Param::Texts(rows.iter().map(words).collect()),
        Param::from(table.shape),
    ]
}

/// The values of the typed columns, one array for each.
fn typed(table: &Table, rows: &[&Row<'_>]) -> Vec<Param<'static>> {
    let null = Scalar::Null;
    let column = |(place, column): (usize, &super::layout::TypedColumn)| {
        let values = rows
            .iter()
            .map(|row| row.columns.and_then(|columns| columns.get(place)).unwrap_or(&null));
        array(column.kind, values)
    };
    table.columns.iter().enumerate().map(column).collect()
}

/// The values of one column as an array of its type.
pub fn array<'v>(kind: &str, values: impl Iterator<Item = &'v Scalar>) -> Param<'static> {
    match kind {
        "bigint" => Param::Integers(
            values
                .map(|value| match value {
                    Scalar::Integer(whole) => Some(*whole),
                    _ => None,
                })
                .collect(),
        ),
        "double precision" => Param::Numbers(
            values
                .map(|value| match value {
                    Scalar::Number(number) => Some(*number),
                    Scalar::Integer(whole) => Some(*whole as f64),
                    _ => None,
                })
                .collect(),
        ),
        _ => Param::Texts(
            values
                .map(|value| match value {
                    Scalar::Text(text) => Some(encoded(Cow::Owned(text.clone()))),
                    _ => None,
                })
                .collect(),
        ),
    }
}

/// The type of an array of a column.
pub fn array_type(kind: &str) -> &'static str {
    match kind {
        "bigint" => "bigint[]",
        "double precision" => "double precision[]",
        _ => "text[]",
    }
}

fn insert(table: &Table, rows: &[&Row<'_>]) -> Option<Step> {
    if rows.is_empty() {
        return None;
    }
    let mut values = common(table, rows);
    values.push(
        Param::from(rows.iter().map(|row| row.record.id.as_str()).collect::<Vec<_>>()).owned(),
    );
    values.push(Param::from(rows.iter().map(|row| row.scope.0).collect::<Vec<i64>>()));
    values.push(Param::from(rows.iter().map(|row| row.parent).collect::<Vec<_>>()).owned());
    values.push(Param::from(rows.iter().map(|row| row.created.0).collect::<Vec<i64>>()));
    values.extend(typed(table, rows));
    let (mut names, mut arrays) = (String::new(), String::new());
    for (place, column) in table.columns.iter().enumerate() {
        names.push_str(&format!(", {}", column.name));
        arrays.push_str(&format!(", ${}::{}", 12 + place, array_type(column.kind)));
    }
    let sql = format!(
        "INSERT INTO {} (n, version, updated, body, hidden, search, shape, id, scope, parent, \
         created{names}) SELECT n, version, updated, body, hidden, search::tsvector, $7, id, \
         scope, parent, created{names} FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], \
         $4::text[], $5::text[], $6::text[], $8::text[], $9::bigint[], $10::text[], \
         $11::bigint[]{arrays}) q(n, version, updated, body, hidden, search, id, scope, parent, \
         created{names})",
        table.name
    );
    Some(Step { sql: sql.into(), values })
}

/// Removes the unique values of rows whose columns the next statement writes. One UPDATE changes
/// its rows in any order, and an index refuses a value of a row that is still to be changed.
fn give_up(table: &Table, fields: &[Field], rows: &[&Row<'_>]) -> Option<Step> {
    let unique = table.columns.iter().filter(|column| fields[column.place].unique);
    let sets: Vec<String> = unique.map(|column| format!("{} = NULL", column.name)).collect();
    if sets.is_empty() || rows.is_empty() {
        return None;
    }
    let numbers: Vec<i64> = rows.iter().map(|row| row.record.number).collect();
    let sql = format!("UPDATE {} SET {} WHERE n = ANY($1)", table.name, sets.join(", "));
    Some(Step::new(sql, params![numbers]))
}

fn update(table: &Table, rows: &[&Row<'_>], whole: bool) -> Option<Step> {
    if rows.is_empty() {
        return None;
    }
    let mut values = common(table, rows);
    let (mut names, mut arrays, mut sets) = (String::new(), String::new(), String::new());
    if whole {
        values.extend(typed(table, rows));
        for (place, column) in table.columns.iter().enumerate() {
            names.push_str(&format!(", {}", column.name));
            arrays.push_str(&format!(", ${}::{}", 8 + place, array_type(column.kind)));
            sets.push_str(&format!(", {0} = q.{0}", column.name));
        }
    }
    let sql = format!(
        "UPDATE {} t SET version = q.version, updated = q.updated, body = q.body, \
         hidden = q.hidden, search = q.search::tsvector, shape = $7{sets} FROM \
         unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], \
         $6::text[]{arrays}) q(n, version, updated, body, hidden, search{names}) WHERE t.n = q.n",
        table.name
    );
    Some(Step { sql: sql.into(), values })
}

fn bury(tombstones: &BTreeMap<(&str, &str), Tombstone>) -> Option<Step> {
    if tombstones.is_empty() {
        return None;
    }
    let values = params![
        tombstones.keys().map(|key| key.0).collect::<Vec<&str>>(),
        tombstones.keys().map(|key| key.1).collect::<Vec<&str>>(),
        tombstones.values().map(|one| one.0.0).collect::<Vec<i64>>(),
        tombstones.values().map(|one| one.1).collect::<Vec<i64>>(),
        tombstones.values().map(|one| one.2).collect::<Vec<i64>>(),
    ];
    Some(Step::new(BURY, values))
}

fn append(events: &[&Event]) -> Option<Step> {
    if events.is_empty() {
        return None;
    }
    let text = |of: fn(&Event) -> &str| {
        Param::from(events.iter().map(|event| of(event)).collect::<Vec<&str>>())
    };
    let optional = |of: fn(&Event) -> Option<&str>| {
        Param::from(events.iter().map(|event| of(event)).collect::<Vec<Option<&str>>>())
    };
    let whole = |of: fn(&Event) -> i64| {
        Param::from(events.iter().map(|event| of(event)).collect::<Vec<i64>>())
    };
    let values = [
        whole(|event| event.seq),
        text(|event| &event.id),
        whole(|event| event.scope.0),
        text(|event| &event.kind),
        whole(|event| event.created.0),
        text(|event| &event.collection),
        text(|event| &event.record),
        text(|event| &event.api_version),
        text(|event| &event.object),
        optional(|event| event.previous.as_deref()),
        optional(|event| event.request.as_deref()),
        optional(|event| event.idempotency_key.as_deref()),
        optional(|event| event.hidden.as_deref()),
    ];
    Some(Step::new(APPEND, &values))
}
