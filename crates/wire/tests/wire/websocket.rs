//! The WebSocket codec, frame by frame: what is received, what breaks the rules and with which
//! code, and what a server sends.

use std::borrow::Cow;

use wire::websocket::{self, Deflate, Incoming, ProtocolError, Received};

use crate::websocket_client::{
    BINARY, CLOSE, CONTINUATION, DEFLATED, LAST, PING, PONG, TEXT, head, masked, read,
};

const LIMIT: usize = 100_000;

fn text(text: &str) -> Received<'static> {
    Received::Text(text.to_owned().into())
}

/// What is received before this code ends it, in one piece and byte by byte; 0: nothing does.
fn check(bytes: &[u8], deflate: Option<Deflate>, expected: &[Received<'static>], code: u16) {
    for size in [bytes.len().max(1), 1, 3] {
        let mut received = read(Incoming::new(LIMIT, deflate), bytes.chunks(size));
        let ended = match received.last() {
            Some(Err(ProtocolError { code, .. })) => *code,
            _ => 0,
        };
        received.truncate(received.len() - usize::from(ended != 0));
        let received: Vec<_> = received.into_iter().map(Result::unwrap).collect();
        assert_eq!(received, expected, "{bytes:x?} in pieces of {size}");
        assert_eq!(ended, code, "{bytes:x?} in pieces of {size}");
    }
}

fn frames(frames: &[(u8, &[u8])]) -> Vec<u8> {
    frames.iter().flat_map(|(first, payload)| masked(*first, payload)).collect()
}

#[test]
fn messages_arrive_whole_and_in_fragments_with_control_frames_in_between() {
    let long = "x".repeat(70_000);
    for (sent, expected) in [
        (&[(LAST | TEXT, &b"hello"[..])][..], vec![text("hello")]),
        (&[(LAST | TEXT, b"")], vec![text("")]),
        (&[(LAST | BINARY, &[0, 255])], vec![Received::Binary(vec![0, 255].into())]),
        (&[(LAST | TEXT, "x".repeat(125).as_bytes())], vec![text(&"x".repeat(125))]),
        (&[(LAST | TEXT, "x".repeat(126).as_bytes())], vec![text(&"x".repeat(126))]),
        (&[(LAST | TEXT, long.as_bytes())], vec![text(&long)]),
        (
            &[(TEXT, b"a"), (CONTINUATION, b""), (CONTINUATION, b"b"), (LAST, b"c")],
            vec![text("abc")],
        ),
        (
            &[(TEXT, b"a"), (LAST | PING, b"?"), (LAST | PONG, b"!"), (LAST, b"b")],
            vec![Received::Ping(b"?".to_vec().into()), Received::Pong, text("ab")],
        ),
        // A character, and a flag of two, cut in the middle.
        (&[(TEXT, b"\xe2"), (CONTINUATION, b"\x82"), (LAST, b"\xac")], vec![text("€")]),
        (&[(BINARY, b""), (LAST, b"")], vec![Received::Binary(vec![].into())]),
        (&[(LAST | PING, &[7; 125])], vec![Received::Ping(vec![7; 125].into())]),
        (
            &[(LAST | TEXT, b"1"), (LAST | BINARY, b"2")],
            vec![text("1"), Received::Binary(b"2".to_vec().into())],
        ),
    ] {
        check(&frames(sent), None, &expected, 0);
    }
}

#[test]
fn a_close_frame_ends_the_connection_and_later_bytes_are_not_read() {
    let said = |code, reason: &str| Received::Close(Some((code, reason.to_owned().into())));
    for (payload, expected) in [
        (&b""[..], Received::Close(None)),
        (b"\x03\xe8", said(1000, "")),
        (b"\x03\xe9bye \xe2\x82\xac", said(1001, "bye €")),
        (b"\x03\xf6", said(1014, "")),
        (b"\x0b\xb8", said(3000, "")),
        (b"\x13\x87", said(4999, "")),
        (&[&b"\x03\xe8"[..], &[b'x'; 123]].concat(), said(1000, &"x".repeat(123))),
    ] {
        let bytes = frames(&[(LAST | CLOSE, payload), (LAST | TEXT, b"late"), (0x7f, b"")]);
        check(&bytes, None, &[expected], 0);
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, u16::MAX] {
        check(&masked(LAST | CLOSE, code.to_be_bytes()), None, &[], 1002);
    }
    check(&masked(LAST | CLOSE, b"\x03"), None, &[], 1002);
    check(&masked(LAST | CLOSE, b"\x03\xe8\xff"), None, &[], 1007);
}

#[test]
fn frames_that_break_a_rule_end_the_connection_with_a_code() {
    let mut unmasked = head(LAST | TEXT, 5);
    unmasked.extend_from_slice(b"hello");
    check(&unmasked, None, &[], 1002);
    for (sent, code) in [
        // Reserved bits and opcodes.
        (&[(LAST | 0x40 | TEXT, &b"x"[..])][..], 1002),
        (&[(LAST | 0x20 | TEXT, b"x")], 1002),
        (&[(LAST | 0x10 | BINARY, b"x")], 1002),
        (&[(LAST | 0x40 | PING, b"")], 1002),
        (&[(LAST | 3, b"")], 1002),
        (&[(LAST | 7, b"x")], 1002),
        (&[(LAST | 11, b"")], 1002),
        (&[(LAST | 15, b"x")], 1002),
        // Control frames: whole and small.
        (&[(PING, b"x")], 1002),
        (&[(CLOSE, b"")], 1002),
        (&[(LAST | PING, &[0; 126])], 1002),
        (&[(LAST | CLOSE, &[3; 126])], 1002),
        // Fragments in order.
        (&[(LAST | CONTINUATION, b"x")], 1002),
        (&[(CONTINUATION, b"x")], 1002),
        (&[(TEXT, b"x"), (LAST | TEXT, b"y")], 1002),
        (&[(TEXT, b"x"), (BINARY, b"y")], 1002),
        (&[(TEXT, b"x"), (LAST | 0x40 | CONTINUATION, b"y")], 1002),
        // Text that is none.
        (&[(LAST | TEXT, b"\xff")], 1007),
        (&[(LAST | TEXT, b"\xed\xa0\x80")], 1007),
        (&[(LAST | TEXT, b"\xe2\x82")], 1007),
        (&[(TEXT, b"\xe2\x82"), (LAST, b"x")], 1007),
        // Before the end of the message is there.
        (&[(TEXT, b"\xf4\x90")], 1007),
    ] {
        check(&frames(sent), None, &[], code);
    }
}

#[test]
fn lengths_need_their_shortest_form_and_at_most_63_bits() {
    let with_length = |kind: u8, length: &[u8]| {
        let mut frame = vec![LAST | BINARY, 0x80 | kind];
        frame.extend_from_slice(length);
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&[0; 200]);
        frame
    };
    for (kind, length, code) in [
        (126, &125u16.to_be_bytes()[..], 1002),
        (127, &200u64.to_be_bytes()[..], 1002),
        (127, &0xffffu64.to_be_bytes()[..], 1002),
        (127, &(1u64 << 63).to_be_bytes()[..], 1002),
        (127, &u64::MAX.to_be_bytes()[..], 1002),
        (127, &(u64::MAX >> 1).to_be_bytes()[..], 1009),
    ] {
        check(&with_length(kind, length), None, &[], code);
    }
}

#[test]
fn a_fault_is_reported_before_the_rest_of_its_frame_arrives() {
    let text = masked(LAST | TEXT, [b'x', 0xff, b'x', b'x']);
    for (bytes, code) in [
        (&[LAST | 3, 0x80][..], 1002),
        (&[LAST | TEXT, 0x05], 1002),
        (&[LAST | PING, 0x80 | 126], 1002),
        (&text[..text.len() - 2], 1007),
        // The limit and one.
        (&[LAST | TEXT, 0xff, 0, 0, 0, 0, 0, 1, 0x86, 0xa1, 0, 0, 0, 0], 1009),
    ] {
        check(bytes, None, &[], code);
    }
    check(&[LAST | TEXT, 0xff, 0, 0, 0, 0, 0, 1, 0x86, 0xa0, 0, 0, 0, 0], None, &[], 0);
}

#[test]
fn the_message_limit_applies_to_single_and_fragmented_messages() {
    let half = vec![b'x'; LIMIT / 2];
    let fits = frames(&[(TEXT, &half), (CONTINUATION, &half), (LAST, b"")]);
    check(&fits, None, &[text(&"x".repeat(LIMIT))], 0);
    check(&frames(&[(TEXT, &half), (CONTINUATION, &half), (LAST, b"x")]), None, &[], 1009);
    check(&masked(LAST | BINARY, vec![0; LIMIT + 1]), None, &[], 1009);
}

#[test]
fn a_contiguous_message_is_not_copied() {
    for (first, payload) in [(LAST | TEXT, &b"hello"[..]), (LAST | BINARY, b"x"), (0x89, b"?")] {
        let mut bytes = masked(first, payload);
        let mut incoming = Incoming::new(LIMIT, Some(Deflate::USUAL));
        let received = incoming.next(&mut &mut bytes[..]).unwrap().unwrap();
        let is_borrowed = match &received {
            Received::Text(text) => matches!(text, Cow::Borrowed(_)),
            Received::Binary(bytes) | Received::Ping(bytes) => matches!(bytes, Cow::Borrowed(_)),
            _ => false,
        };
        assert!(is_borrowed, "{received:?}");
        assert!(!incoming.is_partial());
    }
}

#[test]
fn compressed_messages_of_the_specification_are_read() {
    // RFC 7692 7.2.3, from the plain one to two blocks in one message.
    for payload in [
        &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
        b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
        b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
        // The same without the padding that some leave out.
        b"\xf3\x48\xcd\xc9\xc9\x07\x00",
        b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
    ] {
        let whole = masked(LAST | DEFLATED | TEXT, payload);
        check(&whole, Some(Deflate::USUAL), &[text("Hello")], 0);
        let (one, other) = payload.split_at(3);
        let cut = frames(&[(DEFLATED | TEXT, one), (LAST | PING, b""), (LAST, other)]);
        let ping = Received::Ping(vec![].into());
        check(&cut, Some(Deflate::USUAL), &[ping, text("Hello")], 0);
    }
    for payload in [&b""[..], b"\x00"] {
        check(&masked(LAST | DEFLATED | TEXT, payload), Some(Deflate::USUAL), &[text("")], 0);
    }
    // Plain messages go on as before.
    check(&masked(LAST | TEXT, "plain"), Some(Deflate::USUAL), &[text("plain")], 0);
}

#[test]
fn invalid_compressed_data_is_refused() {
    for payload in [
        &b"\xff\xff\xff"[..],
        // A block that ends in the middle.
        b"\xf2\x48\xcd",
        b"\x00\x05\x00\xfa\xff\x48\x65",
        // It refers to the message before, which was forgotten as agreed.
        b"\xf2\x00\x11\x00\x00",
        // Nonsense behind the last block.
        b"\xf3\x48\xcd\xc9\xc9\x07\x00\xff\xff",
    ] {
        check(&masked(LAST | DEFLATED | TEXT, payload), Some(Deflate::USUAL), &[], 1007);
    }
    // "\xff" deflated: valid data, not valid text.
    let not_text = b"\x00\x01\x00\xfe\xff\xff\x00";
    check(&masked(LAST | DEFLATED | TEXT, not_text), Some(Deflate::USUAL), &[], 1007);
    let bytes = Received::Binary(vec![0xff].into());
    check(&masked(LAST | DEFLATED | BINARY, not_text), Some(Deflate::USUAL), &[bytes], 0);
    check(&masked(LAST | DEFLATED | TEXT, not_text), None, &[], 1002);
}

/// A server's compressed frame, turned into what a client would send.
fn returned(frame: &[u8]) -> Vec<u8> {
    let head_bytes = match frame[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    masked(frame[0], &frame[head_bytes..])
}

#[test]
fn a_compressed_message_that_grows_beyond_the_limit_is_refused() {
    let deflate = Some(Deflate::USUAL);
    let fits = "x".repeat(LIMIT);
    let frame = returned(&websocket::deflated(&fits, &Deflate::USUAL).unwrap());
    check(&frame, deflate, &[text(&fits)], 0);
    for bytes in [LIMIT + 1, 100 * LIMIT] {
        let bomb = "x".repeat(bytes);
        let frame = returned(&websocket::deflated(&bomb, &Deflate::USUAL).unwrap());
        assert!(frame.len() < LIMIT, "{} bytes", frame.len());
        check(&frame, deflate, &[], 1009);
    }
}

#[test]
fn a_client_can_inflate_compressed_messages_of_the_server() {
    for bits in 9..=15 {
        let deflate = Deflate { server_window_bits: bits, ..Deflate::USUAL };
        let words: String =
            (0..2000).map(|at| format!("{{\"id\":{at},\"n\":\"{bits}\"}},")).collect();
        for payload in [&words, &words[..1000], &words[..200]] {
            let frame = websocket::deflated(payload, &deflate).expect("it gets shorter");
            assert!(frame.len() < payload.len(), "{} bytes", frame.len());
            assert_eq!(frame[0], LAST | DEFLATED | TEXT);
            check(&returned(&frame), Some(deflate), &[text(payload)], 0);
            let frame = websocket::deflated_binary(payload.as_bytes(), &deflate).unwrap();
            let bytes = Received::Binary(payload.as_bytes().to_vec().into());
            check(&returned(&frame), Some(deflate), &[bytes], 0);
        }
    }
    assert_eq!(websocket::deflated("too short to pay", &Deflate::USUAL), None);
    let mut chance = crate::chance::Chance::new(1);
    let noise: Vec<u8> = (0..5000).map(|_| chance.below(256) as u8).collect();
    assert_eq!(websocket::deflated_binary(&noise, &Deflate::USUAL), None);
}

#[test]
fn a_server_sends_whole_unmasked_frames() {
    let long = "y".repeat(70_000);
    for (frame, first, payload) in [
        (websocket::text("hello"), LAST | TEXT, &b"hello"[..]),
        (websocket::text(""), LAST | TEXT, b""),
        (websocket::text(&long[..125]), LAST | TEXT, &long.as_bytes()[..125]),
        (websocket::text(&long[..126]), LAST | TEXT, &long.as_bytes()[..126]),
        (websocket::text(&long[..65_535]), LAST | TEXT, &long.as_bytes()[..65_535]),
        (websocket::text(&long[..65_536]), LAST | TEXT, &long.as_bytes()[..65_536]),
        (websocket::binary(&[0, 1]), LAST | BINARY, &[0, 1]),
        (websocket::ping(b"?"), LAST | PING, b"?"),
        (websocket::ping(long.as_bytes()), LAST | PING, &long.as_bytes()[..125]),
        (websocket::pong(b"!"), LAST | PONG, b"!"),
        (websocket::close(1000, ""), LAST | CLOSE, b"\x03\xe8"),
        (websocket::close(4001, "why"), LAST | CLOSE, b"\x0f\xa1why"),
        (websocket::close(websocket::code::NO_CODE, "unsaid"), LAST | CLOSE, b""),
    ] {
        let expected = [&head(first, payload.len())[..], payload].concat();
        assert_eq!(frame, expected);
    }
    // 41 characters of three bytes are 123.
    let frame = websocket::close(1000, &"€".repeat(50));
    assert_eq!(&frame[4..], "€".repeat(41).as_bytes());
    let frame = websocket::close(1000, &format!("x{}", "€".repeat(50)));
    assert_eq!(&frame[4..], format!("x{}", "€".repeat(40)).as_bytes());
}
