//! HTTP/2 floods against the real server, from clients that send and never read: memory stays
//! bounded and other clients are served as before.

use crate::harness::{KEY, PATIENCE, Server, Start};
use crate::hostile::{GROWTH_KIB, assert_unharmed, resident_kib};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Concurrent attackers of one kind.
const ATTACKERS: usize = 16;
/// How long an attacker writes to a server that reads no more.
const WRITING: Duration = Duration::from_secs(1);
/// Far longer than a response takes, far shorter than on an overloaded server.
const PROMPT: Duration = Duration::from_secs(3);

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// Header fields without compression, each shorter than 127 bytes.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).unwrap());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

pub fn head(method: &str, path: &str) -> Vec<u8> {
    let key = format!("Bearer {KEY}");
    block(&[
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("authorization", &key),
    ])
}

/// Frames for this many streams.
pub fn streams(count: u32, frames: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|number| frames(number * 2 + 1)).collect()
}

/// The bytes after the preface, and whether the server must send GOAWAY.
fn storms() -> Vec<(&'static str, Vec<u8>, bool)> {
    let list = head("GET", "/v1/books");
    let whole = END_STREAM | END_HEADERS;
    // One large field is added to the table and then referenced repeatedly: one byte each.
    let large = [&[0x40, 1, b'x', 0x7f, 0x81, 0x1d][..], &[b'y'; 3840]].concat();
    let bomb = [list.clone(), large, vec![0xbe; 12_000]].concat();
    let endless = frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(3000));
    vec![
        (
            "rapid resets",
            streams(20_000, |stream| {
                let reset = frame(RESET, 0, stream, &[0, 0, 0, 8]);
                [frame(HEADERS, whole, stream, &list), reset].concat()
            }),
            true,
        ),
        ("pings", frame(PING, 0, 0, &[0; 8]).repeat(100_000), true),
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]).repeat(100_000), true),
        (
            "empty pieces of a head",
            [frame(HEADERS, 0, 1, &list), frame(CONTINUATION, 0, 1, &[]).repeat(50_000)].concat(),
            true,
        ),
        ("a head without end", [frame(HEADERS, 0, 1, &list), endless.repeat(500)].concat(), true),
        (
            "empty pieces of a body",
            {
                let post = frame(HEADERS, END_HEADERS, 1, &head("POST", "/v1/books"));
                [post, frame(DATA, 0, 1, &[]).repeat(50_000)].concat()
            },
            true,
        ),
        ("a bomb of fields", streams(200, |stream| frame(HEADERS, whole, stream, &bomb)), true),
        (
            "answers that nobody takes",
            {
                // A window for all of it, also for the connection.
                let window = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
                let open = frame(8, 0, 0, &0x7f00_0000u32.to_be_bytes());
                let openapi = head("GET", "/openapi.json");
                let ask = streams(5_000, |stream| frame(HEADERS, whole, stream, &openapi));
                [window, open, ask].concat()
            },
            false,
        ),
    ]
}

/// Sends as much as the server accepts, keeps the connection open until all attackers have sent,
/// and then reads what the server sent.
fn attack(server: &Server, bytes: &[u8], sent: &Barrier) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_write_timeout(Some(WRITING)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let begun = Instant::now();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    for piece in opening.chunks(opening.len()).chain(bytes.chunks(64 << 10)) {
        if begun.elapsed() > WRITING || stream.write_all(piece).is_err() {
            break;
        }
    }
    sent.wait();
    // Until the server is measured.
    sent.wait();
    let mut answer = Vec::new();
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The error code of the GOAWAY among these frames.
fn goodbye(mut bytes: &[u8]) -> Option<u8> {
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let payload = rest.get(..length)?;
        if *kind == GOAWAY && payload.get(7) != Some(&0) {
            return payload.get(7).copied();
        }
        bytes = &rest[length..];
    }
    None
}

#[test]
fn http_2_floods_use_no_memory_and_delay_no_other_client() {
    let limits = Start::bookshop().arg("--rate-limit").arg("off");
    let server = limits.env("RESTIVE_ACCESS_LOG", "off").go();
    server.book("calm");
    for (what, bytes, too_much) in storms() {
        let before = resident_kib(&server);
        let sent = Barrier::new(ATTACKERS + 1);
        let over = AtomicBool::new(false);
        let (held, slowest, said) = std::thread::scope(|scope| {
            let attackers: Vec<_> =
                (0..ATTACKERS).map(|_| scope.spawn(|| attack(&server, &bytes, &sent))).collect();
            let bystander = scope.spawn(|| {
                let mut slowest = Duration::ZERO;
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    server.get("/v1/books").expect(200);
                    slowest = slowest.max(begun.elapsed());
                }
                slowest
            });
            sent.wait();
            let held = resident_kib(&server);
            sent.wait();
            over.store(true, Ordering::Relaxed);
            let said: Vec<_> = attackers.into_iter().map(|all| all.join().unwrap()).collect();
            (held, bystander.join().unwrap(), said)
        });
        println!("{what}: {before} KiB before, {held} KiB held, others waited {slowest:?} at most");
        assert!(held < before + GROWTH_KIB, "{what}: {before} KiB became {held} KiB");
        assert!(slowest < PROMPT, "{what}: {slowest:?}");
        if too_much {
            // A client that never reads may lose it; no other code may appear.
            let codes: Vec<u8> = said.iter().filter_map(|bytes| goodbye(bytes)).collect();
            assert!(!codes.is_empty() && codes.iter().all(|code| *code == 11), "{what}: {codes:?}");
        }
        assert_unharmed(&server, before);
    }
    assert_eq!(server.stop().0, 0);
}
