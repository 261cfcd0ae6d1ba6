//! HTTP/2 from clients that do not behave, frame by frame: what concerns one stream costs that
//! stream, what is an attack costs the connection, and nobody else notices.

use std::time::{Duration, Instant};

use wire::Limits;

use crate::h2_client::{
    ACK, CALM, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GET, GOAWAY, HEADERS, PING,
    PREFACE, PRIORITY, PROTOCOL_ERROR, RESET, SETTINGS, WINDOW_UPDATE, block, frame, raw,
};
use crate::server::{PATIENCE, Server};

/// The fields that are changed, the body, and the verdict.
type Case<'a> = (&'a [(&'static str, &'static str)], &'a [u8], &'a str);

const SHORT: Duration = Duration::from_millis(100);

/// A head with these fields in place of those of the same name, or behind them.
fn head(changed: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut fields: Vec<_> = GET.into_iter().filter(|(name, _)| !named(changed, name)).collect();
    fields.extend(changed.iter().filter(|(_, value)| *value != "-"));
    fields.sort_by_key(|(name, _)| !name.starts_with(':'));
    fields
}

fn named(fields: &[(&str, &str)], name: &str) -> bool {
    fields.iter().any(|(other, _)| *other == name)
}

/// The status of the answer to these fields, or the code the stream was reset with.
fn verdict(frames: &mut Frames, stream: u32, fields: &[(&str, &str)], body: &[u8]) -> String {
    let ends = if body.is_empty() { END_STREAM } else { 0 };
    frames.send(HEADERS, END_HEADERS | ends, stream, &block(fields));
    if !body.is_empty() {
        frames.send(DATA, END_STREAM, stream, body);
    }
    answered(frames, stream)
}

/// The status of the answer on this stream, or the code it was reset with.
fn answered(frames: &mut Frames, stream: u32) -> String {
    loop {
        let frame = frames.next().expect("the connection goes on");
        assert_ne!(frame.kind, GOAWAY, "{frame:?}");
        match (frame.kind, frame.stream == stream) {
            (HEADERS, true) => return status(&frame.payload),
            (RESET, true) => return format!("reset {}", frame.payload[3]),
            _ => {}
        }
    }
}

/// The status stands first, indexed or as a literal of the indexed name.
fn status(block: &[u8]) -> String {
    let at = usize::from(block[0] & 0xe0 == 0x20);
    match block[at..] {
        [indexed @ 0x88..=0x8e, ..] => {
            let known = ["200", "204", "206", "304", "400", "404", "500"];
            known[usize::from(indexed - 0x88)].to_owned()
        }
        [_, length, ..] if length & 0x80 == 0 => {
            String::from_utf8_lossy(&block[at + 2..][..usize::from(length)]).into_owned()
        }
        // Three digits in Huffman's code: five bits each, `0` to `2`, six for the others.
        [_, _, ..] => "4xx".to_owned(),
        _ => panic!("{block:?}"),
    }
}

#[test]
fn ambiguous_heads_are_refused_and_the_connection_continues() {
    let server = Server::start();
    let mut frames = raw(&server);
    let cases: &[Case<'_>] = &[
        (&[], b"", "200"),
        (&[("connection", "close")], b"", "reset 1"),
        (&[("keep-alive", "x")], b"", "reset 1"),
        (&[("proxy-connection", "x")], b"", "reset 1"),
        (&[("transfer-encoding", "chunked")], b"", "reset 1"),
        (&[("upgrade", "websocket")], b"", "reset 1"),
        (&[("te", "gzip")], b"", "reset 1"),
        (&[("te", "trailers")], b"", "200"),
        (&[(":path", "-")], b"", "reset 1"),
        (&[(":path", "one")], b"", "reset 1"),
        (&[(":path", "*")], b"", "400"),
        (&[(":path", "*"), (":method", "OPTIONS")], b"", "200"),
        (&[(":path", "")], b"", "reset 1"),
        (&[(":path", "/one#two")], b"", "400"),
        (&[(":path", "/one?x#")], b"", "400"),
        (&[(":path", "#")], b"", "400"),
        (&[(":authority", "a:x")], b"", "400"),
        (&[(":authority", "a:65536")], b"", "400"),
        (&[(":authority", ":80")], b"", "400"),
        (&[(":authority", "")], b"", "reset 1"),
        (&[(":authority", "[::1")], b"", "reset 1"),
        (&[(":authority", "[::1]a")], b"", "400"),
        (&[(":authority", "[127.0.0.1]:80")], b"", "400"),
        (&[(":authority", "-"), ("host", "")], b"", "400"),
        (&[(":authority", "-"), ("host", "[::1")], b"", "400"),
        (&[("x", " a")], b"", "400"),
        (&[("x", "a ")], b"", "400"),
        (&[("x", "\ta")], b"", "400"),
        (&[("x", "a b")], b"", "200"),
        (&[("x", "")], b"", "200"),
        (&[(":scheme", "-")], b"", "reset 1"),
        (&[(":scheme", "ftp")], b"", "400"),
        (&[(":method", "-")], b"", "reset 1"),
        (&[(":status", "200")], b"", "reset 1"),
        (&[(":authority", "-")], b"", "400"),
        (&[(":authority", "-"), ("host", "a")], b"", "200"),
        (&[("host", "a")], b"", "200"),
        (&[("host", "A")], b"", "200"),
        (&[("host", "b")], b"", "400"),
        (&[(":authority", "user@a")], b"", "400"),
        (&[("host", "a"), ("host", "a")], b"", "400"),
        (&[(":method", "CONNECT")], b"", "reset 1"),
        (&[(":method", "CONNECT"), (":path", "-"), (":scheme", "-")], b"", "4xx"),
        (&[("content-length", "4")], b"four", "200"),
        (&[("content-length", "4"), ("content-length", "4")], b"four", "400"),
        (&[("content-length", "4"), ("content-length", "5")], b"four", "reset 1"),
        (&[("content-length", "+4")], b"four", "reset 1"),
        (&[("content-length", "4")], b"", "reset 1"),
    ];
    let mut wrong = Vec::new();
    for (number, (changed, body, expected)) in (0u32..).zip(cases) {
        let stream = number * 2 + 1;
        let seen = verdict(&mut frames, stream, &head(changed), body);
        if seen != *expected {
            wrong.push(format!("{changed:?}: {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    frames.still_serves(1001);
}

#[test]
fn invalid_fields_end_at_most_their_connection() {
    let server = Server::start();
    for (name, value) in
        [("Upper", "x"), ("", "x"), ("a b", "x"), ("a\nb", "x"), ("x", "a\r\nb: c")]
    {
        let mut frames = raw(&server);
        frames.send(HEADERS, END_STREAM | END_HEADERS, 1, &block(&head(&[(name, value)])));
        let refused = loop {
            match frames.next() {
                Some(frame) if frame.kind == RESET || frame.kind == GOAWAY => break true,
                Some(frame) if frame.kind == DATA => break false,
                Some(_) => {}
                None => break true,
            }
        };
        assert!(refused, "{name:?}: {value:?}");
    }
    server.saw_nothing();
}

#[test]
fn a_body_that_differs_from_its_declared_length_is_never_complete() {
    let server = Server::start();
    let mut frames = raw(&server);
    let fields = head(&[(":method", "POST"), ("content-length", "4")]);
    for (stream, body) in [(1, &b"three"[..]), (3, b"two")] {
        frames.send(HEADERS, END_HEADERS, stream, &block(&fields));
        server.saw("POST /one");
        frames.send(DATA, END_STREAM, stream, body);
        frames.is_reset(stream, PROTOCOL_ERROR);
        server.saw("Malformed");
    }
    frames.still_serves(5);
}

#[test]
fn after_an_early_response_a_client_may_finish_its_body_but_not_send_without_end() {
    let server = Server::start();
    let mut frames = raw(&server);
    // The windows hold once they are acknowledged.
    frames.until(SETTINGS);
    frames.send(SETTINGS, ACK, 0, &[]);
    let unread = block(&head(&[(":method", "POST"), (":path", "/unread")]));
    let refused = block(&head(&[(":method", "POST"), ("host", "b")]));
    // Each within its own window of 64 KiB.
    for (number, fields) in [&unread, &refused].repeat(8).into_iter().enumerate() {
        let stream = number as u32 * 4 + 1;
        frames.send(HEADERS, END_HEADERS, stream, fields);
        assert_eq!(frames.until(DATA).stream, stream);
        for _ in 0..3 {
            frames.send(DATA, 0, stream, &[b'x'; 16 << 10]);
        }
        frames.send(DATA, END_STREAM, stream, &[]);
        // A reset would show here.
        frames.still_serves(stream + 2);
    }

    let server = Server::with(Limits { linger_timeout: SHORT, ..Limits::default() });
    let mut frames = raw(&server);
    frames.send(HEADERS, END_HEADERS, 1, &unread);
    frames.is_reset(1, 0);
    frames.still_serves(3);
}

#[test]
fn too_many_or_too_large_fields_are_refused_and_a_header_bomb_ends_the_connection() {
    let server = Server::start();
    let mut frames = raw(&server);
    let many: Vec<(&str, &str)> = GET.into_iter().chain([("a", "b"); 200]).collect();
    assert_eq!(verdict(&mut frames, 1, &many, b""), "4xx");
    let long = format!("/{}", "x".repeat(9000));
    let path: Vec<(&str, &str)> =
        GET.into_iter().map(|(n, v)| if n == ":path" { (n, &long[..]) } else { (n, v) }).collect();
    assert_eq!(verdict(&mut frames, 3, &path, b""), "4xx");
    // One large field put into the table, then named again and again: a byte each.
    let mut bomb = block(&GET);
    let mut field = block(&[("x", &"y".repeat(3800))]);
    field[0] = 0x40;
    bomb.extend_from_slice(&field);
    bomb.extend_from_slice(&[0xbe; 8000]);
    frames.send(HEADERS, END_STREAM | END_HEADERS, 5, &bomb);
    frames.goes_away(CALM);
    server.saw_nothing();
}

#[test]
fn a_head_without_end_is_refused() {
    let server = Server::with(Limits { head_timeout: SHORT, ..Limits::default() });
    // In many pieces.
    let mut frames = raw(&server);
    frames.send(HEADERS, END_STREAM, 1, &block(&GET));
    for _ in 0..1000 {
        frames.send(CONTINUATION, 0, 1, &[]);
    }
    frames.goes_away(CALM);
    // In many large ones.
    let mut frames = raw(&server);
    frames.send(HEADERS, END_STREAM, 1, &block(&GET));
    let piece = block(&[("x", &"y".repeat(16_000))]);
    for _ in 0..1000 {
        frames.send(CONTINUATION, 0, 1, &piece);
    }
    frames.goes_away(CALM);
    // In silence, while another stream is being answered.
    let mut frames = raw(&server);
    let wait = head(&[(":path", "/wait")]);
    frames.send(HEADERS, END_STREAM | END_HEADERS, 1, &block(&wait));
    server.saw("GET /wait");
    frames.send(HEADERS, END_STREAM, 3, &block(&GET));
    frames.goes_away(CALM);
    // Half a preface.
    let mut wire = server.connect();
    wire.send(&PREFACE[..20]);
    wire.rest();
}

#[test]
fn a_flood_ends_only_its_own_connection() {
    let server = Server::start();
    let mut bystander = raw(&server);
    bystander.still_serves(1);
    let floods: [(&str, Vec<u8>); 5] = [
        ("pings", frame(PING, 0, 0, &[0; 8]).repeat(5000)),
        ("settings", frame(SETTINGS, 0, 0, &[]).repeat(5000)),
        ("priorities", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 0]).repeat(5000)),
        ("frames nobody knows", frame(77, 0, 0, b"what").repeat(5000)),
        ("empty data", {
            let post = head(&[(":method", "POST"), (":path", "/wait")]);
            let begun = frame(HEADERS, END_HEADERS, 1, &block(&post));
            [begun, frame(DATA, 0, 1, &[]).repeat(5000)].concat()
        }),
    ];
    for (what, bytes) in floods {
        let mut frames = raw(&server);
        // Read meanwhile: each ping and setting is answered until it is too much.
        let mut writer = frames.wire.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let _ = std::io::Write::write_all(&mut writer, &bytes);
        });
        frames.goes_away(CALM);
        sending.join().unwrap_or_else(|_| panic!("{what}"));
    }
    bystander.still_serves(3);
}

#[test]
fn rapid_resets_end_the_connection_and_the_work_they_began() {
    let server = Server::start();
    let mut frames = raw(&server);
    let mut writer = frames.wire.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let wait = block(&head(&[(":path", "/wait")]));
        for number in 0..5000 {
            let stream = number * 2 + 1;
            let open = frame(HEADERS, END_STREAM | END_HEADERS, stream, &wait);
            let reset = frame(RESET, 0, stream, &[0, 0, 0, 8]);
            if std::io::Write::write_all(&mut writer, &[open, reset].concat()).is_err() {
                break;
            }
        }
    });
    frames.goes_away(CALM);
    sending.join().unwrap();
    let begun = std::iter::from_fn(|| server.seen.try_recv().ok()).count();
    assert!(begun <= 1001, "{begun}");
    // None of them holds a place any more.
    raw(&server).still_serves(1);
}

#[test]
fn streams_over_the_limit_are_refused_and_may_be_tried_again() {
    let server = Server::start();
    let mut frames = raw(&server);
    // The limit holds once it is acknowledged.
    frames.until(SETTINGS);
    frames.send(SETTINGS, ACK, 0, &[]);
    let wait = block(&head(&[(":path", "/wait")]));
    for number in 0..129 {
        frames.send(HEADERS, END_STREAM | END_HEADERS, number * 2 + 1, &wait);
    }
    let refused = frames.until(RESET);
    assert_eq!((refused.stream, refused.payload[3]), (257, 7), "REFUSED_STREAM");
    server.gate.add_permits(128);
    frames.until(DATA);
    frames.still_serves(259);
}

#[test]
fn a_client_with_repeated_errors_is_disconnected() {
    let server = Server::start();
    let mut frames = raw(&server);
    let bad = block(&head(&[("connection", "close")]));
    for number in 0..400 {
        frames.send(HEADERS, END_STREAM | END_HEADERS, number * 2 + 1, &bad);
    }
    frames.goes_away(CALM);
}

#[test]
fn streams_that_the_server_has_to_reset_count_as_errors_and_stop_their_work() {
    let server = Server::start();
    let wait = block(&head(&[(":method", "POST"), (":path", "/wait")]));
    let overflow = 0x7fff_ffffu32.to_be_bytes();
    for (what, kind, payload) in [
        ("a window beyond its limit", WINDOW_UPDATE, &overflow[..]),
        ("a window opened by nothing", WINDOW_UPDATE, &[0; 4]),
        ("more than was declared", DATA, b"x"),
    ] {
        let begun = match kind {
            DATA => block(&head(&[(":method", "POST"), ("content-length", "0")])),
            _ => wait.clone(),
        };
        let mut frames = raw(&server);
        let mut writer = frames.wire.stream.try_clone().unwrap();
        let payload = payload.to_vec();
        let sending = std::thread::spawn(move || {
            for number in 0..2000 {
                let stream = number * 2 + 1;
                let open = frame(HEADERS, END_HEADERS, stream, &begun);
                let break_it = frame(kind, 0, stream, &payload);
                if std::io::Write::write_all(&mut writer, &[open, break_it].concat()).is_err() {
                    break;
                }
            }
        });
        let goodbye = frames.until(GOAWAY);
        // Some of these are errors of the connection to h2, which is as good.
        let said = u32::from(goodbye.payload[7]);
        assert!(said == CALM || said == PROTOCOL_ERROR, "{what}: {said}");
        while frames.next().is_some() {}
        sending.join().unwrap();
    }
    let begun = std::iter::from_fn(|| server.seen.try_recv().ok()).count();
    assert!(begun <= 1000, "{begun}");
    raw(&server).still_serves(1);
}

#[test]
fn invalid_header_compression_ends_the_connection() {
    let server = Server::start();
    for (what, bytes) in [
        ("no such index", &[0x80][..]),
        ("an index beyond the table", &[0xff, 0x80, 0x80, 0x01]),
        ("a number without end", &[0xff; 64]),
        ("a table larger than agreed on", &[0x3f, 0xe1, 0xff, 0xff, 0x7f]),
        ("a string longer than its frame", &[0x00, 0x7f, 0xff, 0x01, b'x']),
        ("Huffman's code of nothing", &[0x00, 0x84, 0xff, 0xff, 0xff, 0xff, 0x00]),
    ] {
        let mut frames = raw(&server);
        frames.send(HEADERS, END_STREAM | END_HEADERS, 1, bytes);
        let goodbye = frames.until(GOAWAY);
        // h2 says PROTOCOL_ERROR for some, where RFC 9113 4.3 wants COMPRESSION_ERROR.
        assert!([1, 9].contains(&goodbye.payload[7]), "{what}: {goodbye:?}");
        while frames.next().is_some() {}
    }
    server.saw_nothing();
}

#[test]
fn invalid_settings_end_the_connection() {
    let server = Server::start();
    for (setting, value, code) in [(2, 2, 1), (4, 0x8000_0000u32, 3), (5, 1, 1), (5, u32::MAX, 1)] {
        let mut frames = raw(&server);
        let value = value.to_be_bytes();
        frames.send(SETTINGS, 0, 0, &[&[0, setting], &value[..]].concat());
        let goodbye = frames.until(GOAWAY);
        assert!([code, 1].contains(&goodbye.payload[7]), "{setting}: {goodbye:?}");
        while frames.next().is_some() {}
    }
}

#[test]
fn window_overflows_and_invalid_frames_are_errors() {
    let server = Server::start();
    let cases: [Vec<u8>; 4] = [
        frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()),
        frame(DATA, 0, 0, b"on no stream"),
        frame(CONTINUATION, 0, 1, b"of nothing"),
        frame(DATA, 0, 1, &[0; 20_000]),
    ];
    for bytes in cases {
        let mut frames = raw(&server);
        frames.wire.send(&bytes);
        let goodbye = frames.until(GOAWAY);
        assert_ne!(goodbye.payload[7], 0, "an error, whichever");
        while frames.next().is_some() {}
    }
    server.saw_nothing();
}

#[test]
fn a_silent_connection_gets_goaway_and_a_dead_one_is_closed() {
    let server = Server::with(Limits { idle_timeout: SHORT, ..Limits::default() });
    let mut frames = raw(&server);
    frames.still_serves(1);
    frames.goes_away(0);
    // Pings do not make a connection useful.
    let mut frames = raw(&server);
    let begun = Instant::now();
    while frames.next().is_some_and(|frame| frame.kind != GOAWAY) {
        frames.send(PING, 0, 0, &[0; 8]);
    }
    assert!(begun.elapsed() < Duration::from_secs(5));

    let limits = Limits { ping_after: SHORT, write_stall: SHORT, ..Limits::default() };
    let server = Server::with(limits);
    let mut frames = raw(&server);
    let wait = head(&[(":path", "/wait")]);
    frames.send(HEADERS, END_STREAM | END_HEADERS, 1, &block(&wait));
    server.saw("GET /wait");
    for _ in 0..3 {
        let ping = frames.until(PING);
        frames.send(PING, ACK, 0, &ping.payload);
    }
    frames.until(PING);
    // No answer this time.
    while frames.next().is_some() {}
}

#[test]
fn a_client_that_sends_but_never_reads_is_disconnected() {
    let limits = Limits { ping_after: SHORT, write_stall: SHORT, ..Limits::default() };
    let server = Server::with(limits);
    let mut bystander = raw(&server);
    bystander.still_serves(1);
    server.saw("GET /one");
    let mut frames = raw(&server);
    // Windows for more than any buffer holds: what stops the answers is that nobody reads them.
    let window = [&[0, 4][..], &0x7fff_ffffu32.to_be_bytes()].concat();
    frames.send(SETTINGS, 0, 0, &window);
    frames.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000u32.to_be_bytes());
    let large = block(&head(&[(":path", "/large")]));
    for stream in [1, 3, 5, 7] {
        frames.send(HEADERS, END_STREAM | END_HEADERS, stream, &large);
    }
    server.saw("GET /large");
    let ping = frame(PING, 0, 0, &[0; 8]);
    let begun = Instant::now();
    while std::io::Write::write_all(&mut frames.wire.stream, &ping).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it is still listened to");
        // waits for: the next ping, as rare as one who measures the line sends them
        std::thread::sleep(Duration::from_millis(10));
    }
    bystander.still_serves(3);
}

#[test]
fn a_fragment_is_found_in_every_coding_of_the_path() {
    const PATH: u8 = 0x44;
    let server = Server::start();
    let mut frames = raw(&server);
    // `:method: GET`, `:scheme: http`, and the authority `a`.
    let start = [0x82, 0x86, 0x41, 1, b'a'];
    // `/#` as it is, put into the table; then by its number there; then a path with the name that
    // stands there; then in Huffman's code and not kept; then one without a fragment.
    let blocks: [(&[u8], &str); 6] = [
        (&[PATH, 2, b'/', b'#'], "400"),
        (&[0xbe + 1], "400"),
        (&[0x0f, 0x30 + 1, 2, b'/', b'#'], "400"),
        (&[0x04, 0x80 | 3, 0x63, 0xfe, 0xbf], "400"),
        (&[0x20, 0x3f, 0xe1, 0x1f, 0x04, 4, b'/', b'o', b'n', b'e'], "200"),
        (&[0x04, 4, b'/', b'o', b'n', b'e'], "200"),
    ];
    for (number, (path, expected)) in (0u32..).zip(blocks) {
        // A change of the table's size stands first in a block.
        let sizes = path.iter().take_while(|byte| matches!(byte, 0x20 | 0x3f | 0xe1 | 0x1f));
        let (sizes, path) = path.split_at(sizes.count());
        // The authority is put into the table as well, before the path is.
        let (stream, block) = (2 * number + 1, [sizes, &start[..], path].concat());
        frames.send(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        assert_eq!(answered(&mut frames, stream), expected, "{path:?}");
    }
    // Between padding and a priority, which are flags of the frame.
    let padded = [&[3, 0, 0, 0, 0, 0][..], &start, &[0x04, 2, b'/', b'#'], &[0; 3]].concat();
    frames.send(HEADERS, END_HEADERS | END_STREAM | 0x28, 51, &padded);
    assert_eq!(answered(&mut frames, 51), "400");
    // In pieces.
    let block = [&start[..], &[0x04, 2, b'/', b'#']].concat();
    frames.send(HEADERS, END_STREAM, 53, &block[..4]);
    for byte in &block[4..block.len() - 1] {
        frames.send(CONTINUATION, 0, 53, &[*byte]);
    }
    frames.send(CONTINUATION, END_HEADERS, 53, &block[block.len() - 1..]);
    assert_eq!(answered(&mut frames, 53), "400");
    frames.still_serves(55);
}

#[test]
fn pseudo_fields_in_trailers_reset_the_stream() {
    let server = Server::start();
    let mut frames = raw(&server);
    let post = block(&head(&[(":method", "POST")]));
    for (number, (fields, flags)) in (0u32..).zip([
        (&[(":path", "/two")][..], END_STREAM),
        (&[(":status", "200"), ("x", "y")], END_STREAM),
        (&[(":path", "/two")], 0),
    ]) {
        let stream = 2 * number + 1;
        frames.send(HEADERS, END_HEADERS, stream, &post);
        server.saw("POST /one");
        frames.send(DATA, 0, stream, b"body");
        frames.send(HEADERS, END_HEADERS | flags, stream, &block(fields));
        frames.is_reset(stream, PROTOCOL_ERROR);
        // The service is not given half a request for a whole one.
        let seen = server.seen.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(seen.as_str(), "Malformed" | "Incomplete"), "{seen}");
    }
    // Other trailers pass, those of a head that came in pieces too.
    let (first, rest) = post.split_at(post.len() / 2);
    frames.send(HEADERS, 0, 101, first);
    frames.send(CONTINUATION, END_HEADERS, 101, rest);
    frames.send(HEADERS, END_HEADERS | END_STREAM, 101, &block(&[("sum", "1")]));
    assert_eq!(answered(&mut frames, 101), "200");
    server.saw("POST /one");
    frames.still_serves(103);
}
