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
    /// Whether the key may read or change keys and accounts. No other grant includes it, and a
    /// secret key has it only if that is stored with the key.
    pub admin: Option<Access>,
    /// Requests per window for this key, where it differs from the service's.
    pub rate_limit: Option<u32>,
}

/// The scope for keys and accounts. `*` does not include it: a key that may write all records must
/// not be able to create keys.
pub const ADMIN: &str = "admin";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        self.collection.as_deref().map_or(collection != ADMIN, |name| name == collection)
            && self.access >= access
    }

    /// The access to keys and accounts that these scopes grant.
    pub fn admin<'a>(grants: impl IntoIterator<Item = &'a Grant>) -> Option<Access> {
        let named = |grant: &&Grant| grant.collection.as_deref() == Some(ADMIN);
        grants.into_iter().filter(named).map(|grant| grant.access).max()
    }
}

impl Caller {
    pub fn may(&self, collection: &str, access: Access) -> bool {
        match &self.grants {
            _ if collection == ADMIN => self.admin.is_some_and(|admin| admin >= access),
            None => true,
            Some(grants) => grants.iter().any(|grant| grant.covers(collection, access)),
        }
    }

    /// Whether the caller has everything that a grant gives.
    pub fn has(&self, grant: &Grant) -> bool {
        match (&grant.collection, &self.grants) {
            (Some(name), _) => self.may(name, grant.access),
            (None, None) => true,
            (None, Some(own)) => {
                own.iter().any(|own| own.collection.is_none() && own.access >= grant.access)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(scopes: &[&str]) -> Caller {
        let grants: Vec<Grant> = scopes.iter().map(|text| Grant::parse(text).unwrap()).collect();
        Caller {
            scope: Scope::new(3, false),
            account: "acct_x".into(),
            key: "key_x".into(),
            admin: Grant::admin(&grants),
            grants: Some(grants),
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
    fn no_scope_but_its_own_includes_keys_and_accounts() {
        let secret = Caller { grants: None, ..caller(&[]) };
        assert!(secret.may("books", Access::Write) && !secret.may(ADMIN, Access::Read));
        let all = caller(&["*:write"]);
        assert!(all.may("books", Access::Write) && !all.may(ADMIN, Access::Read));
        let admin = caller(&["admin:read"]);
        assert!(admin.may(ADMIN, Access::Read) && !admin.may(ADMIN, Access::Write));
        assert!(!admin.may("books", Access::Read));
        let secret = Caller { admin: Some(Access::Write), ..secret };
        assert!(secret.may(ADMIN, Access::Write));
    }

    #[test]
    fn a_key_has_only_grants_that_it_covers_completely() {
        let has = |scopes: &[&str], grant: &str| caller(scopes).has(&Grant::parse(grant).unwrap());
        assert!(has(&["*:write"], "*:read") && has(&["*:read"], "books:read"));
        assert!(has(&["books:write", "admin:write"], "admin:read"));
        assert!(!has(&["books:write", "orders:write"], "*:read"));
        assert!(!has(&["*:read"], "books:write") && !has(&["*:write"], "admin:read"));
        let secret = Caller { grants: None, ..caller(&[]) };
        assert!(secret.has(&Grant::parse("*:write").unwrap()));
        assert!(!secret.has(&Grant::parse("admin:read").unwrap()));
    }

    #[test]
    fn malformed_scopes_are_no_scopes() {
        for text in ["books", "books:", ":read", "books:admin", ""] {
            assert_eq!(Grant::parse(text), None, "{text}");
        }
    }
}
