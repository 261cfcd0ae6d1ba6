//! Deprecated versions, collections and fields: finds which of them a request uses (its version,
//! its collection and the parents of that, fields in its body or query), announces them in headers
//! (RFC 9745, RFC 8594) and lets them be counted. Built once; if nothing is deprecated, a request
//! costs one table lookup.

use crate::route;
use crate::usage::{Subject, SubjectKind};
use crate::version::Versioning;
use http::header::LINK;
use http::{HeaderName, HeaderValue};
use model::Timestamp;
use model::expand::{Expand, MAX_PATHS};
use model::record::Fields;
use model::schema::{CollectionIx, Deprecation, Schema};
use model::webhook::pattern;
use std::sync::Arc;

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");
/// Page about a deprecation if the schema names none.
const CHANGELOG: &str = "/changelog";

/// Everything that is deprecated.
pub struct Deprecations {
    versions: Vec<Option<Deprecation>>,
    /// By version, then by collection.
    collections: Vec<Vec<Option<Box<DeprecatedParts>>>>,
    /// By version; `None` if the version has no deprecated collection or field. Needed to follow
    /// the paths of `expand` to other collections.
    schemas: Vec<Option<Arc<Schema>>>,
}

/// The deprecated parts of a collection in a version.
struct DeprecatedParts {
    /// The collection itself and its parents: a path to it names them all.
    whole: Vec<Part>,
    fields: Vec<(String, Part)>,
    /// Event types and feed name of the collection, if the collection itself is deprecated.
    kinds: Vec<String>,
}

/// One deprecated version, collection or field.
pub struct Part {
    /// Index of its usage counter.
    pub place: usize,
    deprecation: Deprecation,
}

pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// Everything whose use is counted: every version, then every collection and field that any version
/// deprecates.
pub fn subjects(versions: &Versioning) -> Vec<Subject> {
    let schema = &versions.newest().schema;
    let version = |view: &Arc<model::version::View>| Subject {
        kind: SubjectKind::Version(view.date.clone()),
        deprecated: schema.versions.get(view.index).and_then(|one| one.deprecated.clone()),
    };
    let mut subjects: Vec<Subject> = versions.iter().map(version).collect();
    let mut add = |kind: SubjectKind, deprecated: &Option<Deprecation>| {
        if deprecated.is_some() && !subjects.iter().any(|one| one.kind == kind) {
            subjects.push(Subject { kind, deprecated: deprecated.clone() });
        }
    };
    let schemas = || versions.iter().flat_map(|view| view.schema.routed());
    for (_, collection) in schemas() {
        add(SubjectKind::Collection(collection.name.clone()), &collection.deprecated);
    }
    for (_, collection) in schemas() {
        for field in collection.fields.iter().filter(|field| !field.removed) {
            let (collection, name) = (collection.name.clone(), field.name.clone());
            add(SubjectKind::Field { collection, name }, &field.deprecated);
        }
    }
    subjects
}

impl Deprecations {
    pub fn new(versions: &Versioning, subjects: &[Subject]) -> Deprecations {
        let of_version = |place: usize| subjects.get(place).and_then(|one| one.deprecated.clone());
        let of_view = |view: &Arc<model::version::View>| -> Vec<_> {
            let all = 0..view.schema.collections.len();
            all.map(|collection| parts_of(&view.schema, collection, subjects)).collect()
        };
        let collections: Vec<Vec<Option<Box<DeprecatedParts>>>> =
            versions.iter().map(of_view).collect();
        let schemas = versions.iter().zip(&collections).map(|(view, all)| {
            let any = all.iter().any(Option::is_some);
            any.then(|| view.schema.clone())
        });
        Deprecations {
            versions: versions.iter().map(|view| of_version(view.index)).collect(),
            schemas: schemas.collect(),
            collections,
        }
    }

    /// The deprecated parts that a request to a collection uses.
    pub fn used(
        &self,
        version: usize,
        collection: CollectionIx,
        body: &[u8],
        query: &str,
    ) -> Vec<&Part> {
        let parts = self.find(version, collection);
        let mut used: Vec<&Part> = parts.into_iter().flat_map(|parts| &parts.whole).collect();
        let Some(schema) = self.schemas.get(version).and_then(Option::as_ref) else { return used };
        let fields = parts.map_or(&[][..], |parts| &parts.fields);
        if fields.is_empty() && query.is_empty() {
            return used;
        }
        let pairs = route::query_pairs(query).unwrap_or_default();
        if !fields.is_empty() {
            let sent: Fields = serde_json::from_slice(body).unwrap_or_default();
            let named = |name: &str| sent.contains_key(name) || asks_by(&pairs, name);
            used.extend(fields.iter().filter(|(name, _)| named(name)).map(|(_, part)| part));
        }
        for (at, name) in embedded(schema, collection, &pairs) {
            let Some(parts) = self.find(version, at) else { continue };
            used.extend(&parts.whole);
            let named = |(field, _): &&(String, Part)| Some(field) == name.as_ref();
            used.extend(parts.fields.iter().filter(named).map(|(_, part)| part));
        }
        // A request that names a part twice has used it once.
        used.sort_unstable_by_key(|part| part.place);
        used.dedup_by_key(|part| part.place);
        used
    }

    /// The deprecated parts that every request to a collection uses.
    pub fn about(&self, version: usize, collection: CollectionIx) -> Vec<&Part> {
        self.find(version, collection).into_iter().flat_map(|parts| &parts.whole).collect()
    }

    fn find(&self, version: usize, collection: CollectionIx) -> Option<&DeprecatedParts> {
        self.collections.get(version)?.get(collection)?.as_deref()
    }

    /// The deprecated collections that a subscription to these types uses. `*` uses none.
    pub fn subscribed(&self, version: usize, types: &[String]) -> Vec<&Part> {
        let named =
            |kind: &String| types.iter().any(|one| one != "*" && pattern::matches(one, kind));
        let all = self.collections.get(version).into_iter().flatten().flatten();
        let used = all.filter(|parts| parts.kinds.iter().any(named));
        used.flat_map(|parts| parts.whole.first()).collect()
    }

    /// The headers of a response in this version to a request that used these parts.
    pub fn headers(&self, version: usize, used: &[&Part]) -> Headers {
        let version = self.versions.get(version).and_then(Option::as_ref);
        if version.is_none() && used.is_empty() {
            return Headers::new();
        }
        let met: Vec<&Deprecation> =
            version.into_iter().chain(used.iter().map(|part| &part.deprecation)).collect();
        headers(&met)
    }
}

fn parts_of(
    schema: &Schema,
    at: CollectionIx,
    subjects: &[Subject],
) -> Option<Box<DeprecatedParts>> {
    // A version that lacks the collection cannot deprecate it.
    if schema.collections[at].removed {
        return None;
    }
    let part = |kind: SubjectKind, deprecated: &Option<Deprecation>| {
        let deprecation = deprecated.clone()?;
        let place = subjects.iter().position(|subject| subject.kind == kind)?;
        Some(Part { place, deprecation })
    };
    let collection = &schema.collections[at];
    let above = std::iter::successors(Some(at), |at| schema.collections[*at].parent);
    let whole: Vec<Part> = above
        .map(|at| &schema.collections[at])
        .filter_map(|one| part(SubjectKind::Collection(one.name.clone()), &one.deprecated))
        .collect();
    let known = collection.fields.iter().filter(|field| !field.removed);
    let field = |name: &String| SubjectKind::Field {
        collection: collection.name.clone(),
        name: name.clone(),
    };
    let fields: Vec<_> = known
        .filter_map(|one| Some((one.name.clone(), part(field(&one.name), &one.deprecated)?)))
        .collect();
    let kinds = match collection.deprecated {
        Some(_) => {
            let feed = collection.feed.iter().map(|feed| feed.live_name.as_str());
            pattern::kinds(collection).into_iter().chain(feed).map(str::to_owned).collect()
        }
        None => Vec::new(),
    };
    let nothing = whole.is_empty() && fields.is_empty();
    (!nothing).then(|| Box::new(DeprecatedParts { whole, fields, kinds }))
}

/// The collections whose records a query embeds, each with the field of it that the path names.
fn embedded(
    schema: &Schema,
    from: CollectionIx,
    pairs: &[(String, String)],
) -> Vec<(CollectionIx, Option<String>)> {
    let mut found = Vec::new();
    let expansions = pairs.iter().filter(|(name, _)| is_expansion(name));
    for path in expansions.flat_map(|(_, value)| value.split(',').take(MAX_PATHS)) {
        let path = path.strip_prefix("data.").unwrap_or(path);
        let mut tree = Expand::default();
        // The path may be refused later; what could be resolved counts.
        let _ = tree.add(schema, from, path);
        let mut level = &tree;
        let mut names = path.split('.').skip(1);
        while let Some(node) = level.nodes.first() {
            found.push((node.target.collection(), names.next().map(str::to_owned)));
            level = &node.inner;
        }
    }
    found
}

fn is_expansion(name: &str) -> bool {
    matches!(name, "include" | "expand" | "expand[]")
}

/// Whether a query filters, sorts, expands or selects by a field.
fn asks_by(pairs: &[(String, String)], field: &str) -> bool {
    pairs.iter().any(|(name, value)| match name.as_str() {
        name if is_expansion(name) || matches!(name, "sort" | "fields") => {
            let named = |part: &str| {
                let part = part.trim_start_matches('-');
                let part = part.strip_prefix("data.").unwrap_or(part);
                part.split('.').next() == Some(field)
            };
            value.split(',').any(named)
        }
        name => {
            let bound = name.strip_prefix("min_").or_else(|| name.strip_prefix("max_"));
            name == field || bound == Some(field)
        }
    })
}

/// The earliest of each date, because clients act on the earliest, and all links. A sunset must not
/// precede its deprecation (RFC 9745), so the earliest sunset also limits the deprecation date.
fn headers(met: &[&Deprecation]) -> Headers {
    let mut all = Headers::new();
    let since = met.iter().filter_map(|one| instant(one.since.as_deref()?)).min();
    let sunset = met.iter().filter_map(|one| instant(one.sunset.as_deref()?)).min();
    let since = since.map(|since| sunset.map_or(since, |sunset| since.min(sunset)));
    let mut push = |name: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            all.push((name, value));
        }
    };
    if let Some(since) = since {
        push(DEPRECATION, format!("@{}", since.seconds()));
    }
    if let Some(sunset) = sunset {
        push(SUNSET, sunset.to_http_date());
    }
    let mut links: Vec<&str> =
        met.iter().map(|one| one.link.as_deref().unwrap_or(CHANGELOG)).collect();
    links.sort_unstable();
    links.dedup();
    for link in links {
        push(LINK, format!("<{link}>; rel=\"deprecation\""));
    }
    all
}

/// Midnight of a date, in UTC.
fn instant(date: &str) -> Option<Timestamp> {
    Timestamp::parse(&format!("{date}T00:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deprecation(since: &str, sunset: &str, link: Option<&str>) -> Deprecation {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Deprecation { since: text(since), sunset: text(sunset), link: link.map(str::to_owned) }
    }

    #[test]
    fn headers_have_the_earliest_dates_and_every_link() {
        let first = deprecation("2026-11-01", "2027-11-01", Some("https://a.test/x"));
        let second = deprecation("2026-10-01", "", None);
        let shown = |met: &[&Deprecation]| -> Vec<String> {
            let one = |(name, value): &(HeaderName, HeaderValue)| {
                format!("{name}: {}", value.to_str().unwrap())
            };
            headers(met).iter().map(one).collect()
        };
        assert_eq!(
            shown(&[&first, &second]),
            [
                "deprecation: @1790812800",
                "sunset: Mon, 01 Nov 2027 00:00:00 GMT",
                "link: </changelog>; rel=\"deprecation\"",
                "link: <https://a.test/x>; rel=\"deprecation\"",
            ]
        );
        // One subject ends before another one is deprecated.
        let third = deprecation("", "2026-09-01", None);
        assert_eq!(
            shown(&[&second, &third])[..2],
            ["deprecation: @1788220800", "sunset: Tue, 01 Sep 2026 00:00:00 GMT"]
        );
        assert!(shown(&[]).is_empty());
    }

    #[test]
    fn filters_bounds_sorting_and_selection_use_a_field() {
        let pairs = |query: &str| route::query_pairs(query).unwrap();
        for query in [
            "price=3",
            "min_price=3",
            "max_price=3",
            "sort=-title,-price",
            "fields=id,price",
            "expand=price",
            "expand[]=data.price.x",
        ] {
            assert!(asks_by(&pairs(query), "price"), "{query}");
        }
        for query in ["", "q=price", "prices=3", "sort=prices", "fields=id"] {
            assert!(!asks_by(&pairs(query), "price"), "{query}");
        }
    }
}
