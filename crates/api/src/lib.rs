//! The way of a request, in the order of the files below: a request is routed, its caller known,
//! its quota taken, its version read, its body checked, its repetition noticed, its operation run,
//! its response written. Knows resources and the store's trait; neither the database nor the HTTP
//! library.

pub mod service;
mod request;

pub mod route;
pub mod auth;
pub mod limit;
mod version;
mod usage;
mod deprecation;
mod negotiate;
mod body;
mod decode;
mod condition;
mod idempotency;
mod in_flight;
mod actions;
mod operation;
mod respond;
pub mod error;

mod channel;
mod account;
mod page;
mod health;
pub mod openapi;
pub mod changelog;
mod metrics;
mod log;
pub mod keys;
pub mod retention;
pub mod timers;

pub use actions::Actions;
pub use log::AccessLog;
pub use service::{Api, Figures, Parts, Settings};

use model::Timestamp;
use model::id::Entropy;
use std::time::Duration;

/// What only the binary may read: clocks and randomness. Tests bring their own.
pub trait Outside: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
    /// Time since start, never backwards.
    fn uptime(&self) -> Duration;
    fn entropy(&self) -> Entropy;
}
