//! What several identical nodes on one database share besides the rows: who serves which accounts
//! (leases of buckets), who is online, ephemeral messages, and budgets of requests. `Solo` is one
//! process that owns everything, at no cost. On PostgreSQL, `postgres::cluster` keeps all of it in
//! tables of the database, by the database's clock. Knows no delivery, no connection and no
//! request.

mod budget;
mod hold;
mod holdings;
pub(crate) mod plan;
mod solo;

pub use budget::{BudgetRequest, Budgeted, chunk};
pub use hold::Hold;
pub(crate) use holdings::BUCKET_OF;
pub use holdings::{BUCKETS, Bucket, Holding, Holdings, Lease, bucket_of, head_of};
pub use solo::Solo;

use crate::{BoxFuture, Error};
use model::{Scope, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The other nodes, as this process needs to know them. What is not implemented is what a process
/// does that is alone.
pub trait Cluster: Send + Sync + 'static {
    /// Whether other processes may serve the same data. `false`: nothing else here needs a call.
    fn is_shared(&self) -> bool;

    /// The buckets that this node holds; wakes when they change.
    fn holdings(&self) -> watch::Receiver<Arc<Holdings>>;

    /// The work for a bucket that is to be handed over has ended: another node may have it.
    fn drained(&self, _: Lease) {}

    /// Nodes that are alive, this one included.
    fn live_nodes(&self) -> usize {
        1
    }

    /// By how many milliseconds the common clock is ahead of the clock of this machine.
    fn clock_ahead_ms(&self) -> i64 {
        0
    }

    /// Takes requests from the budget of a key and window.
    fn take_budget(&self, request: BudgetRequest) -> BoxFuture<'_, Result<Budgeted, Error>> {
        // The process counts by itself.
        Box::pin(async move { Ok(Budgeted { granted: request.wanted, taken: request.wanted }) })
    }

    /// Takes a name, unless another node that is alive holds it. One process must not take a name
    /// that it holds.
    fn hold(&self, _name: String) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, Error>> {
        Box::pin(async { Ok(Some(Box::new(hold::Alone) as Box<dyn Hold>)) })
    }

    /// The connections of a user at this node have changed; `None` when there is none left.
    fn set_present(&self, _scope: Scope, _user: &str, _present: Option<PresentHere>) {}

    /// Who is online at any node, `max` by name, and how many in all. `None`: this node alone
    /// knows.
    fn present(
        &self,
        _scope: Scope,
        _max: usize,
    ) -> BoxFuture<'_, Result<Option<UsersAndTotal>, Error>> {
        Box::pin(async { Ok(None) })
    }

    /// Sends a message to the connections of the other nodes. It may be lost.
    fn relay(&self, _: Relayed) {}

    /// Waits for messages from other nodes, and for users who came or went.
    fn relayed(&self) -> BoxFuture<'_, Vec<Relayed>> {
        Box::pin(std::future::pending())
    }

    /// The newest position of the log that this node knows, for `cluster status`.
    fn set_position(&self, _: i64) {}

    /// Gives up all leases, so that the others need not wait for their end.
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn figures(&self) -> ClusterFigures {
        ClusterFigures { nodes: 1, leases: BUCKETS, ..ClusterFigures::default() }
    }
}

/// The connections of a user at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentHere {
    pub connections: usize,
    pub since: Timestamp,
}

/// A user who is online at any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentUser {
    pub user: String,
    pub connections: usize,
    pub since: Timestamp,
}

/// Some users who are online, by name, and how many there are in all.
pub type UsersAndTotal = (Vec<PresentUser>, usize);

/// An ephemeral message between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relayed {
    /// What a client sent, as the members of its JSON object.
    Typing { scope: Scope, about: Option<String>, members: String },
    /// The first connection of a user in the cluster opened, or the last one ended.
    Online { scope: Scope, user: String, online: bool },
}

impl Relayed {
    /// Roughly what it takes to keep it.
    pub fn bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 64;
        OVERHEAD_BYTES
            + match self {
                Relayed::Typing { about, members, .. } => {
                    about.as_ref().map_or(0, String::len) + members.len()
                }
                Relayed::Online { user, .. } => user.len(),
            }
    }
}

/// Figures for the metrics page.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterFigures {
    pub nodes: usize,
    /// Buckets that this node holds.
    pub leases: usize,
    /// Time since the last heartbeat that the database has confirmed.
    pub heartbeat_age: Duration,
    /// Takeovers of buckets since the start.
    pub takeovers: u64,
    /// Ephemeral messages for other nodes that were dropped.
    pub relay_dropped: u64,
}
