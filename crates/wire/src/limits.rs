//! Every bound wire puts on what a client may hold, send or delay.

use std::time::Duration;

/// The longest method registered has 17 letters.
pub(crate) const METHOD_BYTES: usize = 32;

/// Named limits with defaults. All of them can be set; none can be switched off.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections of all threads together. Over it the connection that has been idle longest,
    /// of the address that has most, ends for the new one. If none is idle, the new one is answered
    /// 503, or as [`crate::Fault::OverloadedStream`] says, and closed.
    /// 20,000: at 1.3 KB for an idle connection that is 26 MB.
    pub max_connections: usize,
    /// The same for one address, or one /64 of IPv6; proxies that are trusted are not counted.
    /// Not limited by default: behind a proxy that is not declared, all clients are one address.
    pub max_connections_per_address: usize,
    /// Requests being answered at one moment, of all threads together; over it 503, connection
    /// kept. 4,096: far beyond what a healthy store has in flight, low enough to bound memory.
    pub max_exchanges: usize,
    /// Sum of all header lines of one request → 431. 32 KiB: what nginx accepts in its large
    /// buffers (4 × 8 KiB).
    pub header_bytes: usize,
    /// Header lines of one request → 431. 100, as Apache; also what the parser holds on its stack.
    pub max_headers: usize,
    /// Memory of one thread for bytes that are read and not used, mostly half heads. While it is
    /// exceeded, a head that does not arrive in one piece is answered 503. 64 MiB: room for
    /// thousands of the largest heads; a flood of them must not take the memory of all others.
    pub buffer_bytes: usize,
    /// HTTP/2 and HTTP/3, all threads together: bodies that were received and not read, heads that
    /// have not arrived whole, and answers that their clients have not taken; the answers of
    /// HTTP/1.1 count as well. The account that the service names ([`crate::Holder`]) is charged,
    /// before that the client's address (one /64 of IPv6). Each of them may hold as much as is
    /// still free, so that nobody takes all of it. Over it a request is answered 503 and a stream
    /// refused, but the answer to a write is sent; a connection in the middle of a head waits.
    /// 512 MiB: some 8,000 uploads of unknown length, or 500 answers of 1 MiB, that wait for their
    /// clients at one moment.
    pub held_bytes: usize,
    /// The request target → 414. 8 KiB: nginx's and Apache's line limit; RFC 9110 asks for 8,000.
    pub url_bytes: usize,
    /// TLS and the PROXY protocol: from the connection to the end of their handshakes; then it is
    /// closed. 10 s, as for a head: a handshake is two packets each way.
    pub handshake_timeout: Duration,
    /// The same: handshakes of one thread under way. One more ends the one that has taken longest,
    /// so that handshakes that never finish keep no client out. 512: some 10 MiB, and at one a
    /// millisecond half a second of work.
    pub max_handshakes: usize,
    /// HTTP/3: from so many handshakes under way on, a client has to prove first that its address
    /// is its own (a Retry, which costs it a round trip). 64: more are only seen in a rush or an
    /// attack, and so many cost an attacker nothing who lies about where he is.
    pub retry_handshakes: usize,
    /// From the first byte of a head to its last → 408. 10 s: a head is one packet or a few.
    pub head_timeout: Duration,
    /// From the first wait for a body that is read whole to its last byte → `BodyFault::Timeout`.
    pub body_timeout: Duration,
    /// Longest pause between two pieces of a body → `BodyFault::Timeout`. 10 s: several TCP
    /// retransmissions fit in; a silent client is given up early.
    pub body_stall: Duration,
    /// A client that takes no byte of its answer for so long is cut off.
    pub write_stall: Duration,
    /// The least that a client must take of an answer within each `write_stall` that the server
    /// waits for it, and send of a body that is read in pieces within each `body_timeout`. The
    /// streams of a connection share it. 32 KiB: about 1 KiB/s, less than any line in use; a byte
    /// every few seconds is a client that only wants to keep a place. Connections that the service
    /// has taken over are not held to it.
    pub floor_bytes: usize,
    /// A client that acknowledges nothing of what it was sent for so long is gone, where the system
    /// can detect that (Linux); elsewhere its own patience, some minutes, ends it. 150 s:
    /// longer than any pause a slow reader is given; Linux itself would wait for a quarter of an
    /// hour. It counts also while a client acknowledges and takes nothing.
    pub unacknowledged: Duration,
    /// A connection without a request in progress is closed. 75 s: nginx's default, longer than
    /// the 60 s that common load balancers keep a connection, so that they close first.
    pub idle_timeout: Duration,
    /// On HTTP/2, with requests being answered: after so long without a sign of the client it is
    /// asked for one, and cut off if none comes within `write_stall`. 30 s: a stream of events may
    /// be silent for hours, and a client that has vanished should not hold it for those.
    pub ping_after: Duration,
    /// After an answer that ends the connection: how long arriving bytes are still taken, because
    /// closing over unread bytes resets the connection and destroys the answer on its way.
    pub linger_timeout: Duration,
    /// From the shutdown signal to the end of the last connection.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: 20_000,
            max_connections_per_address: usize::MAX,
            max_exchanges: 4_096,
            header_bytes: 32 * 1024,
            max_headers: 100,
            buffer_bytes: 64 * 1024 * 1024,
            held_bytes: 512 * 1024 * 1024,
            url_bytes: 8 * 1024,
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 512,
            retry_handshakes: 64,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_stall: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            floor_bytes: 32 * 1024,
            unacknowledged: Duration::from_secs(150),
            idle_timeout: Duration::from_secs(75),
            ping_after: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// What each field counts besides its name and value (RFC 9113 6.5.2, RFC 9114 4.2.2).
const FIELD_BYTES: usize = 32;
/// `:method`, `:scheme`, `:authority`, `:path`, `:protocol` with their values, but for the path's.
const PSEUDO_BYTES: usize = 1024;

impl Limits {
    /// The limit of a head that HTTP/2 and HTTP/3 clients are sent: above what admission lets
    /// through, so that the usual excess is answered 431 or 414 with a body.
    pub(crate) fn header_list_bytes(&self) -> u32 {
        let fields = self.header_bytes + (self.max_headers + 8) * FIELD_BYTES;
        let list = fields + self.url_bytes + PSEUDO_BYTES;
        u32::try_from(list + list / 2).unwrap_or(u32::MAX)
    }

    /// How often a worker looks for connections that overstayed: fine enough that no timeout is
    /// late by more than a tenth, and never more than once a second on a default server.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = [self.head_timeout, self.idle_timeout, self.write_stall, self.ping_after];
        let shortest = shortest.into_iter().min().unwrap_or_default();
        (shortest / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}
