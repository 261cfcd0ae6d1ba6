//! Which events a connection receives: what its credentials permit, and what it asked for.

use crate::bounds::Bounds;
use crate::entry::{Entry, Ephemeral};
use crate::index;
use crate::kind::Kind;
use crate::presence;
use model::Scope;
use model::caller::{Access, Grant};
use model::webhook::pattern;
use std::sync::{Arc, OnceLock};

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

/// What credentials permit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// Of a restricted key; `None`: everything.
    pub grants: Option<Vec<Grant>>,
    /// Of a channel token; empty: every type.
    pub types: Vec<String>,
    /// No feed may be read, so who is typing into one is not shown.
    pub reads_no_feed: bool,
    /// Of a channel token: the records it is for; `None`: all. Shared, since every connection has
    /// it twice.
    pub bounds: Option<Arc<Bounds>>,
}

/// Everything a connection is to receive.
#[derive(Debug)]
pub struct Interests {
    pub scope: Scope,
    pub permit: Permit,
    /// Index of the version in which events are sent; the newest is at 0.
    pub version: usize,
    /// Each with the place from which on it counts: a client that subscribes to more and goes back
    /// in the log for it does not receive the rest again.
    pub wanted: Vec<(Interest, i64)>,
    keys: OnceLock<Box<[u64]>>,
}

impl Interest {
    fn wants(&self, entry: &Entry) -> bool {
        (self.types.is_empty() && entry.is_for_all
            || self.types.iter().any(|pattern| names(pattern, entry)))
            && self.resource.as_ref().is_none_or(|id| *id == entry.event.record)
            && self.parent.as_deref().is_none_or(|id| entry.parent() == Some(id))
    }

    fn wants_ephemeral(&self, kind: Kind) -> bool {
        let named = |pattern: &String| pattern::matches(pattern, kind.name());
        self.types.is_empty() || self.types.iter().any(named)
    }
}

/// A feed's record goes by its live name and by its event type.
fn names(pattern: &str, entry: &Entry) -> bool {
    pattern::matches(pattern, &entry.event.kind) || pattern::matches(pattern, entry.name())
}

impl Permit {
    fn permits(&self, entry: &Entry) -> bool {
        // The usual case: nothing is restricted.
        let unrestricted = self.grants.is_none() && self.types.is_empty();
        (unrestricted || self.reads(&entry.event.collection, &[&entry.event.kind, entry.name()]))
            && self
                .bounds
                .as_ref()
                .is_none_or(|bounds| bounds.permits(&entry.event.record, entry.parent()))
    }

    /// Whether events with these names are permitted. Credentials that may read the log may read
    /// all of it, others what they may read as a record.
    pub fn reads(&self, collection: &str, names: &[&str]) -> bool {
        let named = |pattern: &String| names.iter().any(|name| pattern::matches(pattern, name));
        (self.types.is_empty() || self.types.iter().any(named))
            && (self.may(collection) || self.may("events"))
    }

    fn permits_ephemeral(&self, kind: Kind) -> bool {
        let named = |pattern: &String| pattern::matches(pattern, kind.name());
        (self.types.is_empty() || self.types.iter().any(named))
            && match kind {
                // Who is online is about no record.
                Kind::Online => self.bounds.is_none() && self.may(presence::SCOPE),
                Kind::Typing => !self.reads_no_feed,
            }
    }

    /// Whether an ephemeral message about this record may be received, or sent.
    pub fn permits_about(&self, about: Option<&str>) -> bool {
        self.bounds.as_ref().is_none_or(|bounds| bounds.names(about))
    }

    pub fn may(&self, collection: &str) -> bool {
        match &self.grants {
            None => true,
            Some(grants) => grants.iter().any(|grant| grant.covers(collection, Access::Read)),
        }
    }
}

impl Interests {
    pub fn new(
        scope: Scope,
        permit: Permit,
        version: usize,
        wanted: Vec<(Interest, i64)>,
    ) -> Interests {
        Interests { scope, permit, version, wanted, keys: OnceLock::new() }
    }

    pub fn wants(&self, entry: &Entry) -> bool {
        #[cfg(test)]
        tests::TESTED.set(tests::TESTED.get() + 1);
        entry.event.scope == self.scope
            && entry.is_visible_in(self.version)
            && self.permit.permits(entry)
            && self.wanted.iter().any(|(one, from)| entry.event.seq > *from && one.wants(entry))
    }

    /// Whether ephemeral messages of a kind are wanted.
    pub fn wants_ephemeral(&self, kind: Kind) -> bool {
        self.permit.permits_ephemeral(kind)
            && self.wanted.iter().any(|(one, _)| one.wants_ephemeral(kind))
    }

    /// Whether one of them may be received.
    pub fn may_receive(&self, ephemeral: &Ephemeral) -> bool {
        self.permit.permits_about(ephemeral.about.as_deref())
    }

    /// Whether some of it is wanted by the parent of a record.
    pub fn name_parents(&self) -> bool {
        self.wanted.iter().any(|(one, _)| one.parent.is_some())
    }

    /// Under what a connection with these interests is found.
    pub fn keys(&self) -> &[u64] {
        self.keys.get_or_init(|| index::keys_of_interests(self))
    }

    pub fn is_same(&self, other: &Interests) -> bool {
        let Interests { scope, permit, version, wanted, keys: _ } = self;
        *scope == other.scope
            && *version == other.version
            && *wanted == other.wanted
            && *permit == other.permit
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// How often an event was tested against interests.
        pub static TESTED: Cell<u64> = const { Cell::new(0) };
    }

    fn hears(scopes: Option<&[&str]>, types: &[&str], name: &str) -> bool {
        let kind = Kind::of(name).unwrap();
        let grants = scopes.map(|all| all.iter().filter_map(|one| Grant::parse(one)).collect());
        let types = types.iter().map(|one| (*one).to_owned()).collect();
        Permit { grants, types, ..Permit::default() }.permits_ephemeral(kind)
    }

    #[test]
    fn presence_is_sent_only_to_credentials_that_may_read_it() {
        assert!(hears(None, &[], "online"));
        assert!(hears(None, &["online"], "online"));
        assert!(!hears(None, &["message"], "online"));
        assert!(hears(Some(&["presence:read"]), &[], "online"));
        assert!(hears(Some(&["*:read"]), &[], "online"));
        assert!(!hears(Some(&["books:read"]), &[], "online"));
        assert!(hears(Some(&["messages:read"]), &[], "typing"));
    }
}
