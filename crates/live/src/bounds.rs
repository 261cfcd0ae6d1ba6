//! What a subscription may ask for. One for which the credentials permit no event is refused:
//! silence would look like a service where nothing happens.

use crate::ask::TYPING;
use crate::interest::{Interest, Permit};
use crate::presence;
use model::problem::{Code, Problem};
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
    fn allow(&self, schema: &Schema, pattern: &str) -> bool {
        match pattern {
            TYPING => return true,
            // Who is online is about no record.
            presence::ONLINE => return false,
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
        meant.peek().is_none()
            || meant.any(|collection| {
                let parent = collection.parent.map(|place| &schema.collections[place]);
                let below = |parent| self.parents.iter().any(|id| may_be_of(schema, parent, id));
                self.resources.iter().any(|id| may_be_of(schema, collection, id))
                    || parent.is_some_and(below)
            })
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

/// Whether credentials may subscribe to this. `schema` is that of the version which is spoken;
/// `names` are the collections as scopes name them, in the same places.
pub fn check(
    permit: &Permit,
    schema: &Schema,
    names: &Schema,
    interest: &Interest,
) -> Result<(), Problem> {
    for one in interest.types.iter().filter(|one| *one != "*") {
        if !permit.types.is_empty() && !covered(permit, schema, one) {
            let known = permit.types.join(", ");
            let message = format!("These credentials do not permit `{one}`, only: {known}.");
            return Err(refused("types", message));
        }
        if let Some(bounds) = &permit.bounds
            && !bounds.allow(schema, one)
        {
            let message = format!(
                "These credentials are limited to {bounds}; no event of type `{one}` can be about \
                 one of these. Subscribe to another type, or use credentials without this limit."
            );
            return Err(refused("types", message));
        }
        if !readable(permit, schema, names, one) {
            return Err(refused("types", format!("These credentials may not read `{one}`.")));
        }
    }
    check_bounds(permit, interest)
}

fn check_bounds(permit: &Permit, interest: &Interest) -> Result<(), Problem> {
    let Some(bounds) = &permit.bounds else { return Ok(()) };
    let Interest { resource, parent, .. } = interest;
    let within = match (resource, parent) {
        (None, None) => true,
        (resource, parent) => {
            bounds.permits(resource.as_deref().unwrap_or_default(), parent.as_deref())
        }
    };
    if within {
        return Ok(());
    }
    let (name, id) = match (resource, parent) {
        (Some(id), _) => ("resource", id.as_str()),
        (None, id) => ("parent", id.as_deref().unwrap_or_default()),
    };
    let shown: String = id.chars().take(100).collect();
    let hint = match bounds.parents.is_empty() {
        false if name == "resource" => " Name the `parent` of the record as well.",
        _ => "",
    };
    let message = format!("These credentials are limited to other records than `{shown}`.{hint}");
    Err(refused(name, message))
}

/// Whether all that a pattern means is in the token. A feed's records go by two names.
fn covered(permit: &Permit, schema: &Schema, asked: &str) -> bool {
    let feeds = schema.collections.iter().filter_map(|c| Some((c.feed.as_ref()?, c)));
    let other = |(feed, collection): (&model::schema::Feed, &Collection)| {
        let (live, created) = (feed.live_name.clone(), collection.events.created.clone());
        if asked == live { Some(created) } else { (asked == created).then_some(live) }
    };
    let names: Vec<String> = feeds.filter_map(other).chain([asked.to_owned()]).collect();
    permit.types.iter().any(|allowed| names.iter().any(|name| covers(allowed, name)))
}

fn covers(allowed: &str, asked: &str) -> bool {
    match (allowed.strip_suffix('*'), asked.strip_suffix('*')) {
        (Some(head), Some(stem)) => stem.starts_with(head),
        (None, Some(_)) => false,
        (_, None) => pattern::matches(allowed, asked),
    }
}

/// Whether some of what a pattern means may be read.
fn readable(permit: &Permit, schema: &Schema, names: &Schema, asked: &str) -> bool {
    match asked {
        TYPING => !permit.reads_no_feed,
        presence::ONLINE => permit.bounds.is_none() && permit.may(presence::SCOPE),
        _ => {
            let object = asked.split(['.', '*']).next().unwrap_or_default();
            let meant = |c: &&Collection| {
                let live = c.feed.as_ref().is_some_and(|feed| feed.live_name == asked);
                live || c.object == object
            };
            let place = schema.collections.iter().position(|c| meant(&c));
            let name = place.and_then(|place| names.collections.get(place)).map(|c| &c.name);
            // What belongs to no collection, or to several, is decided event by event.
            name.is_none_or(|name| permit.may(name) || permit.may("events"))
        }
    }
}

fn refused(param: &str, message: String) -> Problem {
    Problem::new(Code::PermissionDenied, message).param(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_covered_by_what_means_all_of_it() {
        for (allowed, asked, expected) in [
            ("book.*", "book.created", true),
            ("book.*", "book.*", true),
            ("book.*", "book.c*", true),
            ("book.c*", "book.*", false),
            ("book.created", "book.*", false),
            ("*", "book.*", true),
            ("book.*", "bookmark.created", false),
            ("message", "message", true),
        ] {
            assert_eq!(covers(allowed, asked), expected, "{allowed} {asked}");
        }
    }

    #[test]
    fn a_type_that_no_bounded_record_can_have_is_not_allowed() {
        let schema = model::schema::parse::parse(model::schema::BOOKSHOP).unwrap();
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
    fn bounds_are_about_records_or_what_is_below_parents() {
        let all = |texts: &[&str]| texts.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let bounds = Bounds { resources: all(&["r"]), parents: all(&["p"]) };
        assert!(bounds.permits("r", None) && bounds.permits("x", Some("p")));
        assert!(!bounds.permits("p", None) && !bounds.permits("x", Some("r")));
        assert!(bounds.names(Some("r")) && bounds.names(Some("p")));
        assert!(!bounds.names(None) && !bounds.names(Some("x")));
    }
}
