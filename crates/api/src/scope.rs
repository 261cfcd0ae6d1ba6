//! The scopes of restricted keys: which names there are beside the collections, and whether a
//! caller has the one that a request needs.

use model::caller::{Access, Caller};
use model::problem::{Code, Problem};

pub const ACCOUNT: &str = "account";
pub const VERSION_USAGE: &str = "version-usage";
pub const CHANNEL_TOKENS: &str = "channel-tokens";
pub const PRESENCE: &str = live::PRESENCE_SCOPE;

/// What a key may be allowed beside collections.
pub const BESIDE_COLLECTIONS: [&str; 4] = [CHANNEL_TOKENS, PRESENCE, ACCOUNT, VERSION_USAGE];

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
