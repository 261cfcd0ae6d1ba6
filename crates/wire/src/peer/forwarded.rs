//! The client of a request that came through proxies: `X-Forwarded-For` and `Forwarded` (RFC 7239)
//! read from the right, where our own proxies wrote, to the first address that is none of theirs.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::FORWARDED;

use super::networks::Networks;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// For whom the peer asks. Itself, unless it is a trusted proxy and says otherwise.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &Networks) -> IpAddr {
    let peer = peer.to_canonical();
    if trusted.is_empty() || !trusted.contains(peer) {
        return peer;
    }
    let listed = texts(headers, X_FORWARDED_FOR).map(|chain| {
        let entries = chain.iter().flat_map(|text| text.split(',').map(str::trim));
        walk(peer, entries.map(address).collect(), trusted)
    });
    let described = texts(headers, FORWARDED.as_str()).map(|chain| {
        let entries = chain.iter().flat_map(|text| elements(text));
        walk(
            peer,
            entries.map(|element| node(&element).and_then(|n| address(&n))).collect(),
            trusted,
        )
    });
    match (listed, described) {
        // A proxy that writes one of them passes the other on as the client sent it.
        (Some(listed), Some(described)) if listed != described => peer,
        (Some(client), _) | (None, Some(client)) => client,
        (None, None) => peer,
    }
}

/// All values of a header, in their order; none if there are none. What is no text stays, as an
/// entry that cannot be read: left out, it would take what a proxy wrote behind it along.
fn texts<'h>(headers: &'h HeaderMap, name: &str) -> Option<Vec<Cow<'h, str>>> {
    let values = headers.get_all(name).iter();
    let texts: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!texts.is_empty()).then_some(texts)
}

/// From the right: the first that is not trusted. What cannot be read ends the walk.
fn walk(peer: IpAddr, chain: Vec<Option<IpAddr>>, trusted: &Networks) -> IpAddr {
    let mut nearest = peer;
    for entry in chain.into_iter().rev() {
        let Some(address) = entry else { break };
        nearest = address;
        if !trusted.contains(address) {
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

    fn told(peer: &str, fields: &[(&str, &str)]) -> String {
        let trusted = "10.0.0.0/8, 2001:db8:1::/48".parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn a_stranger_is_not_believed() {
        assert_eq!(told("192.0.2.1", &[("x-forwarded-for", "198.51.100.1")]), "192.0.2.1");
        assert_eq!(told("192.0.2.1", &[("forwarded", "for=198.51.100.1")]), "192.0.2.1");
        assert_eq!(told("10.0.0.1", &[("x-real-ip", "198.51.100.1")]), "10.0.0.1");
    }

    #[test]
    fn the_list_is_read_from_the_right_to_the_first_stranger() {
        let xff = "x-forwarded-for";
        for (fields, expected) in [
            (&[(xff, "198.51.100.1")][..], "198.51.100.1"),
            (&[(xff, "1.1.1.1, 198.51.100.1, 10.9.9.9")], "198.51.100.1"),
            (&[(xff, "1.1.1.1"), (xff, "198.51.100.1"), (xff, "10.1.1.1")], "198.51.100.1"),
            // All are ours: the first of them asked.
            (&[(xff, "10.3.3.3, 10.2.2.2")], "10.3.3.3"),
            // What follows something unreadable may be anything.
            (&[(xff, "198.51.100.1, unknown, 10.2.2.2")], "10.2.2.2"),
            (&[(xff, "198.51.100.1, , 10.2.2.2")], "10.2.2.2"),
            (&[(xff, "")], "10.0.0.1"),
            (&[(xff, "198.51.100.1:4711")], "198.51.100.1"),
            (&[(xff, "2001:db8:2::7")], "2001:db8:2::7"),
            (&[(xff, "[2001:db8:2::7]:443, 2001:db8:1::1")], "2001:db8:2::7"),
            (&[(xff, "::ffff:198.51.100.1")], "198.51.100.1"),
            (&[(xff, "198.51.100.1\t,\t10.2.2.2")], "198.51.100.1"),
        ] {
            assert_eq!(told("10.0.0.1", fields), expected, "{fields:?}");
        }
        assert_eq!(told("::ffff:10.0.0.1", &[(xff, "198.51.100.1")]), "198.51.100.1");
    }

    #[test]
    fn a_value_that_is_no_text_hides_nothing() {
        let mut headers = HeaderMap::new();
        let broken = http::HeaderValue::from_bytes(b"\xff, 198.51.100.7").unwrap();
        headers.insert(X_FORWARDED_FOR, broken);
        headers.insert(FORWARDED, "for=9.9.9.9".parse().unwrap());
        let (peer, trusted) = ("10.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap());
        assert_eq!(client(peer, &headers, &trusted), peer, "the two contradict each other");
        headers.remove(FORWARDED);
        assert_eq!(client(peer, &headers, &trusted).to_string(), "198.51.100.7");
    }

    #[test]
    fn the_standard_header_says_the_same_and_a_contradiction_nothing() {
        let f = "forwarded";
        for (fields, expected) in [
            (&[(f, "for=198.51.100.1")][..], "198.51.100.1"),
            (&[(f, "For=\"[2001:db8:2::7]:4711\";proto=https, for=10.1.1.1")], "2001:db8:2::7"),
            (&[(f, "for=1.1.1.1, proto=http;for=198.51.100.1;by=10.0.0.1")], "198.51.100.1"),
            (&[(f, "host=\"a,for=1.1.1.1\";for=198.51.100.1")], "198.51.100.1"),
            (&[(f, "for=_hidden, for=10.1.1.1")], "10.1.1.1"),
            (&[(f, "for=unknown")], "10.0.0.1"),
            (&[(f, "for=9.9.9.9;x=\", for=198.51.100.1")], "10.0.0.1"),
            (&[(f, "proto=https")], "10.0.0.1"),
            (&[(f, "for=198.51.100.1"), ("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            (&[(f, "for=198.51.100.1"), ("x-forwarded-for", "198.51.100.2")], "10.0.0.1"),
        ] {
            assert_eq!(told("10.0.0.1", fields), expected, "{fields:?}");
        }
    }
}
