//! Who or what causes a write.

use core::net::IpAddr;

/// The cause of a write. All but the client goes into the event.
#[derive(Clone, Debug, Default)]
pub struct Cause {
    pub request: Option<String>,
    pub idempotency_key: Option<String>,
    /// Id of the key that asked.
    pub key: Option<String>,
    /// The user that asked, if a channel token names one.
    pub user: Option<String>,
    /// Who asked, for rules; none where the service acts by itself.
    pub client: Option<IpAddr>,
    /// The lease under which a node acts by itself. When another node has it, the write has no
    /// effect.
    pub lease: Option<LeaseNumber>,
}

/// A lease as the database numbers it: which one, and how often it was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseNumber {
    pub bucket: i64,
    pub fence: i64,
}
