//! The check that makes a settlement, or a write of a node by itself, conditional: it runs in their
//! transaction and keeps the leases from being taken over until its end.

use crate::Error;
use crate::cluster::{Bucket, Lease};
use crate::postgres::connect::{Cells as _, Client};
use crate::postgres::param::params;
use std::collections::BTreeMap;

/// Rows that are locked for a share are not taken over before the transaction ends; takeovers skip
/// locked rows and try again.
pub const CHECK: &str = "SELECT bucket, fence FROM restive_leases WHERE bucket = ANY($1) \
    ORDER BY bucket FOR SHARE";

/// Those of these leases that the node has lost. To be called inside the transaction that writes on
/// the strength of them.
pub async fn stale(client: &Client, leases: &[Lease]) -> Result<Vec<Lease>, Error> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let buckets: Vec<i64> = leases.iter().map(|lease| i64::from(lease.bucket)).collect();
    let mut fences: BTreeMap<Bucket, i64> = BTreeMap::new();
    for row in client.query(CHECK, params![buckets]).await? {
        let bucket = Bucket::try_from(row.cell::<i64>(0)?).unwrap_or_default();
        fences.insert(bucket, row.cell(1)?);
    }
    let is_lost = |lease: &&Lease| fences.get(&lease.bucket) != Some(&lease.fence);
    Ok(leases.iter().filter(is_lost).copied().collect())
}
