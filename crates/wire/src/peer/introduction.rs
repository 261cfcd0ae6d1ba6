//! The PROXY protocol, versions 1 and 2: a proxy begins the connection with the address of its
//! client. Reads not one byte more than that, because what follows may be TLS. The format is
//! `ppp`'s affair.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What version 2 begins with, and as much as version 1 has at least.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version, command, family and the length of the rest.
const FIXED_BYTES: usize = 16;
/// The longest line of version 1, by its specification.
const LINE_BYTES: usize = 107;
/// Addresses and what proxies add, certificates' names for example. 2 KiB: HAProxy's buffer for
/// it; the format allows 64.
const EXTRA_BYTES: usize = 2 * 1024;

/// The client of the connection; `None` if the proxy names none, as in its health checks.
pub(crate) async fn introduction<S>(stream: &mut S) -> io::Result<Option<SocketAddr>>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut bytes).await?;
    match bytes[..] == SIGNATURE[..] {
        true => rest_of_frame(stream, &mut bytes).await?,
        false => rest_of_line(stream, &mut bytes).await?,
    }
    source(&bytes)
}

async fn rest_of_frame<S: AsyncRead + Unpin>(
    stream: &mut S,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    bytes.resize(FIXED_BYTES, 0);
    stream.read_exact(&mut bytes[SIGNATURE.len()..]).await?;
    let extra = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if extra > EXTRA_BYTES {
        return Err(wrong("it is too long"));
    }
    bytes.resize(FIXED_BYTES + extra, 0);
    stream.read_exact(&mut bytes[FIXED_BYTES..]).await?;
    Ok(())
}

async fn rest_of_line<S: AsyncRead + Unpin>(stream: &mut S, bytes: &mut Vec<u8>) -> io::Result<()> {
    if !bytes.starts_with(b"PROXY ") {
        return Err(wrong("there is none"));
    }
    while !bytes.ends_with(b"\r\n") {
        if bytes.len() == LINE_BYTES {
            return Err(wrong("it is too long"));
        }
        bytes.push(stream.read_u8().await?);
    }
    Ok(())
}

fn source(bytes: &[u8]) -> io::Result<Option<SocketAddr>> {
    let v4 = |address, port| Some(SocketAddr::new(IpAddr::V4(address), port));
    let v6 = |address, port| Some(SocketAddr::new(IpAddr::V6(address), port));
    match HeaderResult::parse(bytes) {
        HeaderResult::V1(Ok(header)) => Ok(match header.addresses {
            v1::Addresses::Tcp4(found) => v4(found.source_address, found.source_port),
            v1::Addresses::Tcp6(found) => v6(found.source_address, found.source_port),
            v1::Addresses::Unknown => None,
        }),
        HeaderResult::V2(Ok(header)) if header.command == v2::Command::Local => Ok(None),
        HeaderResult::V2(Ok(header)) => Ok(match header.addresses {
            v2::Addresses::IPv4(found) => v4(found.source_address, found.source_port),
            v2::Addresses::IPv6(found) => v6(found.source_address, found.source_port),
            v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
        }),
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Err(wrong("it is malformed")),
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the PROXY header: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it makes of these bytes, and what it leaves.
    async fn read(bytes: &[u8]) -> (io::Result<Option<SocketAddr>>, Vec<u8>) {
        let mut stream = bytes;
        let found = introduction(&mut stream).await;
        (found, stream.to_vec())
    }

    fn frame(command: u8, family: u8, extra: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x20 | command, family]);
        bytes.extend(u16::try_from(extra.len()).unwrap().to_be_bytes());
        bytes.extend(extra);
        bytes
    }

    const FOUR: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80];

    #[tokio::test]
    async fn both_versions_yield_the_client_and_leave_the_following_bytes() {
        let six = [[0x20; 16], [0x30; 16]].concat();
        let six = [&six[..], &[0x12, 0x67, 0, 80]].concat();
        let with_more = [&FOUR[..], &[0x04, 0, 3, 1, 2, 3]].concat();
        for (head, expected) in [
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n".to_vec(), Some("192.0.2.1:4711")),
            (b"PROXY TCP6 2001:db8::1 ::1 4711 80\r\n".to_vec(), Some("[2001:db8::1]:4711")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN whatever it is\r\n".to_vec(), None),
            (frame(1, 0x11, &FOUR), Some("192.0.2.1:4711")),
            (frame(1, 0x11, &with_more), Some("192.0.2.1:4711")),
            (frame(1, 0x21, &six), Some("[2020:2020:2020:2020:2020:2020:2020:2020]:4711")),
            (frame(0, 0x11, &FOUR), None),
            (frame(0, 0, &[]), None),
            (frame(1, 0x31, &[7; 216]), None),
        ] {
            let bytes = [&head[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
            let (found, left) = read(&bytes).await;
            assert_eq!(found.unwrap().map(|address| address.to_string()).as_deref(), expected);
            assert_eq!(left, b"GET / HTTP/1.1\r\n\r\n", "{head:?}");
        }
    }

    #[tokio::test]
    async fn invalid_introductions_are_refused_within_a_bounded_length() {
        let huge = frame(1, 0x11, &[0; EXTRA_BYTES + 1]);
        let line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(200));
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\nGET / HTTP/1.1\r\n\r\n",
            b"PROXY TCP4 192.0.2.300 10.0.0.1 4711 80\r\n",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 70000 80\r\n",
            b"PROXY TCP4 2001:db8::1 ::1 4711 80\r\n",
            b"proxy TCP4 192.0.2.1 10.0.0.1 4711 80\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00",
            line.as_bytes(),
            &huge,
            &frame(1, 0x11, &FOUR)[..20],
            &frame(1, 0x11, &FOUR[..8]),
            &frame(9, 0x11, &FOUR),
            b"PROXY",
            b"",
        ] {
            let (found, _) = read(bytes).await;
            assert!(found.is_err(), "{bytes:?}");
        }
    }
}
