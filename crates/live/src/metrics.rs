//! Figures of the live channels, in the text format of Prometheus. Counted with atomics, rendered
//! on request.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a connection is, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Poll,
    Sse,
    Socket,
}

const CHANNELS: [(&str, Channel); 3] =
    [("poll", Channel::Poll), ("sse", Channel::Sse), ("websocket", Channel::Socket)];

/// How a resumed connection got what it had missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    FromMemory,
    FromLog,
    /// Not all of it, which was reported to it.
    WithGap,
}

#[derive(Debug, Default)]
pub struct Metrics {
    open: [AtomicU64; 3],
    sent: [AtomicU64; 3],
    resumed: [AtomicU64; 3],
    pub(crate) refused: AtomicU64,
    /// Ephemeral messages that a connection was too slow for.
    pub(crate) dropped: AtomicU64,
    /// Connections to which that was reported.
    pub(crate) presence_resets: AtomicU64,
    /// Connections ended because they took nothing, or never caught up.
    pub(crate) slow: AtomicU64,
    pub(crate) log_reads: AtomicU64,
    pub(crate) received: AtomicU64,
}

impl Metrics {
    pub(crate) fn opened(&self, channel: Channel) {
        self.open[channel as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self, channel: Channel) {
        self.open[channel as usize].fetch_sub(1, Relaxed);
    }

    pub(crate) fn sent(&self, channel: Channel, count: usize) {
        self.sent[channel as usize].fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn resumed(&self, how: Resumed) {
        self.resumed[how as usize].fetch_add(1, Relaxed);
    }

    /// `lag` is the farthest that any connection is behind the log, `users` how many are online.
    pub(crate) fn render(&self, out: &mut String, lag: i64, users: usize) {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, u64)]| {
            let _ = writeln!(out, "# HELP restive_live_{name} {help}");
            let _ = writeln!(out, "# TYPE restive_live_{name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(out, "restive_live_{name}{labels} {value}");
            }
        };
        let by_channel = |counters: &[AtomicU64; 3]| -> Vec<(String, u64)> {
            let label = |name| format!("{{channel=\"{name}\"}}");
            let of = |channel: Channel| get(&counters[channel as usize]);
            CHANNELS.iter().map(|(name, channel)| (label(name), of(*channel))).collect()
        };
        let one = |value: u64| vec![(String::new(), value)];
        let resumed = [Resumed::FromMemory, Resumed::FromLog, Resumed::WithGap];
        let resumed: Vec<_> = ["memory", "log", "gap"]
            .iter()
            .zip(resumed)
            .map(|(name, how)| (format!("{{from=\"{name}\"}}"), get(&self.resumed[how as usize])))
            .collect();
        family("connections", "gauge", "Open connections.", &by_channel(&self.open));
        family("messages_total", "counter", "Messages sent.", &by_channel(&self.sent));
        family("received_total", "counter", "Messages received.", &one(get(&self.received)));
        family("resumes_total", "counter", "Resumed connections by source.", &resumed);
        family("refused_total", "counter", "Connections over a limit.", &one(get(&self.refused)));
        let help = "Ephemeral messages that a slow connection missed.";
        family("dropped_total", "counter", help, &one(get(&self.dropped)));
        let help = "Connections that were told that they missed ephemeral messages.";
        family("presence_resets_total", "counter", help, &one(get(&self.presence_resets)));
        let help = "Connections ended for being slow.";
        family("slow_total", "counter", help, &one(get(&self.slow)));
        let help = "Reads of the log by connections behind the memory.";
        family("log_reads_total", "counter", help, &one(get(&self.log_reads)));
        let help = "Events that the slowest connection is behind.";
        family("lag_events", "gauge", help, &one(u64::try_from(lag).unwrap_or(0)));
        family("users", "gauge", "Users online.", &one(users as u64));
    }
}
