//! The tables of the cluster. What may be lost with a crash of the database is unlogged: presence,
//! messages and budgets cost no flush.

use crate::Error;
use crate::postgres::connect::{Cells as _, Client};
use crate::postgres::param::params;

/// The channel of notifications between nodes.
pub const CHANNEL: &str = "restive_cluster";
/// Payload of a notification after which leases are to be looked at.
pub const LEASES: &str = "leases";

/// Advisory locks of the cluster. The first number keeps them apart from those of the store.
pub const LOCK_CLASS: i64 = 0x7265_7374;
pub const LOCK_TABLES: i64 = 101;
pub const LOCK_PRESENCE: i64 = 102;
pub const LOCK_RELAY: i64 = 103;

/// The names of the tables.
pub const NAMES: [&str; 6] = [
    "restive_nodes",
    "restive_leases",
    "restive_holds",
    "restive_presence",
    "restive_relay",
    "restive_budgets",
];

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS restive_nodes (
  node bigint PRIMARY KEY, host text NOT NULL, version text NOT NULL,
  started timestamptz NOT NULL, beat timestamptz NOT NULL, until timestamptz NOT NULL,
  position bigint NOT NULL);
ALTER TABLE restive_nodes ADD COLUMN IF NOT EXISTS serves boolean NOT NULL DEFAULT true;
CREATE TABLE IF NOT EXISTS restive_leases (
  bucket bigint PRIMARY KEY, node bigint, fence bigint NOT NULL);
INSERT INTO restive_leases SELECT b, NULL, 0 FROM generate_series(0, 255) b
  ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS restive_holds (
  name text COLLATE \"C\" PRIMARY KEY, node bigint NOT NULL, token bigint NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS restive_presence (
  scope bigint NOT NULL, name text COLLATE \"C\" NOT NULL, node bigint NOT NULL,
  connections bigint NOT NULL, since bigint NOT NULL, PRIMARY KEY (scope, name, node));
CREATE INDEX IF NOT EXISTS restive_presence_node ON restive_presence (node);
CREATE UNLOGGED TABLE IF NOT EXISTS restive_relay (
  n bigserial PRIMARY KEY, node bigint NOT NULL, at timestamptz NOT NULL,
  scope bigint NOT NULL, kind bigint NOT NULL, about text, body text NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS restive_budgets (
  name text COLLATE \"C\" NOT NULL, win bigint NOT NULL, lim bigint NOT NULL,
  taken bigint NOT NULL, granted bigint NOT NULL, ends timestamptz NOT NULL,
  PRIMARY KEY (name, win));
";

/// A node that is frozen in a transaction must not hold the others up, nor one that waits for a
/// lock of theirs: their heartbeats would wait behind it.
pub const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'; \
    SET LOCAL lock_timeout = '5s'";
/// Takes an advisory lock until the end of the transaction.
pub const LOCK: &str = "SELECT pg_advisory_xact_lock($1::int, $2::int)";

/// Creates what is missing. Several nodes may start at once.
pub async fn create(client: &Client) -> Result<(), Error> {
    let complete = "SELECT count(to_regclass(name)) = count(*) AND EXISTS (SELECT 1 FROM \
        pg_attribute WHERE attrelid = to_regclass('restive_nodes') AND attname = 'serves') \
        FROM unnest($1::text[]) name";
    if let Some(row) = client.row(complete, params![NAMES.to_vec()]).await?
        && row.cell::<bool>(0)?
    {
        return Ok(());
    }
    client.batch(BEGIN).await?;
    client.query(LOCK, params![LOCK_CLASS, LOCK_TABLES]).await?;
    client.batch(TABLES).await?;
    client.batch("COMMIT").await
}
