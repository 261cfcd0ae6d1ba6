//! How often versions and deprecated parts of the API are used, as it is stored. The counting side
//! names the subjects.

use model::Timestamp;

/// Accounts that `SubjectUse` names: metrics have a label for each.
pub const NAMED_ACCOUNTS: usize = 100;

/// Keys of one account whose last use is stored: those that were used last. It is more than an
/// account can have at a time; of revoked keys there can be any number.
pub const KEPT_KEYS: usize = 4_000;

/// What the last uses of keys are stored under, each before the id. No collection is named `keys`.
pub const KEY_SUBJECT: &str = "keys.";

/// Requests of one account that used one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    pub account: String,
    pub subject: String,
    pub requests: u64,
    /// Time of the last request.
    pub last: Timestamp,
}

/// All accounts together.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedInAll {
    /// When counting began.
    pub since: Timestamp,
    /// Only subjects that were used.
    pub subjects: Vec<SubjectUse>,
}

/// Requests of all accounts that used one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct SubjectUse {
    pub subject: String,
    pub requests: u64,
    /// Number of accounts that made these requests.
    pub accounts: u64,
    /// The accounts that used it last, each with its requests: `NAMED_ACCOUNTS` at most.
    pub latest: Vec<(String, u64)>,
}
