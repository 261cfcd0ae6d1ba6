//! Loads and writes of the commit pipeline, by prepared statements inside the writer's transaction.
//! A round trip is a function call here, so each write is loaded and written by itself.

use super::shared::Shared;
use super::{erasure, idempotency, log, outbox, read, timers};
use crate::Error;
use crate::commit::{By, Claim, Dependent, Dependents, Effect, Facts, Needs, Put, Rows, Written};
use model::{CollectionIx, Record, Scope};
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Instant;

const BURY: &str =
    "INSERT OR REPLACE INTO tombstones (id, collection, scope, seq, n) VALUES (?1, ?2, ?3, ?4, ?5)";

pub struct SqliteRows<'a> {
    pub connection: &'a Connection,
    pub shared: &'a Shared,
}

impl Rows for SqliteRows<'_> {
    fn batch(&self) -> usize {
        #[cfg(test)]
        return self.shared.loaded_at_once.load(std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(test))]
        1
    }

    fn load(&mut self, needs: &[Needs<'_>]) -> Result<Vec<Facts>, Error> {
        Ok(needs.iter().map(|needs| self.load_one(needs)).collect::<Result<_, _>>()?)
    }

    fn exist(&mut self, scope: Scope, named: &[(CollectionIx, &str)]) -> Result<Vec<bool>, Error> {
        let exists = |(ix, id): &(CollectionIx, &str)| {
            read::exists(self.connection, self.shared, scope, *ix, id)
        };
        Ok(named.iter().map(exists).collect::<Result<_, _>>()?)
    }

    fn holders(&mut self, claims: &[Claim]) -> Result<Vec<Option<i64>>, Error> {
        Ok(claims.iter().map(|claim| self.holder(claim)).collect::<Result<_, _>>()?)
    }

    fn dependents(&mut self, wanted: &Dependents<'_>) -> Result<Vec<Dependent>, Error> {
        Ok(self.read_dependents(wanted)?)
    }

    fn record(
        &mut self,
        scope: Scope,
        collection: CollectionIx,
        id: &str,
    ) -> Result<Option<Record>, Error> {
        Ok(read::record(self.connection, self.shared, scope, collection, None, id)?)
    }

    fn write(&mut self, effects: &[Effect]) -> Result<Written, Error> {
        for (place, effect) in effects.iter().enumerate() {
            match self.carry_out(effect) {
                Ok(()) => {}
                // A constraint undoes its statement alone, and it is the first.
                Err(error) if place == 0 && is_conflict(&error) => {
                    return Ok(Written::Conflict(error.into()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Written::Done)
    }
}

fn is_conflict(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

impl SqliteRows<'_> {
    fn load_one(&self, needs: &Needs<'_>) -> Result<Facts, rusqlite::Error> {
        let SqliteRows { connection, shared } = *self;
        let Needs { scope, collection, parent, .. } = *needs;
        let mut facts = Facts::default();
        if let Some(key) = needs.key {
            facts.stored = idempotency::find(connection, scope, key)?;
            if facts.stored.is_some() {
                return Ok(facts);
            }
        }
        if needs.delivery {
            let id = needs.record.unwrap_or_default();
            facts.delivery = read::delivery(connection, shared, scope, collection, id)?;
            return Ok(facts);
        }
        if let Some(id) = needs.record {
            facts.current = read::record(connection, shared, scope, collection, parent, id)?;
            if needs.tombstone && facts.current.is_none() {
                facts.was_deleted = read::was_deleted(connection, shared, scope, collection, id)?;
            }
        }
        facts.parent_exists = match (needs.parent_in, parent) {
            (None, _) => true,
            (Some(above), Some(id)) => read::exists(connection, shared, scope, above, id)?,
            (Some(_), None) => false,
        };
        for reference in &needs.references {
            if !read::exists(connection, shared, scope, reference.collection, &reference.id)? {
                facts.missing.push(reference.clone());
            }
        }
        if let Some(limit) = needs.limit {
            facts.count = outbox::count(connection, shared, scope, collection, limit)?;
        }
        if let Some((resource, after)) = needs.events_about {
            facts.events_about = erasure::count(connection, scope, resource, (after, i64::MAX))?;
        }
        for claim in &needs.claims {
            facts.holders.push(self.holder(claim)?);
        }
        Ok(facts)
    }

    fn holder(&self, claim: &Claim) -> Result<Option<i64>, rusqlite::Error> {
        let table = &self.shared.tables[claim.collection];
        let Some((_, column)) = table.columns.iter().find(|(place, _)| *place == claim.field)
        else {
            return Ok(None);
        };
        let sql =
            format!("SELECT t.n FROM {} t WHERE t.scope = ?1 AND t.{column} = ?2", table.name);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let value = read::Bound(&claim.value);
        statement.query_row(params![claim.scope.0, value], |row| row.get(0)).optional()
    }

    fn read_dependents(&self, wanted: &Dependents<'_>) -> Result<Vec<Dependent>, rusqlite::Error> {
        let Dependents { scope, collection: ix, by, max, bytes, except } = *wanted;
        let (table, collection) = (&self.shared.tables[ix], &self.shared.schema.collections[ix]);
        let sql = match by {
            By::Parent(_) => table.of_parent.clone(),
            By::Field(place, _) => {
                let column = table.columns.iter().find(|(at, _)| *at == place);
                let Some((_, column)) = column else { return Ok(Vec::new()) };
                format!(
                    "SELECT {}, t.parent FROM {} t WHERE t.{column} = ?1 AND t.scope = ?2 LIMIT ?3",
                    table.select, table.name
                )
            }
        };
        let (By::Parent(id) | By::Field(_, id)) = by;
        let most = i64::try_from(max.saturating_add(except.len())).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![id, scope.0, most])?;
        let (mut found, mut read) = (Vec::new(), 0);
        while found.len() < max
            && read < bytes
            && let Some(row) = rows.next()?
        {
            if except.contains(&(ix, row.get(0)?)) {
                continue;
            }
            let record = read::record_of(row, table, collection)?;
            let dependent = Dependent { parent: row.get(table.width)?, record };
            read += dependent.bytes();
            found.push(dependent);
        }
        Ok(found)
    }

    fn carry_out(&self, effect: &Effect) -> Result<(), rusqlite::Error> {
        let SqliteRows { connection, shared } = *self;
        let collection = |ix: &CollectionIx| &shared.schema.collections[*ix];
        match effect {
            Effect::Put(put) => return self.put(put),
            Effect::Delete { scope, collection: ix, id, number, seq } => {
                connection.prepare_cached(&shared.tables[*ix].delete)?.execute([number])?;
                let name = &collection(ix).name;
                connection
                    .prepare_cached(BURY)?
                    .execute(params![id, name, scope.0, seq, number])?;
            }
            Effect::Append { event, .. } => log::append(connection, event)?,
            Effect::SetTimers { scope, collection: ix, parent, id, timers } => {
                let of = (collection(ix), parent.as_deref(), id.as_str());
                timers::replace(connection, *scope, of, timers)?;
            }
            Effect::RemoveTimer { collection: ix, id, transition } => {
                timers::remove(connection, collection(ix), id, *transition)?;
            }
            Effect::SetTimerAside(timer) => timers::set_aside(connection, timer)?,
            Effect::Remember(row) => idempotency::insert(connection, row)?,
            Effect::RetryDelivery { number, now } => outbox::retry(connection, *number, *now)?,
            Effect::Erase { scope, resource, upto } => {
                erasure::begin(connection, *scope, resource, *upto)?;
                *shared.erased_at.lock() = Some(Instant::now());
            }
        }
        Ok(())
    }

    fn put(&self, put: &Put) -> Result<(), rusqlite::Error> {
        let table = &self.shared.tables[put.collection];
        let Record { id, number, version, updated, body, hidden } = &put.record;
        let columns = put.columns.as_deref().unwrap_or_default();
        let mut statement = self.connection.prepare_cached(match (put.is_new, &put.columns) {
            (true, _) => &table.insert,
            (false, Some(_)) => &table.update,
            (false, None) => &table.update_body,
        })?;
        let first = match put.is_new {
            true => {
                statement.raw_bind_parameter(7, id)?;
                statement.raw_bind_parameter(8, put.scope.0)?;
                statement.raw_bind_parameter(9, put.parent.as_deref())?;
                10
            }
            false => 7,
        };
        statement.raw_bind_parameter(1, version)?;
        statement.raw_bind_parameter(2, updated.0)?;
        statement.raw_bind_parameter(3, table.shape)?;
        statement.raw_bind_parameter(4, body)?;
        statement.raw_bind_parameter(5, hidden.as_deref())?;
        statement.raw_bind_parameter(6, number)?;
        for (place, scalar) in columns.iter().enumerate() {
            statement.raw_bind_parameter(first + place, read::Bound(scalar))?;
        }
        statement.raw_execute().map(drop)
    }
}

#[cfg(test)]
mod tests;
