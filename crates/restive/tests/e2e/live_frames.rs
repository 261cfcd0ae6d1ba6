//! Invalid, excessive or compressed bytes on a WebSocket: each gets its close code, and other
//! clients are not affected.

use crate::harness::{PATIENCE, Server, Start, eventually};
use crate::hostile::resident_kib;
use crate::live_client::{
    BINARY, CLOSE, PING, PONG, Socket, TEXT, bearer, head, masked, open_connections, write,
};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use serde_json::json;
use std::time::{Duration, Instant};

const FIN: u8 = 0x80;
const COMPRESSED: u8 = 0x40;

fn quick() -> Server {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off").go()
}

#[test]
fn a_websocket_protocol_error_closes_the_connection_with_its_code() {
    let server = quick();
    let check = |what: &str, bytes: &[u8], expected: u16| {
        let mut socket = Socket::open(&server, "/ws");
        socket.bytes_as_they_are(bytes).unwrap();
        let (code, _) = socket.closed();
        assert_eq!(code, expected, "{what}");
    };
    let unmasked = [&head(FIN | TEXT, 0, 2)[..], b"{}"].concat();
    check("no mask", &unmasked, 1002);
    check("bad UTF-8", &masked(FIN | TEXT, b"{\"type\":\"\xff\"}"), 1007);
    check("half a character", &masked(FIN | TEXT, b"\xe2\x82"), 1007);
    check("too large", &masked(FIN | TEXT, &vec![b' '; 100_000]), 1009);
    let promise = [&head(FIN | TEXT, FIN, 1 << 40)[..], &[0; 4]].concat();
    check("too large by its head alone", &promise, 1009);
    check("binary", &masked(FIN | BINARY, b"{}"), 1003);
    check("reserved bit", &masked(FIN | COMPRESSED | TEXT, b"{}"), 1002);
    check("reserved opcode", &masked(FIN | 0x3, b""), 1002);
    check("a ping in pieces", &masked(PING, b"x"), 1002);
    check("a ping that is too long", &masked(FIN | PING, &[0; 126]), 1002);
    check("a piece of nothing", &masked(FIN, b"x"), 1002);
    check("a close code of nobody", &masked(FIN | CLOSE, &999u16.to_be_bytes()), 1002);
    let fragments = [masked(TEXT, &[b' '; 40_000]), masked(FIN, &[b' '; 40_000])].concat();
    check("too large in pieces", &fragments, 1009);
    check("goodbye", &masked(FIN | CLOSE, &1000u16.to_be_bytes()), 1000);
    eventually("all are gone", || open_connections(&server, "websocket") == 0.0);
}

#[test]
fn a_close_frame_arrives_although_the_client_keeps_sending() {
    let server = quick();
    for round in 0..5 {
        let mut socket = Socket::open(&server, "/ws");
        // Much more than the server reads before it closes. A reset would lose the code in a
        // browser, whatever this client can still read.
        let bytes = masked(FIN | TEXT, &vec![b'x'; 3_000_000]);
        socket.bytes_as_they_are(&bytes).expect("it is taken to its end");
        let frame = std::iter::repeat_with(|| socket.frame()).find(|f| f.opcode == CLOSE).unwrap();
        assert_eq!(frame.payload[..2], 1009u16.to_be_bytes(), "round {round}");
        assert!(socket.try_frame().expect("no reset").is_none());
    }
}

#[test]
fn a_message_may_be_fragmented_with_pings_in_between() {
    let server = quick();
    let mut socket = Socket::open(&server, "/ws");
    socket.bytes_as_they_are(&masked(TEXT, b"{\"type\":\"message\",\"ref\":\"r\",")).unwrap();
    socket.send(PING, b"are you there").unwrap();
    let pong = std::iter::repeat_with(|| socket.frame()).find(|f| f.opcode == PONG).unwrap();
    assert_eq!(pong.payload, b"are you there");
    socket.bytes_as_they_are(&masked(0, b"\"text\":\"gr\xc3")).unwrap();
    // One byte at a time: the reader must not expect whole frames.
    for byte in masked(FIN, b"\xbc\xc3\x9fe\"}") {
        socket.bytes_as_they_are(&[byte]).unwrap();
    }
    assert_eq!(socket.typed("ack")["ref"], "r");
    assert_eq!(crate::live_client::committed(&server)[0].1, "grüße");
}

fn deflated(text: &[u8]) -> Vec<u8> {
    let mut deflate = Compress::new(Compression::best(), false);
    let mut bytes = Vec::with_capacity(text.len() / 100 + 1024);
    deflate.compress_vec(text, &mut bytes, FlushCompress::Sync).unwrap();
    // RFC 7692 7.2.1: without the empty block at the end.
    bytes.truncate(bytes.len() - 4);
    bytes
}

fn inflated(payload: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(1 << 20);
    let whole = [payload, &[0, 0, 0xff, 0xff]].concat();
    Decompress::new(false).decompress_vec(&whole, &mut text, FlushDecompress::Sync).unwrap();
    text
}

fn compressing(server: &Server, offer: &str) -> Socket {
    let headers = [bearer(&server.key), format!("Sec-WebSocket-Extensions: {offer}")];
    let opened = Socket::ask(server.address, "/ws", &headers, PATIENCE).unwrap();
    assert_eq!(opened.status, 101);
    assert!(opened.head.contains("permessage-deflate"), "{}", opened.head);
    opened.socket()
}

#[test]
fn large_messages_are_compressed_if_negotiated() {
    let server = quick();
    let mut sockets = [
        compressing(&server, "permessage-deflate; client_max_window_bits"),
        compressing(&server, "permessage-deflate; server_max_window_bits=10"),
    ];
    let mut plain = Socket::open(&server, "/ws");
    plain.typed("welcome");
    let text = "the same again and again. ".repeat(100);
    write(&server, &text);
    for socket in &mut sockets {
        assert!(!socket.frame().compressed, "a welcome is too small for it");
        let frame = socket.frame();
        assert!(frame.compressed && frame.payload.len() < 1_000, "{} bytes", frame.payload.len());
        let message: serde_json::Value = serde_json::from_slice(&inflated(&frame.payload)).unwrap();
        assert_eq!(message["data"]["text"], text);
    }
    let frame = plain.frame();
    assert!(!frame.compressed && frame.payload.len() > 2_000);
    // The server accepts compressed messages.
    let said = json!({ "type": "message", "ref": "r", "text": text });
    let bytes = masked(FIN | COMPRESSED | TEXT, &deflated(said.to_string().as_bytes()));
    sockets[0].bytes_as_they_are(&bytes).unwrap();
    eventually("it is committed", || crate::live_client::committed(&server).len() == 2);
}

#[test]
fn a_compressed_message_over_the_limit_is_refused_without_using_memory() {
    let server = quick();
    let before = resident_kib(&server);
    let bomb = deflated(&vec![b' '; 200 << 20]);
    assert!(bomb.len() < 300_000);
    for _ in 0..5 {
        let mut socket = compressing(&server, "permessage-deflate");
        let _ = socket.bytes_as_they_are(&masked(FIN | COMPRESSED | TEXT, &bomb));
        let (code, _) = socket.closed();
        assert_eq!(code, 1009);
        let mut socket = compressing(&server, "permessage-deflate");
        // Small on the wire, so that only inflating it shows its size.
        let small = deflated(&vec![b' '; 10 << 20]);
        assert!(small.len() < 60_000);
        socket.bytes_as_they_are(&masked(FIN | COMPRESSED | TEXT, &small)).unwrap();
        assert_eq!(socket.closed().0, 1009);
        let mut socket = compressing(&server, "permessage-deflate");
        socket.bytes_as_they_are(&masked(FIN | COMPRESSED | TEXT, b"\xff\xff\xff")).unwrap();
        assert_eq!(socket.closed().0, 1007);
    }
    let grown = resident_kib(&server).saturating_sub(before);
    assert!(grown < 20 << 10, "grown by {grown} KiB");
}

#[test]
fn a_flood_of_messages_is_slowed_down_and_delays_no_other_client() {
    let server = quick();
    let mut quiet = Socket::open(&server, "/ws?types=message");
    quiet.typed("welcome");
    let before = resident_kib(&server);
    let floods = [
        json!({ "type": "ping" }).to_string(),
        json!({ "type": "typing", "data": "x".repeat(900) }).to_string(),
        json!({ "type": "nonsense", "data": "x".repeat(20_000) }).to_string(),
        json!({ "type": "subscribe", "types": "order.*" }).to_string(),
    ];
    // Ends with the server: unread bytes stay in their sockets.
    for text in floods.iter().cycle().take(12) {
        let frame = masked(FIN | TEXT, text.as_bytes());
        let mut socket = Socket::open(&server, "/ws?types=order.*");
        std::thread::spawn(move || (0..20_000).try_for_each(|_| socket.bytes_as_they_are(&frame)));
    }
    // A client that floods and reads gets responses at the rate limit.
    let mut flooder = Socket::open(&server, "/ws?types=order.*");
    flooder.typed("welcome");
    let ping = masked(FIN | TEXT, b"{\"type\":\"ping\"}");
    flooder.bytes_as_they_are(&ping.repeat(3_000)).unwrap();
    let began = Instant::now();
    (0..200).for_each(|_| drop(flooder.typed("pong")));
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1_500), "200 answers in {took:?}");
    for number in 0..50 {
        let text = format!("message {number}");
        let began = Instant::now();
        write(&server, &text);
        assert_eq!(quiet.texts_until(&text), [text.as_str()]);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
    let grown = resident_kib(&server).saturating_sub(before);
    assert!(grown < 40 << 10, "grown by {grown} KiB");
}

/// Some dozens of clients do everything that uses memory.
fn storm(server: &Server, bomb: &[u8]) {
    const EACH: usize = 12;
    let flood = masked(FIN | TEXT, b"{\"type\":\"ping\"}").repeat(5_000);
    let oversize = masked(FIN | TEXT, &vec![b' '; 1 << 20]);
    let pieces = masked(TEXT, &[b' '; 30_000]);
    std::thread::scope(|scope| {
        for _ in 0..EACH {
            // Unread responses, and more messages than are accepted.
            let mut socket = Socket::open(server, "/ws");
            let flood = &flood;
            // The server reads some and leaves the rest in its socket; the test does not wait.
            scope.spawn(move || socket.bytes_as_they_are(&flood[..40_000]));
            let mut socket = compressing(server, "permessage-deflate");
            scope.spawn(move || {
                let _ = socket.bytes_as_they_are(&masked(FIN | COMPRESSED | TEXT, bomb));
                assert_eq!(socket.closed().0, 1009);
            });
            let mut socket = Socket::open(server, "/ws");
            let oversize = &oversize;
            scope.spawn(move || {
                let _ = socket.bytes_as_they_are(oversize);
                assert_eq!(socket.closed().0, 1009);
            });
            // Half a message, never completed.
            Socket::open(server, "/ws").bytes_as_they_are(&pieces).unwrap();
        }
    });
    eventually("all are gone", || open_connections(server, "websocket") == 0.0);
}

#[test]
fn memory_used_by_hostile_sockets_is_freed() {
    let server = quick();
    let before = resident_kib(&server);
    let bomb = deflated(&vec![b' '; 20 << 20]);
    let after: Vec<u64> = (0..4)
        .map(|_| {
            storm(&server, &bomb);
            write(&server, "somebody works between");
            resident_kib(&server)
        })
        .collect();
    // The allocator may keep the memory of the first round for the next, and no more.
    assert!(after[0] < before + (24 << 10), "from {before} KiB to {after:?}");
    assert!(after[3] < after[0] + (4 << 10), "from {before} KiB to {after:?}");
}

#[test]
fn an_incomplete_frame_uses_memory_only_for_received_bytes() {
    let server = quick();
    let open = |count: usize| -> Vec<Socket> {
        (0..count).map(|_| Socket::open(&server, "/ws")).collect()
    };
    // Memory of the first connections is reused by the following ones.
    let mut first = open(20);
    write(&server, "somebody works before");
    first.iter_mut().for_each(|socket| drop(socket.typed("message")));
    let before = resident_kib(&server);
    let mut sockets = open(200);
    for socket in &mut sockets {
        // Declares 60 KB and sends three bytes.
        socket.bytes_as_they_are(&head(FIN | TEXT, FIN, 60_000)).unwrap();
        socket.bytes_as_they_are(&[0, 0, 0, 0, b'{', b' ', b' ']).unwrap();
    }
    write(&server, "somebody works meanwhile");
    for socket in &mut sockets {
        assert_eq!(socket.typed("message")["data"]["text"], "somebody works meanwhile");
    }
    let grown = resident_kib(&server).saturating_sub(before);
    assert!(grown < 4 << 10, "200 of them cost {grown} KiB");
    drop((first, sockets));
    eventually("all are gone", || open_connections(&server, "websocket") == 0.0);
}
