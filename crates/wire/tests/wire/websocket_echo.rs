//! WebSockets from end to end, over every version of HTTP: the codec and a connection taken over,
//! with the server that the judge is given.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use h2::ext::Protocol;
use http::{HeaderValue, Method, StatusCode};
use wire::websocket::{self, Deflate};
use wire::{EarlyHints, Limits, Service, Tls};

use crate::h2_client::{Client, next, request, run};
use crate::h3_client::{DATA, HEADERS, Trust, block, frame};
use crate::server::{Server, Wire};
use crate::tls::identity;
use crate::websocket_client::{BINARY, CLOSE, LAST, PING, PONG, TEXT, head, masked};

#[path = "../../examples/echo/service.rs"]
mod service;

const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const DEFLATE: &str = "Sec-WebSocket-Extensions: permessage-deflate\r\n";

fn start() -> Server {
    Server::serving(Limits::default(), EarlyHints::Off, |_, _| Arc::new(service::Echo))
}

/// A connection after the handshake.
fn open(server: &Server, extra: &str) -> Wire {
    let mut wire = server.connect();
    wire.send(format!("{HANDSHAKE}{extra}\r\n"));
    let head = wire.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    wire
}

fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    [&head(first, payload.len())[..], payload].concat()
}

fn expect(wire: &mut Wire, expected: &[u8]) {
    let mut received = vec![0; expected.len()];
    wire.stream.read_exact(&mut received).expect("the server answers");
    assert!(received == expected, "{:x?}", &received[..received.len().min(100)]);
}

#[test]
fn messages_are_echoed_and_a_close_frame_is_answered_before_the_end() {
    let server = start();
    let mut wire = open(&server, "");
    let large = vec![b'x'; 1 << 20];
    for (sent, expected) in [
        (masked(LAST | TEXT, "hello"), unmasked(LAST | TEXT, b"hello")),
        (masked(LAST | BINARY, [0, 255]), unmasked(LAST | BINARY, &[0, 255])),
        (masked(LAST | PING, "?"), unmasked(LAST | PONG, b"?")),
        (
            [masked(TEXT, "a"), masked(LAST | PING, "?"), masked(LAST, "b")].concat(),
            [unmasked(LAST | PONG, b"?"), unmasked(LAST | TEXT, b"ab")].concat(),
        ),
        (masked(LAST | TEXT, &large), unmasked(LAST | TEXT, &large)),
        (masked(LAST | CLOSE, b"\x03\xe8bye"), unmasked(LAST | CLOSE, b"\x03\xe8")),
    ] {
        wire.stream.write_all(&sent).unwrap();
        expect(&mut wire, &expected);
    }
    assert_eq!(wire.rest(), "");
}

#[test]
fn compressed_messages_are_echoed_compressed() {
    let server = start();
    let text = "say it again, ".repeat(100);
    let plain = websocket::text(&text);
    let compressed = websocket::deflated(&text, &Deflate::USUAL).unwrap();
    let sent = masked(compressed[0], &compressed[2..]);
    assert!(compressed.len() < 126, "its head has two bytes");
    let mut wire = open(&server, DEFLATE);
    for _ in 0..3 {
        wire.stream.write_all(&sent).unwrap();
        expect(&mut wire, &compressed);
        // Whether the client compresses is its own business.
        wire.stream.write_all(&masked(LAST | TEXT, &text)).unwrap();
        expect(&mut wire, &compressed);
    }
    let mut wire = open(&server, "");
    wire.stream.write_all(&masked(LAST | TEXT, &text)).unwrap();
    expect(&mut wire, &plain);
}

#[test]
fn a_protocol_violation_is_answered_with_a_close_frame_that_names_the_rule() {
    let server = start();
    let unmasked_text = unmasked(LAST | TEXT, b"hello");
    let too_large = vec![LAST | TEXT, 0xff, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0];
    for (extra, sent, code) in [
        ("", unmasked_text, 1002),
        ("", masked(PING, "in fragments"), 1002),
        ("", masked(LAST | 0x40 | TEXT, "not agreed on"), 1002),
        ("", masked(LAST | TEXT, [0xff]), 1007),
        (DEFLATE, masked(LAST | 0x40 | TEXT, "not deflated"), 1007),
        ("", too_large, 1009),
    ] {
        let mut wire = open(&server, extra);
        // What follows the fault is not read as anything; it must not take back the answer either.
        wire.send([&sent[..], &[0x55; 100_000]].concat());
        let mut start = [0; 4];
        wire.stream.read_exact(&mut start).expect("the server says why");
        assert_eq!(start[0], LAST | CLOSE);
        assert_eq!(u16::from_be_bytes([start[2], start[3]]), code, "{sent:x?}");
        wire.finish_sending_if_open();
        assert_eq!(wire.rest().len(), usize::from(start[1]) - 2, "the reason, and the end");
    }
}

#[test]
fn a_request_that_is_not_a_websocket_upgrade_is_refused_with_the_reason() {
    let server = start();
    let mut wire = server.connect();
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = wire.response();
    assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
    for line in ["upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13"] {
        assert!(answer.contains(&format!("{line}\r\n")), "{answer}");
    }
    wire.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(wire.rest().contains("connection: close, upgrade\r\n"));
}

/// What is sent in one go over the later versions, and what comes back.
fn conversation() -> (Vec<u8>, Vec<u8>) {
    let sent = [
        masked(LAST | TEXT, "hello"),
        masked(LAST | PING, "?"),
        masked(LAST | CLOSE, 1000u16.to_be_bytes()),
    ];
    let expected = [
        unmasked(LAST | TEXT, b"hello"),
        unmasked(LAST | PONG, b"?"),
        unmasked(LAST | CLOSE, &1000u16.to_be_bytes()),
    ];
    (sent.concat(), expected.concat())
}

#[test]
fn an_http2_stream_carries_a_websocket() {
    let server = start();
    run(async {
        let mut client = Client::connect(&server).await;
        client.get("/").await;
        let mut upgrade = request(Method::CONNECT, "/");
        upgrade.extensions_mut().insert(Protocol::from_static("websocket"));
        for (name, value) in [
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "other, echo"),
            ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
        ] {
            upgrade.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let (response, mut sending) = client.send(upgrade, false).await;
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        assert_eq!(headers["sec-websocket-protocol"], "echo");
        let agreed = headers["sec-websocket-extensions"].to_str().unwrap();
        assert!(agreed.starts_with("permessage-deflate; "), "{agreed}");
        assert!(!headers.contains_key("sec-websocket-accept") && !headers.contains_key("upgrade"));
        let (sent, expected) = conversation();
        for piece in sent.chunks(3) {
            sending.send_data(Bytes::copy_from_slice(piece), false).unwrap();
        }
        let mut body = response.into_body();
        let mut received = Vec::new();
        while let Some(piece) = next(&mut body).await.unwrap() {
            received.extend_from_slice(&piece);
        }
        assert_eq!(received, expected);
    });
}

#[test]
fn an_http3_stream_carries_a_websocket() {
    let (certificate, trusted) = identity(&["localhost"]);
    let tls = Tls::new(vec![certificate]).unwrap();
    let service = |_, _| -> Arc<dyn Service> { Arc::new(service::Echo) };
    let server = Server::quic_serving(Limits::default(), tls, service);
    run(async {
        let raw = Trust(trusted).raw(&server).await;
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        let upgrade = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
            ("sec-websocket-version", "13"),
        ];
        sending.write_all(&frame(HEADERS, &block(&upgrade))).await.unwrap();
        let (sent, expected) = conversation();
        sending.write_all(&frame(DATA, &sent)).await.unwrap();
        let received = receiving.read_to_end(10_000).await.unwrap();
        assert_eq!(data(&received), expected);
    });
}

/// What the DATA frames of a stream carry.
fn data(mut bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while !bytes.is_empty() {
        let (kind, length) = (number(&mut bytes), number(&mut bytes));
        let (payload, rest) = bytes.split_at(length as usize);
        if kind == DATA {
            data.extend_from_slice(payload);
        }
        bytes = rest;
    }
    data
}

/// A number of QUIC's: its first two bits say how many bytes it has (RFC 9000 16).
fn number(bytes: &mut &[u8]) -> u64 {
    let (own, rest) = bytes.split_at(1 << (bytes[0] >> 6));
    *bytes = rest;
    own[1..].iter().fold(u64::from(own[0] & 0x3f), |number, byte| number << 8 | u64::from(*byte))
}
