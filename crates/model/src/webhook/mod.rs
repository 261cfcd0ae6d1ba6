//! Webhooks, as far as they need no network: which events there are, which an endpoint wants, what
//! it may be, and which addresses nobody may be sent to.

pub mod address;
pub mod catalogue;
pub mod endpoint;
pub mod filter;
pub mod pattern;
pub mod url;

pub use address::Reach;
pub use endpoint::Endpoint;
