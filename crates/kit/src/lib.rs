//! For programs that send or receive webhooks. Pure functions over bytes: no I/O, no clock, no
//! randomness, and nothing of the service, so that a consumer can depend on this crate alone.

pub mod signature;
