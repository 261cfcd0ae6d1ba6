//! Nodes that share one PostgreSQL, without a service around them: who holds which buckets, who is
//! online, messages and budgets. Runs where `RESTIVE_TEST_POSTGRES` names a server; each test has a
//! schema of its own there.

// All of it is test code, also the parts outside `#[test]` functions.
#![allow(clippy::unwrap_used)]

mod bed;
mod leases;
mod settling;
mod sharing;
