//! The opening handshake of a WebSocket: what is agreed on and what is refused, with which status.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use wire::websocket::{self, Accepted, Deflate, Options, Refused};

/// The example of RFC 6455 1.3.
const SAMPLE: [(&str, &str); 4] = [
    ("upgrade", "websocket"),
    ("connection", "Upgrade"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
];

fn headers<'h>(lines: impl IntoIterator<Item = &'h (&'h str, &'h str)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::try_from(*name).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn accept(headers: &HeaderMap) -> Result<Accepted, Refused> {
    let options = Options { protocols: &["restive.v2", "restive.v1"], compress: true };
    websocket::accept(&Method::GET, Version::HTTP_11, headers, &options)
}

/// The sample with these lines; an empty value takes the line out.
fn with(lines: &[(&str, &str)]) -> HeaderMap {
    let mut all = headers(&SAMPLE);
    for (name, _) in lines {
        all.remove(*name);
    }
    let given: Vec<_> = lines.iter().filter(|(_, value)| !value.is_empty()).collect();
    all.extend(headers(given.iter().copied()));
    all
}

#[test]
fn the_accept_key_matches_the_example_of_the_rfc() {
    for lines in [
        &[][..],
        &[("upgrade", "h2c, WebSocket")],
        &[("connection", "keep-alive, Upgrade")],
        &[("connection", "keep-alive"), ("connection", "upgrade")],
        &[("content-length", "0")],
    ] {
        let accepted = accept(&with(lines)).unwrap();
        let expected = headers(&[
            ("upgrade", "websocket"),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ]);
        assert_eq!(accepted.headers, expected, "{lines:?}");
        assert_eq!((accepted.protocol, accepted.deflate), (None, None));
    }
}

#[test]
fn handshakes_over_http2_and_http3_need_no_key() {
    let options = Options::default();
    let headers = with(&[("sec-websocket-key", "")]);
    for version in [Version::HTTP_2, Version::HTTP_3] {
        let accepted = websocket::accept(&Method::GET, version, &headers, &options).unwrap();
        assert!(!accepted.headers.contains_key("sec-websocket-accept"));
    }
}

#[test]
fn an_invalid_handshake_is_refused_with_the_needed_headers() {
    for (lines, status) in [
        (&[("upgrade", "")][..], 426),
        (&[("upgrade", "h2c")], 426),
        (&[("connection", "")], 400),
        (&[("connection", "close")], 400),
        (&[("sec-websocket-version", "")], 426),
        (&[("sec-websocket-version", "8")], 426),
        (&[("sec-websocket-version", "13"), ("sec-websocket-version", "8")], 426),
        (&[("sec-websocket-key", "")], 400),
        (&[("sec-websocket-key", "short")], 400),
        (&[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=")], 400),
        (&[("sec-websocket-key", "dGhlIHNhbXBsZSBub25j ===")], 400),
        (&[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="); 2], 400),
        (&[("content-length", "5")], 400),
        (&[("transfer-encoding", "chunked")], 400),
        (&[("sec-websocket-protocol", "a b")], 400),
        (&[("sec-websocket-protocol", "a, \"b\"")], 400),
        (&[("sec-websocket-protocol", "é")], 400),
        (&[("sec-websocket-extensions", "permessage-deflate;")], 400),
        (&[("sec-websocket-extensions", "permessage-deflate; =1")], 400),
        (&[("sec-websocket-extensions", "a b")], 400),
        (&[("sec-websocket-extensions", "a; b=\"c")], 400),
        (&[("sec-websocket-extensions", "a; b=\"c d\"")], 400),
        (&[("sec-websocket-extensions", "é")], 400),
    ] {
        let refused = accept(&with(lines)).unwrap_err();
        assert_eq!(refused.status.as_u16(), status, "{lines:?}: {}", refused.reason);
        let is_told = refused.headers.get("sec-websocket-version").is_some_and(|v| v == "13");
        assert_eq!(is_told, status == 426, "{lines:?}");
        assert_eq!(refused.headers.contains_key("upgrade"), status == 426, "{lines:?}");
        assert!(refused.reason.ends_with('.'));
    }
    let options = Options::default();
    let sample = headers(&SAMPLE);
    let refused =
        websocket::accept(&Method::POST, Version::HTTP_11, &sample, &options).unwrap_err();
    assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(refused.headers["allow"], "GET");
    let refused = websocket::accept(&Method::GET, Version::HTTP_10, &sample, &options).unwrap_err();
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[test]
fn the_server_selects_its_preferred_subprotocol_among_those_offered() {
    for (lines, expected) in [
        (&["restive.v1"][..], Some("restive.v1")),
        (&["other, restive.v1 ,restive.v2"], Some("restive.v2")),
        (&["other", "restive.v1"], Some("restive.v1")),
        (&["other,, restive.v1"], Some("restive.v1")),
        (&["other", "RESTIVE.V1"], None),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("sec-websocket-protocol", *line)).collect();
        let headers = with(&lines);
        let accepted = accept(&headers).unwrap();
        assert_eq!(accepted.protocol.as_deref(), expected, "{lines:?}");
        let said = accepted.headers.get("sec-websocket-protocol");
        assert_eq!(said.map(|value| value.to_str().unwrap()), expected);
    }
    let headers = with(&[("sec-websocket-protocol", "a, b"), ("sec-websocket-protocol", "c")]);
    assert_eq!(websocket::offered_protocols(&headers).collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// The answer to these offers: the window of the server, of the client, and whether each is named.
type Agreed = Option<(u8, bool, u8, bool)>;

#[test]
fn the_first_acceptable_compression_offer_is_selected() {
    let usual: Agreed = Some((15, false, 15, false));
    for (offer, expected) in [
        ("permessage-deflate", usual),
        ("permessage-deflate; client_max_window_bits", usual),
        ("permessage-deflate; client_max_window_bits=10", Some((15, false, 10, true))),
        ("permessage-deflate; client_max_window_bits=8", Some((15, false, 8, true))),
        ("permessage-deflate;server_max_window_bits=9", Some((9, true, 15, false))),
        ("permessage-deflate; server_max_window_bits = \"12\"", Some((12, true, 15, false))),
        ("permessage-deflate; server_no_context_takeover", usual),
        ("permessage-deflate; client_no_context_takeover; server_no_context_takeover", usual),
        // The first that can be met.
        ("permessage-deflate; server_max_window_bits=8, permessage-deflate", usual),
        ("x-webkit-deflate-frame, permessage-deflate", usual),
        ("permessage-deflate; mystery, permessage-deflate; client_max_window_bits", usual),
        (
            "permessage-deflate; server_max_window_bits=10, permessage-deflate",
            Some((10, true, 15, false)),
        ),
        // None that can be met.
        ("", None),
        ("x-webkit-deflate-frame", None),
        ("Permessage-Deflate", None),
        ("permessage-deflate; mystery", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_max_window_bits=8", None),
        ("permessage-deflate; server_max_window_bits=16", None),
        ("permessage-deflate; server_max_window_bits=7", None),
        ("permessage-deflate; server_max_window_bits=09", None),
        ("permessage-deflate; server_max_window_bits=+9", None),
        ("permessage-deflate; server_max_window_bits=ten", None),
        ("permessage-deflate; client_max_window_bits=16", None),
        ("permessage-deflate; client_max_window_bits=010", None),
        ("permessage-deflate; server_no_context_takeover=1", None),
        ("permessage-deflate; client_no_context_takeover=true", None),
        ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits=10", None),
        ("permessage-deflate; server_max_window_bits=9; server_max_window_bits=9", None),
    ] {
        let accepted = accept(&with(&[("sec-websocket-extensions", offer)])).unwrap();
        let deflate = expected.map(|(server_window_bits, _, client_window_bits, _)| Deflate {
            server_window_bits,
            client_window_bits,
        });
        assert_eq!(accepted.deflate, deflate, "{offer}");
        let said = accepted.headers.get("sec-websocket-extensions");
        let answer = expected.map(|(server, names_server, client, names_client)| {
            let mut answer = String::from(
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            );
            if names_server {
                answer.push_str(&format!("; server_max_window_bits={server}"));
            }
            if names_client {
                answer.push_str(&format!("; client_max_window_bits={client}"));
            }
            answer
        });
        assert_eq!(said.map(|value| value.to_str().unwrap().to_owned()), answer, "{offer}");
    }
    let offer = ("sec-websocket-extensions", "permessage-deflate");
    let plain = Options::default();
    let accepted =
        websocket::accept(&Method::GET, Version::HTTP_11, &with(&[offer]), &plain).unwrap();
    assert_eq!(accepted.deflate, None);
    assert!(!accepted.headers.contains_key("sec-websocket-extensions"));
}
