//! Every limit of the open connections, by name.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Limits {
    /// Open streams, sockets and waiting polls, of all accounts and of one.
    pub max_connections: usize,
    pub max_connections_per_account: usize,
    /// How long a long poll waits.
    pub poll_timeout: Duration,
    /// A stream on which nothing was sent for so long is sent a comment.
    pub heartbeat: Duration,
    pub ping_interval: Duration,
    /// Silence after a ping that ends a socket.
    pub pong_timeout: Duration,
    /// A connection that takes no byte for so long is dropped.
    pub stall_timeout: Duration,
    /// A connection that was behind the log for so long is closed, to reconnect.
    pub behind_timeout: Duration,
    /// Over which time connections are closed when the server shuts down.
    pub drain_window: Duration,
    /// A user whose last connection ended has so long to reconnect.
    pub presence_grace: Duration,
    /// Memory for the newest part of the log.
    pub ring_bytes: usize,
    /// Events loaded at start, for clients that a restart disconnected.
    pub preload: usize,
    /// Connections that read the log at a time; the others wait for their turn. One account gets
    /// half of the places at most, and less the more accounts read.
    pub readers: usize,
    /// Largest message a client may send over a socket.
    pub max_message_bytes: usize,
    /// Subscriptions of one socket.
    pub max_subscriptions: usize,
    /// Messages a client may send in a second, and at once.
    pub messages_per_second: u32,
    pub message_burst: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: 100_000,
            max_connections_per_account: 50_000,
            poll_timeout: Duration::from_secs(25),
            heartbeat: Duration::from_secs(25),
            ping_interval: Duration::from_secs(30),
            pong_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_secs(120),
            behind_timeout: Duration::from_secs(600),
            drain_window: Duration::from_secs(3),
            presence_grace: Duration::from_secs(5),
            ring_bytes: 8 << 20,
            preload: 1000,
            readers: 8,
            max_message_bytes: 64 << 10,
            max_subscriptions: 32,
            messages_per_second: 50,
            message_burst: 100,
        }
    }
}
