//! Webhooks: what may be an endpoint. Pure judgement; looking up and sending is done elsewhere.

pub mod address;
pub mod url;

pub use address::Reach;
