//! Signatures of webhooks, in the three forms that receivers know. One `whsec_` secret serves all:
//!
//! | form | header | signed text | key |
//! |---|---|---|---|
//! | timestamped (Stripe) | `t=<seconds>,v1=<hex>` | `<seconds>.<body>` | the secret as text |
//! | standard (Standard Webhooks, Svix) | `v1,<base64>` | `<id>.<seconds>.<body>` | its bytes |
//! | plain (GitHub) | `sha256=<hex>` | `<body>` | the secret as text |
//!
//! All are HMAC-SHA256. The plain form has no time in it: an attacker who recorded a request can
//! send it again for ever, so it is for receivers that know no other. Header names are the
//! caller's.

mod secret;
mod mac;
mod sign;
pub mod verify;

pub use self::secret::{Secret, SecretError};
pub use self::sign::Signer;
pub use self::verify::{Fault, Part, StandardHeaders};

#[cfg(test)]
mod tests;
