//! Every range by its first and last address and by the neighbours outside.

use super::*;

fn public(address: &str) -> Option<&'static str> {
    refusal(address.parse().unwrap(), Reach::Public)
}

fn development(address: &str) -> Option<&'static str> {
    refusal(address.parse().unwrap(), Reach::Development)
}

/// First and last address, what they are, and whether they may be called in development.
const RANGES: &[(&str, &str, &str, bool)] = &[
    ("0.0.0.0", "0.255.255.255", "an unspecified address", false),
    ("10.0.0.0", "10.255.255.255", PRIVATE, true),
    ("100.64.0.0", "100.127.255.255", PRIVATE, true),
    ("100.100.100.200", "100.100.100.200", METADATA, false),
    ("127.0.0.0", "127.255.255.255", LOOPBACK, true),
    ("168.63.129.16", "168.63.129.16", METADATA, false),
    ("169.254.0.0", "169.254.255.255", LINK, false),
    ("169.254.169.254", "169.254.170.23", LINK, false),
    ("172.16.0.0", "172.31.255.255", PRIVATE, true),
    ("192.0.0.0", "192.0.0.255", SPECIAL, false),
    ("192.0.2.0", "192.0.2.255", DOCUMENTATION, false),
    ("192.88.99.0", "192.88.99.255", SPECIAL, false),
    ("192.168.0.0", "192.168.255.255", PRIVATE, true),
    ("198.18.0.0", "198.19.255.255", PRIVATE, true),
    ("198.51.100.0", "198.51.100.255", DOCUMENTATION, false),
    ("203.0.113.0", "203.0.113.255", DOCUMENTATION, false),
    ("224.0.0.0", "239.255.255.255", MULTICAST, false),
    ("240.0.0.0", "255.255.255.254", RESERVED, false),
    ("255.255.255.255", "255.255.255.255", "the broadcast address", false),
    ("::", "::", "the unspecified address", false),
    ("::1", "::1", LOOPBACK, true),
    ("::2", "::fffe:ffff:ffff", TRANSLATED, false),
    // Compatible, SIIT, ISATAP.
    ("::0.0.0.2", "::255.255.255.255", TRANSLATED, false),
    ("::ffff:0:0.0.0.0", "::ffff:0:255.255.255.255", TRANSLATED, false),
    ("::5efe:0.0.0.0", "::5efe:255.255.255.255", TRANSLATED, false),
    ("::1:0:0:0", "::ffff:ffff:ffff:ffff", TRANSLATED, false),
    ("0:0:0:1::", "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", RESERVED, false),
    ("64:ff9b::1:0:0", "64:ff9b:ffff:ffff:ffff:ffff:ffff:ffff", TRANSLATED, false),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", TRANSLATED, false),
    ("64:ff9c::", "ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", RESERVED, false),
    ("100::", "100::ffff:ffff:ffff:ffff", "an address that discards everything", false),
    ("100:0:0:1::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", UNASSIGNED, false),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", TRANSLATED, false),
    ("2001:1::", "2001:1::", SPECIAL, false),
    ("2001:1::3", "2001:2:ffff:ffff:ffff:ffff:ffff:ffff", SPECIAL, false),
    ("2001:4::", "2001:4:111:ffff:ffff:ffff:ffff:ffff", SPECIAL, false),
    ("2001:4:113::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", SPECIAL, false),
    ("2001:30::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", SPECIAL, false),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", DOCUMENTATION, false),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", TRANSLATED, false),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", DOCUMENTATION, false),
    ("4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", UNASSIGNED, false),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", SPECIAL, false),
    ("5f01::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", UNASSIGNED, false),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", PRIVATE, true),
    ("fd00:ec1:ffff::", "fd00:ec3::", PRIVATE, true),
    ("fd00:ec2::", "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff", METADATA, false),
    ("fd00:ec2::23", "fd00:ec2::254", METADATA, false),
    ("fd20:ce::254", "fd20:ce::254", METADATA, false),
    ("fd20:ce::253", "fd20:ce::255", PRIVATE, true),
    ("fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fe", METADATA, false),
    ("fd00:42::42", "fd00:42::42", METADATA, false),
    ("fe00::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", UNASSIGNED, false),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", LINK, false),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", RESERVED, false),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", MULTICAST, false),
];

#[test]
fn every_address_of_a_private_range_is_refused() {
    for (first, last, what, in_development) in RANGES {
        for address in [first, last] {
            assert_eq!(public(address), Some(*what), "{address}");
            let expected = (!in_development).then_some(*what);
            assert_eq!(development(address), expected, "{address} in development");
        }
    }
}

#[test]
fn addresses_next_to_refused_ranges_are_allowed() {
    for address in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.1.255",
        "192.0.3.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "8.8.8.8",
        "2000::",
        "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:1::1",
        "2001:1::2",
        "2001:3::",
        "2001:3:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:4:112::",
        "2001:4:112:ffff:ffff:ffff:ffff:ffff",
        "2001:20::",
        "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:200::",
        "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db9::",
        "2003::",
        "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff:1000::",
        "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2606:4700::1111",
    ] {
        assert_eq!(public(address), None, "{address}");
        assert_eq!(development(address), None, "{address} in development");
    }
}

/// Every IPv4 range again, in the spellings that carry an IPv4 address.
#[test]
fn an_ipv4_address_within_an_ipv6_address_is_found() {
    for (first, last, what, in_development) in RANGES {
        for inner in [first, last].into_iter().filter(|address| !address.contains(':')) {
            let expected = (!in_development).then_some(*what);
            for network in ["64:ff9b::", "2600::5efe:", "2600::200:5efe:"] {
                let address = format!("{network}{inner}");
                assert_eq!(public(&address), Some(*what), "{address}");
                assert_eq!(development(&address), expected, "{address} in development");
            }
            let mapped = format!("::ffff:{inner}");
            assert_eq!(public(&mapped), Some(TRANSLATED));
            assert_eq!(development(&mapped), expected, "{mapped} in development");
        }
    }
    assert_eq!(public("64:ff9b::8.8.8.8"), None);
    assert_eq!(public("2600::5efe:8.8.8.8"), None);
    assert_eq!(public("2600::100:5efe:10.0.0.1"), None);
    assert_eq!(public("::ffff:8.8.8.8"), Some(TRANSLATED));
    assert_eq!(development("::ffff:8.8.8.8"), None);
    // In a private network too.
    assert_eq!(development("fd00::5efe:169.254.169.254"), Some(LINK));
    // 6to4 and Teredo carry theirs elsewhere and are refused whole.
    assert_eq!(development("2002:a9fe:a9fe::"), Some(TRANSLATED));
    assert_eq!(development("2001:0:4136:e378::a9fe:a9fe"), Some(TRANSLATED));
}

#[test]
fn no_row_hides_behind_another() {
    for table in [V4, V6] {
        for (at, range) in table.iter().enumerate() {
            assert!(range.first <= range.last);
            let hidden = |above: &Range| above.first <= range.first && range.last <= above.last;
            assert!(!table[..at].iter().any(hidden), "row {at}: {}", range.what);
        }
    }
}
