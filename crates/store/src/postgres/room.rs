//! Proves that there is room for a write, after one has failed: writes bytes to a table of their
//! own and removes them, under the lock that every create takes. Vacuum gives their pages back to
//! the disk, so that the next proof needs room again.

use super::connect::{Cells, Client};
use super::param::params;
use crate::Error;

/// The name of the table.
pub const TABLE: &str = "room";

/// Out of line and not compressed, so that the bytes need pages.
const CREATE: &str = "CREATE TABLE room (bytes text NOT NULL); \
    ALTER TABLE room ALTER COLUMN bytes SET STORAGE EXTERNAL";
/// Shorter than for a write: somebody waits for the answer.
const LOCK: &str = "SET LOCAL lock_timeout = '1s'; SELECT pg_advisory_xact_lock";
/// A hash has 16 bytes.
const WRITE: &str = "INSERT INTO room SELECT \
    encode(decode(string_agg(md5(random()::text), ''), 'hex'), 'base64') \
    FROM generate_series(1, $1::bigint / 16 + 1)";
const REMOVE: &str = "DELETE FROM room";

/// Makes the table where it is missing.
pub async fn create(client: &Client) -> Result<(), Error> {
    let exists = "SELECT to_regclass($1::text) IS NOT NULL";
    match client.row(exists, params![TABLE]).await?.map_or(Ok(false), |row| row.cell(0))? {
        true => Ok(()),
        false => client.batch(CREATE).await,
    }
}

/// Writes so many bytes in the open transaction, and removes them.
pub async fn prove(client: &Client, log_lock: i64, bytes: i64) -> Result<(), Error> {
    client.batch(&format!("{LOCK}({log_lock})")).await?;
    client.execute(WRITE, params![bytes]).await?;
    client.execute(REMOVE, params![]).await.map(drop)
}
