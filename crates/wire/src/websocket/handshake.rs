//! The opening handshake (RFC 6455 4.2): checks a request for a WebSocket and builds the response.
//! A request over HTTP/2 or HTTP/3 (RFC 8441, RFC 9220) looks like an upgrade without a key: the
//! protocol itself proves what the key proves on HTTP/1.1.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

use super::{Deflate, extensions};

/// RFC 6455 1.3: proves that the server knows what it agrees to.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The parameters that a server accepts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'o> {
    /// Subprotocols, the preferred one first.
    pub protocols: &'o [&'o str],
    pub compress: bool,
}

/// A valid handshake: the response is 101 with these headers, then the connection is taken over.
#[derive(Clone, Debug)]
pub struct Accepted {
    pub headers: HeaderMap,
    /// The first of the server's subprotocols that the client offers. A browser that offered some
    /// and got none closes the connection.
    pub protocol: Option<String>,
    pub deflate: Option<Deflate>,
}

/// A request that does not ask for a WebSocket, or asks in a wrong way.
#[derive(Clone, Debug)]
pub struct Refused {
    pub status: StatusCode,
    /// The headers that belong to the status: `Allow`, or `Upgrade` and the supported version.
    pub headers: HeaderMap,
    /// One sentence for the person who sent the request.
    pub reason: &'static str,
}

/// Checks an opening handshake.
pub fn accept(
    method: &Method,
    version: Version,
    headers: &HeaderMap,
    options: &Options<'_>,
) -> Result<Accepted, Refused> {
    check(method, version, headers)?;
    let mut answer = HeaderMap::with_capacity(4);
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if version < Version::HTTP_2 {
        answer.insert(SEC_WEBSOCKET_ACCEPT, proof(key(headers)?));
    }
    let protocol = choose(headers, options.protocols)?;
    if let Some(protocol) = protocol {
        let value = HeaderValue::from_str(protocol).expect("a client sent it in a header");
        answer.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
    let agreed = extensions::agree(headers, options.compress)
        .map_err(|_| Refused::bad("Sec-WebSocket-Extensions must be a list of extensions."))?;
    let deflate = agreed.map(|(deflate, value)| {
        answer.insert(SEC_WEBSOCKET_EXTENSIONS, value);
        deflate
    });
    Ok(Accepted { headers: answer, protocol: protocol.map(str::to_owned), deflate })
}

/// The subprotocols that a client offers, the preferred one first, including those that are no
/// tokens.
pub fn offered_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    elements(headers, SEC_WEBSOCKET_PROTOCOL)
}

fn check(method: &Method, version: Version, headers: &HeaderMap) -> Result<(), Refused> {
    if method != Method::GET {
        let allow = HeaderMap::from_iter([(ALLOW, HeaderValue::from_static("GET"))]);
        let reason = "A WebSocket is asked for with GET.";
        return Err(Refused { status: StatusCode::METHOD_NOT_ALLOWED, headers: allow, reason });
    }
    if version < Version::HTTP_11 {
        return Err(Refused::bad("A WebSocket needs HTTP/1.1 or later."));
    }
    if !names(headers, UPGRADE, "websocket") {
        return Err(Refused::upgrade(
            "This is a WebSocket: ask for it with Upgrade: websocket and Connection: Upgrade.",
        ));
    }
    if !names(headers, CONNECTION, "upgrade") {
        return Err(Refused::bad("Connection must name Upgrade."));
    }
    if only(headers, SEC_WEBSOCKET_VERSION) != Some(b"13") {
        return Err(Refused::upgrade("Sec-WebSocket-Version must be 13."));
    }
    let length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    if headers.contains_key(TRANSFER_ENCODING) || !matches!(length, None | Some(b"0")) {
        return Err(Refused::bad("The request for a WebSocket must not have a body."));
    }
    Ok(())
}

/// Sixteen bytes in base64, of any value.
fn key(headers: &HeaderMap) -> Result<&[u8], Refused> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    only(headers, SEC_WEBSOCKET_KEY)
        .filter(|key| key.len() == 24 && key.ends_with(b"==") && key[..22].iter().all(is_digit))
        .ok_or(Refused::bad("Sec-WebSocket-Key must be 16 bytes in base64, once."))
}

/// The protocol requires SHA-1 here; the hash protects nothing.
fn proof(key: &[u8]) -> HeaderValue {
    let mut sha1 = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    sha1.update(key);
    sha1.update(GUID);
    HeaderValue::try_from(STANDARD.encode(sha1.finish())).expect("base64 may stand in a header")
}

fn choose<'h>(headers: &'h HeaderMap, ours: &[&str]) -> Result<Option<&'h str>, Refused> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL);
    let is_text = values.iter().all(|value| value.to_str().is_ok());
    if !is_text || !offered_protocols(headers).all(|name| name.bytes().all(extensions::is_token)) {
        return Err(Refused::bad("Sec-WebSocket-Protocol must be a list of tokens."));
    }
    let find = |ours: &&str| offered_protocols(headers).find(|theirs| theirs == ours);
    Ok(ours.iter().find_map(find))
}

/// The elements of a list, which may be spread over several lines. Empty ones do not count
/// (RFC 9110 5.6.1).
fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|element| element.trim_matches([' ', '\t']))
        .filter(|element| !element.is_empty())
}

fn names(headers: &HeaderMap, name: HeaderName, element: &str) -> bool {
    elements(headers, name).any(|named| named.eq_ignore_ascii_case(element))
}

/// The value of a header that must not occur twice.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?.as_bytes();
    if values.next().is_some() { None } else { Some(value.trim_ascii()) }
}

impl Refused {
    fn bad(reason: &'static str) -> Refused {
        Refused { status: StatusCode::BAD_REQUEST, headers: HeaderMap::new(), reason }
    }

    fn upgrade(reason: &'static str) -> Refused {
        let headers = HeaderMap::from_iter([
            (UPGRADE, HeaderValue::from_static("websocket")),
            (SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
        ]);
        Refused { status: StatusCode::UPGRADE_REQUIRED, headers, reason }
    }
}
