//! Every way in which account A misbehaves, and the order in which they run.

mod live;
mod reads;
mod transport;
mod webhooks;
mod writes;

use std::pin::Pin;

use anyhow::Result;

use super::arena::Arena;

/// What A was due after it recovered, and how much of it arrived.
#[derive(Clone, Debug)]
pub struct Due {
    pub what: &'static str,
    pub due: u64,
    pub arrived: u64,
    /// Further conditions of this case that failed.
    pub broken: Vec<String>,
}

impl Due {
    pub fn new(what: &'static str, due: u64, arrived: u64) -> Self {
        Self { what, due, arrived, broken: Vec::new() }
    }

    /// Adds a condition of this case.
    pub fn require(mut self, holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        if !holds {
            self.broken.push(otherwise());
        }
        self
    }
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Due>> + 'a>>;

pub struct Case {
    pub name: &'static str,
    pub what: &'static str,
    pub run: for<'a> fn(&'a Arena) -> Running<'a>,
}

// tidy: table
pub const CASES: &[Case] = &[
    Case {
        name: "pings",
        what: "300 concurrent pings to one hanging endpoint",
        run: |arena| Box::pin(webhooks::pings(arena)),
    },
    Case {
        name: "hanging-large",
        what: "20 hanging endpoints, 150 events of 120 KB",
        run: |arena| Box::pin(webhooks::hanging_large(arena)),
    },
    Case {
        name: "hanging-many",
        what: "40 endpoints that hang 8 s, 400 events of 4 KB",
        run: |arena| Box::pin(webhooks::hanging_many(arena)),
    },
    Case {
        name: "filters",
        what: "40 endpoints with expensive filters, 150 events of 120 KB",
        run: |arena| Box::pin(webhooks::filters(arena)),
    },
    Case {
        name: "replay",
        what: "one replay of 120 KB records at rate_limit 1",
        run: |arena| Box::pin(webhooks::replay(arena)),
    },
    Case {
        name: "deep-offsets-24",
        what: "24 clients that read the last pages by their number",
        run: |arena| Box::pin(reads::deep_offsets_24(arena)),
    },
    Case {
        name: "deep-offsets-1000",
        what: "1,000 clients that do the same",
        run: |arena| Box::pin(reads::deep_offsets_1000(arena)),
    },
    Case {
        name: "scans",
        what: "`max_id` on a feed and `code=null` on a unique field, in loops",
        run: |arena| Box::pin(reads::scans(arena)),
    },
    Case {
        name: "erasure-events",
        what: "an erasure of a record with 300,000 events",
        run: |arena| Box::pin(writes::erasure_of_many(arena)),
    },
    Case {
        name: "erasure-bytes",
        what: "100 MB of pending erasures",
        run: |arena| Box::pin(writes::erasures_of_large(arena)),
    },
    Case {
        name: "timers",
        what: "50,000 timers that are due at once",
        run: |arena| Box::pin(writes::timers(arena)),
    },
    Case {
        name: "cascade",
        what: "deletion of 100 parents with 1,000 children each",
        run: |arena| Box::pin(writes::cascade(arena)),
    },
    Case {
        name: "creates",
        what: "64 clients that create without a pause",
        run: |arena| Box::pin(writes::creates(arena)),
    },
    Case {
        name: "slow-sse",
        what: "1,000 streams that are read at one byte a second",
        run: |arena| Box::pin(live::slow_readers(arena)),
    },
    Case {
        name: "subscriptions",
        what: "10,000 WebSockets that change their subscription every second",
        run: |arena| Box::pin(live::changing_subscriptions(arena)),
    },
    Case {
        name: "typing",
        what: "messages in passing without a pause, users that come and go",
        run: |arena| Box::pin(live::typing(arena)),
    },
    Case {
        name: "slow-uploads",
        what: "200 connections that upload one byte a second",
        run: |arena| Box::pin(transport::slow_uploads(arena)),
    },
    Case {
        name: "large-bodies",
        what: "1,500 connections of one key with bodies of 1 MB",
        run: |arena| Box::pin(transport::large_bodies(arena)),
    },
    Case {
        name: "handler",
        what: "200 actions whose handler hangs",
        run: |arena| Box::pin(transport::hanging_handler(arena)),
    },
    Case {
        name: "h2-uploads",
        what: "20 HTTP/2 connections with 100 stalled uploads each",
        run: |arena| Box::pin(transport::stalled_streams(arena)),
    },
    Case {
        name: "unread-answers",
        what: "80 clients that do not read pages of 4 MB",
        run: |arena| Box::pin(transport::unread_answers(arena)),
    },
];
