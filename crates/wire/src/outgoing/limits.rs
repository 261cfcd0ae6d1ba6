//! What a client may hold and how far it goes. Numbers only.

use std::time::Duration;

/// The limits of one client.
#[derive(Clone, Debug)]
pub struct OutgoingLimits {
    /// Connections at rest for one target. More than a burst of calls to one server leaves behind
    /// is of no use to the next.
    pub idle_per_target: usize,
    /// Connections at rest in all. Each holds a descriptor and some 10 KiB of buffers.
    pub idle_total: usize,
    /// A connection at rest is not used after this time. Below what servers commonly allow (60 s
    /// and more), so that it is we who let go and not they.
    pub idle_time: Duration,
    /// A connection in steady use is let go after this time, so that a change of the name's
    /// addresses is noticed.
    pub connection_age: Duration,
    /// Names looked up at a time. Each takes a thread for as long as the name server pleases.
    pub lookups: usize,
    /// So long the addresses of a name are used for new connections without asking again, unless
    /// one of them refuses. The system does not report how long they are valid. Zero by default:
    /// for webhooks a name is looked up for each connection.
    pub lookup_ttl: Duration,
    /// Addresses of one name that are tried in turn. The check looks at all there are.
    pub addresses: usize,
    /// The most a response head may hold; the parser's buffer. At least 8 KiB.
    pub head_bytes: usize,
}

impl Default for OutgoingLimits {
    fn default() -> OutgoingLimits {
        OutgoingLimits {
            idle_per_target: 32,
            idle_total: 1024,
            idle_time: Duration::from_secs(30),
            connection_age: Duration::from_secs(300),
            lookups: 64,
            lookup_ttl: Duration::ZERO,
            addresses: 8,
            head_bytes: 64 * 1024,
        }
    }
}
