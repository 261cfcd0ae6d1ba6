//! Which addresses a webhook may be sent to. The URL of an endpoint comes from a user of the API,
//! and the request from inside the operator's network: without this table it would reach services
//! that only the operator should. Checks one address at a time; the sender checks every address of
//! a name and connects to no other.
//!
//! After the IANA registries of special-purpose addresses (RFC 6890 and its successors) and the
//! documented addresses of cloud metadata services.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How far webhooks may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The public Internet only.
    Public,
    /// Also this machine and private networks, for development. Never metadata services, which
    /// hand out credentials, nor addresses of more than one machine or of none.
    Development,
}

/// Why nothing may be sent to this address, if so: a noun, as in "this is …".
pub fn refusal(address: IpAddr, reach: Reach) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => v4(address, reach),
        IpAddr::V6(address) => v6(address, reach),
    }
}

/// The meaning of a range for webhooks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Never,
    InDevelopment,
    Always,
}

use Verdict::{Always, InDevelopment, Never};

/// A range of IPv4 or IPv6 addresses, the latter in all of the bits, the former in the lowest 32.
struct Range {
    first: u128,
    last: u128,
    verdict: Verdict,
    what: &'static str,
}

impl Range {
    const fn v4(base: [u8; 4], bits: u32, verdict: Verdict, what: &'static str) -> Range {
        let first = u32::from_be_bytes(base);
        let last = first | ((1u64 << (32 - bits)) - 1) as u32;
        Range { first: first as u128, last: last as u128, verdict, what }
    }

    const fn v6(base: [u16; 8], bits: u32, verdict: Verdict, what: &'static str) -> Range {
        let [a, b, c, d, e, f, g, h] = base;
        let first = Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits();
        let last = first | (u128::MAX >> (bits - 1) >> 1);
        Range { first, last, verdict, what }
    }
}

const METADATA: &str = "the metadata service of a cloud provider";
const PRIVATE: &str = "an address of a private network";
const LOOPBACK: &str = "the server itself";
const LINK: &str = "a link-local address, where cloud providers keep credentials";
const DOCUMENTATION: &str = "an address reserved for documentation";
const TRANSLATED: &str = "an IPv4 address in the spelling of IPv6";
const SPECIAL: &str = "an address with a special purpose";
const MULTICAST: &str = "a multicast address";
const RESERVED: &str = "a reserved address";
const UNASSIGNED: &str = "no address of the public Internet";

/// The first row that contains the address counts.
const V4: &[Range] = &[
    // "This network": 0.0.0.0 leads to the machine itself on many systems.
    Range::v4([0, 0, 0, 0], 8, Never, "an unspecified address"),
    Range::v4([10, 0, 0, 0], 8, InDevelopment, PRIVATE),
    // Alibaba.
    Range::v4([100, 100, 100, 200], 32, Never, METADATA),
    // Carrier-grade NAT; overlay networks use it too.
    Range::v4([100, 64, 0, 0], 10, InDevelopment, PRIVATE),
    Range::v4([127, 0, 0, 0], 8, InDevelopment, LOOPBACK),
    // Azure: a public address that leads to the host of the virtual machine.
    Range::v4([168, 63, 129, 16], 32, Never, METADATA),
    Range::v4([169, 254, 0, 0], 16, Never, LINK),
    Range::v4([172, 16, 0, 0], 12, InDevelopment, PRIVATE),
    // Protocol assignments; Oracle's metadata service answers here as well.
    Range::v4([192, 0, 0, 0], 24, Never, SPECIAL),
    Range::v4([192, 0, 2, 0], 24, Never, DOCUMENTATION),
    // The former relays of 6to4.
    Range::v4([192, 88, 99, 0], 24, Never, SPECIAL),
    Range::v4([192, 168, 0, 0], 16, InDevelopment, PRIVATE),
    // Benchmarks between networks; in use inside laboratories.
    Range::v4([198, 18, 0, 0], 15, InDevelopment, PRIVATE),
    Range::v4([198, 51, 100, 0], 24, Never, DOCUMENTATION),
    Range::v4([203, 0, 113, 0], 24, Never, DOCUMENTATION),
    Range::v4([224, 0, 0, 0], 4, Never, MULTICAST),
    Range::v4([255, 255, 255, 255], 32, Never, "the broadcast address"),
    Range::v4([240, 0, 0, 0], 4, Never, RESERVED),
];

/// The first row that contains the address counts. An address in no row is refused, unless it is
/// within 2000::/3, the only part of IPv6 that is given out to the public Internet.
const V6: &[Range] = &[
    Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 128, Never, "the unspecified address"),
    Range::v6([0, 0, 0, 0, 0, 0, 0, 1], 128, InDevelopment, LOOPBACK),
    // Compatible (::/96), mapped (::ffff/96), SIIT (::ffff:0/96), and what begins like them.
    Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 64, Never, TRANSLATED),
    // NAT64 for local use, and the rest of its block; 64:ff9b::/96 is checked by the address
    // inside.
    Range::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 32, Never, TRANSLATED),
    Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 8, Never, RESERVED),
    Range::v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Never, "an address that discards everything"),
    // Holes that IANA calls globally reachable: anycast of PCP and TURN, AMT, AS112, ORCHIDv2.
    Range::v6([0x2001, 1, 0, 0, 0, 0, 0, 1], 128, Always, SPECIAL),
    Range::v6([0x2001, 1, 0, 0, 0, 0, 0, 2], 128, Always, SPECIAL),
    Range::v6([0x2001, 3, 0, 0, 0, 0, 0, 0], 32, Always, SPECIAL),
    Range::v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48, Always, SPECIAL),
    Range::v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, Always, SPECIAL),
    // Teredo, which carries an IPv4 address of the sender's choice.
    Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Never, TRANSLATED),
    Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Never, SPECIAL),
    Range::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Never, DOCUMENTATION),
    // 6to4.
    Range::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Never, TRANSLATED),
    Range::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Never, DOCUMENTATION),
    // Segment routing.
    Range::v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Never, SPECIAL),
    // Amazon (the whole block: credentials of containers are served there too), Google, Oracle,
    // Scaleway.
    Range::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32, Never, METADATA),
    Range::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, Never, METADATA),
    Range::v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, Never, METADATA),
    Range::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128, Never, METADATA),
    Range::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, InDevelopment, PRIVATE),
    Range::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Never, LINK),
    // Site-local, long withdrawn and still routed here and there.
    Range::v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Never, RESERVED),
    Range::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Never, MULTICAST),
    Range::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, Always, "the public Internet"),
];

fn v4(address: Ipv4Addr, reach: Reach) -> Option<&'static str> {
    judged(V4, u128::from(address.to_bits()), reach).flatten()
}

fn v6(address: Ipv6Addr, reach: Reach) -> Option<&'static str> {
    if let Some(inner) = translated(address, reach) {
        return v4(inner, reach);
    }
    match judged(V6, address.to_bits(), reach) {
        None => Some(UNASSIGNED),
        Some(Some(what)) => Some(what),
        // In any network, a router for it may unpack the address inside.
        Some(None) => isatap(address).and_then(|inner| v4(inner, reach)),
    }
}

/// The verdict of the table, if it has one.
fn judged(table: &[Range], bits: u128, reach: Reach) -> Option<Option<&'static str>> {
    let range = table.iter().find(|range| range.first <= bits && bits <= range.last)?;
    let allowed = match range.verdict {
        Verdict::Always => true,
        Verdict::InDevelopment => reach == Reach::Development,
        Verdict::Never => false,
    };
    Some((!allowed).then_some(range.what))
}

/// The IPv4 address that really is called. In a network without IPv4 every public IPv4 server has
/// an address of NAT64, so those must pass. The mapped spelling has no such excuse in public.
fn translated(address: Ipv6Addr, reach: Reach) -> Option<Ipv4Addr> {
    let nat64 = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let mapped = reach == Reach::Development && address.to_ipv4_mapped().is_some();
    (nat64 || mapped).then(|| lowest(address))
}

/// The IPv4 address within an ISATAP address (RFC 5214): any network, then `5efe` and the address.
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [_, _, _, _, universal, marker, _, _] = address.segments();
    (marker == 0x5efe && universal & !0x0200 == 0).then(|| lowest(address))
}

fn lowest(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests;
