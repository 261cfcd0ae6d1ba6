//! The steps of a request, in the order of the files below. The request is routed; its caller is
//! identified; its body is read and its version chosen; a repetition is answered from the store;
//! its quota is taken; its formats are checked; its operation runs; its response is completed,
//! counted and logged. This crate knows resources and the store's traits; it knows neither the
//! database nor the HTTP library.

pub mod pipeline;
pub mod route;
mod admission;
pub mod auth;
mod key_status;
mod in_flight;
mod body;
mod decode;
mod version;
mod deprecation;
mod usage;
mod scope;
mod convert;
mod replay;
mod hold;
mod idempotency;
pub mod limit;
mod part;
mod negotiate;
mod request;
mod operation;
mod actions;
mod condition;
mod confirmed_body;
mod respond;
mod finish;
pub mod error;
mod trace;
mod activity;
mod recent;
mod metrics;
mod log;
mod services;

mod edge;
mod channel;
mod token;
mod cors;
mod account;
mod admin;
mod login;
mod sign_in;
mod page;
pub mod site;
mod health;
pub mod openapi;
pub mod asyncapi;
pub mod changelog;
pub mod keys;
pub mod retention;
pub mod timers;

pub use actions::Actions;
pub use activity::DeliveryFigures;
pub use edge::EdgeSecret;
pub use log::{AccessLog, Line};
pub use page::Figures;
pub use pipeline::{Api, Parts};

use model::Timestamp;
use model::id::Entropy;
use model::schema::RateLimit;
use std::time::Duration;

/// Clocks and randomness, which only the binary may read. Tests supply their own.
pub trait Outside: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
    /// Time since the start of the process; never goes backwards.
    fn uptime(&self) -> Duration;
    fn entropy(&self) -> Entropy;
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// `None` turns request limits off.
    pub rate_limit: Option<RateLimit>,
    /// Whether requests are logged.
    pub access_log: bool,
    /// Shared with proxies of the operator, which may read what each commit changed.
    pub edge_secret: Option<EdgeSecret>,
}
