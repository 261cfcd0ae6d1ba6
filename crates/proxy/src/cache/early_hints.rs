//! Early hints that the proxy has learned. `Link` fields of a response that tell a browser what the
//! page needs are sent in a 103 to the next client of the same URL, while the backend still works
//! on the response. What is learned from one client reaches others, so it is learned only from
//! responses that are for everybody.

use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{AUTHORIZATION, COOKIE, LINK, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use wire::{Hints, Response};

use super::control::Directives;
use super::key::Key;
use crate::forward::Links;

/// The memory for what is learned. 4 MiB: some 10,000 pages.
const LEARNED_BYTES: u64 = 4 << 20;
/// About how many pages that is.
const LEARNED_PAGES: usize = 8 * 1024;
/// Links of one page. 16: a browser fetches no more at a time, and each costs bytes in every 103.
const MAX_LINKS: usize = 16;
/// The same in bytes. 4 KiB: three packets before the response are enough.
const MAX_LINKS_BYTES: usize = 4 * 1024;
/// What an entry costs in addition to its texts.
const ENTRY_BYTES: u64 = 128;
/// Relations that a browser can act on before it has the page.
const RELATIONS: [&str; 3] = ["preload", "preconnect", "modulepreload"];

pub(crate) struct EarlyHints {
    learned: Cache<Key, Links, Weight>,
    /// Something was learned: most proxies never look for a key.
    is_used: AtomicBool,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Links> for Weight {
    fn weight(&self, key: &Key, links: &Links) -> u64 {
        let bytes: usize = links.iter().map(HeaderValue::len).sum();
        (key.weight_bytes() + bytes) as u64 + ENTRY_BYTES
    }
}

/// A request whose response can teach something.
pub(crate) struct Lesson {
    key: Key,
    /// The request has a credential: its response may be for one user.
    is_personal: bool,
}

impl EarlyHints {
    pub(crate) fn new() -> EarlyHints {
        EarlyHints {
            learned: Cache::with_weighter(LEARNED_PAGES, LEARNED_BYTES, Weight),
            is_used: AtomicBool::new(false),
        }
    }

    /// The links that clients of this URL get, if hints reach this one.
    pub(crate) fn links(&self, key: &Key, hints: &Hints) -> Option<Links> {
        let is_asked = hints.wanted() && self.is_used.load(Ordering::Relaxed);
        if is_asked { self.learned.get(key) } else { None }
    }

    /// Learns from the response to a request, or forgets what is no longer true.
    pub(crate) fn learn(&self, lesson: Lesson, response: &Response) {
        let Lesson { key, is_personal } = lesson;
        if response.status != StatusCode::OK {
            return;
        }
        let is_shared = is_shared(&response.headers, is_personal);
        let links = if is_shared { links(&response.headers) } else { Vec::new() };
        if !links.is_empty() {
            self.is_used.store(true, Ordering::Relaxed);
            if self.learned.get(&key).is_none_or(|known| *known != *links) {
                self.learned.insert(key, links.into());
            }
        } else if (is_shared || !is_personal) && self.is_used.load(Ordering::Relaxed) {
            self.learned.remove(&key);
        }
    }
}

impl Lesson {
    pub(crate) fn of(key: &Key, headers: &HeaderMap, has_certificate: bool) -> Lesson {
        let is_personal =
            has_certificate || headers.contains_key(AUTHORIZATION) || headers.contains_key(COOKIE);
        Lesson { key: key.clone(), is_personal }
    }
}

/// Whether the fields of a response are for everybody who asks for its URL.
fn is_shared(headers: &HeaderMap, is_personal: bool) -> bool {
    if headers.contains_key(SET_COOKIE) {
        return false;
    }
    let control = Directives::of_response(headers);
    let is_private = control.no_store || control.private || control.private_fields.contains(&LINK);
    let is_public = control.public || control.s_maxage.is_some();
    let varies = headers.get_all(VARY).iter().any(|value| {
        let names = value.to_str().unwrap_or("*").split(',').map(str::trim);
        // These change the form of a page and not what it needs.
        let is_form = |name: &str| {
            name.eq_ignore_ascii_case("accept-encoding") || name.eq_ignore_ascii_case("origin")
        };
        names.into_iter().any(|name| !name.is_empty() && !is_form(name))
    });
    !is_private && !varies && (is_public || !is_personal)
}

/// The links of a response that a browser can use early, within their limits.
fn links(headers: &HeaderMap) -> Vec<HeaderValue> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for value in headers.get_all(LINK) {
        let Ok(text) = value.to_str() else { continue };
        for link in split(text).filter(|link| is_early(link)) {
            bytes += link.len();
            if found.len() == MAX_LINKS || bytes > MAX_LINKS_BYTES {
                return found;
            }
            found.extend(HeaderValue::from_str(link));
        }
    }
    found
}

/// The links of a `Link` field (RFC 8288 3): commas in `<…>` and in quotes separate nothing.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut in_target, mut in_quotes, mut is_escaped) = (false, false, false);
    let parts = text.split(move |letter: char| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match letter {
            '\\' if in_quotes => is_escaped = true,
            '"' if !in_target => in_quotes = !in_quotes,
            '<' if !in_quotes => in_target = true,
            '>' if !in_quotes => in_target = false,
            ',' => return !in_target && !in_quotes,
            _ => {}
        }
        false
    });
    parts.map(str::trim)
}

/// Whether a link has a relation that a browser can act on early.
fn is_early(link: &str) -> bool {
    let Some((target, parameters)) = link.split_once('>') else { return false };
    if !target.starts_with('<') {
        return false;
    }
    let mut parameters = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    // The first `rel` counts (RFC 8288 3.3).
    let rel = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("rel"));
    let relations = rel.map_or("", |(_, value)| value.trim().trim_matches('"'));
    relations
        .split_ascii_whitespace()
        .any(|relation| RELATIONS.iter().any(|known| relation.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Origin;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_links_that_a_browser_uses_early_are_taken() {
        for (value, expected) in [
            ("</a.css>; rel=preload; as=style", &["</a.css>; rel=preload; as=style"][..]),
            ("</a>; rel=\"next preload\"", &["</a>; rel=\"next preload\""]),
            ("<https://b>; rel=preconnect, </c>; rel=next", &["<https://b>; rel=preconnect"]),
            ("</a,b>; rel=preload", &["</a,b>; rel=preload"]),
            ("</a>; title=\"x, y\"; rel=preload", &["</a>; title=\"x, y\"; rel=preload"]),
            ("</a>; title=\"\\\"\"; REL=Preload", &["</a>; title=\"\\\"\"; REL=Preload"]),
            ("</m.js>; rel=modulepreload", &["</m.js>; rel=modulepreload"]),
            ("</a>; rel=stylesheet", &[]),
            ("</a>; rel=next; rel=preload", &[]),
            ("/a; rel=preload", &[]),
            ("</a; rel=preload", &[]),
            ("", &[]),
        ] {
            assert_eq!(links(&headers(&[("link", value)])), expected, "{value}");
        }
    }

    #[test]
    fn links_of_one_page_are_bounded() {
        let mut many = HeaderMap::new();
        for number in 0..100 {
            let value = format!("</{number}>; rel=preload");
            many.append(LINK, HeaderValue::from_str(&value).unwrap());
        }
        assert_eq!(links(&many).len(), MAX_LINKS);
        let long = format!("</{}>; rel=preload", "a".repeat(3000));
        let long = [long.as_str(), &long].join(", ");
        let long = HeaderMap::from_iter([(LINK, HeaderValue::from_str(&long).unwrap())]);
        assert_eq!(links(&long).len(), 1);
    }

    #[test]
    fn nothing_is_learned_from_a_response_for_one_client() {
        for (fields, is_personal, expected) in [
            (&[][..], false, true),
            (&[("cache-control", "no-cache")], false, true),
            (&[("vary", "Accept-Encoding, Origin")], false, true),
            (&[("cache-control", "private")], false, false),
            (&[("cache-control", "private=\"link\"")], false, false),
            (&[("cache-control", "no-store")], false, false),
            (&[("cache-control", "max-age=\"")], false, false),
            (&[("set-cookie", "a=b")], false, false),
            (&[("vary", "cookie")], false, false),
            (&[("vary", "*")], false, false),
            (&[("vary", "user-agent")], false, false),
            (&[], true, false),
            (&[("cache-control", "max-age=60")], true, false),
            (&[("cache-control", "public")], true, true),
            (&[("cache-control", "s-maxage=60")], true, true),
            (&[("cache-control", "s-maxage=60"), ("set-cookie", "a=b")], true, false),
        ] {
            assert_eq!(is_shared(&headers(fields), is_personal), expected, "{fields:?}");
        }
    }

    #[test]
    fn what_is_learned_is_bounded_and_forgotten_when_it_is_no_longer_true() {
        let all = EarlyHints::new();
        let response = |fields| Response {
            headers: headers(fields),
            status: StatusCode::OK,
            ..Response::default()
        };
        let linked = response(&[("link", "</a.css>; rel=preload")]);
        let key = |number: usize| Origin::new(false, "a").key(0, &format!("/{number}"));
        let lesson = |number, is_personal| Lesson { key: key(number), is_personal };
        for number in 0..100_000 {
            all.learn(lesson(number, false), &linked);
        }
        assert!(all.learned.weight() <= LEARNED_BYTES);
        let known = |number| all.learned.get(&key(number)).is_some();
        assert!(known(99_999));
        all.learn(lesson(99_999, true), &response(&[]));
        assert!(known(99_999), "a response for one client says nothing about the others");
        all.learn(lesson(99_999, false), &response(&[]));
        assert!(!known(99_999));
    }
}
