//! The limits of credentials: the records and parents that they are for.

use crate::kind::{ONLINE, TYPING};
use model::schema::{Collection, Schema};
use model::webhook::pattern;
use std::fmt;

/// The longest id that a subscription or a message names.
pub const MAX_ID_BYTES: usize = 200;

/// Ids of a limit that a message names: enough to recognise it.
const SHOWN_IDS: usize = 3;

/// Records and parents that credentials are limited to: what is about one of the records, or about
/// a record below one of the parents, is permitted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    pub resources: Vec<String>,
    pub parents: Vec<String>,
}

impl Bounds {
    pub fn permits(&self, resource: &str, parent: Option<&str>) -> bool {
        self.resources.iter().any(|one| one == resource)
            || parent.is_some_and(|parent| self.parents.iter().any(|one| one == parent))
    }

    /// Whether an ephemeral message is about one of the records or parents.
    pub fn names(&self, about: Option<&str>) -> bool {
        about.is_some_and(|id| self.resources.iter().chain(&self.parents).any(|one| one == id))
    }
}

impl Bounds {
    /// Whether some event of the types that a pattern means can be about one of the records or
    /// below one of the parents. Only what is certain counts: an id with the prefix of another
    /// collection names no record of this one.
    pub fn allow(&self, schema: &Schema, pattern: &str) -> bool {
        match pattern {
            TYPING => return true,
            // Who is online is about no record.
            ONLINE => return false,
            _ => {}
        }
        // Types that applications publish may be about any record.
        let is_published = |kind: &str| pattern::matches(pattern, kind);
        if schema.events.published.iter().any(|kind| is_published(&kind.name)) {
            return true;
        }
        let means = |collection: &&Collection| {
            let live = collection.feed.as_ref().is_some_and(|feed| feed.live_name == pattern);
            live || pattern::kinds(collection).iter().any(|kind| pattern::matches(pattern, kind))
        };
        let mut meant = schema.collections.iter().filter(means).peekable();
        meant.peek().is_none() || meant.any(|collection| self.reach(schema, collection))
    }

    /// Whether one of the records, or of the records below the parents, can be of this collection.
    pub fn reach(&self, schema: &Schema, collection: &Collection) -> bool {
        let parent = collection.parent.map(|place| &schema.collections[place]);
        let below = |parent| self.parents.iter().any(|id| may_be_of(schema, parent, id));
        self.resources.iter().any(|id| may_be_of(schema, collection, id))
            || parent.is_some_and(below)
    }
}

/// Whether an id can be that of a record of this collection. Feeds count their records; the ids of
/// others begin with the collection's prefix.
fn may_be_of(schema: &Schema, collection: &Collection, id: &str) -> bool {
    if id.bytes().all(|byte| byte.is_ascii_digit()) {
        return collection.feed.is_some();
    }
    let prefix = id.rsplit_once('_').map_or("", |(prefix, _)| prefix);
    let has_prefix = |other: &&Collection| other.feed.is_none() && other.id_prefix == prefix;
    match schema.collections.iter().find(has_prefix) {
        Some(owner) => owner.name == collection.name,
        None => true,
    }
}

/// The limit as a message names it.
impl fmt::Display for Bounds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = "";
        for (what, ids) in [("resources", &self.resources), ("parents", &self.parents)] {
            if ids.is_empty() {
                continue;
            }
            let shown: Vec<&str> = ids.iter().map(String::as_str).take(SHOWN_IDS).collect();
            let more = if ids.len() > SHOWN_IDS { ", …" } else { "" };
            write!(formatter, "{lead}the {what} {}{more}", shown.join(", "))?;
            lead = " and ";
        }
        Ok(())
    }
}

impl fmt::Debug for Bounds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Bounds({:?}, {:?})", self.resources, self.parents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_no_bounded_record_can_have_is_not_allowed() {
        let schema = model::parse::parse(model::schema::BOOKSHOP).unwrap();
        let bounds = |resources: &[&str], parents: &[&str]| {
            let all = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            Bounds { resources: all(resources), parents: all(parents) }
        };
        let book = "book_01hzxk4vqjv6d1mtw0rkd5h8aa";
        for (resources, parents, pattern, expected) in [
            (&[book][..], &[][..], "book.created", true),
            (&[book], &[], "book.*", true),
            (&[book], &[], "order.created", false),
            (&[book], &[], "order.*", false),
            (&[book], &[], "*", true),
            (&[book], &[], "message", false),
            (&["17"], &[], "message", true),
            (&["17"], &[], "book.created", false),
            (&[book], &[], "online", false),
            (&[book], &[], "typing", true),
            // Reviews are below books, orders below nothing.
            (&[], &[book], "review.created", true),
            (&[], &[book], "order.created", false),
            (&[], &[book], "book.created", false),
            (&[], &["order_1"], "review.created", false),
            // An id that names no collection may be of any.
            (&["custom"], &[], "order.created", true),
            (&["old_1"], &[], "order.created", true),
        ] {
            let allowed = bounds(resources, parents).allow(&schema, pattern);
            assert_eq!(allowed, expected, "{resources:?} {parents:?} {pattern}");
        }
    }

    #[test]
    fn bounds_apply_to_records_or_to_children_of_parents() {
        let all = |texts: &[&str]| texts.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let bounds = Bounds { resources: all(&["r"]), parents: all(&["p"]) };
        assert!(bounds.permits("r", None) && bounds.permits("x", Some("p")));
        assert!(!bounds.permits("p", None) && !bounds.permits("x", Some("r")));
        assert!(bounds.names(Some("r")) && bounds.names(Some("p")));
        assert!(!bounds.names(None) && !bounds.names(Some("x")));
    }
}
