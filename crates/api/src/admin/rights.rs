//! What a key may give to keys that it creates or changes, and what it may take from itself. No
//! key gives more than it has; only the operator gives more requests.

use super::Administration;
use crate::error::Failure;
use crate::key_status::covers;
use crate::keys::NewKey;
use model::Timestamp;
use model::caller::{ADMIN, Access, Grant};
use model::problem::{Code, Problem};
use model::record::Fields;
use serde_json::Value;

impl Administration<'_> {
    /// Whether the caller is the operator: an unrestricted admin key of the first account, without
    /// a limit of its own. Its keys have quotas of their own.
    pub(super) async fn is_unlimited(&self) -> Result<bool, Failure> {
        let caller = &self.identity.caller;
        let may_be = caller.grants.is_none() && caller.rate_limit.is_none();
        Ok(may_be && self.is_operator().await?)
    }

    /// A new key, if the caller may create it. It shares the caller's quota unless the operator
    /// makes it: twenty keys must not have twenty quotas.
    pub(super) async fn within_rights(&self, new: NewKey) -> Result<NewKey, Failure> {
        let is_unlimited = self.is_unlimited().await?;
        self.check_covered(&new, is_unlimited)?;
        let quota_of = (!is_unlimited).then(|| self.identity.quota_of.clone());
        Ok(NewKey { quota_of, ..new })
    }

    /// Refuses a key that may do more than the caller's key, or more requests than it. A restricted
    /// key also gives on no more time than it has.
    pub(super) fn check_covered(&self, new: &NewKey, is_unlimited: bool) -> Result<(), Problem> {
        let caller = &self.identity.caller;
        let denied = |param: &str, message: String| {
            Err(Problem::new(Code::PermissionDenied, message).param(param))
        };
        if !new.restricted && caller.grants.is_some() {
            let message = "A restricted key cannot give a key full access; name its scopes.";
            return denied("scopes", message.to_owned());
        }
        if new.admin && !caller.may(ADMIN, Access::Write) {
            return denied("admin", "This key lacks the scope `admin:write`.".to_owned());
        }
        let lacks = |text: &&String| Grant::parse(text).is_none_or(|grant| !caller.has(&grant));
        if let Some(scope) = new.scopes.iter().find(lacks) {
            let message = format!("This key lacks the scope `{scope}`, so it cannot give it on.");
            return denied("scopes", message);
        }
        // Only the operator sets a limit above the usual one.
        let usual = self.services.admission.limiter.usual().filter(|_| !is_unlimited);
        let exceeds = |own: &u32| new.rate_limit.is_none_or(|limit| limit > *own);
        let exceeds_usual = |usual: &u32| new.rate_limit.is_some_and(|limit| limit > *usual);
        let own = match caller.rate_limit {
            Some(own) => Some(own).filter(exceeds),
            None => usual.filter(exceeds_usual),
        };
        if let Some(own) = own {
            let message = format!("This key has a limit of {own} requests and gives on no more.");
            return denied("rate_limit", message);
        }
        match self.longer_than_own(new) {
            Some(own) if caller.grants.is_some() => {
                let own = own.to_iso();
                denied("expires_at", format!("This key expires at {own}; a new key must, too."))
            }
            _ => Ok(()),
        }
    }

    /// When the caller's key expires, if the other key would be valid for longer.
    fn longer_than_own(&self, new: &NewKey) -> Option<Timestamp> {
        let end = new.expires_at.as_deref().and_then(Timestamp::parse);
        self.identity.expires.filter(|own| end.is_none_or(|end| end > *own))
    }

    /// Checks a change of the caller's own key: it does not make itself valid for longer, and gives
    /// up rights or time only if the request says so.
    pub(super) fn check_own_change(
        &self,
        new: &NewKey,
        may_end_itself: bool,
    ) -> Result<(), Problem> {
        if let Some(own) = self.longer_than_own(new) {
            let own = own.to_iso();
            let message = format!("This key expires at {own} and cannot extend its own time.");
            return Err(Problem::new(Code::PermissionDenied, message).param("expires_at"));
        }
        let caller = &self.identity.caller;
        let scopes: Vec<Grant> =
            new.stored_scopes().iter().filter_map(|text| Grant::parse(text)).collect();
        let keeps_admin = caller.admin <= Grant::admin(&scopes);
        let grants = new.restricted.then_some(&*scopes);
        let end = new.expires_at.as_deref().and_then(Timestamp::parse);
        let keeps_time = end.is_none_or(|end| self.identity.expires.is_some_and(|own| end >= own));
        if may_end_itself || keeps_admin && keeps_time && covers(grants, caller.grants.as_deref()) {
            return Ok(());
        }
        let message = "This is the key of the request, and would lose rights or time. To change it \
                       nevertheless, send PATCH with ?self=true.";
        Err(Problem::new(Code::OwnAccess, message))
    }

    pub(super) fn check_not_itself(&self, id: &str, may_end_itself: bool) -> Result<(), Problem> {
        if id != self.identity.caller.key || may_end_itself {
            return Ok(());
        }
        let message = "This is the key of the request. To revoke it, send DELETE with ?self=true.";
        Err(Problem::new(Code::OwnAccess, message))
    }

    /// Whether the request says, by `self=true`, that its key may end its own access.
    pub(super) fn says_self(&self) -> Result<bool, Problem> {
        match self.pairs()?.as_slice() {
            [] => Ok(false),
            [(name, value)] if name == "self" && value == "true" => Ok(true),
            [(name, _)] if name == "self" => {
                let message = "`self` must be true or be left out.";
                Err(Problem::new(Code::InvalidParameter, message).param("self"))
            }
            [(name, _), ..] => Err(Problem::unknown_parameter(name, &["self"])),
        }
    }
}

/// Refuses to raise or take away the limit that the operator set for a key: a key with a quota of
/// its own, which only the operator makes.
pub(super) fn check_limit_of_operator(new: &NewKey, stored: &Fields) -> Result<(), Problem> {
    let limit = stored.get("rate_limit").and_then(Value::as_u64);
    let limit = limit.filter(|_| new.quota_of.is_none());
    let exceeds = |limit: &u64| new.rate_limit.is_none_or(|new| u64::from(new) > *limit);
    match limit.filter(exceeds) {
        None => Ok(()),
        Some(limit) => {
            let message = format!("The operator gave this key a limit of {limit} requests.");
            Err(Problem::new(Code::PermissionDenied, message).param("rate_limit"))
        }
    }
}
