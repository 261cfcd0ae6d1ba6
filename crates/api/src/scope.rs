//! The scopes of restricted keys: the scope names that are not collections, and the check that a
//! caller has the scope that a request needs.

use model::caller::{ADMIN, Access, Caller};
use model::problem::{Code, Problem};

pub const ACCOUNT: &str = "account";
pub const VERSION_USAGE: &str = "version-usage";
pub const CHANNEL_TOKENS: &str = "channel-tokens";
pub const REQUESTS: &str = "requests";
pub const STATS: &str = "stats";
pub const PRESENCE: &str = live::PRESENCE_SCOPE;

/// Scope names that are not collections.
pub const OTHER_SCOPES: [&str; 7] =
    [CHANNEL_TOKENS, PRESENCE, ACCOUNT, VERSION_USAGE, REQUESTS, STATS, ADMIN];

/// Refuses a caller whose key lacks the scope.
pub fn check(caller: &Caller, name: &str, access: Access) -> Result<(), Problem> {
    if caller.may(name, access) {
        return Ok(());
    }
    let needed = match access {
        Access::Read => "read",
        Access::Write => "write",
    };
    let message = format!("This key lacks the scope `{name}:{needed}`.");
    Err(Problem::new(Code::PermissionDenied, message))
}
