//! The PROXY protocol towards servers: the first bytes of a connection name its client. The other
//! direction is in `peer`.

use std::net::{IpAddr, SocketAddr};

/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, and whether the connection is made for a client.
const FOR_NOBODY: u8 = 0x20;
const FOR_CLIENT: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The version that a server wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyProtocol {
    V1,
    V2,
}

/// What the first bytes of a connection say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Introduction {
    pub(super) version: ProxyProtocol,
    /// The client, and the address that it has reached; none for connections of our own, such as
    /// health checks.
    pub(super) client: Option<(SocketAddr, SocketAddr)>,
}

impl Introduction {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let client = self.client.map(|(client, reached)| same_family(client, reached));
        match (self.version, client) {
            (ProxyProtocol::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
            (ProxyProtocol::V1, Some((from, to))) => {
                let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
                let (ip, port) = (from.ip(), from.port());
                format!("PROXY {family} {ip} {} {port} {}\r\n", to.ip(), to.port()).into_bytes()
            }
            (ProxyProtocol::V2, None) => frame(FOR_NOBODY, 0, &[]),
            (ProxyProtocol::V2, Some((from, to))) => {
                let mut rest = Vec::with_capacity(36);
                for address in [from, to] {
                    match address.ip() {
                        IpAddr::V4(ip) => rest.extend_from_slice(&ip.octets()),
                        IpAddr::V6(ip) => rest.extend_from_slice(&ip.octets()),
                    }
                }
                rest.extend_from_slice(&from.port().to_be_bytes());
                rest.extend_from_slice(&to.port().to_be_bytes());
                let family = if from.is_ipv4() { TCP_OVER_IPV4 } else { TCP_OVER_IPV6 };
                frame(FOR_CLIENT, family, &rest)
            }
        }
    }
}

fn frame(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    // Two addresses with their ports have 36 bytes at most.
    bytes.extend_from_slice(&(rest.len() as u16).to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// Both formats have one family for both addresses.
fn same_family(client: SocketAddr, reached: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    match (canonical(client), canonical(reached)) {
        (client, reached) if client.is_ipv4() == reached.is_ipv4() => (client, reached),
        (client, reached) => (mapped(client), mapped(reached)),
    }
}

fn mapped(at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        IpAddr::V6(_) => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::introduction;

    #[tokio::test]
    async fn our_own_reader_finds_the_client() {
        for (client, reached, expected) in [
            ("192.0.2.1:4711", "10.0.0.1:80", "192.0.2.1:4711"),
            ("[2001:db8::1]:4711", "[::1]:80", "[2001:db8::1]:4711"),
            ("[::ffff:192.0.2.1]:4711", "10.0.0.1:80", "192.0.2.1:4711"),
            ("192.0.2.1:4711", "[::]:80", "[::ffff:192.0.2.1]:4711"),
        ] {
            for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
                let client = Some((client.parse().unwrap(), reached.parse().unwrap()));
                let bytes = Introduction { version, client }.bytes();
                let found = introduction(&mut &bytes[..]).await.unwrap();
                assert_eq!(found, Some(expected.parse().unwrap()), "{version:?} {client:?}");
                let bytes = Introduction { version, client: None }.bytes();
                assert_eq!(introduction(&mut &bytes[..]).await.unwrap(), None);
            }
        }
    }
}
