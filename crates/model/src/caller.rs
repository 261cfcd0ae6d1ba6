//! Who is calling. A caller belongs to exactly one (account, mode); everything they may touch does
//! too.

use serde::{Deserialize, Serialize};

/// One (account, mode): the world a row, an event, a key or a cursor belongs to.
/// Account number and mode share one integer so that every index can lead with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Scope(pub i64);

impl Scope {
    /// Accounts themselves live here; no key ever has this scope.
    pub const SYSTEM: Scope = Scope(1);

    pub fn new(account_number: i64, livemode: bool) -> Scope {
        Scope(account_number * 2 + i64::from(livemode))
    }

    pub fn livemode(self) -> bool {
        self.0 & 1 == 1
    }

    pub fn account_number(self) -> i64 {
        self.0 >> 1
    }
}

/// An authenticated caller, as their key describes them.
#[derive(Clone, Debug)]
pub struct Caller {
    pub scope: Scope,
    pub account: String,
    pub key: String,
    /// `None`: a secret key, which may do everything in its scope.
    pub grants: Option<Vec<Grant>>,
    /// Requests per window for this key, where it differs from the service's.
    pub rate_limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// One scope of a restricted key, such as `books:read`, `orders:write`, `*:read`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// `None`: every collection.
    pub collection: Option<String>,
    pub access: Access,
}

impl Grant {
    /// Reads `<collection>:read|write`; `*` means every collection; write includes read.
    pub fn parse(text: &str) -> Option<Grant> {
        let (collection, access) = text.split_once(':')?;
        let access = match access {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => return None,
        };
        let named = match collection {
            "" => return None,
            "*" => None,
            name => Some(name.to_owned()),
        };
        Some(Grant { collection: named, access })
    }

    pub fn covers(&self, collection: &str, access: Access) -> bool {
        self.collection.as_deref().is_none_or(|name| name == collection)
            && (self.access == Access::Write || access == Access::Read)
    }
}

impl Caller {
    pub fn may(&self, collection: &str, access: Access) -> bool {
        match &self.grants {
            None => true,
            Some(grants) => grants.iter().any(|grant| grant.covers(collection, access)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(scopes: &[&str]) -> Caller {
        Caller {
            scope: Scope::new(3, false),
            account: "acct_x".into(),
            key: "key_x".into(),
            grants: Some(scopes.iter().map(|text| Grant::parse(text).unwrap()).collect()),
            rate_limit: None,
        }
    }

    #[test]
    fn a_scope_is_account_and_mode() {
        let scope = Scope::new(21, true);
        assert_eq!((scope.account_number(), scope.livemode()), (21, true));
        assert_ne!(scope, Scope::new(21, false));
    }

    #[test]
    fn restricted_keys_are_limited_to_their_scopes() {
        let reader = caller(&["books:read"]);
        assert!(reader.may("books", Access::Read));
        assert!(!reader.may("books", Access::Write));
        assert!(!reader.may("orders", Access::Read));
        let writer = caller(&["*:read", "orders:write"]);
        assert!(writer.may("orders", Access::Read) && writer.may("orders", Access::Write));
        assert!(writer.may("books", Access::Read) && !writer.may("books", Access::Write));
    }

    #[test]
    fn malformed_scopes_are_no_scopes() {
        for text in ["books", "books:", ":read", "books:admin", ""] {
            assert_eq!(Grant::parse(text), None, "{text}");
        }
    }
}
