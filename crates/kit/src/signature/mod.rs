//! Signatures of webhooks, in the forms that receivers know. One `whsec_` secret serves all:
//!
//! | form | header | signed text | key |
//! |---|---|---|---|
//! | timestamped (Stripe) | `t=<seconds>,v1=<hex>` | `<seconds>.<body>` | the secret as text |
//! | standard (Standard Webhooks, Svix) | `v1,<base64>` | `<id>.<seconds>.<body>` | its bytes |
//! | plain (GitHub) | `sha256=<hex>` | `<body>` | the secret as text |
//! | hex | `<hex>` | `<body>` | the secret as text |
//!
//! All are HMAC-SHA256. The last two have no time in them: an attacker who recorded a request can
//! send it again for ever, so they are for providers that have no other. Header names are the
//! caller's.

mod secret;
mod mac;
mod sign;
pub mod verify;
mod scheme;
mod diagnosis;

pub use self::diagnosis::{Diagnosis, MAX_DIAGNOSED_BYTES, SecretMistake, diagnose};
pub use self::scheme::{Family, Scheme, Verified, Verifier};
pub use self::secret::{Secret, SecretError};
pub use self::sign::Signer;
pub use self::verify::{Fault, Part, StandardHeaders};

#[cfg(test)]
mod diagnosis_tests;
#[cfg(test)]
mod tests;
