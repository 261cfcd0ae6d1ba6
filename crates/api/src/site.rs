//! The hook for pages for people: the console and the documentation. The binary supplies them;
//! this crate knows neither their paths nor their content. The paths of the schema come first: a
//! page is looked up only if nothing else has its path.

use crate::condition;
use crate::error::Failure;
use crate::respond::{self, Reply};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, StatusCode};
use std::io::Write as _;
use wire::Exchange;

const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// Caches ask whether their copy is current: a page must fit the scripts of the same server.
const REVALIDATE: &str = "no-cache";

/// Supplies the pages.
pub trait Site: Send + Sync + 'static {
    /// The page of a path. `wants_html`: the client accepts HTML, so it is a browser.
    fn page(&self, path: &str, wants_html: bool) -> Option<Page>;
}

pub struct Page {
    pub content_type: &'static str,
    /// Changes with the body; with quotes.
    pub etag: String,
    pub body: Bytes,
    pub gzip: Option<Bytes>,
    pub content_security_policy: &'static str,
}

/// The page of the request's path, if there is one.
pub fn reply(site: &dyn Site, exchange: &Exchange) -> Option<Result<Reply, Failure>> {
    let headers = &exchange.headers;
    let page = site.page(exchange.uri.path(), contains(headers, ACCEPT, "text/html"))?;
    let method = &exchange.method;
    if method == Method::OPTIONS {
        return Some(Ok(respond::options(&METHODS)));
    }
    if !METHODS.contains(&method.as_str()) {
        return Some(Err(respond::not_allowed(method, &METHODS).into()));
    }
    let reply = match condition::is_fresh(headers, &page.etag, None) {
        true => Reply::empty(StatusCode::NOT_MODIFIED),
        false => encoded(headers, page.body, || page.gzip).header(CONTENT_TYPE, page.content_type),
    };
    let reply = reply
        .header(ETAG, page.etag)
        .header(CACHE_CONTROL, REVALIDATE)
        .header(VARY, "Accept, Accept-Encoding")
        .header(CONTENT_SECURITY_POLICY, page.content_security_policy)
        .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(REFERRER_POLICY, "no-referrer");
    Some(Ok(reply))
}

/// The body, compressed if the client accepts it.
pub fn encoded(headers: &HeaderMap, body: Bytes, gzip: impl FnOnce() -> Option<Bytes>) -> Reply {
    let accepted = contains(headers, ACCEPT_ENCODING, "gzip");
    match accepted.then(gzip).flatten() {
        Some(gzip) => Reply::json(StatusCode::OK, gzip).header(CONTENT_ENCODING, "gzip"),
        None => Reply::json(StatusCode::OK, body),
    }
}

/// Compresses a document that is sent often.
pub fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether a header of preferences names the value without refusing it.
fn contains(headers: &HeaderMap, name: HeaderName, value: &str) -> bool {
    let texts = headers.get_all(name).into_iter().filter_map(|text| text.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let named = parts.next().is_some_and(|first| first.eq_ignore_ascii_case(value));
        let refused = parts.any(|part| {
            let quality = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            quality.is_some_and(|quality| quality.parse::<f32>().is_ok_and(|q| q <= 0.0))
        });
        named && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_value_counts_unless_it_is_refused() {
        for (sent, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzipped", false),
            ("", false),
        ] {
            let value = HeaderValue::from_str(sent).unwrap();
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, value)]);
            assert_eq!(contains(&headers, ACCEPT_ENCODING, "gzip"), expected, "{sent}");
        }
    }
}
