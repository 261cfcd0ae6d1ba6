//! The cache of the proxy: every rule of RFC 9111 for a shared cache is a row, checked through the
//! proxy with a backend whose responses the row sets. The body of a response is the number of its
//! request at the backend: `200 1` after `200 1` came from the cache.

use crate::harness::eventually;
use crate::proxy_origin::{Origin, check, send};

const OLD: &str = "200|cache-control: max-age=60|age: 100|etag: \"a\"";

// tidy: table
#[test]
fn responses_are_stored_only_if_they_allow_it() {
    check(
        "store",
        &[
            (
                "3: a lifetime lets a GET be stored",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET", "200 1 fwd=uri-miss; fwd-status=200; ttl=60; stored"),
                    ("GET", "200 1 hit; ttl="),
                ],
            ),
            (
                "3: without an explicit lifetime nothing is stored",
                &["200|last-modified: Mon, 01 Jan 2024 00:00:00 GMT"],
                &[("GET", "200 1 detail=no-lifetime"), ("GET", "200 2 detail=uncacheable")],
            ),
            (
                "3: the response to a POST is not stored",
                &["200|cache-control: max-age=60"],
                &[("POST|=x", "200 1"), ("GET", "200 2 fwd=uri-miss"), ("POST|=x", "200 3")],
            ),
            (
                "3: a status without a meaning for caches is not stored",
                &["400|cache-control: max-age=60", "500|cache-control: max-age=60"],
                &[("GET", "400 1 detail=status"), ("GET", "500 2"), ("GET", "500 3")],
            ),
            (
                "3: other final statuses with a lifetime are stored",
                &["404|cache-control: max-age=60"],
                &[("GET", "404 1"), ("GET", "404 1 hit")],
            ),
            (
                "3: a redirect with a lifetime is stored",
                &["302|cache-control: max-age=60|location: /x"],
                &[("GET", "302 1"), ("GET", "302 1 hit")],
            ),
            (
                "5.2.2.5: no-store",
                &["200|cache-control: no-store, max-age=60"],
                &[("GET", "200 1 detail=no-store"), ("GET", "200 2")],
            ),
            (
                "5.2.2.7: private",
                &["200|cache-control: private, max-age=60"],
                &[("GET", "200 1 detail=private"), ("GET", "200 2")],
            ),
            (
                "5.2.2.7: private with fields stores the others",
                &["200|cache-control: private=\"x-user\", max-age=60|x-user: ann"],
                &[("GET", "200 1"), ("GET", "200 1 hit")],
            ),
            (
                "3.3: an incomplete response is not stored",
                &["200|cache-control: max-age=60|cut", "200|cache-control: max-age=60"],
                &[("GET", "200 1"), ("GET", "200 2 fwd=uri-miss"), ("GET", "200 2 hit")],
            ),
            (
                "3.3: nor one whose chunks do not end",
                &["200|cache-control: max-age=60|chunked|cut", "200|cache-control: max-age=60"],
                &[("GET", "200 *"), ("GET", "200 2 fwd=uri-miss")],
            ),
            (
                "3.3: 206 is not stored",
                &["206|cache-control: max-age=60|content-range: bytes 0-0/9"],
                &[("GET", "206 1 detail=status"), ("GET", "206 2")],
            ),
            (
                "7.3: a response with a cookie is not stored",
                &["200|cache-control: max-age=60|set-cookie: a=b"],
                &[("GET", "200 1 detail=set-cookie"), ("GET", "200 2")],
            ),
            (
                "5.2.3: unknown directives are ignored, broken ones forbid",
                &["200|cache-control: max-age=60, new=\"a, no-store\""],
                &[("GET", "200 1 stored"), ("GET", "200 1 hit")],
            ),
            (
                "5.2: a field that cannot be read forbids to store",
                &["200|cache-control: max-age=60, x=\"no end"],
                &[("GET", "200 1 detail=no-store"), ("GET", "200 2")],
            ),
            (
                "5.2.1.5: a request with no-store is not stored",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|cache-control: no-store", "200 1 detail=no-store"),
                    ("GET", "200 2 stored"),
                ],
            ),
            (
                "6: a body of unknown length is stored when it has ended",
                &["200|cache-control: max-age=60|chunked"],
                &[("GET", "200 *"), ("GET", "200 1 hit")],
            ),
        ],
    );
}

#[test]
fn responses_to_requests_with_a_credential_are_shared_only_if_they_say_so() {
    check(
        "auth",
        &[
            (
                "3.5: without a directive it is not stored",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|authorization: Bearer a", "200 1 detail=authorization"),
                    ("GET|authorization: Bearer a", "200 2"),
                    ("GET", "200 3"),
                ],
            ),
            (
                "3.5: public",
                &["200|cache-control: max-age=60, public"],
                &[
                    ("GET|authorization: Bearer a", "200 1 detail=authorization"),
                    ("GET|authorization: Bearer a", "200 2 stored"),
                    ("GET", "200 2 hit"),
                ],
            ),
            (
                "3.5: s-maxage",
                &["200|cache-control: s-maxage=60"],
                &[
                    ("GET|authorization: Bearer a", "200 1 detail=authorization"),
                    ("GET|authorization: Bearer a", "200 2 stored"),
                    ("GET|authorization: Bearer b", "200 2 hit"),
                ],
            ),
            (
                "3.5: must-revalidate",
                &["200|cache-control: max-age=60, must-revalidate"],
                &[
                    ("GET|authorization: Bearer a", "200 1 detail=authorization"),
                    ("GET|authorization: Bearer a", "200 2 stored"),
                    ("GET", "200 2 hit"),
                ],
            ),
            (
                "3.5: who has a credential does not get what was stored for those without one",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET", "200 1 stored"),
                    ("GET|authorization: Bearer a", "200 2"),
                    ("GET", "200 1 hit"),
                ],
            ),
        ],
    );
}

// tidy: table
#[test]
fn stored_responses_are_used_while_they_are_fresh() {
    check(
        "fresh",
        &[
            (
                "4.2.1: s-maxage comes before max-age",
                &["200|cache-control: max-age=0, s-maxage=60"],
                &[("GET", "200 1"), ("GET", "200 1 hit")],
            ),
            (
                "4.2.1: max-age comes before Expires",
                &["200|cache-control: max-age=60|expires: Mon, 01 Jan 2024 00:00:00 GMT"],
                &[("GET", "200 1"), ("GET", "200 1 hit")],
            ),
            (
                "5.3: Expires",
                &["200|expires: Fri, 01 Jan 2100 00:00:00 GMT"],
                &[("GET", "200 1"), ("GET", "200 1 hit")],
            ),
            (
                "5.3: an Expires that is no date has passed",
                &["200|expires: 0"],
                &[("GET", "200 1 detail=expired"), ("GET", "200 2")],
            ),
            (
                "5.3: two of them have passed",
                &["200|expires: Fri, 01 Jan 2100 00:00:00 GMT|\
                     expires: Fri, 01 Jan 2100 00:00:00 GMT"],
                &[("GET", "200 1 detail=expired"), ("GET", "200 2")],
            ),
            (
                "4.2.1: a max-age that is no number has passed",
                &["200|cache-control: max-age=1h"],
                &[("GET", "200 1 detail=expired"), ("GET", "200 2")],
            ),
            (
                "4.2.3: Age counts",
                &[OLD, OLD],
                &[("GET", "200 1 stored"), ("GET", "200 2 fwd=stale")],
            ),
            (
                "4.2.3: Date counts",
                &["200|cache-control: max-age=60|date: Mon, 01 Jan 2024 00:00:00 GMT|etag: \"a\""],
                &[("GET", "200 1"), ("GET", "200 2 fwd=stale")],
            ),
            (
                "4.2.4: max-age=0 is always validated",
                &["200|cache-control: max-age=0|etag: \"a\"", "304|etag: \"a\""],
                &[("GET", "200 1 stored"), ("GET", "200 1 fwd=stale"), ("GET", "200 1 fwd=stale")],
            ),
            (
                "5.2.2.4: no-cache is always validated",
                &["200|cache-control: no-cache, max-age=60|etag: \"a\"", "304|etag: \"a\""],
                &[("GET", "200 1 stored"), ("GET", "200 1 fwd=stale"), ("GET", "200 1 fwd=stale")],
            ),
            (
                "5.2.2.4: no-cache with fields: the others are used",
                &["200|cache-control: no-cache=\"set-cookie\", max-age=60|set-cookie: a=b"],
                &[("GET", "200 1 stored"), ("GET", "200 1 hit")],
            ),
            (
                "9.3.2 of RFC 9110: HEAD is answered from a stored GET",
                &["200|cache-control: max-age=60"],
                &[("GET", "200 1"), ("HEAD", "200 - hit")],
            ),
            (
                "3: a HEAD stores nothing",
                &["200|cache-control: max-age=60"],
                &[("HEAD", "200 - detail=head"), ("GET", "200 2 stored")],
            ),
        ],
    );
}

// tidy: table
#[test]
fn requests_can_ask_for_newer_or_older_responses() {
    const SHORT: &[&str] = &["200|cache-control: max-age=60|age: 30|etag: \"a\""];
    const STALE: &[&str] = &[OLD];
    check(
        "asked",
        &[
            (
                "5.2.1.4: no-cache",
                SHORT,
                &[
                    ("GET", "200 1"),
                    ("GET|cache-control: no-cache", "200 2 fwd=request"),
                    ("GET", "200 2 hit"),
                ],
            ),
            (
                "5.4: Pragma",
                SHORT,
                &[("GET", "200 1"), ("GET|pragma: no-cache", "200 2 fwd=request")],
            ),
            (
                "5.2.1.1: max-age",
                SHORT,
                &[
                    ("GET", "200 1"),
                    ("GET|cache-control: max-age=50", "200 1 hit"),
                    ("GET|cache-control: max-age=10", "200 2 fwd=request"),
                ],
            ),
            (
                "5.2.1.3: min-fresh",
                SHORT,
                &[
                    ("GET", "200 1"),
                    ("GET|cache-control: min-fresh=10", "200 1 hit"),
                    ("GET|cache-control: min-fresh=50", "200 2 fwd=request"),
                ],
            ),
            (
                "5.2.1.2: max-stale",
                STALE,
                &[
                    ("GET", "200 1"),
                    ("GET|cache-control: max-stale=10", "200 2 fwd=stale"),
                    ("GET|cache-control: max-stale=100", "200 2 hit; ttl=-"),
                    ("GET|cache-control: max-stale", "200 2 hit"),
                ],
            ),
            (
                "5.2.2.2: must-revalidate is stronger than max-stale",
                &["200|cache-control: max-age=60, must-revalidate|age: 100|etag: \"a\""],
                &[("GET", "200 1"), ("GET|cache-control: max-stale", "200 2 fwd=stale")],
            ),
            (
                "5.2.2.8: so is proxy-revalidate",
                &["200|cache-control: max-age=60, proxy-revalidate|age: 100|etag: \"a\""],
                &[("GET", "200 1"), ("GET|cache-control: max-stale", "200 2 fwd=stale")],
            ),
            (
                "5.2.2.10: so is s-maxage",
                &["200|cache-control: s-maxage=60|age: 100|etag: \"a\""],
                &[("GET", "200 1"), ("GET|cache-control: max-stale", "200 2 fwd=stale")],
            ),
            (
                "5.2.1.7: only-if-cached",
                SHORT,
                &[
                    ("GET|cache-control: only-if-cached", "504 *"),
                    ("GET", "200 1"),
                    ("GET|cache-control: only-if-cached", "200 1 hit"),
                    ("GET|cache-control: only-if-cached, no-cache", "504 *"),
                ],
            ),
        ],
    );
}

// tidy: table
#[test]
fn a_response_is_used_only_for_requests_with_the_same_selecting_fields() {
    const VARIES: &[&str] = &["200|cache-control: max-age=60|vary: Accept-Language, X-A"];
    check(
        "vary",
        &[
            (
                "4.1: the values must be the same",
                VARIES,
                &[
                    ("GET|accept-language: de", "200 1 stored"),
                    ("GET|accept-language: en", "200 2 fwd=vary-miss"),
                    ("GET|accept-language: de", "200 1 hit"),
                    ("GET|accept-language:  de ", "200 1 hit"),
                    ("GET|accept-language: de|x-a: 1", "200 3 fwd=vary-miss"),
                    ("GET", "200 4 fwd=vary-miss"),
                    ("GET|accept-language: en", "200 2 hit"),
                ],
            ),
            (
                "4.1: a star matches nothing",
                &["200|cache-control: max-age=60|vary: *"],
                &[("GET", "200 1 detail=vary"), ("GET", "200 2")],
            ),
            (
                "4.1: a star among others too",
                &["200|cache-control: max-age=60|vary: accept, *"],
                &[("GET", "200 1 detail=vary"), ("GET", "200 2")],
            ),
            (
                "4.1: fields that the proxy writes match nothing",
                &["200|cache-control: max-age=60|vary: x-forwarded-for"],
                &[("GET", "200 1 detail=vary"), ("GET", "200 2")],
            ),
            (
                "4.1: Vary: Authorization keeps credentials apart",
                &["200|cache-control: max-age=60, public|vary: authorization"],
                &[
                    ("GET|authorization: Bearer a", "200 1 detail=authorization"),
                    ("GET|authorization: Bearer a", "200 2 stored"),
                    ("GET|authorization: Bearer b", "200 3 fwd=vary-miss"),
                    ("GET|authorization: Bearer a", "200 2 hit"),
                    ("GET", "200 4"),
                ],
            ),
            (
                "limit: a URL has at most 8 variants",
                VARIES,
                &[
                    ("GET|x-a: 1", "200 1"),
                    ("GET|x-a: 2", "200 2"),
                    ("GET|x-a: 3", "200 3"),
                    ("GET|x-a: 4", "200 4"),
                    ("GET|x-a: 5", "200 5"),
                    ("GET|x-a: 6", "200 6"),
                    ("GET|x-a: 7", "200 7"),
                    ("GET|x-a: 8", "200 8"),
                    ("GET|x-a: 1", "200 1 hit"),
                    ("GET|x-a: 9", "200 9"),
                    ("GET|x-a: 2", "200 2 hit"),
                    ("GET|x-a: 1", "200 10 fwd=vary-miss"),
                ],
            ),
        ],
    );
}

// tidy: table
#[test]
fn conditions_and_ranges_are_answered_from_stored_responses() {
    const TAGGED: &[&str] = &["200|cache-control: max-age=60|etag: W/\"a\"|\
         last-modified: Mon, 01 Jan 2024 00:00:00 GMT|=0123456789"];
    const STRONG: &[&str] = &["200|cache-control: max-age=60|etag: \"a\"|=0123456789"];
    check(
        "condition",
        &[
            (
                "4.3.2: If-None-Match",
                TAGGED,
                &[
                    ("GET|if-none-match: \"a\"", "304 - stored"),
                    ("GET|if-none-match: \"x\", \"a\"", "304 - hit"),
                    ("GET|if-none-match: \"b\"", "200 0123456789 hit"),
                    ("GET|if-none-match: *", "304 - hit"),
                    ("HEAD|if-none-match: \"a\"", "304 - hit"),
                ],
            ),
            (
                "4.3.2: If-Modified-Since, and only without If-None-Match",
                TAGGED,
                &[
                    ("GET", "200 0123456789"),
                    ("GET|if-modified-since: Mon, 01 Jan 2024 00:00:00 GMT", "304 - hit"),
                    ("GET|if-modified-since: Sun, 31 Dec 2023 00:00:00 GMT", "200 0123456789 hit"),
                    (
                        "GET|if-none-match: \"b\"|if-modified-since: Mon, 01 Jan 2024 00:00:00 GMT",
                        "200 0123456789 hit",
                    ),
                ],
            ),
            (
                "13.2.1 of RFC 9110: If-Match is the backend's",
                TAGGED,
                &[("GET", "200 *"), ("GET|if-match: \"a\"", "200 * fwd=bypass")],
            ),
            (
                "14 of RFC 9110: a range is cut out of a complete response",
                STRONG,
                &[
                    ("GET|range: bytes=0-3", "200 0123456789 detail=range"),
                    ("GET", "200 0123456789 stored"),
                    ("GET|range: bytes=2-3", "206 23 hit"),
                    ("GET|range: bytes=7-", "206 789 hit"),
                    ("GET|range: bytes=-2", "206 89 hit"),
                    ("GET|range: bytes=20-", "416 - hit"),
                    ("GET|range: bytes=2-3|if-range: \"a\"", "206 23 hit"),
                    ("GET|range: bytes=2-3|if-range: \"b\"", "200 0123456789 hit"),
                    ("GET|range: bytes=0-0,2-3", "200 0123456789 fwd=partial"),
                    ("HEAD|range: bytes=2-3", "200 - hit"),
                ],
            ),
        ],
    );
}

// tidy: table
#[test]
fn stale_responses_are_validated_and_freshened() {
    check(
        "validate",
        &[
            (
                "4.3.4: a 304 makes the stored response fresh",
                &[OLD, "304|etag: \"a\"|cache-control: max-age=60|x-new: 1"],
                &[
                    ("GET", "200 1"),
                    ("GET", "200 1 fwd=stale; ttl=60; stored"),
                    ("GET", "200 1 hit"),
                ],
            ),
            (
                "4.3.3: a whole response replaces it",
                &[OLD, "200|cache-control: max-age=60|etag: \"b\""],
                &[("GET", "200 1"), ("GET", "200 2 fwd=stale"), ("GET", "200 2 hit")],
            ),
            (
                "4.3.3: also if that one is not stored",
                &[OLD, "200|cache-control: no-store", "200|cache-control: no-store"],
                &[
                    ("GET", "200 1"),
                    ("GET", "200 2 detail=no-store"),
                    ("GET", "200 3 fwd=uri-miss"),
                ],
            ),
            (
                "4.3.4: a 304 about another response is not used",
                &[OLD, "304|etag: \"x\"", "200|cache-control: max-age=60"],
                &[("GET", "200 1"), ("GET", "200 3 stored"), ("GET", "200 3 hit")],
            ),
            (
                "4.3.4: a 304 may forbid to store it from now on",
                &[OLD, "304|etag: \"a\"|cache-control: no-store", "200"],
                &[("GET", "200 1"), ("GET", "200 1 fwd=stale"), ("GET", "200 3")],
            ),
            (
                "4.3.3: a failure is passed on",
                &[OLD, "500", "304|etag: \"a\""],
                &[("GET", "200 1"), ("GET", "500 2 fwd=stale"), ("GET", "200 1 fwd=stale")],
            ),
            (
                "4.3.1: a HEAD validates too",
                &[OLD, "304|etag: \"a\"|cache-control: max-age=60"],
                &[("GET", "200 1"), ("HEAD", "200 - fwd=stale"), ("GET", "200 1 hit")],
            ),
        ],
    );
}

#[test]
fn the_backend_is_asked_with_the_caches_own_validators() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    let modified = "Mon, 01 Jan 2024 00:00:00 GMT";
    let old = format!("{OLD}|last-modified: {modified}");
    origin.will("/a", &[&old, "304|etag: \"a\"|x-new: 1|set-cookie: s=1|cache-control: max-age=9"]);
    send(&proxy, "GET /a|if-none-match: \"mine\"|x-own: 1");
    let second = send(&proxy, "GET /a|if-none-match: \"mine\"");
    let [first, validation] = &origin.seen("/a")[..] else { panic!("two requests") };
    assert_eq!(first.header("if-none-match"), None, "the whole response is asked for");
    assert_eq!(validation.header("if-none-match"), Some("\"a\""));
    assert_eq!(validation.header("if-modified-since"), Some(modified));
    assert_eq!(validation.header("x-own"), None);
    assert_eq!((second.status, second.header("x-new")), (200, Some("1")));
    assert_eq!(second.header("set-cookie"), Some("s=1"), "its client gets the cookie");
    let third = send(&proxy, "GET /a");
    assert_eq!((third.header("x-new"), third.header("set-cookie")), (Some("1"), None));
    assert!(third.header("cache-status").unwrap().contains("hit"), "{third:?}");
}

// tidy: table
#[test]
fn stale_responses_bridge_revalidations_and_failures() {
    check(
        "stale",
        &[
            (
                "RFC 5861 3: stale-while-revalidate",
                &["200|cache-control: max-age=60, stale-while-revalidate=100|age: 100|etag: \"a\""],
                &[("GET", "200 1 stored"), ("GET", "200 * hit; ttl=-")],
            ),
            (
                "RFC 5861 3: not after its time",
                &["200|cache-control: max-age=60, stale-while-revalidate=10|age: 100|etag: \"a\""],
                &[("GET", "200 1 stored"), ("GET", "200 2 fwd=stale")],
            ),
            (
                "5.2.2.2: must-revalidate is stronger",
                &["200|cache-control: max-age=60, must-revalidate, stale-while-revalidate=100|\
                     age: 100|etag: \"a\""],
                &[("GET", "200 1 stored"), ("GET", "200 2 fwd=stale")],
            ),
            (
                "RFC 5861 4: stale-if-error",
                &["200|cache-control: max-age=60, stale-if-error=100|age: 100|etag: \"a\"", "503"],
                &[("GET", "200 1 stored"), ("GET", "200 1 detail=stale-if-error")],
            ),
            (
                "RFC 5861 4: also if the backend does not answer",
                &[
                    "200|cache-control: max-age=60, stale-if-error=100|age: 100|etag: \"a\"",
                    "0|cut",
                ],
                &[("GET", "200 1 stored"), ("GET", "200 1 detail=stale-if-error")],
            ),
            (
                "RFC 5861 4: not after its time",
                &["200|cache-control: max-age=60, stale-if-error=10|age: 100|etag: \"a\"", "503"],
                &[("GET", "200 1 stored"), ("GET", "503 2")],
            ),
            (
                "RFC 5861 4: not for a 404",
                &["200|cache-control: max-age=60, stale-if-error=100|age: 100|etag: \"a\"", "404"],
                &[("GET", "200 1 stored"), ("GET", "404 2")],
            ),
            (
                "4.2.4: without a directive no stale response is sent",
                &[OLD, "0|cut"],
                &[("GET", "200 1 stored"), ("GET", "502 *")],
            ),
        ],
    );
}

#[test]
fn a_stale_response_is_replaced_in_the_background() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    let old = "200|cache-control: max-age=60, stale-while-revalidate=100|age: 100|etag: \"a\"";
    origin.will("/a", &[old, "200|cache-control: max-age=60"]);
    assert_eq!(send(&proxy, "GET /a").body, "1");
    assert_eq!(send(&proxy, "GET /a").body, "1", "the stale one, at once");
    eventually("the new response is stored", || send(&proxy, "GET /a").body == "2");
    assert_eq!(origin.count("/a"), 2);
}

// tidy: table
#[test]
fn unsafe_requests_remove_what_is_stored() {
    check(
        "unsafe",
        &[
            (
                "4.4: the target",
                &["200|cache-control: max-age=60"],
                &[("GET", "200 1"), ("POST|=x", "200 2"), ("GET", "200 3 fwd=uri-miss")],
            ),
            (
                "4.4: DELETE, PUT, PATCH and unknown methods",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET", "200 1"),
                    ("DELETE", "200 2"),
                    ("GET", "200 3"),
                    ("PUT|=x", "200 4"),
                    ("GET", "200 5"),
                    ("PATCH|=x", "200 6"),
                    ("GET", "200 7"),
                    ("PURGEALL|=x", "200 8"),
                    ("GET", "200 9 fwd=uri-miss"),
                ],
            ),
            (
                "4.4: not if it was refused",
                &["200|cache-control: max-age=60", "403"],
                &[("GET", "200 1"), ("POST|=x", "403 2"), ("GET", "200 1 hit")],
            ),
            (
                "4.4: safe methods remove nothing",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET", "200 1"),
                    ("OPTIONS", "200 2"),
                    ("HEAD", "200 - hit"),
                    ("GET", "200 1 hit"),
                ],
            ),
            (
                "4.4: the query belongs to the target",
                &["200|cache-control: max-age=60"],
                &[("GET ?a=1", "200 1"), ("POST ?a=2|=x", "200 1"), ("GET ?a=1", "200 1 hit")],
            ),
        ],
    );
}

#[test]
fn unsafe_requests_remove_the_urls_of_the_same_origin_in_their_response() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    let stored = "200|cache-control: max-age=60";
    for (place, (location, is_removed)) in [
        ("location: /made", true),
        ("location: http://shop.test/made", true),
        ("content-location: //shop.test/made#part", true),
        ("location: https://shop.test/made", false),
        ("location: http://other.test/made", false),
        ("location: made", false),
    ]
    .into_iter()
    .enumerate()
    {
        let (made, list) = (format!("/made{place}"), format!("/list{place}"));
        origin.will(&made, &[stored]);
        origin.will(&list, &[&format!("201|{}", location.replace("/made", &made))]);
        assert_eq!(send(&proxy, &format!("GET {made}")).body, "1");
        assert_eq!(send(&proxy, &format!("POST {list}|=x")).status, 201);
        let body = if is_removed { "2" } else { "1" };
        assert_eq!(send(&proxy, &format!("GET {made}")).body, body, "{location}");
    }
}
