//! Headers that tell of what shall not be used any more (RFC 9745, RFC 8594): the version of the
//! request, its collection, fields that it sends or asks by. Put together once; a request that
//! meets nothing deprecated costs one look at a table.

use crate::route;
use crate::version::Versioning;
use http::header::LINK;
use http::{HeaderName, HeaderValue};
use model::Timestamp;
use model::record::Fields;
use model::schema::{Collection, CollectionIx, Deprecation};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");
/// Where it is explained when the schema names no page.
const CHANGELOG: &str = "/changelog";

/// What is told, by version and collection.
pub struct Notices(Vec<Vec<Option<Box<Notice>>>>);

/// What is deprecated about a collection in a version.
struct Notice {
    /// Of the version and of the collection.
    always: Vec<Deprecation>,
    fields: Vec<(String, Deprecation)>,
}

pub type Headers = Vec<(HeaderName, HeaderValue)>;

impl Notices {
    pub fn new(versions: &Versioning) -> Notices {
        let schema = &versions.newest().schema;
        let of_view = |view: &std::sync::Arc<model::version::View>| {
            let version = schema.versions.get(view.index).and_then(|v| v.deprecated.clone());
            let collections = view.schema.collections.iter();
            collections.map(|collection| notice(version.clone(), collection)).collect()
        };
        Notices(versions.iter().map(of_view).collect())
    }

    /// The headers of an answer.
    pub fn of(
        &self,
        version: usize,
        collection: CollectionIx,
        body: &[u8],
        query: &str,
    ) -> Headers {
        let found = self.0.get(version).and_then(|all| all.get(collection)?.as_deref());
        let Some(notice) = found else { return Headers::new() };
        let mut met: Vec<&Deprecation> = notice.always.iter().collect();
        if !notice.fields.is_empty() {
            let sent: Fields = serde_json::from_slice(body).unwrap_or_default();
            let pairs = route::query_pairs(query).unwrap_or_default();
            let used = |name: &str| sent.contains_key(name) || asks_by(&pairs, name);
            let fields = notice.fields.iter().filter(|(name, _)| used(name));
            met.extend(fields.map(|(_, deprecation)| deprecation));
        }
        headers(&met)
    }
}

fn notice(version: Option<Deprecation>, collection: &Collection) -> Option<Box<Notice>> {
    let always: Vec<_> = version.into_iter().chain(collection.deprecated.clone()).collect();
    let known = collection.fields.iter().filter(|field| !field.removed);
    let fields: Vec<_> =
        known.filter_map(|field| Some((field.name.clone(), field.deprecated.clone()?))).collect();
    let silent = always.is_empty() && fields.is_empty();
    (!silent).then(|| Box::new(Notice { always, fields }))
}

/// Whether a query filters, sorts, expands or chooses by a field.
fn asks_by(pairs: &[(String, String)], field: &str) -> bool {
    pairs.iter().any(|(name, value)| match name.as_str() {
        "sort" | "fields" | "include" | "expand" | "expand[]" => {
            let named = |part: &str| {
                let part = part.trim_start_matches('-');
                let part = part.strip_prefix("data.").unwrap_or(part);
                part.split('.').next() == Some(field)
            };
            value.split(',').any(named)
        }
        name => [name, name.trim_start_matches("min_"), name.trim_start_matches("max_")]
            .contains(&field),
    })
}

/// One date each, the earliest: a client heeds it, whatever the others say. All links.
fn headers(met: &[&Deprecation]) -> Headers {
    let mut all = Headers::new();
    let since = met.iter().filter_map(|one| instant(one.since.as_deref()?)).min();
    let sunset = met.iter().filter_map(|one| instant(one.sunset.as_deref()?)).min();
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

/// The beginning of a day.
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
    fn the_earliest_dates_and_every_link_are_told() {
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
        assert!(shown(&[]).is_empty());
    }

    #[test]
    fn a_field_is_used_by_filters_bounds_order_and_choice() {
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
