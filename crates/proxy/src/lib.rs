//! The reverse proxy. Knows HTTP and its own configuration; knows no store and no schema.
//!
//! The way of a request: `route` (site and route) → `limit` → `cache` → `balance` (a server) →
//! `forward` (headers, upstream call, response) → `fanout` (event streams that clients share).
//! Files and redirects end at `files` and here. `health` and `checks` say which servers get
//! requests; `feeds` and `follow` say which stored responses are still what a server would send.

mod error;
mod metrics;
pub mod config;

mod health;
mod fanout;
mod follow;
mod balance;
mod checks;
mod feeds;
mod compress;
mod cors;
mod files;
mod last_hop;
mod limit;
mod route;

mod forward;
mod cache;
mod record;
mod explain;
mod pipeline;

pub use config::{Config, ConfigError};
pub use explain::explain;
pub use pipeline::{Proxy, Settings};
pub use record::{Line, Outside};
