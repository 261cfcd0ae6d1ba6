//! The cache of the proxy: requests by which a client tries to store its own response for others,
//! fields that are not stored, and how the cache is turned off.

use crate::proxy::{configured, proxy};
use crate::proxy_origin::{Origin, check, send};

// tidy: table
#[test]
fn no_request_can_poison_the_cache() {
    check(
        "poison",
        &[
            (
                "fields that change the method or the path keep a request from the cache",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|x-http-method-override: POST", "200 1 fwd=bypass"),
                    ("GET|x-method-override: POST", "200 2 fwd=bypass"),
                    ("GET|x-original-url: /admin", "200 3 fwd=bypass"),
                    ("GET|x-rewrite-url: /admin", "200 4 fwd=bypass"),
                    ("GET|x-host: evil.test", "200 5 fwd=bypass"),
                    ("GET", "200 6 fwd=uri-miss"),
                    ("GET|x-original-url: /admin", "200 7 fwd=bypass"),
                    ("GET", "200 6 hit"),
                ],
            ),
            (
                "a field that the backend does not get selects no response",
                &["200|cache-control: max-age=60|vary: accept-language"],
                &[
                    ("GET|accept-language: de|connection: accept-language", "200 1 fwd=bypass"),
                    ("GET|accept-language: de", "200 2 stored"),
                    ("GET|accept-language: de|connection: keep-alive", "200 2 hit"),
                ],
            ),
            (
                "a GET with a body",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|=id=2", "200 1 detail=body"),
                    ("GET", "200 2 stored"),
                    ("GET|=id=2", "200 3"),
                ],
            ),
            (
                "another host has its own entry",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|host: evil.test", "200 1 stored"),
                    ("GET", "200 2 stored"),
                    ("GET|host: shop.test:8080", "200 3 stored"),
                    ("GET", "200 2 hit"),
                ],
            ),
            (
                "another spelling of the host reads the cache and does not fill it",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|host: SHOP.test", "200 1 detail=host"),
                    ("GET|host: shop.test.", "200 2 detail=host"),
                    ("GET|host: shop.test:80", "200 3 detail=host"),
                    ("GET", "200 4 stored"),
                    ("GET|host: SHOP.test:80", "200 4 hit"),
                ],
            ),
            (
                "forwarding fields of a client do not reach the backend",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|x-forwarded-host: evil.test|x-forwarded-proto: https", "200 1 stored"),
                    ("GET", "200 1 hit"),
                ],
            ),
            (
                "a range never stores a part as the whole",
                &[
                    "206|cache-control: max-age=60|content-range: bytes 0-0/9",
                    "200|cache-control: max-age=60",
                ],
                &[
                    ("GET|range: bytes=0-0", "206 1 detail=range"),
                    ("GET", "200 2 stored"),
                    ("GET", "200 2 hit"),
                ],
            ),
            (
                "the query is part of the key as it is",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET ?a=1&b=2", "200 1"),
                    ("GET ?b=2&a=1", "200 1 fwd=uri-miss"),
                    ("GET ?a=1;b=2", "200 1 fwd=uri-miss"),
                    ("GET ?", "200 1 fwd=uri-miss"),
                    ("GET", "200 1 fwd=uri-miss"),
                ],
            ),
            (
                "all spellings of a path are one",
                &["200|cache-control: max-age=60"],
                &[("GET", "200 1"), ("GET /../poison7", "400 *"), ("GET", "200 1 hit")],
            ),
            (
                "an upgrade or a stream has nothing to do with the cache",
                &["200|cache-control: max-age=60"],
                &[
                    ("GET|accept: text/event-stream", "200 1"),
                    ("GET", "200 2 fwd=uri-miss"),
                    ("GET|accept: text/event-stream", "200 3"),
                ],
            ),
        ],
    );
    let origin = Origin::start();
    let proxy = origin.proxy("");
    send(&proxy, "GET /x|x-forwarded-host: evil.test|x-forwarded-proto: https");
    let seen = &origin.seen("/x")[0];
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.test"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
}

#[test]
fn what_a_trusted_proxy_says_about_the_url_is_part_of_the_key() {
    let origin = Origin::start();
    let proxy = proxy(&[origin.address], &["--trusted-proxies", "127.0.0.1"]);
    origin.will("/a", &["200|cache-control: max-age=60"]);
    let client = "x-forwarded-for: 192.0.2.7";
    for (fields, body) in [
        ("x-forwarded-proto: http|x-forwarded-host: shop.test", "1"),
        ("x-forwarded-proto: https|x-forwarded-host: shop.test", "2"),
        ("x-forwarded-proto: http|x-forwarded-host: evil.test", "3"),
        ("x-forwarded-proto: http|x-forwarded-host: shop.test", "1"),
        ("x-forwarded-proto: https|x-forwarded-host: shop.test", "2"),
    ] {
        let got = send(&proxy, &format!("GET /a|{client}|{fields}"));
        assert_eq!((got.status, got.body.as_str()), (200, body), "{fields}: {got:?}");
    }
}

#[test]
fn what_a_certificate_authorised_is_for_nobody_else() {
    let origin = Origin::start();
    let proxy = proxy(&[origin.address], &["--trusted-proxies", "127.0.0.1"]);
    origin.will("/a", &["200|cache-control: public, max-age=60"]);
    let client = "x-forwarded-for: 192.0.2.7";
    for (fields, body) in [
        ("x-client-subject: CN=alice", "1"),
        ("x-client-subject: CN=bob", "2"),
        ("client-cert: :MA==:", "3"),
        ("x-a: 1", "4"),
        ("x-a: 2", "4"),
    ] {
        let got = send(&proxy, &format!("GET /a|{client}|{fields}"));
        assert_eq!((got.status, got.body.as_str()), (200, body), "{fields}: {got:?}");
    }
}

#[test]
fn fields_of_one_connection_or_request_are_not_stored() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    let answer = "200|cache-control: max-age=60, no-cache=\"x-secret\"|connection: x-hop|x-hop: 1|\
                  keep-alive: timeout=5|proxy-authenticate: Basic|x-secret: 1|x-kept: 1|\
                  request-id: req_backend|age: 5|set-cookie: a=b|cache-status: inner; hit";
    origin.will("/a", &[&answer.replace("x-secret\"", "x-secret, set-cookie\"")]);
    let first = send(&proxy, "GET /a");
    assert_eq!(first.header("x-secret"), Some("1"), "its client gets all");
    let second = send(&proxy, "GET /a");
    for (name, expected) in [
        ("x-kept", Some("1")),
        ("x-hop", None),
        ("keep-alive", None),
        ("proxy-authenticate", None),
        ("x-secret", None),
        ("set-cookie", None),
    ] {
        assert_eq!(second.header(name), expected, "{name}: {second:?}");
    }
    assert!(second.header("cache-status").unwrap().starts_with("restive; hit; ttl="));
    assert_ne!(second.header("request-id"), Some("req_backend"));
    assert_ne!(second.header("request-id"), first.header("request-id"));
    let age: u64 = second.header("age").unwrap().parse().unwrap();
    assert!((5..60).contains(&age), "4.2.3: {age}");
    assert!(second.header("date").is_some(), "the date of the stored response");
}

#[test]
fn the_host_of_an_absolute_target_is_the_one_that_counts() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    origin.will("/a", &["200|cache-control: max-age=60"]);
    for (request, body) in [
        ("GET http://evil.test/a|host: shop.test", "1"),
        ("GET /a", "2"),
        ("GET http://shop.test/a|host: evil.test", "2"),
        ("GET http://SHOP.test:80/a|host: evil.test", "2"),
        ("GET /a|host: evil.test", "1"),
    ] {
        let got = send(&proxy, request);
        assert_eq!((got.status, got.body.as_str()), (200, body), "{request}: {got:?}");
    }
    let hosts: Vec<_> =
        origin.seen("/a").iter().map(|s| s.header("host").map(str::to_owned)).collect();
    assert_eq!(hosts, [Some("evil.test".to_owned()), Some("shop.test".to_owned())]);
}

#[test]
fn fields_about_the_url_that_a_client_invents_reach_no_backend() {
    let origin = Origin::start();
    let proxy = origin.proxy("");
    origin.will("/a", &["200|cache-control: max-age=60"]);
    let names = ["host", "proto", "scheme", "port", "prefix", "server", "ssl", "path", "uri"];
    for name in names {
        let got = send(&proxy, &format!("GET /a?{name}|x-forwarded-{name}: evil.test"));
        assert_eq!(got.status, 200, "{name}: {got:?}");
        let seen = &origin.seen(&format!("/a?{name}"))[0];
        let value = seen.header(&format!("x-forwarded-{name}"));
        assert!(value.is_none_or(|value| !value.contains("evil")), "{name}: {seen:?}");
        // What was stored is what every client gets.
        let again = send(&proxy, &format!("GET /a?{name}"));
        assert!(again.header("cache-status").unwrap().contains("hit"), "{again:?}");
    }
    for range in ["bytes=0-0", "bytes=0-", "bytes=-1", "bytes=0-0,0-0", "bytes=5-1", "items=0-1"] {
        let path = format!("/a?{}", range.len());
        let ranged = send(&proxy, &format!("GET {path}|range: {range}|if-range: \"x\""));
        assert_eq!(ranged.status, 200, "{range}: {ranged:?}");
        let whole = send(&proxy, &format!("GET {path}"));
        assert_eq!((whole.status, whole.header("content-range")), (200, None), "{range}");
    }
}

#[test]
fn a_route_can_turn_the_cache_off() {
    let origin = Origin::start();
    origin.will("/a", &["200|cache-control: max-age=60"]);
    for (proxy, name) in [
        (origin.proxy("cache = \"off\"\n"), "the route"),
        (
            configured(&format!(
                "cache_size = \"0B\"\n[backends.b]\nto = [\"{}\"]\ncheck = \"off\"\n\
                 [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
                origin.address
            )),
            "the size",
        ),
    ] {
        let first = send(&proxy, "GET /a");
        let second = send(&proxy, "GET /a");
        assert_ne!(first.body, second.body, "{name}");
        assert_eq!(second.header("cache-status"), None, "{name}");
    }
}
