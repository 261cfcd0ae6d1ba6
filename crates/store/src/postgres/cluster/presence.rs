//! Users who are online at this node, and what of it the database does not know yet. In the
//! database each node has a row for each of its users; a user is online while there is a row of
//! some node.

use super::Shared;
use super::session::Session;
use super::tables::{BEGIN, LOCK, LOCK_CLASS, LOCK_PRESENCE};
use crate::Error;
use crate::cluster::{PresentHere, PresentUser, Relayed, UsersAndTotal};
use crate::postgres::connect::{Cells as _, Client};
use crate::postgres::param::{decoded, params};
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use tokio_postgres::Row;

/// Users written in one transaction.
const BATCH: usize = 512;

type Key = (Scope, String);

#[derive(Default)]
pub struct LocalPresence(Mutex<State>);

#[derive(Default)]
struct State {
    here: BTreeMap<Key, PresentHere>,
    /// Users by scope; none is empty.
    changed: BTreeMap<Scope, BTreeSet<String>>,
    /// What is being written now.
    writing: BTreeSet<Scope>,
    /// The scope that was written last.
    last: Option<Scope>,
    /// The database may know something else of any of them.
    resync: bool,
}

impl LocalPresence {
    pub fn set(&self, scope: Scope, user: &str, present: Option<PresentHere>) {
        let key = (scope, user.to_owned());
        let mut state = self.0.lock();
        match present {
            Some(present) => drop(state.here.insert(key.clone(), present)),
            None => drop(state.here.remove(&key)),
        }
        state.changed.entry(scope).or_default().insert(key.1);
    }

    pub fn resync(&self) {
        self.0.lock().resync = true;
    }

    pub fn has_news(&self) -> bool {
        let state = self.0.lock();
        state.resync || !state.changed.is_empty()
    }

    /// Whether the database may not know the users of a scope yet.
    pub fn is_writing(&self, scope: Scope) -> bool {
        let state = self.0.lock();
        state.resync || state.changed.contains_key(&scope) || state.writing.contains(&scope)
    }

    /// The next ones to write, scope by scope: none waits behind all users of another.
    fn take(&self) -> Vec<(Key, Option<PresentHere>)> {
        let mut state = self.0.lock();
        let share = (BATCH / state.changed.len().max(1)).max(1);
        let mut taken = Vec::new();
        while taken.len() < BATCH
            && let Some(scope) = state.next()
        {
            for _ in 0..share.min(BATCH - taken.len()) {
                let Some(name) = state.pop(scope) else { break };
                let key = (scope, name);
                let present = state.here.get(&key).copied();
                taken.push((key, present));
            }
        }
        state.writing = taken.iter().map(|((scope, _), _)| *scope).collect();
        taken
    }

    fn give_back(&self, taken: Vec<(Key, Option<PresentHere>)>) {
        let mut state = self.0.lock();
        state.change(taken.into_iter().map(|(key, _)| key));
        state.writing.clear();
    }

    /// All users of this node, and those of which the database has a row without reason.
    fn mark_all(&self, stored: Vec<Key>) {
        let mut state = self.0.lock();
        let all: Vec<Key> = state.here.keys().cloned().chain(stored).collect();
        state.change(all);
        state.resync = false;
    }

    fn needs_resync(&self) -> bool {
        self.0.lock().resync
    }
}

impl State {
    fn change(&mut self, keys: impl IntoIterator<Item = Key>) {
        for (scope, name) in keys {
            self.changed.entry(scope).or_default().insert(name);
        }
    }

    /// The scope whose turn it is.
    fn next(&mut self) -> Option<Scope> {
        let after = (self.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let next = self.changed.range(after).next().or_else(|| self.changed.first_key_value());
        self.last = next.map(|(scope, _)| *scope);
        self.last
    }

    fn pop(&mut self, scope: Scope) -> Option<String> {
        let names = self.changed.get_mut(&scope)?;
        let name = names.pop_first();
        if names.is_empty() {
            self.changed.remove(&scope);
        }
        name
    }
}

const OWN: &str = "SELECT scope, name FROM restive_presence WHERE node = $1";
const KNOWN: &str = "SELECT DISTINCT p.scope, p.name FROM restive_presence p \
    JOIN unnest($1::bigint[], $2::text[]) k (scope, name) \
    ON p.scope = k.scope AND p.name = k.name";
const PUT: &str = "INSERT INTO restive_presence (scope, name, node, connections, since) \
    SELECT k.scope, k.name, $1, k.connections, k.since \
    FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) \
    k (scope, name, connections, since) ON CONFLICT (scope, name, node) \
    DO UPDATE SET connections = excluded.connections, since = excluded.since";
const REMOVE: &str = "DELETE FROM restive_presence p \
    USING unnest($2::bigint[], $3::text[]) k (scope, name) \
    WHERE p.node = $1 AND p.scope = k.scope AND p.name = k.name";
const REAP: &str = "DELETE FROM restive_presence WHERE ctid = ANY(ARRAY(SELECT p.ctid \
    FROM restive_presence p WHERE NOT EXISTS (SELECT 1 FROM restive_nodes n \
    WHERE n.node = p.node) LIMIT $1)) RETURNING scope, name";
const LIST: &str = "SELECT p.name, sum(p.connections)::bigint, min(p.since), \
    (count(*) OVER ())::bigint FROM restive_presence p \
    JOIN restive_nodes n ON n.node = p.node AND n.until > clock_timestamp() \
    WHERE p.scope = $1 GROUP BY p.name ORDER BY p.name LIMIT $2";

/// Writes some of what has changed at this node, and announces who came and went in the cluster.
pub async fn flush(shared: &Shared, session: &Session) -> Result<(), Error> {
    let node = shared.node.load(Relaxed);
    if shared.presence.needs_resync() {
        let rows = session.client.query(OWN, params![node]).await?;
        shared.presence.mark_all(rows.iter().map(key).collect::<Result<_, Error>>()?);
    }
    let mut taken = Taken { presence: &shared.presence, users: shared.presence.take() };
    if taken.users.is_empty() {
        return Ok(());
    }
    let announced = write(session, node, &taken.users).await?;
    taken.users.clear();
    announce(shared, announced);
    Ok(())
}

/// What is being written. It is given back if that fails, or is given up.
struct Taken<'a> {
    presence: &'a LocalPresence,
    users: Vec<(Key, Option<PresentHere>)>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.presence.give_back(std::mem::take(&mut self.users));
    }
}

/// One flush or reaping at a time in the cluster: two nodes that lose the last connections of a
/// user at the same time would each see the row of the other. A failure ends the connection, and
/// with it the transaction.
async fn begin(session: &Session) -> Result<(), Error> {
    session.client.batch(BEGIN).await?;
    session.client.query(LOCK, params![LOCK_CLASS, LOCK_PRESENCE]).await?;
    Ok(())
}

async fn write(
    session: &Session,
    node: i64,
    taken: &[(Key, Option<PresentHere>)],
) -> Result<Vec<(Key, bool)>, Error> {
    begin(session).await?;
    let keys: Vec<&Key> = taken.iter().map(|(key, _)| key).collect();
    let before = known(session, &keys).await?;
    let here = || taken.iter().filter_map(|(key, present)| Some((key, (*present)?)));
    let scopes: Vec<i64> = here().map(|((scope, _), _)| scope.0).collect();
    let names: Vec<&str> = here().map(|((_, name), _)| name.as_str()).collect();
    let count = |one: PresentHere| i64::try_from(one.connections).unwrap_or(i64::MAX);
    let counts: Vec<i64> = here().map(|(_, one)| count(one)).collect();
    let since: Vec<i64> = here().map(|(_, one)| one.since.0).collect();
    let values = params![node, scopes, names, counts, since];
    session.client.execute(PUT, values).await?;
    let gone = || taken.iter().filter(|(_, present)| present.is_none()).map(|(key, _)| key);
    let scopes: Vec<i64> = gone().map(|(scope, _)| scope.0).collect();
    let names: Vec<&str> = gone().map(|(_, name)| name.as_str()).collect();
    session.client.execute(REMOVE, params![node, scopes, names]).await?;
    let after = known(session, &keys).await?;
    session.client.batch("COMMIT").await?;
    Ok(differences(keys.into_iter().cloned(), &before, &after))
}

/// Removes some users of nodes that are gone; true when more may be left.
pub async fn reap(shared: &Shared, session: &Session) -> Result<bool, Error> {
    begin(session).await?;
    let max = i64::try_from(BATCH).unwrap_or(i64::MAX);
    let rows = session.client.query(REAP, params![max]).await?;
    let before: BTreeSet<Key> = rows.iter().map(key).collect::<Result<_, Error>>()?;
    let keys: Vec<&Key> = before.iter().collect();
    let after = known(session, &keys).await?;
    session.client.batch("COMMIT").await?;
    announce(shared, differences(before.iter().cloned(), &before, &after));
    Ok(rows.len() == BATCH)
}

async fn known(session: &Session, keys: &[&Key]) -> Result<BTreeSet<Key>, Error> {
    let scopes: Vec<i64> = keys.iter().map(|(scope, _)| scope.0).collect();
    let names: Vec<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
    let rows = session.client.query(KNOWN, params![scopes, names]).await?;
    rows.iter().map(key).collect()
}

fn key(row: &Row) -> Result<Key, Error> {
    Ok((Scope(row.cell(0)?), decoded(row.cell(1)?)))
}

fn differences(
    keys: impl Iterator<Item = Key>,
    before: &BTreeSet<Key>,
    after: &BTreeSet<Key>,
) -> Vec<(Key, bool)> {
    let changed = |key: Key| match (before.contains(&key), after.contains(&key)) {
        (false, true) => Some((key, true)),
        (true, false) => Some((key, false)),
        _ => None,
    };
    keys.filter_map(changed).collect()
}

/// To the connections of this node and of the others.
fn announce(shared: &Shared, announced: Vec<(Key, bool)>) {
    for ((scope, user), online) in announced {
        let message = Relayed::Online { scope, user, online };
        shared.inbox.push(vec![message.clone()]);
        shared.relay(message);
    }
}

/// Who is online at nodes that are alive.
pub async fn list(client: &Client, scope: Scope, max: usize) -> Result<UsersAndTotal, Error> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = client.query(LIST, params![scope.0, max]).await?;
    let total: i64 = rows.first().map_or(Ok(0), |row| row.cell(3))?;
    let user = |row: &Row| {
        Ok(PresentUser {
            user: decoded(row.cell(0)?),
            connections: usize::try_from(row.cell::<i64>(1)?).unwrap_or(0),
            since: Timestamp(row.cell(2)?),
        })
    };
    let users = rows.iter().map(user).collect::<Result<_, Error>>()?;
    Ok((users, usize::try_from(total).unwrap_or(0)))
}
