//! Names that nodes hold, as rows. A row counts while its node is alive by the database's clock.
//! The token tells a hold from an earlier one of the same node.

use super::Shared;
use super::session::Session;
use crate::Error;
use crate::cluster::Hold;
use crate::postgres::connect::Cells as _;
use crate::postgres::param::params;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::oneshot;

/// The answer to a node that asks for a name.
pub type Answer = oneshot::Sender<Result<Option<Box<dyn Hold>>, Error>>;

/// Names in one order, so that two nodes do not wait for each other.
const TAKE: &str = "INSERT INTO restive_holds AS h (name, node, token) \
    SELECT k.name, $1, k.token FROM unnest($2::text[], $3::bigint[]) k (name, token) \
    WHERE EXISTS (SELECT 1 FROM restive_nodes WHERE node = $1 AND until > clock_timestamp()) \
    ORDER BY k.name ON CONFLICT (name) DO UPDATE SET node = excluded.node, token = excluded.token \
    WHERE h.node = excluded.node OR NOT EXISTS (SELECT 1 FROM restive_nodes n \
    WHERE n.node = h.node AND n.until > clock_timestamp()) RETURNING h.name";
const RELEASE: &str = "DELETE FROM restive_holds WHERE name IN (SELECT h.name FROM restive_holds h \
    JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) k (name, node, token) \
    ON h.name = k.name AND h.node = k.node AND h.token = k.token ORDER BY h.name FOR UPDATE OF h)";
const CLEAN: &str = "DELETE FROM restive_holds h WHERE NOT EXISTS \
    (SELECT 1 FROM restive_nodes n WHERE n.node = h.node)";

/// A row that is no longer needed, or may not even exist.
#[derive(Debug)]
pub struct Released {
    name: String,
    node: i64,
    token: i64,
}

struct Held {
    shared: Arc<Shared>,
    /// `None`: another node has the name.
    row: Option<Released>,
    /// How often the leases of this node had ended when it was taken.
    lapses: u64,
}

impl Hold for Held {
    fn is_valid(&self) -> bool {
        let shared = &self.shared;
        let is_alive = shared.holdings.borrow().until().is_none_or(|until| until > Instant::now());
        let is_same = |row: &Released| row.node == shared.node.load(Relaxed);
        is_alive
            && self.row.as_ref().is_some_and(is_same)
            && self.lapses == shared.lapses.load(Relaxed)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(row) = self.row.take() {
            self.shared.released.lock().push(row);
            self.shared.news.notify_one();
        }
    }
}

/// Answers those that ask for names. If the database fails, whatever it has done is released later.
pub async fn take(
    shared: &Arc<Shared>,
    session: &Session,
    asked: Vec<(String, Answer)>,
) -> Result<(), Error> {
    let (node, lapses) = (shared.node.load(Relaxed), shared.lapses.load(Relaxed));
    let mut holds: BTreeMap<String, (Held, Answer)> = BTreeMap::new();
    for (name, answer) in asked {
        if holds.contains_key(&name) {
            // The first one has it.
            let _ = answer.send(Ok(None));
            continue;
        }
        let token = shared.tokens.fetch_add(1, Relaxed);
        let row = Some(Released { name: name.clone(), node, token });
        holds.insert(name, (Held { shared: shared.clone(), row, lapses }, answer));
    }
    let tokens = |(held, _): &(Held, Answer)| held.row.as_ref().map_or(0, |row| row.token);
    let values = params![
        node,
        holds.keys().map(String::as_str).collect::<Vec<&str>>(),
        holds.values().map(tokens).collect::<Vec<i64>>(),
    ];
    let rows = session.client.query(TAKE, values).await?;
    let taken = rows.iter().map(|row| row.cell(0)).collect::<Result<HashSet<String>, Error>>()?;
    for (name, (mut held, answer)) in holds {
        let hold = match taken.contains(&name) {
            true => Some(Box::new(held) as Box<dyn Hold>),
            false => {
                held.row = None;
                None
            }
        };
        let _ = answer.send(Ok(hold));
    }
    Ok(())
}

/// Removes the rows of what was dropped. What fails is tried again.
pub async fn release(shared: &Shared, session: &Session) -> Result<(), Error> {
    let released = std::mem::take(&mut *shared.released.lock());
    if released.is_empty() {
        return Ok(());
    }
    let values = params![
        released.iter().map(|row| row.name.as_str()).collect::<Vec<&str>>(),
        released.iter().map(|row| row.node).collect::<Vec<i64>>(),
        released.iter().map(|row| row.token).collect::<Vec<i64>>(),
    ];
    if let Err(error) = session.client.execute(RELEASE, values).await {
        shared.released.lock().extend(released);
        return Err(error);
    }
    Ok(())
}

pub async fn clean(session: &Session) -> Result<(), Error> {
    session.client.execute(CLEAN, params![]).await.map(drop)
}
