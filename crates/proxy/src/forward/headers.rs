//! Headers on their way through the proxy: fields of one connection are removed, the client's
//! address is added, and forged or ambiguous requests are refused. No I/O.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    ALT_SVC, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
    EXPECT, FORWARDED, HOST, HeaderName, IF_MATCH, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_KEY, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, VIA, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use wire::tls::ClientCertificate;

use crate::config::Edits;
use crate::error::Failure;
use crate::follow::RESTIVE_EDGE;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
const X_CLIENT_SUBJECT: HeaderName = HeaderName::from_static("x-client-subject");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Fields of one connection (RFC 9110 7.6.1), and those that speak about this proxy's own place.
static HOP_BY_HOP: [HeaderName; 11] = [
    CONNECTION,
    PROXY_CONNECTION,
    KEEP_ALIVE,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    TRAILER,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    // A backend's alternative services are not reachable for clients.
    ALT_SVC,
    // Between this proxy and its backends only.
    RESTIVE_EDGE,
];

/// Fields that mean something only in the head of a final response.
static FINAL_ONLY: [HeaderName; 8] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    CONTENT_TYPE,
    DATE,
    SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
    WWW_AUTHENTICATE,
];

/// Between two addresses of a chain.
const SEPARATOR: &str = ", ";

/// Whoever has these removed by `Connection` wants to change what the request means.
const NEVER_NOMINATED: [&str; 8] = [
    "host",
    "forwarded",
    "authorization",
    "cookie",
    "origin",
    "idempotency-key",
    "if-match",
    "if-none-match",
];

/// Who sent a request, and how it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) client: IpAddr,
    /// Whether `client` is the client, and not a proxy that named nobody.
    pub(crate) is_client_known: bool,
    /// The peer is a proxy whose forwarding headers are believed.
    pub(crate) is_trusted: bool,
    pub(crate) is_secure: bool,
    pub(crate) version: Version,
    /// The name of this proxy in `Via`.
    pub(crate) name: &'a str,
    /// The id of the request in the log.
    pub(crate) request_id: &'a str,
    /// The certificate that the client has shown to this proxy.
    pub(crate) certificate: Option<&'a ClientCertificate>,
}

/// Whether a request is safe to forward.
pub(crate) fn check(headers: &HeaderMap, name: &str) -> Result<(), Failure> {
    if let Some(bad) = headers.keys().find(|key| key.as_str().contains('_')) {
        let message = format!(
            "The header name `{bad}` contains an underscore, which some servers read as a hyphen."
        );
        return Err(Failure::bad_request("malformed_request", message));
    }
    if !headers.contains_key(HOST) {
        return Err(Failure::bad_request("malformed_request", "The request names no host."));
    }
    let has_name = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(name));
    if headers.get_all(VIA).iter().any(has_name) {
        let message = "The request came back to this proxy: its backend leads to the proxy.";
        return Err(Failure::new(http::StatusCode::LOOP_DETECTED, "loop_detected", message));
    }
    let nominated = nominated(headers);
    let is_protected = |option: &String| {
        NEVER_NOMINATED.contains(&option.as_str())
            || option.starts_with("content-")
            || option.starts_with("x-forwarded-")
            || option == X_REAL_IP.as_str()
    };
    match nominated.iter().find(|option| is_protected(option)) {
        Some(option) => {
            let message =
                format!("`Connection` names `{option}`, which is not about a connection.");
            Err(Failure::bad_request("malformed_request", message))
        }
        None => Ok(()),
    }
}

/// The headers of the forwarded request. Keeps `Upgrade` of a WebSocket handshake, which the
/// upstream client completes with `Connection`.
pub(crate) fn request(headers: &mut HeaderMap, sender: Sender<'_>, edits: &Edits) {
    let upgrade = headers.get(UPGRADE).filter(|value| is_websocket(value)).cloned();
    // On HTTP/2 and HTTP/3 there is no `Connection`: wire has translated an extended CONNECT.
    let is_stream = sender.version >= Version::HTTP_2;
    // RFC 9110 7.8: in HTTP/1.0 it means nothing.
    let is_asked = |headers: &HeaderMap| {
        sender.version == Version::HTTP_11
            && nominated(headers).iter().any(|option| option == "upgrade")
    };
    let upgrade = upgrade.filter(|_| is_stream || is_asked(headers));
    let takes_trailers = headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|te| te.split(',').any(|c| c.trim().starts_with("trailers")))
    });
    strip(headers);
    if sender.version >= Version::HTTP_2 {
        // Wire answers it on these protocols; to the backend the body is there.
        headers.remove(EXPECT);
    }
    add_forwarding(headers, sender);
    add_via(headers, sender);
    add_certificate(headers, sender);
    if let Ok(id) = HeaderValue::from_str(sender.request_id) {
        headers.insert(X_REQUEST_ID, id);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        if is_stream {
            headers.insert(SEC_WEBSOCKET_KEY, handshake_key());
        }
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    apply(edits, headers);
}

/// Makes the tags of `If-Match` strong. The tag of a compressed response is weak, and a client that
/// sends it back means what it has read. A server whose own tags are weak still finds no match.
pub(crate) fn strengthen(headers: &mut HeaderMap) {
    let Some(text) = headers.get(IF_MATCH).and_then(|value| value.to_str().ok()) else { return };
    if !text.contains("W/\"") || headers.get_all(IF_MATCH).iter().count() > 1 {
        return;
    }
    if let Ok(strong) = HeaderValue::from_str(&text.replace("W/\"", "\"")) {
        headers.insert(IF_MATCH, strong);
    }
}

/// The key of a handshake on HTTP/1.1, which a WebSocket on a stream does not have: 16 bytes that a
/// cache cannot know.
fn handshake_key() -> HeaderValue {
    let random = || RandomState::new().build_hasher().finish().to_le_bytes();
    let key = BASE64_STANDARD.encode([random(), random()].concat());
    HeaderValue::from_str(&key).unwrap_or(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="))
}

/// The headers of the response for the client.
pub(crate) fn response(headers: &mut HeaderMap, edits: &Edits) {
    strip(headers);
    apply(edits, headers);
}

/// The headers of an interim response for the client. What is about the body or the client's later
/// requests belongs to the final response.
pub(crate) fn interim(headers: &mut HeaderMap, edits: &Edits) {
    strip(headers);
    for name in &FINAL_ONLY {
        headers.remove(name);
    }
    for name in &edits.remove {
        headers.remove(name);
    }
}

/// Whether a field behind the body of a request is forwarded. What says where a request comes from
/// belongs before the body, where the proxy writes it.
pub(crate) fn keeps_request_trailer(name: &HeaderName) -> bool {
    let text = name.as_str();
    let is_forged = text.starts_with("x-forwarded-")
        || text.contains('_')
        || [FORWARDED, VIA, X_REAL_IP, X_REQUEST_ID].contains(name)
        || [CLIENT_CERT, CLIENT_CERT_CHAIN, X_CLIENT_SUBJECT].contains(name);
    !is_forged && !HOP_BY_HOP.contains(name)
}

/// The fields behind the body of a response, for the client.
pub(crate) fn response_trailers(trailers: &mut HeaderMap, edits: &Edits) {
    strip(trailers);
    for name in FINAL_ONLY.iter().chain(&edits.remove) {
        trailers.remove(name);
    }
}

pub(crate) fn apply(edits: &Edits, headers: &mut HeaderMap) {
    for name in &edits.remove {
        headers.remove(name);
    }
    for (name, value) in &edits.set {
        headers.insert(name, value.clone());
    }
}

/// First what `Connection` names, then the fixed set: in the other order the names would be lost.
fn strip(headers: &mut HeaderMap) {
    // Most messages have none: one pass over their names costs less than a lookup of each.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    for option in nominated(headers) {
        headers.remove(option.as_str());
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The fields that `Connection` names, in lower case.
fn nominated(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let options = values.flat_map(|text| text.split(',')).map(str::trim);
    let options = options.filter(|option| !option.is_empty()).map(str::to_ascii_lowercase);
    options.filter(|option| !matches!(option.as_str(), "close" | "keep-alive")).collect()
}

/// A 426 names the protocol that the server wants (RFC 9110 15.5.22): only WebSockets have tunnels.
pub(crate) fn keep_required_upgrade(
    status: StatusCode,
    upgrade: Option<&HeaderValue>,
    headers: &mut HeaderMap,
) {
    let upgrade = upgrade.filter(|upgrade| is_websocket(upgrade));
    if let Some(upgrade) = upgrade.filter(|_| status == StatusCode::UPGRADE_REQUIRED) {
        headers.insert(UPGRADE, upgrade.clone());
    }
}

fn is_websocket(value: &HeaderValue) -> bool {
    value.as_bytes().eq_ignore_ascii_case(b"websocket")
}

/// Says for whom the request is sent. What a peer says that is not trusted is replaced.
fn add_forwarding(headers: &mut HeaderMap, sender: Sender<'_>) {
    if !sender.is_trusted {
        let is_forged = |name: &&HeaderName| name.as_str().starts_with("x-forwarded-");
        let forged: Vec<HeaderName> = headers.keys().filter(is_forged).cloned().collect();
        for name in forged {
            headers.remove(name);
        }
        headers.remove(FORWARDED);
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme(sender.is_secure)));
    }
    if !headers.contains_key(X_FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(X_FORWARDED_HOST, host);
    }
    // A server must not take the address of a proxy for that of a client.
    if !sender.is_client_known {
        for name in [FORWARDED, X_FORWARDED_FOR, X_REAL_IP] {
            headers.remove(name);
        }
        return;
    }
    let client = sender.client.to_string();
    let chain = chain(headers, sender, &client);
    if let Some(forwarded) = forwarded(&chain, headers) {
        headers.insert(FORWARDED, forwarded);
    }
    if let Ok(chain) = HeaderValue::try_from(chain) {
        headers.insert(X_FORWARDED_FOR, chain);
    }
    if let Ok(client) = HeaderValue::try_from(client) {
        headers.insert(X_REAL_IP, client);
    }
}

fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

/// The addresses from the client to the peer, as `X-Forwarded-For` has them.
fn chain(headers: &HeaderMap, sender: Sender<'_>, client: &str) -> String {
    let values = headers.get_all(X_FORWARDED_FOR).iter();
    let texts: Result<Vec<&str>, _> = values.map(HeaderValue::to_str).collect();
    let mut chain = String::new();
    // A chain with a part that cannot be read begins anew: its readable rest may name another
    // client.
    for entry in texts.unwrap_or_default().iter().flat_map(|text| text.split(',')) {
        chain.push_str(entry.trim());
        chain.push_str(SEPARATOR);
    }
    let peer = sender.peer.to_canonical();
    if peer == sender.client {
        chain.push_str(client);
        return chain;
    }
    if chain.is_empty() {
        chain.push_str(client);
        chain.push_str(SEPARATOR);
    }
    chain.push_str(&peer.to_string());
    chain
}

/// The same as RFC 7239 writes it. Made from the chain alone, so that the two never contradict
/// each other.
fn forwarded(chain: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    let mut text = String::with_capacity(chain.len() + 64);
    for (place, entry) in chain.split(SEPARATOR).enumerate() {
        if place > 0 {
            text.push_str(SEPARATOR);
        }
        let (before, shown, after) = match entry.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => ("for=", entry, ""),
            Ok(IpAddr::V6(_)) => ("for=\"[", entry, "]\""),
            Err(_) => ("for=", "unknown", ""),
        };
        text.extend([before, shown, after]);
    }
    let part = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    for (label, value) in [("host", part(&X_FORWARDED_HOST)), ("proto", part(&X_FORWARDED_PROTO))] {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if let Some(value) = value.filter(|value| value.bytes().all(is_plain)) {
            text.extend([";", label, "=\"", value, "\""]);
        }
    }
    HeaderValue::try_from(text).ok()
}

/// Says who the client has proved to be (RFC 9440). What a peer says about it that is not trusted
/// is removed, also if clients are asked for no certificates.
fn add_certificate(headers: &mut HeaderMap, sender: Sender<'_>) {
    if sender.is_trusted && sender.certificate.is_none() {
        return;
    }
    for name in [CLIENT_CERT, CLIENT_CERT_CHAIN, X_CLIENT_SUBJECT] {
        headers.remove(name);
    }
    let Some(certificate) = sender.certificate else { return };
    if let Ok(subject) = HeaderValue::from_str(certificate.subject()) {
        headers.insert(X_CLIENT_SUBJECT, subject);
    }
    let der = BASE64_STANDARD.encode(certificate.der());
    if let Ok(der) = HeaderValue::from_str(&format!(":{der}:")) {
        headers.insert(CLIENT_CERT, der);
    }
}

fn add_via(headers: &mut HeaderMap, sender: Sender<'_>) {
    let version = match sender.version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    if let Ok(value) = HeaderValue::from_str(&[version, " ", sender.name].concat()) {
        headers.append(VIA, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn sender(is_trusted: bool, client: &str) -> Sender<'static> {
        Sender {
            peer: "10.0.0.9".parse().unwrap(),
            client: client.parse().unwrap(),
            is_trusted,
            is_client_known: true,
            is_secure: true,
            version: Version::HTTP_11,
            name: "restive-1",
            request_id: "req_1",
            certificate: None,
        }
    }

    fn forwarded_by(sender: Sender<'_>, fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = map(fields);
        request(&mut headers, sender, &Edits::default());
        headers
    }

    fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn what_an_untrusted_client_says_about_its_address_is_replaced() {
        let headers = forwarded_by(
            sender(false, "10.0.0.9"),
            &[
                ("host", "example.com:8443"),
                ("x-forwarded-for", "1.1.1.1"),
                ("x-forwarded-proto", "http"),
                ("x-forwarded-host", "evil.example"),
                ("x-real-ip", "1.1.1.1"),
                ("forwarded", "for=1.1.1.1"),
                ("x-client-subject", "CN=admin"),
                ("client-cert", ":MA==:"),
            ],
        );
        assert_eq!(value(&headers, "x-client-subject"), None);
        assert_eq!(value(&headers, "client-cert"), None);
        assert_eq!(value(&headers, "x-forwarded-for"), Some("10.0.0.9"));
        assert_eq!(value(&headers, "x-real-ip"), Some("10.0.0.9"));
        assert_eq!(value(&headers, "x-forwarded-proto"), Some("https"));
        assert_eq!(value(&headers, "x-forwarded-host"), Some("example.com:8443"));
        assert_eq!(
            value(&headers, "forwarded"),
            Some("for=10.0.0.9;host=\"example.com:8443\";proto=\"https\"")
        );
        assert_eq!(value(&headers, "via"), Some("1.1 restive-1"));
    }

    #[test]
    fn a_trusted_proxys_chain_is_continued() {
        let headers = forwarded_by(
            sender(true, "2001:db8::7"),
            &[
                ("x-forwarded-for", "unknown, 2001:db8::7"),
                ("x-forwarded-proto", "http"),
                ("forwarded", "for=\"[2001:db8::7]\""),
            ],
        );
        assert_eq!(value(&headers, "x-forwarded-for"), Some("unknown, 2001:db8::7, 10.0.0.9"));
        assert_eq!(value(&headers, "x-forwarded-proto"), Some("http"));
        assert_eq!(value(&headers, "x-real-ip"), Some("2001:db8::7"));
        let expected = "for=unknown, for=\"[2001:db8::7]\", for=10.0.0.9;proto=\"http\"";
        assert_eq!(value(&headers, "forwarded"), Some(expected));
        let mut unreadable = map(&[("x-forwarded-for", "127.0.0.1")]);
        let last = HeaderValue::from_bytes(b"\xff, 198.51.100.1").unwrap();
        unreadable.append(X_FORWARDED_FOR, last);
        request(&mut unreadable, sender(true, "198.51.100.1"), &Edits::default());
        assert_eq!(value(&unreadable, "x-forwarded-for"), Some("198.51.100.1, 10.0.0.9"));
        let headers = forwarded_by(sender(true, "198.51.100.1"), &[]);
        assert_eq!(value(&headers, "x-forwarded-for"), Some("198.51.100.1, 10.0.0.9"));
    }

    #[test]
    fn fields_of_one_connection_stay_on_it() {
        let headers = forwarded_by(
            sender(false, "10.0.0.9"),
            &[
                ("connection", "close, X-Private"),
                ("x-private", "1"),
                ("keep-alive", "timeout=5"),
                ("te", "trailers, deflate"),
                ("proxy-authorization", "Basic x"),
                ("upgrade", "websocket"),
                ("accept", "*/*"),
            ],
        );
        for gone in ["connection", "x-private", "keep-alive", "proxy-authorization", "upgrade"] {
            assert_eq!(value(&headers, gone), None, "{gone}");
        }
        assert_eq!(value(&headers, "te"), Some("trailers"));
        assert_eq!(value(&headers, "accept"), Some("*/*"));
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let headers = forwarded_by(sender(false, "10.0.0.9"), &upgrade);
        assert_eq!(value(&headers, "upgrade"), Some("WebSocket"));
        let upgrade = [("connection", "upgrade"), ("upgrade", "h2c")];
        let headers = forwarded_by(sender(false, "10.0.0.9"), &upgrade);
        assert_eq!(value(&headers, "upgrade"), None);
        let mut headers =
            map(&[("connection", "x-a"), ("x-a", "1"), ("alt-svc", "h3"), ("b", "2")]);
        response(&mut headers, &Edits::default());
        assert_eq!(headers, map(&[("b", "2")]));
    }

    #[test]
    fn forged_and_ambiguous_requests_are_refused() {
        for (fields, code) in [
            (&[("connection", "close, host")][..], Some("malformed_request")),
            (&[("connection", "Content-Length")], Some("malformed_request")),
            (&[("connection", "x-forwarded-for")], Some("malformed_request")),
            (&[("connection", "Authorization")], Some("malformed_request")),
            (&[("x_forwarded_for", "1.1.1.1")], Some("malformed_request")),
            (&[("via", "1.1 a, 1.1 restive-1")], Some("loop_detected")),
            (&[("via", "1.1 restive-2")], None),
            (&[("connection", "upgrade, x-private")], None),
        ] {
            let mut headers = map(fields);
            headers.insert(HOST, HeaderValue::from_static("a"));
            let found = check(&headers, "restive-1").err().map(|failure| failure.code);
            assert_eq!(found, code, "{fields:?}");
        }
    }

    #[test]
    fn edits_remove_first_and_then_set() {
        let mut headers = map(&[("server", "x"), ("x-a", "1"), ("x-a", "2")]);
        let edits = Edits {
            remove: vec!["server".parse().unwrap()],
            set: vec![("x-a".parse().unwrap(), "3".parse().unwrap())],
        };
        response(&mut headers, &edits);
        assert_eq!(headers, map(&[("x-a", "3")]));
    }
}
