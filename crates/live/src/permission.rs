//! What a subscription may ask for. One for which the credentials permit no event is refused:
//! silence would look like a service where nothing happens.

use crate::interest::{Interest, Permit};
use crate::kind::{ONLINE, TYPING};
use crate::presence;
use model::problem::{Code, Problem};
use model::schema::{Collection, Feed, Schema};
use model::webhook::pattern;

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
    check_not_empty(permit, schema, names, &interest.types)?;
    check_bounds(permit, interest)
}

/// Whether a new channel token permits some event.
pub fn check_token(permit: &Permit, schema: &Schema, names: &Schema) -> Result<(), Problem> {
    check_not_empty(permit, schema, names, &[])
}

/// Refuses if the credentials permit none of the events that were asked for.
fn check_not_empty(
    permit: &Permit,
    schema: &Schema,
    names: &Schema,
    types: &[String],
) -> Result<(), Problem> {
    let is_open = types.is_empty() || types.iter().any(|one| one == "*");
    let all = ["*".to_owned()];
    let asked = match (is_open, permit.types.is_empty()) {
        (false, _) => types,
        (true, false) => &permit.types,
        (true, true) => &all,
    };
    if asked.iter().any(|one| readable(permit, schema, names, one)) {
        return Ok(());
    }
    let message = "These credentials permit no event that was asked for, so none would ever \
                   arrive. Ask for other types, or use a key with the scope `<collection>:read` or \
                   `events:read`.";
    Err(refused("types", message.to_owned()))
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
    let other = |(feed, collection): (&Feed, &Collection)| {
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
    let typing = !permit.reads_no_feed;
    let online = permit.bounds.is_none() && permit.may(presence::SCOPE);
    match asked {
        TYPING => typing,
        ONLINE => online,
        "*" => typing || online || reads_events(permit, schema, names, asked),
        _ => reads_events(permit, schema, names, asked),
    }
}

/// Whether some event of the types that a pattern means may be read.
fn reads_events(permit: &Permit, schema: &Schema, names: &Schema, asked: &str) -> bool {
    let reads_log = permit.may("events");
    // Types that applications publish belong to the log, and may be about any record.
    let mut published = schema.events.published.iter();
    if reads_log && published.any(|kind| pattern::matches(asked, &kind.name)) {
        return true;
    }
    let object = asked.split(['.', '*']).next().unwrap_or_default();
    let means = |collection: &Collection| {
        let live = collection.feed.as_ref().is_some_and(|feed| feed.live_name == asked);
        let is_one = |kind: &&str| pattern::matches(asked, kind);
        live || collection.object == object
            // The service's own objects are not meant by `*`.
            || asked == "*" && collection.builtin.is_none()
            || pattern::kinds(collection).iter().any(is_one)
    };
    schema.collections.iter().zip(&names.collections).any(|(collection, named)| {
        !collection.internal
            && means(collection)
            && (reads_log || permit.may(&named.name))
            && permit.bounds.as_ref().is_none_or(|bounds| bounds.reach(schema, collection))
    })
}

fn refused(param: &str, message: String) -> Problem {
    Problem::new(Code::PermissionDenied, message).param(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_covered_by_a_wider_pattern() {
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
}
