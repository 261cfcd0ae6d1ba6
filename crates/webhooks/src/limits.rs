//! What the engine may hold and how long it waits. Numbers only, each with its reason; tests pass
//! smaller ones.

use std::time::Duration;

/// Events read from the log at a time.
const BATCH: usize = 256;
// More would be read by the threads that serve clients' long reads, and wait for those.
const _: () = assert!(BATCH <= store::EVENTS_INLINE, "reads of the engine must not queue");

#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests in flight over all endpoints; each account has its share. Each costs a descriptor
    /// and some 10 KiB.
    pub in_flight: usize,
    /// Events one endpoint may have loaded and waiting; more wait in the log.
    pub queue: usize,
    /// Events read from the log at a time.
    pub batch: usize,
    /// The pause between two looks at the log while there is no endpoint.
    pub lone_rest: Duration,
    /// Events loaded over all endpoints, roughly, bodies included; each account has its share.
    pub loaded_bytes: usize,
    /// Questions to the store for endpoints and replays, at a time: the store has other readers.
    pub reads: usize,
    /// Accounts whose log is searched for endpoints that are behind, at a time: as above.
    pub searches: usize,
    /// Writes of records of endpoints and replays, at a time: others write, too.
    pub changes: usize,
    /// Lanes looked at before the engine looks at answers, timers and the signal to stop again: a
    /// few milliseconds of work.
    pub steps: usize,
    /// Events of one endpoint that wait for an earlier one of the same record.
    pub held: usize,
    /// Outcomes that are not durable yet; beyond it the engine starts nothing new.
    pub unsettled: usize,
    /// Outcomes in one settlement: they are one commit, which other writes wait for.
    pub settlement: usize,
    /// Bytes of attempts in one settlement, but for its first: the same reason.
    pub settlement_bytes: usize,
    /// So many are not kept waiting for more.
    pub worth_settling: usize,
    /// The pause from the beginning of one settlement to the next smaller one.
    pub settle_rest: Duration,
    /// The answer's body is read this far, and kept this far.
    pub response_bytes: usize,
    pub kept_body_bytes: usize,
    /// Headers of the answer that are kept.
    pub kept_headers: usize,
    pub kept_header_bytes: usize,
    /// How long requests in flight may take once the engine has to stop.
    pub drain: Duration,
    /// How long a stop lets the head and endpoints that enable nothing new come to the newest
    /// event: it spares the next start the same search, which is not worth a late stop.
    pub stop_search: Duration,
    /// Rows of positions written at a tick: many endpoints that are behind for a moment must not
    /// cost the writer as many rows. A stop writes all.
    pub position_rows: usize,
    /// How often positions are written, and the wall clock is looked at: it may have jumped.
    pub tick: Duration,
    /// Failures in a row after which an endpoint gets single tries only.
    pub hold_after: u32,
    /// The pause between such tries: it doubles from the first to the longest.
    pub hold_first: Duration,
    pub hold_longest: Duration,
    /// `Retry-After` is believed up to the longest step of the schedule, and at least this far.
    pub pause_floor: Duration,
    /// An endpoint that fails for so long is disabled.
    pub disable_after: Duration,
    /// Without a failure for this part of it, the endpoint was not failing but idle.
    pub quiet_part: u32,
    /// The wait after the store failed: it doubles from the first to the longest.
    pub store_wait: Duration,
    pub store_wait_longest: Duration,
    /// Replays in flight in one scope; the others wait.
    pub replays: usize,
    /// Requests in flight of one replay.
    pub replay_window: usize,
    /// Endpoints whose queue age the metrics report one by one, the worst ones.
    pub reported_endpoints: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            in_flight: 1024,
            queue: 256,
            batch: BATCH,
            lone_rest: Duration::from_millis(20),
            loaded_bytes: 32 << 20,
            reads: 8,
            searches: 2,
            changes: 16,
            steps: 256,
            held: 1024,
            unsettled: 4096,
            settlement: 256,
            settlement_bytes: 2 << 20,
            worth_settling: 256,
            settle_rest: Duration::from_millis(20),
            response_bytes: 16 << 10,
            kept_body_bytes: 4 << 10,
            kept_headers: 64,
            kept_header_bytes: 4 << 10,
            drain: Duration::from_secs(5),
            stop_search: Duration::from_secs(1),
            position_rows: 100,
            tick: Duration::from_secs(1),
            hold_after: 5,
            hold_first: Duration::from_secs(1),
            hold_longest: Duration::from_secs(60),
            pause_floor: Duration::from_secs(60),
            disable_after: Duration::from_secs(5 * 86_400),
            quiet_part: 4,
            store_wait: Duration::from_millis(100),
            store_wait_longest: Duration::from_secs(5),
            replays: 4,
            replay_window: 8,
            reported_endpoints: 100,
        }
    }
}
