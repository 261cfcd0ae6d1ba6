//! Effects that are decided but not written yet. When several writes are loaded at once, the facts
//! of each are amended by what the earlier writes of the batch have changed, so that the result is
//! the same as if each had been loaded after the one before was written.

use super::cascade::{By, Dependent, Dependents};
use super::effects::{Effect, Put};
use super::needs::{Claim, Facts, Limit, Needs};
use super::{Failure, Rows};
use crate::Remembered;
use crate::rendering::DeliveryRow;
use model::decide::Reference;
use model::record::{Fields, Scalar, to_scalar};
use model::{CollectionIx, Record, Schema, Scope};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub struct Overlay {
    /// Records that were put or deleted.
    records: HashMap<(Scope, CollectionIx, String), Changed>,
    /// Their numbers: what a backend says of these rows is out of date.
    numbers: HashSet<(CollectionIx, i64)>,
    responses: HashMap<(Scope, [u8; 16]), Remembered>,
    deliveries: HashMap<(Scope, String), DeliveryRow>,
    /// Number of events about each resource.
    events: HashMap<(Scope, String), i64>,
}

struct Changed {
    /// Whether the record, as it was loaded, counts towards each limit: the status it had.
    before: Option<String>,
    existed: bool,
    /// `None`: it was deleted.
    now: Option<Row>,
}

struct Row {
    parent: Option<String>,
    record: Record,
    fields: Fields,
}

impl Overlay {
    /// Takes the effects of one write.
    pub fn note(&mut self, effects: &[Effect], current: Option<&Record>) {
        for effect in effects {
            match effect {
                Effect::Put(Put { scope, collection, parent, record, fields, is_new, .. }) => {
                    let row = Row {
                        parent: parent.clone(),
                        record: record.clone(),
                        fields: fields.clone(),
                    };
                    let before = current.filter(|old| old.number == record.number);
                    let key = (*scope, *collection, record.id.clone());
                    self.change(key, record.number, !is_new, before, Some(row));
                }
                Effect::Delete { scope, collection, id, number, .. } => {
                    let before = current.filter(|old| old.number == *number);
                    self.change((*scope, *collection, id.clone()), *number, true, before, None);
                }
                Effect::Append { event, .. } => {
                    *self.events.entry((event.scope, event.record.clone())).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    fn change(
        &mut self,
        key: (Scope, CollectionIx, String),
        number: i64,
        existed: bool,
        before: Option<&Record>,
        now: Option<Row>,
    ) {
        self.numbers.insert((key.1, number));
        match self.records.get_mut(&key) {
            Some(known) => known.now = now,
            None => {
                let before = before.and_then(|old| status(&old.fields()));
                self.records.insert(key, Changed { before, existed, now });
            }
        }
    }

    pub fn note_response(&mut self, scope: Scope, digest: [u8; 16], response: Remembered) {
        self.responses.insert((scope, digest), response);
    }

    pub fn note_delivery(&mut self, scope: Scope, row: DeliveryRow) {
        self.deliveries.insert((scope, row.id.clone()), row);
    }

    /// The response that an earlier write of the batch stored under a key.
    pub fn response(&self, needs: &Needs<'_>) -> Option<&Remembered> {
        self.responses.get(&(needs.scope, needs.key?.digest))
    }

    /// Brings loaded facts up to date.
    pub fn amend(&self, needs: &Needs<'_>, facts: &mut Facts) {
        let Needs { scope, collection, .. } = *needs;
        if let Some(id) = needs.record {
            match self.records.get(&(scope, collection, id.to_owned())) {
                Some(Changed { now: Some(row), .. }) => {
                    let found = needs.parent_in.is_none() || row.parent.as_deref() == needs.parent;
                    facts.current = found.then(|| row.record.clone());
                }
                Some(Changed { now: None, .. }) => {
                    facts.current = None;
                    facts.was_deleted = needs.tombstone;
                }
                None => {}
            }
            if let Some(row) = self.deliveries.get(&(scope, id.to_owned())) {
                facts.delivery = Some(row.clone());
            }
        }
        if let (Some(above), Some(parent)) = (needs.parent_in, needs.parent) {
            facts.parent_exists = self.exists(scope, above, parent).unwrap_or(facts.parent_exists);
        }
        let loaded = std::mem::take(&mut facts.missing);
        let missing = |one: &&Reference| match self.exists(scope, one.collection, &one.id) {
            Some(exists) => !exists,
            None => loaded.contains(one),
        };
        facts.missing = needs.references.iter().filter(missing).cloned().collect();
        if let Some(limit) = needs.limit {
            facts.count += self.counted(scope, collection, limit);
        }
        if let Some((resource, _)) = needs.events_about {
            let more = self.events.get(&(scope, resource.to_owned()));
            facts.events_about += more.copied().unwrap_or(0);
        }
    }

    /// Whether a record exists; `None` where the batch has not touched it.
    fn exists(&self, scope: Scope, collection: CollectionIx, id: &str) -> Option<bool> {
        self.records.get(&(scope, collection, id.to_owned())).map(|one| one.now.is_some())
    }

    /// How many records more count towards a limit than were loaded.
    fn counted(&self, scope: Scope, collection: CollectionIx, limit: &Limit) -> i64 {
        let counts = |status: Option<&str>| {
            let statuses = limit.statuses;
            i64::from(statuses.is_empty() || status.is_some_and(|one| statuses.contains(&one)))
        };
        let of = self.records.iter().filter(|(key, _)| (key.0, key.1) == (scope, collection));
        of.map(|(_, changed)| {
            let before = if changed.existed { counts(changed.before.as_deref()) } else { 0 };
            let now = changed.now.as_ref().map(|row| status(&row.fields));
            now.map_or(0, |now| counts(now.as_deref())) - before
        })
        .sum()
    }

    /// The record that has a unique value now, given the one that a backend found.
    fn holder(&self, schema: &Schema, claim: &Claim, loaded: Option<i64>) -> Option<i64> {
        let Claim { scope, collection, field, ref value } = *claim;
        let declared = &schema.collections[collection].fields[field];
        let has = |row: &Row| {
            let found = row.fields.get(&declared.name);
            found.is_some_and(|found| to_scalar(&declared.kind, found) == *value)
        };
        let of = self.records.iter().filter(|(key, _)| (key.0, key.1) == (scope, collection));
        let rows = of.filter_map(|(_, changed)| changed.now.as_ref());
        let here = rows.filter(|row| has(row)).map(|row| row.record.number).next();
        here.or(loaded.filter(|number| !self.numbers.contains(&(collection, *number))))
    }

    /// Records of the overlay that a question for dependents is about.
    fn dependents(&self, schema: &Schema, wanted: &Dependents<'_>) -> Vec<Dependent> {
        let collection = &schema.collections[wanted.collection];
        let matches = |row: &Row| match wanted.by {
            By::Parent(parent) => row.parent.as_deref() == Some(parent),
            By::Field(place, id) => {
                let field = &collection.fields[place];
                let column = row.fields.get(&field.name);
                column.is_some_and(|value| {
                    to_scalar(&field.kind, value) == Scalar::Text(id.to_owned())
                })
            }
        };
        let of = |key: &(Scope, CollectionIx, String)| {
            (key.0, key.1) == (wanted.scope, wanted.collection)
        };
        let rows = self.records.iter().filter(|(key, _)| of(key));
        let rows = rows.filter_map(|(_, changed)| changed.now.as_ref());
        let rows = rows.filter(|row| matches(row));
        let mut rows: Vec<&Row> = rows
            .filter(|row| !wanted.except.contains(&(wanted.collection, row.record.number)))
            .collect();
        rows.sort_by_key(|row| row.record.number);
        let dependent =
            |row: &Row| Dependent { parent: row.parent.clone(), record: row.record.clone() };
        rows.into_iter().map(dependent).collect()
    }
}

fn status(fields: &Fields) -> Option<String> {
    fields.get("status").and_then(|status| status.as_str()).map(String::from)
}

/// Questions that only a decision raises: answered by the backend and the overlay together.
pub struct Lookup<'a, R> {
    pub schema: &'a Schema,
    pub rows: &'a mut R,
    pub overlay: Option<&'a Overlay>,
}

impl<R: Rows> Lookup<'_, R> {
    /// Which of these records exist.
    pub fn exist(
        &mut self,
        scope: Scope,
        named: &[(CollectionIx, &str)],
    ) -> Result<Vec<bool>, Failure> {
        let mut found = self.rows.exist(scope, named).map_err(Failure::Backend)?;
        if let Some(overlay) = self.overlay {
            for (exists, (collection, id)) in found.iter_mut().zip(named) {
                *exists = overlay.exists(scope, *collection, id).unwrap_or(*exists);
            }
        }
        Ok(found)
    }

    /// The records that have these unique values.
    pub fn holders(&mut self, claims: &[Claim]) -> Result<Vec<Option<i64>>, Failure> {
        let found = self.rows.holders(claims).map_err(Failure::Backend)?;
        Ok(self.holders_now(claims, found))
    }

    /// The same, given what the backend found.
    pub fn holders_now(&self, claims: &[Claim], found: Vec<Option<i64>>) -> Vec<Option<i64>> {
        let Some(overlay) = self.overlay else { return found };
        let pairs = claims.iter().zip(found);
        pairs.map(|(claim, loaded)| overlay.holder(self.schema, claim, loaded)).collect()
    }

    pub fn dependents(&mut self, wanted: &Dependents<'_>) -> Result<Vec<Dependent>, Failure> {
        let Some(overlay) = self.overlay.filter(|overlay| !overlay.numbers.is_empty()) else {
            return self.rows.dependents(wanted).map_err(Failure::Backend);
        };
        let except = wanted.except.union(&overlay.numbers).copied().collect();
        let wanted_rows = Dependents { except: &except, ..*wanted };
        let mut found = self.rows.dependents(&wanted_rows).map_err(Failure::Backend)?;
        found.extend(overlay.dependents(self.schema, wanted));
        found.sort_by_key(|one| one.record.number);
        found.truncate(wanted.max);
        Ok(found)
    }
}
