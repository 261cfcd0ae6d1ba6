//! The engine against a store in memory and real HTTP over loopback: what reaches endpoints, what
//! is written down, and what a restart makes of it.

// All of it is test code, the parts outside `#[test]` functions too.
#![allow(clippy::unwrap_used)]

mod bed;
mod memory;
mod node;
mod nodes;
mod sink;

mod catch_up;
mod clock;
mod delivery;
mod disabling;
mod failure;
mod isolation;
mod lag;
mod ordering;
mod replay;
mod restart;
mod tenants;
mod tenants_by_chance;
mod versions;
