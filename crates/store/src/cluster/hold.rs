//! Names that one node holds at a time: for work that must not begin at two nodes at once, such as
//! the call of a handler. A name outlives no node: when its node dies, another one gets it.

/// A name that this node holds. Dropping it frees the name.
pub trait Hold: Send + Sync {
    /// Whether no other node can have the name at this moment. Checked before the work begins: the
    /// node may have been paused for longer than its lease.
    fn is_valid(&self) -> bool;
}

/// The hold of a process that is alone.
pub(super) struct Alone;

impl Hold for Alone {
    fn is_valid(&self) -> bool {
        true
    }
}
