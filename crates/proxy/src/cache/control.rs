//! The directives of `Cache-Control` (RFC 9111 5.2, RFC 5861). What cannot be read is taken in the
//! way that stores and reuses less.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderName, PRAGMA};

/// RFC 9111 1.2.2: larger numbers mean "for ever". A sum of some of them cannot overflow.
const MAX_SECONDS: u64 = 1 << 31;

/// The directives of a request or a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    /// Only these fields need a validation: `no-cache="set-cookie"`.
    pub(crate) no_cache_fields: Vec<HeaderName>,
    pub(crate) private: bool,
    /// Only these fields are for one user.
    pub(crate) private_fields: Vec<HeaderName>,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) stale_while_revalidate: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
    pub(crate) min_fresh: Option<u64>,
    /// `u64::MAX`: any age.
    pub(crate) max_stale: Option<u64>,
}

impl Directives {
    /// Of a response. A value that is not well-formed forbids to store it.
    pub(crate) fn of_response(headers: &HeaderMap) -> Directives {
        let mut directives = Directives::default();
        if !directives.read(headers) {
            directives.no_store = true;
        }
        directives
    }

    /// Of a request. `Pragma: no-cache` counts if there is no `Cache-Control` (RFC 9111 5.4).
    pub(crate) fn of_request(headers: &HeaderMap) -> Directives {
        let mut directives = Directives::default();
        if headers.contains_key(CACHE_CONTROL) {
            if !directives.read(headers) {
                directives.no_cache = true;
            }
        } else if let Some(pragma) = headers.get(PRAGMA) {
            let text = pragma.to_str().unwrap_or_default().to_ascii_lowercase();
            directives.no_cache = text.split(',').any(|part| part.trim() == "no-cache");
        }
        directives
    }

    /// False if a value is not well-formed.
    fn read(&mut self, headers: &HeaderMap) -> bool {
        headers.get_all(CACHE_CONTROL).iter().all(|value| {
            let Ok(text) = value.to_str() else { return false };
            let mut rest = text;
            while !rest.is_empty() {
                let Some((name, argument, after)) = next(rest) else { return false };
                if !name.is_empty() {
                    self.note(&name.to_ascii_lowercase(), argument.as_deref());
                }
                rest = after;
            }
            true
        })
    }

    fn note(&mut self, name: &str, argument: Option<&str>) {
        match name {
            "no-store" => self.no_store = true,
            "no-cache" => qualified(argument, &mut self.no_cache, &mut self.no_cache_fields),
            "private" => qualified(argument, &mut self.private, &mut self.private_fields),
            "public" => self.public = true,
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "only-if-cached" => self.only_if_cached = true,
            "max-age" => least(&mut self.max_age, argument),
            "s-maxage" => least(&mut self.s_maxage, argument),
            "stale-while-revalidate" => least(&mut self.stale_while_revalidate, argument),
            "stale-if-error" => least(&mut self.stale_if_error, argument),
            "min-fresh" => {
                self.min_fresh = Some(argument.and_then(seconds).unwrap_or(MAX_SECONDS));
            }
            "max-stale" => match argument {
                None => self.max_stale = Some(u64::MAX),
                Some(argument) => self.max_stale = Some(seconds(argument).unwrap_or(0)),
            },
            // RFC 9111 5.2.3: what a cache does not know it ignores.
            _ => {}
        }
    }
}

/// The next directive, its argument, and the rest. None if a quoted string has no end.
fn next(text: &str) -> Option<(&str, Option<String>, &str)> {
    let end = text.find([',', '=']).unwrap_or(text.len());
    let name = text[..end].trim();
    let Some(after) = text[end..].strip_prefix('=') else {
        return Some((name, None, text[end..].trim_start_matches(',')));
    };
    let after = after.trim_start();
    let Some(quoted) = after.strip_prefix('"') else {
        let end = after.find(',').unwrap_or(after.len());
        let argument = after[..end].trim().to_owned();
        return Some((name, Some(argument), after[end..].trim_start_matches(',')));
    };
    let mut argument = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let rest = quoted[at + 1..].trim_start();
                let rest = if rest.is_empty() { rest } else { rest.strip_prefix(',')? };
                return Some((name, Some(argument), rest));
            }
            '\\' => argument.push(letters.next()?.1),
            _ => argument.push(letter),
        }
    }
    None
}

/// A directive that holds for all of the message, or for some fields. With a list that cannot be
/// read it holds for all.
fn qualified(argument: Option<&str>, all: &mut bool, fields: &mut Vec<HeaderName>) {
    let names = argument.map(|list| {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| name.parse::<HeaderName>()).collect::<Result<Vec<_>, _>>()
    });
    match names {
        Some(Ok(names)) if !names.is_empty() => fields.extend(names),
        _ => *all = true,
    }
}

/// A time that stands twice or is no number must not keep a response longer than any reading of it.
fn least(time: &mut Option<u64>, argument: Option<&str>) {
    let found = argument.and_then(seconds).unwrap_or(0);
    *time = Some(time.map_or(found, |known| known.min(found)));
}

/// A number of seconds; one that is too large for any clock means "for ever".
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(values: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CACHE_CONTROL, value.parse().unwrap());
        }
        Directives::of_response(&headers)
    }

    #[test]
    fn directives_are_read_in_every_spelling() {
        let all = Directives { max_age: Some(60), ..Directives::default() };
        for values in [
            &["max-age=60"][..],
            &["Max-Age=60"],
            &["max-age=\"60\""],
            &[" max-age=60 , , unknown, other=\"a,b\\\"c\""],
            &["unknown=1", "max-age=60"],
            &["max-age=60, max-age=90"],
        ] {
            assert_eq!(response(values), all, "{values:?}");
        }
        assert_eq!(response(&["max-age=99999999999999999999"]).max_age, Some(MAX_SECONDS));
        for invalid in ["max-age=", "max-age", "max-age=-1", "max-age=1.5", "max-age=6 0"] {
            assert_eq!(response(&[invalid]).max_age, Some(0), "{invalid}");
        }
    }

    #[test]
    fn lists_of_fields_are_read_and_unreadable_ones_hold_for_all() {
        let found = response(&["no-cache=\"Set-Cookie, X-A\", private=\"x-b\", public"]);
        assert_eq!(found.no_cache_fields, ["set-cookie", "x-a"]);
        assert_eq!(found.private_fields, ["x-b"]);
        assert!(!found.no_cache && !found.private && found.public && !found.no_store);
        assert!(response(&["no-cache=\"\""]).no_cache);
        assert!(response(&["private=\"a b\""]).private);
        for invalid in ["max-age=60, no-cache=\"x", "a=\"b\"c"] {
            assert!(response(&[invalid]).no_store, "{invalid}");
        }
    }

    #[test]
    fn pragma_counts_only_without_cache_control() {
        let mut headers = HeaderMap::new();
        headers.insert(PRAGMA, "x, No-Cache".parse().unwrap());
        assert!(Directives::of_request(&headers).no_cache);
        headers.insert(CACHE_CONTROL, "max-stale, min-fresh=5".parse().unwrap());
        let found = Directives::of_request(&headers);
        assert_eq!(
            (found.no_cache, found.max_stale, found.min_fresh),
            (false, Some(u64::MAX), Some(5))
        );
    }
}
