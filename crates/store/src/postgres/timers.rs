//! Timed transitions that wait. A timer names its transition by its states, not by its place in the
//! schema, so that an edited schema cannot fire another one.

use super::connect::{Cells, Client};
use super::param::params;
use super::shared::Shared;
use crate::upkeep::transition_name;
use crate::{Due, Error, Timer, UnknownTimer};
use model::{Collection, Schema, Scope, Timestamp};
use std::sync::atomic::Ordering;
use tokio_postgres::Row;

/// Scopes looked at in one turn when more is due than a turn can take.
const SCOPES: i64 = 256;
/// Due at the end of time: a timer that cannot fire. It goes when its record changes.
pub const NEVER: i64 = i64::MAX;

const DUE: &str = "SELECT due, scope, collection, parent, record, transition FROM timers \
    WHERE due < $2 ORDER BY due, n LIMIT $1";
/// Scopes with something due after one, each found by the index.
const SCOPES_DUE: &str = "WITH RECURSIVE s(scope) AS ((SELECT scope FROM timers WHERE scope > $1 \
    AND scope <= $4 ORDER BY scope LIMIT 1) UNION ALL SELECT (SELECT t.scope FROM timers t WHERE \
    t.scope > s.scope AND t.scope <= $4 ORDER BY t.scope LIMIT 1) FROM s \
    WHERE s.scope IS NOT NULL) SELECT scope FROM s WHERE scope IS NOT NULL AND EXISTS \
    (SELECT 1 FROM timers t WHERE t.scope = s.scope AND t.due <= $2) LIMIT $3";
const DUE_OF_SCOPES: &str = "SELECT t.due, t.scope, t.collection, t.parent, t.record, \
    t.transition FROM unnest($1::bigint[]) WITH ORDINALITY s(scope, place) CROSS JOIN LATERAL \
    (SELECT * FROM timers o WHERE o.scope = s.scope AND o.due <= $2 ORDER BY o.due, o.n \
    LIMIT $3) t ORDER BY s.place, t.due, t.n";
pub const SET_ASIDE: &str = "UPDATE timers SET due = 9223372036854775807 \
    FROM unnest($1::text[], $2::text[], $3::text[]) q(record, collection, transition) \
    WHERE timers.record = q.record AND timers.collection = q.collection \
    AND timers.transition = q.transition";
pub const CLEAR: &str = "DELETE FROM timers USING unnest($1::text[], $2::text[]) \
    q(record, collection) WHERE timers.record = q.record AND timers.collection = q.collection";
pub const REMOVE: &str = "DELETE FROM timers \
    USING unnest($1::text[], $2::text[], $3::text[]) q(record, collection, transition) \
    WHERE timers.record = q.record AND timers.collection = q.collection \
    AND timers.transition = q.transition";
pub const SET: &str = "INSERT INTO timers (due, scope, collection, parent, record, transition) \
    SELECT due, scope, collection, parent, record, transition FROM unnest($1::bigint[], \
    $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) WITH ORDINALITY \
    q(due, scope, collection, parent, record, transition, place) ORDER BY place";

/// Timers that are due, and when the next one will be. When more are due than a turn can take,
/// every account has its part of the turn.
pub async fn due(
    client: &Client,
    shared: &Shared,
    now: Timestamp,
    max: usize,
) -> Result<Due, Error> {
    let mut found = Found::default();
    let most = i64::try_from(max).unwrap_or(i64::MAX).saturating_add(1);
    for row in client.query(DUE, params![most, NEVER]).await? {
        let due = Timestamp(row.cell(0)?);
        if due > now {
            found.0.next = Some(due);
            return Ok(found.0);
        }
        if found.0.timers.len() + found.0.unknown.len() == max {
            let mut found = in_turns(client, shared, now, max).await?;
            found.0.next = Some(due);
            return Ok(found.0);
        }
        found.add(shared, &row)?;
    }
    Ok(found.0)
}

/// What is due, while it is collected.
#[derive(Default)]
struct Found(Due);

async fn in_turns(
    client: &Client,
    shared: &Shared,
    now: Timestamp,
    max: usize,
) -> Result<Found, Error> {
    let mut scopes = scopes_due(client, shared, now).await?;
    let share = i64::try_from((max / scopes.len().max(1)).max(1)).unwrap_or(i64::MAX);
    scopes.truncate(max);
    let mut found = Found::default();
    if let Some(last) = scopes.last() {
        shared.timer_turn.store(*last, Ordering::Relaxed);
    }
    for row in client.query(DUE_OF_SCOPES, params![scopes, now.0, share]).await? {
        found.add(shared, &row)?;
    }
    Ok(found)
}

/// Scopes with something due, beginning after the last one that had its turn.
async fn scopes_due(client: &Client, shared: &Shared, now: Timestamp) -> Result<Vec<i64>, Error> {
    let first = shared.timer_turn.load(Ordering::Relaxed);
    let mut found = Vec::new();
    for (after, upto) in [(first, i64::MAX), (i64::MIN, first)] {
        let left = SCOPES - found.len() as i64;
        for row in client.query(SCOPES_DUE, params![after, now.0, left, upto]).await? {
            found.push(row.cell(0)?);
        }
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, shared: &Shared, row: &Row) -> Result<(), Error> {
        let (name, transition): (String, String) = (row.cell(2)?, row.cell(5)?);
        let Some((collection, place)) = resolve(&shared.schema, &name, &transition) else {
            self.0.unknown.push(UnknownTimer { collection: name, id: row.cell(4)?, transition });
            return Ok(());
        };
        self.0.timers.push(Timer {
            scope: Scope(row.cell(1)?),
            collection,
            parent: row.cell(3)?,
            id: row.cell(4)?,
            transition: place,
            due: Timestamp(row.cell(0)?),
        });
        Ok(())
    }
}

/// Keeps timers that cannot fire, but never reports them as due.
pub async fn set_aside(client: &Client, timers: &[UnknownTimer]) -> Result<(), Error> {
    let text = |of: fn(&UnknownTimer) -> &str| timers.iter().map(of).collect::<Vec<&str>>();
    let values = params![
        text(|timer| &timer.id),
        text(|timer| &timer.collection),
        text(|timer| &timer.transition)
    ];
    client.execute(SET_ASIDE, values).await.map(drop)
}

/// Removes the timers whose transition the schema no longer has.
pub async fn drop_unknown(client: &Client, schema: &Schema) -> Result<(), Error> {
    for row in client.query("SELECT DISTINCT collection, transition FROM timers", &[]).await? {
        let (collection, transition): (String, String) = (row.cell(0)?, row.cell(1)?);
        if resolve(schema, &collection, &transition).is_none() {
            let sql = "DELETE FROM timers WHERE collection = $1 AND transition = $2";
            client.execute(sql, params![&collection, &transition]).await?;
        }
    }
    Ok(())
}

/// Timers follow their transitions when the states get other names. Both collections have the same
/// transitions in the same places.
pub async fn rename(client: &Client, old: &Collection, new: &Collection) -> Result<(), Error> {
    const RENAME: &str =
        "UPDATE timers SET transition = $3 WHERE collection = $1 AND transition = $2";
    // In two steps: names may be exchanged.
    let places = 0..new.timed.len();
    let names = places.filter_map(|place| {
        Some((place, transition_name(old, place)?, transition_name(new, place)?))
    });
    let renamed: Vec<_> = names.filter(|(_, old, new)| old != new).collect();
    for (place, old, _) in &renamed {
        client.execute(RENAME, params![&new.name, old, format!("> {place}")]).await?;
    }
    for (place, _, now) in &renamed {
        client.execute(RENAME, params![&new.name, format!("> {place}"), now]).await?;
    }
    Ok(())
}

fn resolve(schema: &Schema, collection: &str, transition: &str) -> Option<(usize, usize)> {
    let ix = schema.find(collection)?;
    let found = &schema.collections[ix];
    let named = |place: &usize| transition_name(found, *place).as_deref() == Some(transition);
    Some((ix, (0..found.timed.len()).find(named)?))
}
