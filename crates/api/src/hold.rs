//! Keeps the other nodes out while this one calls a handler: by the idempotency key, and by the
//! record. Within the process `idempotency` and `in_flight` do that, and come first.

use crate::error::Failure;
use model::problem::Problem;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Error;
use store::cluster::{Cluster, Hold};
use tokio::time::sleep;

/// Between two attempts to take a name that another node holds.
const RETRY: Duration = Duration::from_millis(100);

/// A name that no other node has; `None` where there are no others.
pub type Held = Option<Box<dyn Hold>>;

/// Takes the name that these parts make, after waiting for the node that has it.
pub async fn hold(
    cluster: &Arc<dyn Cluster>,
    parts: &[&[u8]],
    within: Duration,
    taken: fn() -> Problem,
) -> Result<Held, Failure> {
    if !cluster.is_shared() {
        return Ok(None);
    }
    let (name, began) = (name(parts), Instant::now());
    loop {
        match cluster.hold(name.clone()).await {
            Ok(Some(hold)) => return Ok(Some(hold)),
            Ok(None) if began.elapsed() > within => return Err(taken().into()),
            // waits for: the end of the request at the other node
            Ok(None) => sleep(RETRY).await,
            // Whether another node has the name is unknown.
            Err(error) => return Err(Error::Unavailable(Box::new(error)).into()),
        }
    }
}

/// Of one length, whatever clients send.
fn name(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut name = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(name, "{byte:02x}");
    }
    name
}
