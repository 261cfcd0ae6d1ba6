//! Who is told of what: what a connection's credentials allow, and what it asked for.

use crate::ask::TYPING;
use crate::entry::{Entry, Passing};
use crate::presence;
use model::Scope;
use model::caller::{Access, Grant};
use model::webhook::pattern;

/// One subscription. Everything left open means all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Patterns of event types, or names of feeds.
    pub types: Vec<String>,
    /// The record an event is about.
    pub resource: Option<String>,
    /// The parent of the record.
    pub parent: Option<String>,
}

/// What credentials let through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// Of a restricted key; `None`: everything.
    pub grants: Option<Vec<Grant>>,
    /// Of a channel token; empty: every type.
    pub types: Vec<String>,
    /// No feed may be read: who is about to write into one is none of their business.
    pub deaf: bool,
}

/// Everything a connection is to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Interests {
    pub scope: Scope,
    pub permit: Permit,
    /// Place of the version in which it is told; the newest is at 0.
    pub version: usize,
    /// Each with the place from which on it counts: who subscribes to more and goes back in the log
    /// for it is not told the rest again.
    pub wanted: Vec<(Interest, i64)>,
}

impl Interest {
    fn wants(&self, entry: &Entry) -> bool {
        (self.types.is_empty() && entry.is_for_all
            || self.types.iter().any(|pattern| names(pattern, entry)))
            && self.resource.as_ref().is_none_or(|id| *id == entry.event.record)
            && self.parent.as_deref().is_none_or(|id| entry.parent() == Some(id))
    }

    fn wants_passing(&self, name: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|pattern| pattern::matches(pattern, name))
    }
}

/// A feed's record goes by its live name and by its event type.
fn names(pattern: &str, entry: &Entry) -> bool {
    pattern::matches(pattern, &entry.event.kind) || pattern::matches(pattern, entry.name())
}

impl Permit {
    fn lets(&self, entry: &Entry) -> bool {
        // The usual case: nothing is restricted.
        self.grants.is_none() && self.types.is_empty()
            || self.reads(&entry.event.collection, &[&entry.event.kind, entry.name()])
    }

    /// Whether what goes by these names may be told. Who may read the log may read all of it,
    /// others what they may read as a record.
    pub fn reads(&self, collection: &str, names: &[&str]) -> bool {
        let named = |pattern: &String| names.iter().any(|name| pattern::matches(pattern, name));
        (self.types.is_empty() || self.types.iter().any(named))
            && (self.may(collection) || self.may("events"))
    }

    fn lets_passing(&self, name: &str) -> bool {
        let named = |pattern: &String| pattern::matches(pattern, name);
        (self.types.is_empty() || self.types.iter().any(named))
            && match name {
                presence::ONLINE => self.may(presence::SCOPE),
                TYPING => !self.deaf,
                _ => true,
            }
    }

    fn may(&self, collection: &str) -> bool {
        match &self.grants {
            None => true,
            Some(grants) => grants.iter().any(|grant| grant.covers(collection, Access::Read)),
        }
    }
}

impl Interests {
    pub fn wants(&self, entry: &Entry) -> bool {
        entry.event.scope == self.scope
            && entry.is_told_in(self.version)
            && self.permit.lets(entry)
            && self.wanted.iter().any(|(one, from)| entry.event.seq > *from && one.wants(entry))
    }

    pub fn wants_passing(&self, passing: &Passing) -> bool {
        passing.scope == self.scope
            && self.permit.lets_passing(passing.name)
            && self.wanted.iter().any(|(one, _)| one.wants_passing(passing.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hears(scopes: Option<&[&str]>, types: &[&str], name: &str) -> bool {
        let grants = scopes.map(|all| all.iter().filter_map(|one| Grant::parse(one)).collect());
        let types = types.iter().map(|one| (*one).to_owned()).collect();
        Permit { grants, types, deaf: false }.lets_passing(name)
    }

    #[test]
    fn who_comes_and_goes_is_told_to_those_who_may_see_who_is_there() {
        assert!(hears(None, &[], "online"));
        assert!(hears(None, &["online"], "online"));
        assert!(!hears(None, &["message"], "online"));
        assert!(hears(Some(&["presence:read"]), &[], "online"));
        assert!(hears(Some(&["*:read"]), &[], "online"));
        assert!(!hears(Some(&["books:read"]), &[], "online"));
        assert!(hears(Some(&["messages:read"]), &[], "typing"));
    }
}
