//! How many requests of a key's window a node takes from the common budget at a time. Pure.

use std::time::Duration;

/// A request for a part of a key's window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRequest {
    /// Name of the key.
    pub key: String,
    /// Number and length of the window.
    pub window: u64,
    pub length: Duration,
    /// Requests in the window, of all nodes.
    pub limit: u32,
    /// Requests that the node asks for; it gets fewer if fewer are left.
    pub wanted: u32,
}

/// What a node got of a key's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgeted {
    pub granted: u32,
    /// What all nodes have taken, with it.
    pub taken: u32,
}

/// One part in this many of a window may be in the hands of nodes that do not use it: 5 %.
const UNUSED_PART: u32 = 20;
/// The first part of a window that a node takes: it may want no more.
const FIRST_PART: u32 = 64;

/// How many requests to take from the budget next. All nodes together hold at most `UNUSED_PART` of
/// the window that they do not use. `taken`: what this node has taken in the window so far.
pub fn chunk(limit: u32, taken: u32, nodes: usize) -> u32 {
    let nodes = u32::try_from(nodes.max(1)).unwrap_or(u32::MAX);
    let most = (limit / UNUSED_PART / nodes).max(1);
    // By demand: a node that has used up one part takes a larger one.
    let wanted = (limit / FIRST_PART / nodes).max(1).max(taken);
    wanted.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_together_hold_at_most_a_twentieth_that_they_do_not_use() {
        for (limit, taken, nodes, expected) in [
            (6000, 0, 2, 46),
            (6000, 100, 2, 100),
            (6000, 3000, 2, 150),
            (6000, 3000, 1, 300),
            (100, 0, 2, 1),
            (100, 50, 2, 2),
            (10, 5, 3, 1),
            (1, 0, 1000, 1),
            (0, 0, 0, 1),
        ] {
            assert_eq!(chunk(limit, taken, nodes), expected, "{limit} {taken} {nodes}");
        }
    }
}
