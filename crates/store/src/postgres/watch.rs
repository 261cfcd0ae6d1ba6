//! What other nodes commit reaches this one: a look at the newest event at least four times a
//! second, which is enough by itself, and a NOTIFY of each node after its commits, so that it does
//! not take so long. Behind a pooler there are only the looks.

use super::connect::{Backoff, Cells, Client};
use super::param::params;
use super::readers::Pool;
use super::shared::Shared;
use crate::{Error, Repeats};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Between two looks, without a notification.
const LOOK: Duration = Duration::from_millis(250);

const SEEN: &str = "SELECT coalesce((SELECT max(seq) FROM log), 0), \
    (SELECT sum(n)::bigint FROM settled), \
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || \
    (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || \
    (SELECT system_identifier FROM pg_control_system()), \
    (SELECT value FROM meta WHERE name = 'edition'), \
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Takes over what is committed up to now. After it, this node knows everything that was committed
/// before the call.
pub async fn catch_up(shared: &Shared, client: &Client) -> Result<(), Error> {
    let asked = (shared.clock)();
    let Some(row) = client.row(SEEN, params![]).await? else { return Ok(()) };
    shared.check_timeline(row.cell(2)?)?;
    // Reads go on. Writes are refused, and the health check says why.
    let _ = shared.check_edition(row.cell(3)?);
    shared.check_clock(asked, row.cell(4)?);
    shared.note_settlements(row.cell(1)?);
    if shared.adopt(client, row.cell(0)?).await? {
        shared.erases.store(true, Ordering::Release);
    }
    Ok(())
}

/// Looks until the store is closed. `heard`: another node has said that it committed.
pub async fn look(shared: Arc<Shared>, pool: Arc<Pool>, heard: Arc<Notify>) {
    static FAILURES: Repeats = Repeats::new();
    loop {
        let _ = tokio::time::timeout(LOOK, heard.notified()).await;
        let known = &*shared;
        let done = pool.short(|client| async move { catch_up(known, &client).await }).await;
        match done {
            Ok(()) => {
                if FAILURES.clear().is_some() {
                    tracing::info!("the database answers again");
                }
            }
            Err(error) => {
                if let Some(times) = FAILURES.note(&error.to_string()) {
                    tracing::error!(%error, times, "the database does not answer");
                }
            }
        }
    }
}

/// The channel of one schema of one database.
pub fn channel(shared: &Shared) -> String {
    format!("restive_{:016x}", shared.locks.log)
}

/// Passes on what other nodes say.
pub async fn listen(shared: Arc<Shared>, heard: Arc<Notify>) {
    let mut backoff = Backoff::default();
    loop {
        let (sender, mut said) = mpsc::unbounded_channel();
        if let Ok(client) = shared.address.listen(sender).await
            && client.batch(&format!("LISTEN {}", channel(&shared))).await.is_ok()
        {
            backoff = Backoff::default();
            // What was committed before it listened was not heard.
            heard.notify_one();
            // Until the connection ends.
            while let Some(node) = said.recv().await {
                if node != shared.node {
                    heard.notify_one();
                }
            }
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

/// Tells the other nodes that this one has committed: once for all commits since the last time.
/// NOTIFY takes a lock of the whole server, so it is never part of a transaction that writes.
pub async fn tell(shared: Arc<Shared>, pool: Arc<Pool>) {
    let sql = format!("NOTIFY {}, '{}'", channel(&shared), shared.node);
    loop {
        shared.notify.notified().await;
        // One that is lost is made good by the next look of the others.
        let sql = sql.as_str();
        let _ = pool.short(|client| async move { client.batch(sql).await }).await;
    }
}
