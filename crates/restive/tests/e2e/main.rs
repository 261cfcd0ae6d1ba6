//! End to end: every test here starts the real executable and speaks real HTTP to it. One binary,
//! so that it links once.

// All of it is test code, the parts outside `#[test]` functions too.
#![allow(clippy::unwrap_used)]

mod chance;
mod browser;
mod carry;
mod clock;
mod deadline;
mod harness;
mod live_client;
mod odd;
mod peers;
mod sink;
#[path = "../../../kit/tests/interop/receivers.rs"]
mod receivers;

mod acme;
mod actions;
mod auth;
mod cli;
mod clock_jumps;
mod concurrency;
mod conditions;
mod crash;
mod crash_deliveries;
mod cursors;
mod deliveries;
mod delivery_lists;
mod delivery_pace;
mod deprecation;
mod disk;
mod endpoints;
mod errors;
mod events;
mod events_cli;
mod evolution;
mod expansion;
mod gauges;
mod h2;
mod h2_storms;
mod h3;
mod handler_turns;
mod handlers;
mod hostile;
mod hostile_receivers;
mod idempotency;
mod limits;
mod live_auth;
mod live_begin;
mod live_browser;
mod live_chaos;
mod live_drain;
mod live_fairness;
mod live_frames;
mod live_metrics;
mod live_one_cursor;
mod live_poll;
mod live_slow;
mod live_socket;
mod live_sse;
mod lists;
mod resources;
mod service;
mod shares;
mod signatures;
mod stop;
mod storm;
mod storm_client;
mod tls;
mod tools;
mod two_accounts;
mod version_answers;
mod version_below;
mod version_beside;
mod version_chains;
mod version_changes;
mod version_doors;
mod version_edits;
mod version_limits;
mod version_events;
mod version_params;
mod version_units;
mod version_unseen;
mod versions;
mod versions_log;
