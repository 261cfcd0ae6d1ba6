//! How often versions of the API are used, as it is kept.

use model::Timestamp;

/// Requests of one account in one version.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    pub account: String,
    pub version: String,
    pub requests: u64,
    /// When the last of them came.
    pub last: Timestamp,
}

/// All accounts together.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedInAll {
    /// When counting began.
    pub since: Timestamp,
    /// Versions with their requests, and the number of accounts that made some.
    pub versions: Vec<(String, u64, u64)>,
}
