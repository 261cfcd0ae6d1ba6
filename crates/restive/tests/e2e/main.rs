//! End to end: every test here starts the real executable and speaks real HTTP to it. One binary,
//! so that it links once.

// All of it is test code, the parts outside `#[test]` functions too.
#![allow(clippy::unwrap_used)]

mod chance;
mod concurrency;
mod crash;
mod disk;
mod harness;
mod hostile;
mod odd;
mod resources;
