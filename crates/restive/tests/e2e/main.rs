//! End to end: every test here starts the real executable and speaks real HTTP to it. One binary,
//! so that it links once.

mod chance;
mod concurrency;
mod crash;
mod disk;
mod harness;
mod hostile;
mod odd;
mod resources;
