//! Request bodies with a content coding: gzip and zstd are decoded within the body limit, and every
//! other coding is refused.

use crate::harness::{Answer, KEY, Server, Start};
use crate::hostile::resident_kib;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// The limit of bodies in the bookshop.
const LIMIT: usize = 1 << 20;
const BOOK: &[u8] = br#"{"title":"Dune","author":"Frank Herbert"}"#;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A frame of raw blocks and run-length blocks, which needs no encoder.
fn zstd(parts: &[Block]) -> Vec<u8> {
    // Magic number, then a descriptor without content size, and a window of 1 MiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50];
    for (place, part) in parts.iter().enumerate() {
        let last = u32::from(place + 1 == parts.len());
        let (kind, size) = match part {
            Block::Stored(bytes) => (0, bytes.len()),
            Block::Repeated(_, count) => (1, *count),
        };
        let head = last | kind << 1 | (size as u32) << 3;
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        match part {
            Block::Stored(bytes) => frame.extend_from_slice(bytes),
            Block::Repeated(byte, _) => frame.push(*byte),
        }
    }
    frame
}

#[derive(Clone)]
enum Block {
    Stored(Vec<u8>),
    Repeated(u8, usize),
}

fn post(server: &Server, coding: &str, body: Vec<u8>) -> Answer {
    let ask = server.ask("POST", "/v1/books").header("content-type", "application/json");
    ask.header("content-encoding", coding).body(body).send()
}

#[test]
fn bodies_in_gzip_and_zstd_are_accepted() {
    let server = Server::bookshop();
    let stored = zstd(&[Block::Stored(BOOK.to_vec())]);
    let padded = zstd(&[Block::Repeated(b' ', 100_000), Block::Stored(BOOK.to_vec())]);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &stored].concat();
    let half = BOOK.len() / 2;
    let members = [gzip(&BOOK[..half]), gzip(&BOOK[half..])].concat();
    let two_frames = [&BOOK[..half], &BOOK[half..]];
    let two_frames = two_frames.map(|part| zstd(&[Block::Stored(part.to_vec())])).concat();
    for (coding, body) in [
        ("gzip", gzip(BOOK)),
        ("GZip", gzip(BOOK)),
        ("x-gzip", gzip(BOOK)),
        ("gzip", members),
        ("zstd", stored),
        ("zstd", padded),
        ("zstd", skippable),
        ("zstd", two_frames),
        ("identity", BOOK.to_vec()),
        ("identity, gzip", gzip(BOOK)),
    ] {
        let made = post(&server, coding, body);
        assert_eq!(made.status, 201, "{coding}: {}", made.text);
        assert_eq!(made.json["title"], "Dune", "{coding}");
    }
    // Bodies of other methods and of built-in resources as well.
    let path = format!("/v1/books/{}", server.book("Emma"));
    let patch = server.ask("PATCH", &path).header("content-type", "application/json");
    let patched = patch.header("content-encoding", "gzip").body(gzip(br#"{"price":7}"#)).send();
    assert_eq!(patched.expect(200)["price"], 7);
    let token = server.ask("POST", "/v1/channel-tokens").header("content-type", "application/json");
    let token = token.header("content-encoding", "gzip").body(gzip(br#"{"user":"ann"}"#)).send();
    assert_eq!(token.expect(201)["user"], "ann");
}

#[test]
fn an_idempotent_repetition_may_use_another_content_coding() {
    let server = Server::bookshop();
    let send = |coding: &str, body: Vec<u8>| {
        let ask = server.ask("POST", "/v1/books").header("content-type", "application/json");
        ask.header("content-encoding", coding).header("idempotency-key", "k").body(body).send()
    };
    let first = send("gzip", gzip(BOOK));
    let again = send("zstd", zstd(&[Block::Stored(BOOK.to_vec())]));
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{}", again.text);
    assert_eq!(first.expect(201), again.expect(201));
}

#[test]
fn an_unknown_content_coding_is_refused_with_the_known_ones() {
    let server = Server::bookshop();
    for coding in ["br", "deflate", "compress", "gzip, gzip", "gzip, zstd", "x", "gzip;q=1", ""] {
        let refused = post(&server, coding, gzip(BOOK));
        assert_eq!(refused.header("accept-encoding"), Some("gzip, zstd"), "{coding}");
        let error = refused.error(415, "unsupported_media_type");
        assert_eq!(error["param"], "Content-Encoding", "{coding}");
    }
    let wrong_type = server.ask("POST", "/v1/books").header("content-type", "text/plain");
    let wrong_type = wrong_type.body("x").send();
    assert_eq!(wrong_type.header("accept-encoding"), None, "the coding is not what was wrong");
    assert_eq!(server.get("/v1/books").column("id").len(), 0);
}

#[test]
fn a_body_that_is_not_valid_in_its_coding_is_refused() {
    let server = Server::bookshop();
    let whole = gzip(BOOK);
    let mut bent = whole.clone();
    // The checksum at its end.
    let place = bent.len() - 6;
    bent[place] ^= 1;
    let frame = zstd(&[Block::Stored(BOOK.to_vec())]);
    // A checksum that the header announces, with a wrong value.
    let mut summed = frame.clone();
    summed[4] |= 4;
    summed.extend_from_slice(&[1, 2, 3, 4]);
    // A window of 1 GiB.
    let mut wide = frame.clone();
    wide[5] = 20 << 3;
    // The header declares 20 bytes, and the only block is empty.
    let short = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 0x14, 0x01, 0x00, 0x00];
    for (coding, body) in [
        ("zstd", short.to_vec()),
        ("gzip", BOOK.to_vec()),
        ("gzip", whole[..whole.len() - 9].to_vec()),
        ("gzip", bent),
        ("gzip", [&whole[..], b"rest"].concat()),
        ("zstd", BOOK.to_vec()),
        ("zstd", gzip(BOOK)),
        ("zstd", frame[..frame.len() - 3].to_vec()),
        ("zstd", [&frame[..], b"rest"].concat()),
        ("zstd", summed),
        ("zstd", wide),
    ] {
        let refused = post(&server, coding, body);
        assert_eq!(refused.status, 400, "{coding}: {}", refused.text);
        refused.error(400, "malformed_request");
    }
    assert_eq!(server.get("/v1/books").column("id").len(), 0);
}

#[test]
fn a_decompression_bomb_is_refused_early_without_using_memory_or_time() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    server.book("first");
    let before = resident_kib(&server);
    let block = Block::Repeated(b' ', 128 << 10);
    let bombs = [
        ("gzip", gzip(&vec![b' '; 256 << 20])),
        // 16 GiB.
        ("zstd", zstd(&vec![block; 1 << 17])),
        ("gzip", gzip(&vec![b' '; LIMIT + 1])),
        ("zstd", zstd(&[vec![Block::Repeated(b' ', 128 << 10); 9]].concat())),
    ];
    for (coding, bomb) in bombs {
        assert!(bomb.len() <= LIMIT + 64, "{}", bomb.len());
        let began = Instant::now();
        let refused = post(&server, coding, bomb);
        let took = began.elapsed();
        let error = refused.error(413, "body_too_large");
        assert_eq!(error["limit_bytes"], LIMIT, "{coding}");
        assert!(took < Duration::from_secs(2), "{coding}: {took:?}");
    }
    let after = resident_kib(&server);
    assert!(after < before + (64 << 10), "{before} KiB became {after} KiB");
    // A body of exactly the limit is accepted.
    let room = LIMIT - BOOK.len();
    let full = [vec![b' '; room], BOOK.to_vec()].concat();
    assert_eq!(post(&server, "gzip", gzip(&full)).status, 201);
    server.ask("POST", "/v1/books").key(KEY).json(&json!({"title": "a", "author": "b"})).send();
}
