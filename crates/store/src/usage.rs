//! How often versions of the API, and what is deprecated about it, are used, as it is kept. What a
//! subject is called is up to whoever counts.

use model::Timestamp;

/// Accounts that `SubjectUse` names: metrics have a label for each.
pub const NAMED_ACCOUNTS: usize = 100;

/// Requests of one account that used one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    pub account: String,
    pub subject: String,
    pub requests: u64,
    /// When the last of them came.
    pub last: Timestamp,
}

/// All accounts together.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedInAll {
    /// When counting began.
    pub since: Timestamp,
    /// Those that were used at all.
    pub subjects: Vec<SubjectUse>,
}

/// What all accounts did with one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct SubjectUse {
    pub subject: String,
    pub requests: u64,
    /// How many accounts made them.
    pub accounts: u64,
    /// The accounts that used it last, each with its requests: `NAMED_ACCOUNTS` at most.
    pub latest: Vec<(String, u64)>,
}
