//! The WebSocket codec under chance: however the bytes are cut, the same messages come out;
//! whatever the bytes are, nothing panics and no more memory is held than a message may have.

use wire::websocket::{self, Deflate, Incoming, ProtocolError, Received};

use crate::chance::Chance;
use crate::websocket_client::{BINARY, CLOSE, DEFLATED, LAST, PING, PONG, TEXT, masked, read};

const CASES: u64 = 3_000;
const LIMIT: usize = 4_000;

type Said = Result<Received<'static>, ProtocolError>;

fn incoming() -> Incoming {
    Incoming::new(LIMIT, Some(Deflate::USUAL))
}

/// Up to `most` bytes of text, with characters of every length.
fn words(chance: &mut Chance, most: usize) -> String {
    let mut words = String::new();
    let length = chance.below(most);
    while words.len() < length {
        words.push_str(chance.one_of(&["a", "{\"id\":", "é", "日本", "🦀", " ", "\u{0}"]));
    }
    words
}

/// A message in fragments, with control frames in between, and all that a reader should see.
fn message(chance: &mut Chance, bytes: &mut Vec<u8>, expected: &mut Vec<Said>) {
    let text = words(chance, 700);
    let is_text = !chance.once_in(3);
    let kind = if is_text { TEXT } else { BINARY };
    let frame = match is_text {
        true => websocket::deflated(&text, &Deflate::USUAL),
        false => websocket::deflated_binary(text.as_bytes(), &Deflate::USUAL),
    };
    let deflated = frame.filter(|_| chance.once_in(2)).map(|frame| {
        let head_bytes = if frame[1] == 126 { 4 } else { 2 };
        frame[head_bytes..].to_vec()
    });
    let mut first = kind | if deflated.is_some() { DEFLATED } else { 0 };
    let payload = deflated.unwrap_or_else(|| text.clone().into_bytes());
    let pieces = if chance.once_in(2) { vec![&payload[..]] } else { chance.cut(&payload) };
    // Nothing has no pieces, and is still a message.
    let last = pieces.len().saturating_sub(1);
    let pieces = if pieces.is_empty() { vec![&payload[..]] } else { pieces };
    for (at, piece) in pieces.into_iter().enumerate() {
        bytes.extend(masked(if at == last { first | LAST } else { first }, piece));
        first = 0;
        if at < last && chance.once_in(4) {
            control(chance, bytes, expected);
        }
    }
    expected.push(Ok(match is_text {
        true => Received::Text(text.into()),
        false => Received::Binary(text.into_bytes().into()),
    }));
}

fn control(chance: &mut Chance, bytes: &mut Vec<u8>, expected: &mut Vec<Said>) {
    let payload = words(chance, 120).into_bytes();
    if chance.once_in(2) {
        bytes.extend(masked(LAST | PONG, payload));
        expected.push(Ok(Received::Pong));
    } else {
        bytes.extend(masked(LAST | PING, &payload));
        expected.push(Ok(Received::Ping(payload.into())));
    }
}

/// What a client that behaves sends, and what is to be read.
fn conversation(chance: &mut Chance) -> (Vec<u8>, Vec<Said>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..chance.below(6) {
        match chance.once_in(4) {
            true => control(chance, &mut bytes, &mut expected),
            false => message(chance, &mut bytes, &mut expected),
        }
    }
    if chance.once_in(2) {
        bytes.extend(masked(LAST | CLOSE, b"\x03\xe8bye"));
        expected.push(Ok(Received::Close(Some((1000, "bye".into())))));
    }
    (bytes, expected)
}

#[test]
fn messages_do_not_depend_on_how_bytes_are_split() {
    for seed in 0..CASES {
        let mut chance = Chance::new(seed);
        let (bytes, expected) = conversation(&mut chance);
        assert_eq!(read(incoming(), [&bytes[..]]), expected, "seed {seed}, in one piece");
        assert_eq!(read(incoming(), chance.cut(&bytes)), expected, "seed {seed}, in pieces");
        assert_eq!(read(incoming(), bytes.chunks(1)), expected, "seed {seed}, byte by byte");
    }
}

#[test]
fn results_for_damaged_bytes_do_not_depend_on_how_they_are_split() {
    let mut broken = 0;
    for seed in 0..CASES {
        let mut chance = Chance::new(seed);
        let (mut bytes, _) = conversation(&mut chance);
        for _ in 0..=chance.below(3) {
            if let Some(at) = bytes.len().checked_sub(1).map(|last| chance.below(last + 1)) {
                bytes[at] = chance.below(256) as u8;
            }
        }
        let whole = read(incoming(), [&bytes[..]]);
        assert_eq!(read(incoming(), chance.cut(&bytes)), whole, "seed {seed}, in pieces");
        assert_eq!(read(incoming(), bytes.chunks(1)), whole, "seed {seed}, byte by byte");
        broken += usize::from(whole.last().is_some_and(Result::is_err));
    }
    assert!(broken > CASES as usize / 4, "{broken} broken: the change must hit something");
}

#[test]
fn memory_per_connection_never_exceeds_the_message_limit() {
    // A compressed message may be a little longer than what it is inflated to.
    let most = LIMIT + LIMIT / 16 + 256;
    for seed in 0..CASES {
        let mut chance = Chance::new(seed);
        let mut bytes: Vec<u8> =
            (0..chance.below(3 * LIMIT)).map(|_| chance.below(256) as u8).collect();
        // Otherwise most would end with the first two bytes.
        for (at, likely) in
            [(0, [0x81, 0x01, 0x82, 0xc1, 0x41]), (1, [0xff, 0xfe, 0x85, 0xfe, 0xfe])]
        {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = likely[chance.below(likely.len())];
            }
        }
        if bytes.len() > 3 && chance.once_in(2) {
            bytes[2..4].copy_from_slice(&(chance.below(LIMIT) as u16).to_be_bytes());
        }
        let mut incoming = incoming();
        for piece in chance.cut(&bytes) {
            let mut piece = piece.to_vec();
            let mut rest = &mut piece[..];
            while let Ok(Some(received)) = incoming.next(&mut rest) {
                assert!(held_by(&received) <= most, "seed {seed}");
            }
            assert!(incoming.held_bytes() <= most, "seed {seed}: {}", incoming.held_bytes());
            assert!(incoming.is_partial() || incoming.held_bytes() == 0, "seed {seed}");
        }
    }
}

fn held_by(received: &Received<'_>) -> usize {
    match received {
        Received::Text(text) => text.len(),
        Received::Binary(bytes) | Received::Ping(bytes) => bytes.len(),
        Received::Pong | Received::Close(_) => 0,
    }
}

#[test]
fn an_announced_length_allocates_no_memory_before_the_bytes_arrive() {
    let mut incoming = Incoming::new(1 << 30, None);
    let mut head = masked(LAST | BINARY, vec![0; 70_000]);
    head[2..10].copy_from_slice(&(1u64 << 30).to_be_bytes());
    assert_eq!(incoming.next(&mut &mut head[..]), Ok(None));
    assert!(incoming.held_bytes() <= 2 * 70_000, "{}", incoming.held_bytes());
}
