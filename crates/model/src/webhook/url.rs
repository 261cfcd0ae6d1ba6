//! Which URLs an endpoint may have. Checks the text alone, when an endpoint is registered.
//! [`address`](super::address) checks the addresses of a name at each call, because they change.
//! Stricter than URLs are in general: a text that two parsers may read differently is refused, so
//! that the checked URL is the called one.

use super::address::{Reach, refusal};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As long as the URLs that servers and proxies commonly take.
pub const MAX_URL_BYTES: usize = 2048;
/// The limit of DNS (RFC 1035).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Path and query may have these in addition to letters and digits (RFC 3986).
const IN_PATH: &[u8] = b"-._~!$&'()*+,;=:@/?%";

/// The error follows the name of the field: "must …".
pub fn check(url: &str, reach: Reach) -> Result<(), String> {
    characters(url)?;
    let (scheme, rest) = url.split_once("://").ok_or("must begin with `https://`")?;
    match (scheme.to_ascii_lowercase().as_str(), reach) {
        ("https", _) | ("http", Reach::Development) => {}
        ("http", Reach::Public) => {
            return Err("must begin with `https://`: events are not sent in the clear".to_owned());
        }
        _ => return Err("must begin with `https://`".to_owned()),
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    if authority.contains('@') {
        return Err("must not carry a user name or password: verify the signature of the request \
                    instead"
            .to_owned());
    }
    let (host, port) = split(authority)?;
    check_port(port)?;
    check_host(host, reach)?;
    check_path(after)
}

fn characters(url: &str) -> Result<(), String> {
    if url.len() > MAX_URL_BYTES {
        return Err(format!("must have at most {MAX_URL_BYTES} bytes, not {}", url.len()));
    }
    if !url.is_ascii() {
        return Err("must be ASCII: write the host in punycode (`xn--…`) and the rest \
                    percent-encoded"
            .to_owned());
    }
    if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("must not contain spaces or control characters".to_owned());
    }
    // Some take it for a slash, and then the host is another one.
    if url.contains('\\') {
        return Err("must not contain `\\`".to_owned());
    }
    Ok(())
}

/// Host, with the brackets of IPv6, and port.
fn split(authority: &str) -> Result<(&str, Option<&str>), String> {
    let from = match authority.starts_with('[') {
        true => authority.find(']').ok_or("must close the bracket of its IPv6 address")? + 1,
        false => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(from);
    match port.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if port.is_empty() => Ok((host, None)),
        None => Err("must have nothing but a port after its IPv6 address".to_owned()),
    }
}

fn check_port(port: Option<&str>) -> Result<(), String> {
    let Some(port) = port else { return Ok(()) };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(1..) if digits => Ok(()),
        _ => Err("must have a port from 1 to 65535 after the colon, or no colon".to_owned()),
    }
}

fn check_host(host: &str, reach: Reach) -> Result<(), String> {
    if host.is_empty() {
        return Err("must name a host".to_owned());
    }
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or(inner);
        if inner.contains('%') {
            return Err("must not carry the zone of an IPv6 address".to_owned());
        }
        let address: Ipv6Addr = inner
            .parse()
            .map_err(|_| format!("must have a valid IPv6 address in brackets, not `{inner}`"))?;
        return check_address(IpAddr::V6(address), reach);
    }
    if is_number(host.trim_end_matches('.').rsplit('.').next().unwrap_or_default()) {
        let address: Ipv4Addr = host.parse().map_err(|_| {
            format!("must spell an IPv4 address as four decimal numbers, not `{host}`")
        })?;
        return check_address(IpAddr::V4(address), reach);
    }
    check_name(host)?;
    match reach {
        Reach::Public => check_public(&host.to_ascii_lowercase()),
        Reach::Development => Ok(()),
    }
}

/// A host that ends with a number is an address to most resolvers: `127.1`, `0x7f.1`, `2130706433`.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn check_address(address: IpAddr, reach: Reach) -> Result<(), String> {
    match refusal(address, reach) {
        None => Ok(()),
        Some(what) => Err(format!("must not lead to {address}: this is {what}")),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("must have a host of at most {MAX_NAME_BYTES} bytes"));
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if let Some(other) = name.bytes().find(|byte| !known(*byte)) {
        return Err(format!("must not have `{}` in its host", char::from(other)));
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err("must not have a host that begins or ends with a dot, or with two in a \
                        row"
            .to_owned());
        }
        if label.len() > MAX_LABEL_BYTES {
            return Err(format!(
                "must have at most {MAX_LABEL_BYTES} bytes between the dots of its host"
            ));
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("must not have a `-` beside a dot or at an end of its host".to_owned());
        }
    }
    Ok(())
}

/// Names that never are public. Any other name may still lead to an address that is refused.
fn check_public(name: &str) -> Result<(), String> {
    let local = ["localhost", "local", "internal"];
    let last = name.rsplit('.').next().unwrap_or_default();
    if !name.contains('.') || local.contains(&last) {
        return Err(format!(
            "must have a host on the public Internet; `{name}` is known in a private network only"
        ));
    }
    Ok(())
}

/// Checks that a request can carry path and query without changes.
fn check_path(after: &str) -> Result<(), String> {
    if after.contains('#') {
        return Err("must not have a fragment (`#…`): it would not be sent".to_owned());
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || IN_PATH.contains(&byte);
    if let Some(other) = after.bytes().find(|byte| !known(*byte)) {
        return Err(format!("must have `{0}` percent-encoded: `%{other:02X}`", char::from(other)));
    }
    let mut pieces = after.split('%');
    pieces.next();
    let is_hex = |piece: &str| {
        let digits = piece.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !pieces.all(is_hex) {
        return Err("must have two hexadecimal digits after each `%`".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(url: &str, reach: Reach) {
        assert_eq!(check(url, reach), Ok(()), "{url}");
    }

    /// The complaint must contain this.
    fn refused(url: &str, reach: Reach, complaint: &str) {
        let said = check(url, reach).expect_err(url);
        assert!(said.contains(complaint), "{url}: {said}");
        assert!(said.starts_with("must "), "{url}: {said}");
    }

    #[test]
    fn ordinary_endpoints_are_taken() {
        for url in [
            "https://example.com",
            "https://example.com/",
            "HTTPS://Example.COM/Hook?x=1&y=%2F",
            "https://hooks.example.com:8443/a/b.c/~d/(e);f=g,h?i",
            "https://xn--bcher-kva.example/",
            "https://my_app.example.com?query/with?marks",
            "https://a-b.example.co.uk:1",
            "https://8.8.8.8/",
            "https://[2606:4700::1111]:443/",
            "https://[64:ff9b::8.8.8.8]/",
            "https://1password.com/",
            "https://0x.example/",
            "https://123.example/",
        ] {
            allowed(url, Reach::Public);
            allowed(url, Reach::Development);
        }
    }

    #[test]
    fn development_may_use_plain_http_and_the_own_machine() {
        for (url, complaint) in [
            ("http://example.com/", "in the clear"),
            ("https://localhost/", "private network"),
            ("https://LocalHost:3000/", "private network"),
            ("https://a.localhost/", "private network"),
            ("https://printer.local/", "private network"),
            ("https://host.docker.internal/", "private network"),
            ("https://metadata.google.internal/", "private network"),
            ("https://receiver/", "private network"),
            ("https://127.0.0.1/", "the server itself"),
            ("https://127.255.255.255/", "the server itself"),
            ("https://10.1.2.3/", "private network"),
            ("https://[::1]/", "the server itself"),
            ("https://[0:0:0:0:0:0:0:1]/", "the server itself"),
            ("https://[fd12::1]/", "private network"),
            ("https://[::ffff:127.0.0.1]/", "in the spelling of IPv6"),
            ("https://[::ffff:7f00:1]/", "in the spelling of IPv6"),
            ("https://[64:ff9b::10.0.0.1]/", "private network"),
        ] {
            refused(url, Reach::Public, complaint);
            allowed(url, Reach::Development);
        }
    }

    #[test]
    fn some_addresses_are_refused_everywhere() {
        for (url, complaint) in [
            ("https://169.254.169.254/latest/meta-data/", "credentials"),
            ("https://[fd00:ec2::254]/", "metadata"),
            ("https://[fd20:ce::254]/", "metadata"),
            ("https://[::ffff:169.254.169.254]/", "this is "),
            ("https://[64:ff9b::169.254.169.254]/", "credentials"),
            ("https://[64:ff9b::a9fe:a9fe]/", "credentials"),
            ("https://[2002:a9fe:a9fe::]/", "IPv6"),
            ("https://100.100.100.200/", "metadata"),
            ("https://[fe80::1]/", "credentials"),
            ("https://0.0.0.0/", "unspecified"),
            ("https://[::]/", "unspecified"),
            ("https://224.0.0.1/", "multicast"),
            ("https://[ff02::1]/", "multicast"),
            ("https://255.255.255.255/", "broadcast"),
        ] {
            refused(url, Reach::Public, complaint);
            refused(url, Reach::Development, complaint);
        }
    }

    #[test]
    fn an_address_has_one_spelling() {
        for host in [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "017700000001",
            "127.1",
            "127.0.1",
            "0x7f.1",
            "0x7f.0x0.0x0.0x1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.1.",
            "1.2.3.4.5",
            "256.1.1.1",
            "1.2.3",
            "foo.1",
            "foo.0x",
            "foo.0xAb",
            "999999999999",
            "127.0.0.1..",
            "0",
            "8.8.8.8.",
        ] {
            let url = format!("https://{host}/");
            refused(&url, Reach::Development, "four decimal numbers");
            refused(&url, Reach::Public, "four decimal numbers");
        }
        for (url, complaint) in [
            ("https://[::1", "close the bracket"),
            ("https://[::1]x/", "nothing but a port"),
            ("https://[]/", "valid IPv6"),
            ("https://[1.2.3.4]/", "valid IPv6"),
            ("https://[::g]/", "valid IPv6"),
            ("https://[fe80::1%25eth0]/", "zone"),
            ("https://[fe80::1%eth0]/", "zone"),
            ("https://::1/", "port"),
        ] {
            refused(url, Reach::Development, complaint);
        }
    }

    #[test]
    fn text_that_is_not_a_url_is_refused_as_such() {
        let long = |count: usize| format!("https://example.com/{}", "x".repeat(count - 20));
        allowed(&long(MAX_URL_BYTES), Reach::Public);
        refused(&long(MAX_URL_BYTES + 1), Reach::Public, "at most 2048 bytes, not 2049");
        let label = |count: usize| format!("https://{}.example/", "x".repeat(count));
        allowed(&label(63), Reach::Public);
        refused(&label(64), Reach::Public, "at most 63 bytes");
        let name = |count: usize| format!("https://{}{}/", "a.".repeat(count / 2 - 1), "bcd");
        allowed(&name(252), Reach::Public);
        refused(&name(254), Reach::Public, "at most 253 bytes");
        for (url, complaint) in [
            ("", "https://"),
            ("example.com", "https://"),
            ("//example.com", "https://"),
            ("ftp://example.com", "https://"),
            ("https:example.com", "https://"),
            ("https:/example.com", "https://"),
            ("javascript://example.com", "https://"),
            (" https://example.com", "spaces"),
            ("https://example.com/a b", "spaces"),
            ("https://example.com/\n", "control"),
            ("https://exam\tple.com/", "control"),
            ("https://example.com/\u{7f}", "control"),
            ("https://bücher.example/", "punycode"),
            ("https://example.com/ü", "punycode"),
            ("https://１２７.0.0.1/", "punycode"),
            ("https://example.com。local/", "punycode"),
            ("https://example.com\\@10.0.0.1/", "`\\`"),
            ("https://user@example.com/", "user name"),
            ("https://user:pass@example.com/", "user name"),
            ("https://@example.com/", "user name"),
            ("https://example.com#a@10.0.0.1/", "fragment"),
            ("https://example.com/#", "fragment"),
            ("https://", "name a host"),
            ("https:///path", "name a host"),
            ("https://:443/", "name a host"),
            ("https://?x", "name a host"),
            ("https://example.com:0/", "from 1 to 65535"),
            ("https://example.com:65536/", "from 1 to 65535"),
            ("https://example.com:/", "from 1 to 65535"),
            ("https://example.com:+80/", "from 1 to 65535"),
            ("https://example.com:80:80/", "from 1 to 65535"),
            ("https://example.com:x/", "from 1 to 65535"),
            ("https://exa%6dple.com/", "`%` in its host"),
            ("https://a,b.example/", "`,` in its host"),
            ("https://.example.com/", "dot"),
            ("https://example..com/", "dot"),
            ("https://example.com./", "dot"),
            ("https://-a.example/", "`-`"),
            ("https://a-.example/", "`-`"),
            ("https://example.com/{id}", "`%7B`"),
            ("https://example.com/?a=\"", "`%22`"),
            ("https://example.com/%", "two hexadecimal"),
            ("https://example.com/%4", "two hexadecimal"),
            ("https://example.com/%zz", "two hexadecimal"),
        ] {
            refused(url, Reach::Development, complaint);
            refused(url, Reach::Public, complaint);
        }
    }
}
