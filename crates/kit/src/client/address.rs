//! The address of a server, from a URL, and the encoding of paths and queries.

use super::Error;
use http::Uri;

#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// For the `Host` header.
    pub(super) authority: String,
    /// Comes before every path; without a slash at its end.
    pub(super) prefix: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address, Error> {
        let invalid = |why: &str| {
            let example = "write a URL such as https://api.example.com";
            Err(Error::Invalid(format!("the URL of the server {why}; {example}")))
        };
        let Ok(uri) = url.parse::<Uri>() else { return invalid("cannot be read") };
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return invalid("must begin with http:// or https://"),
        };
        let Some(authority) = uri.authority() else { return invalid("has no host") };
        if authority.as_str().contains('@') {
            return invalid("must not contain credentials");
        }
        if uri.query().is_some() {
            return invalid("must not have a query");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return invalid("has no host");
        }
        let port = match (authority.port(), tls) {
            (Some(port), _) => port.as_u16(),
            (None, true) => 443,
            (None, false) => 80,
        };
        Ok(Address {
            tls,
            host,
            port,
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Encodes one segment of a path, or one name or value of a query.
pub(crate) fn encode(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'*' | b',' => {
                out.push(char::from(byte));
            }
            _ => {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_from_a_url_and_bad_urls_are_refused_with_a_reason() {
        let check = |url: &str, host: &str, port: u16, prefix: &str| {
            let address = Address::parse(url).unwrap();
            assert_eq!((&*address.host, address.port, &*address.prefix), (host, port, prefix));
        };
        check("https://api.example.com", "api.example.com", 443, "");
        check("http://localhost:8080/", "localhost", 8080, "");
        check("http://[::1]:81/shop/", "::1", 81, "/shop");
        for (url, reason) in [
            ("localhost:8080", "must begin with"),
            ("ftp://a", "must begin with"),
            ("/v1", "must begin with"),
            ("http://a b", "cannot be read"),
            ("https://key:@a", "must not contain credentials"),
            ("https://a?x=1", "must not have a query"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("key"), "{error}");
        }
    }

    #[test]
    fn reserved_characters_are_encoded() {
        let mut out = String::new();
        encode("a/b?c=d&e f+ü,*", &mut out);
        assert_eq!(out, "a%2Fb%3Fc%3Dd%26e%20f%2B%C3%BC,*");
    }
}
