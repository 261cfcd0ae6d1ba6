//! The client of a request that came through proxies: `X-Forwarded-For` and `Forwarded` (RFC 7239)
//! are read from the right, where our own proxies wrote. The client is the right-most address that
//! is not a trusted proxy. A trusted proxy that names nobody readable, or two different clients, is
//! refused: rules and limits for the client's address must not see the proxy's instead.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::FORWARDED;

use super::networks::Networks;
use crate::fault::Fault;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

const CONTRADICTION: Fault = Fault::Malformed(
    "X-Forwarded-For and Forwarded name different clients, so the address of the client is not \
     known. Configure the proxy to send one of the two and to remove the other.",
);
const LIST_UNREADABLE: Fault = Fault::Malformed(
    "X-Forwarded-For has no readable address where the trusted proxy must name its client. \
     Configure the proxy to append the IP address of its client.",
);
const ELEMENTS_UNREADABLE: Fault = Fault::Malformed(
    "Forwarded has no readable address where the trusted proxy must name its client. Configure \
     the proxy to append `for=` with the IP address of its client.",
);

/// The client of a request with these headers: the peer itself, unless the peer is a trusted proxy
/// and names another.
pub(crate) fn client(
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: &Networks,
) -> Result<IpAddr, Fault> {
    let peer = peer.to_canonical();
    if trusted.is_empty() || !trusted.contains(peer) {
        return Ok(peer);
    }
    let listed = texts(headers, X_FORWARDED_FOR).map(|chain| {
        let entries = chain.iter().flat_map(|text| text.split(',').map(str::trim));
        walk(entries.map(address).collect(), trusted).ok_or(LIST_UNREADABLE)
    });
    let described = texts(headers, FORWARDED.as_str()).map(|chain| {
        let entries = chain.iter().flat_map(|text| elements(text));
        let entries = entries.map(|element| node(&element).and_then(|n| address(&n)));
        walk(entries.collect(), trusted).ok_or(ELEMENTS_UNREADABLE)
    });
    match (listed.transpose()?, described.transpose()?) {
        // A proxy that writes one of them passes the other on as the client sent it.
        (Some(listed), Some(described)) if listed != described => Err(CONTRADICTION),
        (Some(client), _) | (None, Some(client)) => Ok(client),
        // For logs and limits only, see `names_client`.
        (None, None) => Ok(peer),
    }
}

/// Whether a trusted proxy that sent these headers names its client. One that does not is not the
/// client itself: its address must not satisfy a rule about the client's.
pub(crate) fn names_client(headers: &HeaderMap) -> bool {
    headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED)
}

/// All values of a header, in their order; none if there are none. What is no text stays, as an
/// entry that cannot be read: left out, it would take what a proxy wrote behind it along.
fn texts<'h>(headers: &'h HeaderMap, name: &str) -> Option<Vec<Cow<'h, str>>> {
    let values = headers.get_all(name).iter();
    let texts: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!texts.is_empty()).then_some(texts)
}

/// The right-most address that is not trusted, or the left-most if all are. None if an entry that
/// cannot be read comes before it.
fn walk(chain: Vec<Option<IpAddr>>, trusted: &Networks) -> Option<IpAddr> {
    let mut nearest = None;
    for entry in chain.into_iter().rev() {
        nearest = Some(entry?);
        if !trusted.contains(entry?) {
            break;
        }
    }
    nearest
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let plain = bare.parse::<IpAddr>().ok();
    let address = plain.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(address.to_canonical())
}

/// The elements of `Forwarded`: separated by commas, but not by those in quotes.
fn elements(text: &str) -> Vec<String> {
    split(text, ',')
}

/// The value of `for` in one element.
fn node(element: &str) -> Option<String> {
    split(element, ';').into_iter().find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("for") {
            return None;
        }
        let value = value.trim();
        match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
            Some(quoted) => Some(quoted.replace('\\', "")),
            None => Some(value.to_owned()),
        }
    })
}

fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for letter in text.chars() {
        if letter == separator && !quoted {
            parts.push(String::new());
            continue;
        }
        if letter == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = letter == '\\' && !escaped;
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    match quoted {
        // A quote that does not end would swallow what a proxy wrote behind it.
        true => vec![String::new()],
        false => parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn read(peer: &str, fields: &[(&str, &str)]) -> Result<String, Fault> {
        let trusted = "10.0.0.0/8, 2001:db8:1::/48".parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &headers, &trusted).map(|address| address.to_string())
    }

    fn check(fields: &[(&str, &str)], expected: Result<&str, Fault>) {
        assert_eq!(read("10.0.0.1", fields), expected.map(str::to_owned), "{fields:?}");
    }

    #[test]
    fn headers_of_a_peer_that_is_no_trusted_proxy_are_ignored() {
        for field in [
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-for", "unknown"),
            ("forwarded", "for=198.51.100.1"),
        ] {
            assert_eq!(read("192.0.2.1", &[field]), Ok("192.0.2.1".to_owned()), "{field:?}");
        }
        check(&[("x-real-ip", "198.51.100.1")], Ok("10.0.0.1"));
        check(&[], Ok("10.0.0.1"));
    }

    #[test]
    fn the_client_is_the_right_most_address_that_is_not_trusted() {
        let xff = "x-forwarded-for";
        for (fields, expected) in [
            (&[(xff, "198.51.100.1")][..], Ok("198.51.100.1")),
            (&[(xff, "1.1.1.1, 198.51.100.1, 10.9.9.9")], Ok("198.51.100.1")),
            (&[(xff, "1.1.1.1"), (xff, "198.51.100.1"), (xff, "10.1.1.1")], Ok("198.51.100.1")),
            // All are ours: the first of them asked.
            (&[(xff, "10.3.3.3, 10.2.2.2")], Ok("10.3.3.3")),
            // What the client wrote before the proxy's own entry is not read.
            (&[(xff, "unknown, 198.51.100.1, 10.2.2.2")], Ok("198.51.100.1")),
            // A proxy's entry that cannot be read hides the client.
            (&[(xff, "198.51.100.1, unknown, 10.2.2.2")], Err(LIST_UNREADABLE)),
            (&[(xff, "198.51.100.1, , 10.2.2.2")], Err(LIST_UNREADABLE)),
            (&[(xff, "198.51.100.1,")], Err(LIST_UNREADABLE)),
            (&[(xff, "unknown, 10.2.2.2")], Err(LIST_UNREADABLE)),
            (&[(xff, "")], Err(LIST_UNREADABLE)),
            (&[(xff, "198.51.100.1:4711")], Ok("198.51.100.1")),
            (&[(xff, "2001:db8:2::7")], Ok("2001:db8:2::7")),
            (&[(xff, "[2001:db8:2::7]:443, 2001:db8:1::1")], Ok("2001:db8:2::7")),
            (&[(xff, "::ffff:198.51.100.1")], Ok("198.51.100.1")),
            (&[(xff, "198.51.100.1\t,\t10.2.2.2")], Ok("198.51.100.1")),
        ] {
            check(fields, expected);
        }
        let mapped = read("::ffff:10.0.0.1", &[(xff, "198.51.100.1")]);
        assert_eq!(mapped, Ok("198.51.100.1".to_owned()));
    }

    #[test]
    fn a_value_that_is_not_text_does_not_hide_the_addresses_after_it() {
        let mut headers = HeaderMap::new();
        let value = http::HeaderValue::from_bytes(b"\xff, 198.51.100.7").unwrap();
        headers.insert(X_FORWARDED_FOR, value);
        headers.insert(FORWARDED, "for=9.9.9.9".parse().unwrap());
        let (peer, trusted) = ("10.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap());
        assert_eq!(client(peer, &headers, &trusted), Err(CONTRADICTION));
        headers.remove(FORWARDED);
        assert_eq!(client(peer, &headers, &trusted).unwrap().to_string(), "198.51.100.7");
        headers.insert(X_FORWARDED_FOR, http::HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(client(peer, &headers, &trusted), Err(LIST_UNREADABLE));
    }

    #[test]
    fn the_standard_header_is_read_and_a_contradiction_is_refused() {
        let (f, xff) = ("forwarded", "x-forwarded-for");
        for (fields, expected) in [
            (&[(f, "for=198.51.100.1")][..], Ok("198.51.100.1")),
            (&[(f, "For=\"[2001:db8:2::7]:4711\";proto=https, for=10.1.1.1")], Ok("2001:db8:2::7")),
            (&[(f, "for=1.1.1.1, proto=http;for=198.51.100.1;by=10.0.0.1")], Ok("198.51.100.1")),
            (&[(f, "host=\"a,for=1.1.1.1\";for=198.51.100.1")], Ok("198.51.100.1")),
            (&[(f, "for=_hidden, for=10.1.1.1")], Err(ELEMENTS_UNREADABLE)),
            (&[(f, "for=unknown")], Err(ELEMENTS_UNREADABLE)),
            (&[(f, "for=9.9.9.9;x=\", for=198.51.100.1")], Err(ELEMENTS_UNREADABLE)),
            (&[(f, "proto=https")], Err(ELEMENTS_UNREADABLE)),
            (&[(f, "for=198.51.100.1"), (xff, "198.51.100.1")], Ok("198.51.100.1")),
            (&[(f, "for=198.51.100.1"), (xff, "198.51.100.2")], Err(CONTRADICTION)),
            (&[(f, "for=198.51.100.1"), (xff, "unknown")], Err(LIST_UNREADABLE)),
            (&[(f, "for=unknown"), (xff, "198.51.100.1")], Err(ELEMENTS_UNREADABLE)),
        ] {
            check(fields, expected);
        }
    }
}
