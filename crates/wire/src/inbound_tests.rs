//! The same bytes must mean the same, however they are cut into reads.

use super::*;

fn verdict(bytes: &[u8], piece: usize) -> (u64, Option<Fault>) {
    let mut inbound = Inbound::new(&Limits::default());
    for part in bytes.chunks(piece) {
        inbound.feed(part);
    }
    (inbound.received, inbound.fault(u64::MAX))
}

fn check(bytes: &[u8], received: u64, refused: bool) {
    for piece in [1, 2, 3, 7, bytes.len()] {
        let (count, fault) = verdict(bytes, piece);
        let text = String::from_utf8_lossy(bytes);
        assert_eq!((count, fault.is_some()), (received, refused), "{text} by {piece}: {fault:?}");
    }
}

#[test]
fn requests_are_told_apart_however_they_arrive() {
    check(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1, false);
    check(b"\r\nGET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n", 2, false);
    check(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n\n\n\n", 1, false);
    check(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", 0, false);
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n\
        A;x=y\r\n0123456789\r\n0\r\nt: v\r\n\r\nGET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n";
    check(chunked, 2, false);
}

#[test]
fn ambiguous_requests_are_refused_however_they_arrive() {
    for headers in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a b\r\n",
        "Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
        "Host: a\r\nContent-Length: 1, 1\r\n",
        "Host: a\r\nContent-Length: +1\r\n",
        "Host: a\r\nContent-Length: 99999999999999999999\r\n",
        "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: identity, chunked\r\n",
        "Host: a\r\nTransfer-Encoding:\r\n",
        "Host: a\n",
        "Host: a\r\n folded: b\r\n",
        "Host: a\r\n\tfolded\r\n",
    ] {
        check(format!("POST / HTTP/1.1\r\n{headers}\r\n").as_bytes(), 0, true);
    }
    check(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 0, true);
    check(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 0, true);
    check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, true);
}

#[test]
fn broken_chunks_are_refused_however_they_arrive() {
    for body in ["x\r\n", "1\nA\r\n0\r\n\r\n", "1\r\nAB\r\n", "1 \r\nA\r\n", "\r\n", "-1\r\n"] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(format!("{head}{body}").as_bytes(), 0, true);
    }
}
