//! How often versions and deprecated parts of the API are used, as it is stored. The counting side
//! names the subjects.

use model::Timestamp;

/// Accounts that `SubjectUse` names: metrics have a label for each.
pub const NAMED_ACCOUNTS: usize = 100;

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
