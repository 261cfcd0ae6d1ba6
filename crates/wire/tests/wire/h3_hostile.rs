//! HTTP/3 from clients that do not behave, byte by byte: what concerns one stream costs that
//! stream, what breaks the protocol costs the connection, and nobody else notices.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::net::UdpSocket;
use wire::Limits;

use crate::h2_client::run;
use crate::h3_client::{
    DATA, GET, HEADERS, POST, Raw, answer, block, echo, endpoint, frame, head, number, outcome,
    request, socket,
};

const SHORT: Duration = Duration::from_millis(100);

/// A head with these fields in place of those of the same name, or behind them; `-` for none.
fn fields(changed: &[(&'static str, &'static str)]) -> Vec<u8> {
    let is_changed = |name| changed.iter().any(|(other, _)| *other == name);
    let mut fields: Vec<_> = GET.into_iter().filter(|(name, _)| !is_changed(*name)).collect();
    fields.extend(changed.iter().filter(|(_, value)| *value != "-"));
    fields.sort_by_key(|(name, _)| !name.starts_with(':'));
    block(&fields)
}

async fn verdict(raw: &Raw, block: &[u8], body: &[u8]) -> String {
    let mut bytes = frame(HEADERS, block);
    if !body.is_empty() {
        bytes.extend_from_slice(&frame(DATA, body));
    }
    raw.ask(&bytes).await
}

#[test]
fn ambiguous_heads_are_refused_and_the_connection_continues() {
    const MALFORMED: &str = "reset 0x10e";
    type Case = (&'static [(&'static str, &'static str)], &'static [u8], &'static str);
    let cases: &[Case] = &[
        (&[], b"", "200"),
        (&[("connection", "close")], b"", MALFORMED),
        (&[("keep-alive", "x")], b"", MALFORMED),
        (&[("proxy-connection", "x")], b"", MALFORMED),
        (&[("transfer-encoding", "chunked")], b"", MALFORMED),
        (&[("upgrade", "websocket")], b"", MALFORMED),
        (&[("te", "gzip")], b"", MALFORMED),
        (&[("te", "trailers")], b"", "200"),
        (&[("Upper", "x")], b"", MALFORMED),
        (&[("a b", "x")], b"", MALFORMED),
        (&[("x", "a\r\nb: c")], b"", MALFORMED),
        (&[(":path", "-")], b"", MALFORMED),
        (&[(":path", "one")], b"", MALFORMED),
        (&[(":path", "/one#two")], b"", MALFORMED),
        (&[("x", " a")], b"", "400"),
        (&[("x", "a ")], b"", "400"),
        (&[("x", "a\t")], b"", "400"),
        (&[("x", "a b")], b"", "200"),
        (&[(":authority", "a:x")], b"", "400"),
        (&[(":authority", "a:65536")], b"", "400"),
        (&[(":authority", ":80")], b"", "400"),
        (&[(":authority", "")], b"", MALFORMED),
        (&[(":authority", "[::1")], b"", MALFORMED),
        (&[(":authority", "[127.0.0.1]")], b"", "400"),
        (&[(":authority", "-"), ("host", "")], b"", "400"),
        (&[(":path", "/one"), (":path", "/two")], b"", MALFORMED),
        (&[(":path", "*")], b"", "400"),
        (&[(":path", "*"), (":method", "OPTIONS")], b"", "200"),
        (&[(":scheme", "-")], b"", MALFORMED),
        (&[(":scheme", "ftp")], b"", "400"),
        (&[(":method", "-")], b"", MALFORMED),
        (&[(":method", "GET"), (":method", "GET")], b"", MALFORMED),
        (&[(":status", "200")], b"", MALFORMED),
        (&[(":authority", "-")], b"", "400"),
        (&[(":authority", "a"), (":authority", "a")], b"", MALFORMED),
        (&[(":authority", "-"), ("host", "a")], b"", "200"),
        (&[("host", "a")], b"", "200"),
        (&[("host", "b")], b"", "400"),
        (&[(":authority", "user@a")], b"", "400"),
        (&[("host", "a"), ("host", "a")], b"", "400"),
        (&[(":method", "CONNECT")], b"", MALFORMED),
        (&[(":method", "CONNECT"), (":path", "-"), (":scheme", "-")], b"", "405"),
        (&[("content-length", "4")], b"four", "200"),
        (&[("content-length", "4"), ("content-length", "4")], b"four", "400"),
        (&[("content-length", "+4")], b"four", "400"),
        (&[("content-length", "4")], b"", MALFORMED),
    ];
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let mut wrong = Vec::new();
        for (changed, body, expected) in cases {
            let seen = verdict(&raw, &fields(changed), body).await;
            if seen != *expected {
                wrong.push(format!("{changed:?}: {seen}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        raw.still_serves().await;
    });
}

#[test]
fn a_pseudo_field_after_regular_fields_is_refused() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let late = [&[("accept", "x")], &GET[..]].concat();
        assert_eq!(verdict(&raw, &block(&late), b"").await, "reset 0x10e");
        server.saw_nothing();
    });
}

#[test]
fn a_body_that_differs_from_its_declared_length_is_never_complete() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let declared = [&POST[..], &[("content-length", "4")]].concat();
        for body in [&b"three"[..], b"two"] {
            assert_eq!(verdict(&raw, &block(&declared), body).await, "400");
            server.saw("POST /one");
            server.saw("Malformed");
        }
        // In pieces, with the end on its own.
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&frame(HEADERS, &block(&declared))).await.unwrap();
        sending.write_all(&frame(DATA, b"two")).await.unwrap();
        while server.seen.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        sending.finish().unwrap();
        assert_eq!(outcome(&mut receiving).await, "400");
        server.saw("Malformed");
        raw.still_serves().await;
    });
}

#[test]
fn a_truncated_request_is_never_complete() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        assert_eq!(raw.ask(b"").await, "reset 0x10d", "no head at all");
        let (mut sending, _receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&frame(HEADERS, &block(&POST))).await.unwrap();
        sending.write_all(&[&head(DATA, 100)[..], b"half"].concat()).await.unwrap();
        while server.seen.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        sending.finish().unwrap();
        assert_eq!(raw.closed().await, 0x106, "an end inside a frame");
        server.saw("Incomplete");
        // A reset is the client's right.
        let raw = trust.raw(&server).await;
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&frame(HEADERS, &block(&POST))).await.unwrap();
        while server.seen.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        sending.reset(0x10c_u32.into()).unwrap();
        assert_eq!(outcome(&mut receiving).await, "400");
        server.saw("Incomplete");
        raw.still_serves().await;
    });
}

#[test]
fn frames_out_of_place_end_the_connection() {
    let get = frame(HEADERS, &block(&GET));
    let with = |more: &[u8]| [&get[..], more].concat();
    let post = frame(HEADERS, &block(&POST));
    let cases = [
        (frame(DATA, b"x"), 0x105, "a body before the head"),
        (with(&frame(0x4, b"")), 0x105, "settings in a request"),
        (with(&frame(0x5, b"")), 0x105, "a promise from a client"),
        (with(&frame(0x7, b"\0")), 0x105, "goodbye in a request"),
        (frame(0x2, b""), 0x105, "a frame of HTTP/2"),
        (get[..get.len() - 1].to_vec(), 0x106, "a head cut off"),
        (get[..5].to_vec(), 0x106, "a frame's head cut off"),
        (frame(HEADERS, b"\xff\xff\xff"), 0x200, "no fields"),
        (frame(HEADERS, b"\x00\x00\x80"), 0x200, "a table that does not exist"),
        (
            [&post[..], &frame(HEADERS, b"\0\0"), &frame(DATA, b"x")].concat(),
            0x105,
            "a body behind the trailers",
        ),
    ];
    let (server, trust) = echo(Limits::default());
    run(async {
        for (bytes, code, why) in cases {
            let raw = trust.raw(&server).await;
            let (mut sending, _receiving) = raw.quic.open_bi().await.unwrap();
            sending.write_all(&bytes).await.unwrap();
            sending.finish().unwrap();
            assert_eq!(raw.closed().await, code, "{why}");
        }
    });
}

#[test]
fn unknown_frames_and_streams_are_ignored() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let noise = frame(0x21, &[7; 5000]);
        let message = [
            &noise[..],
            &frame(HEADERS, &block(&POST)),
            &noise,
            &frame(DATA, b"one"),
            &noise,
            &frame(HEADERS, b"\0\0"),
            &noise,
        ];
        assert_eq!(raw.ask(&message.concat()).await, "200");
        let mut unknown = raw.one_way(&[number(0x21), vec![0; 100]].concat()).await;
        let stopped = unknown.stopped().await.unwrap();
        assert_eq!(stopped.map(quinn::VarInt::into_inner), Some(0x103));
        let _ = unknown.finish();
        raw.still_serves().await;
    });
}

#[test]
fn a_control_stream_that_breaks_a_rule_ends_the_connection() {
    let (server, trust) = echo(Limits::default());
    let control = |frames: &[u8]| [&[0][..], frames].concat();
    let cases = [
        (control(&frame(0x7, b"\0")), 0x10a, "no settings first"),
        (control(&[frame(0x4, b""), frame(0x4, b"")].concat()), 0x105, "settings twice"),
        (control(&frame(0x4, &[0x6, 1, 0x6, 1])), 0x109, "a setting twice"),
        (control(&frame(0x4, &[0x2, 1])), 0x109, "a setting of HTTP/2"),
        (control(&frame(0x4, &[0x6])), 0x106, "half a setting"),
        (control(&head(0x4, 1 << 40)), 0x107, "settings without end"),
        (control(&[frame(0x4, b""), frame(DATA, b"")].concat()), 0x105, "a body"),
        (control(&[frame(0x4, b""), frame(0x3, b"\0")].concat()), 0x108, "no such push"),
        (control(&[frame(0x4, b""), frame(0x3, b"")].concat()), 0x106, "no push at all"),
        (control(&[frame(0x4, b""), frame(0x3, b"\0\0")].concat()), 0x106, "more than a push"),
        (control(&[frame(0x4, b""), frame(0x7, b"\0"), frame(0x7, b"\x01")].concat()), 0x108, "a"),
        (control(&[frame(0x4, b""), frame(0xd, b"\x02"), frame(0xd, b"\x01")].concat()), 0x108, ""),
        (vec![1, 0], 0x103, "a push of the client"),
        (vec![2, 0x3f, 0xe1], 0x201, "room in a table that does not exist"),
        (vec![3, 0x00], 0x202, "an increment of nothing"),
        (vec![3, 0x01], 0x202, "an increment beyond what was sent"),
        (vec![3, 0x3f, 0x05], 0x202, "a larger one"),
        (vec![3, 0x80], 0x202, "an acknowledgement of what needs none"),
        (vec![3, 0xff, 0x20], 0x202, "one of another stream"),
        ([&[3, 0x7f][..], &[0xff; 12]].concat(), 0x202, "a number without end"),
    ];
    run(async {
        for (bytes, code, why) in cases {
            let (_endpoint, quic) = trust.dial(server.address).await;
            let mut sending = quic.open_uni().await.unwrap();
            sending.write_all(&bytes).await.unwrap();
            match quic.closed().await {
                quinn::ConnectionError::ApplicationClosed(close) => {
                    assert_eq!(close.error_code.into_inner(), code, "{why}");
                }
                other => panic!("{why}: {other}"),
            }
        }
        let mut raw = trust.raw(&server).await;
        raw.control.finish().unwrap();
        assert_eq!(raw.closed().await, 0x104, "it lives as long as the connection");
        let raw = trust.raw(&server).await;
        let _second = raw.one_way(&[0, 4, 0]).await;
        assert_eq!(raw.closed().await, 0x103, "there is one of them");
        // What is allowed.
        let raw = trust.raw(&server).await;
        let _encoder = raw.one_way(&[2, 0x20]).await;
        let _decoder = raw.one_way(&[3, 0x44, 0x7f, 0x85, 0x01, 0x40]).await;
        let mut raw = raw;
        let goodbye = [frame(0x7, b"\x04"), frame(0x7, b"\x04"), frame(0x7, b"\x00")];
        raw.control.write_all(&goodbye.concat()).await.unwrap();
        raw.still_serves().await;
    });
}

#[test]
fn heads_over_the_limits_get_431_or_414() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let long = "x".repeat(40_000);
        let with = |name, value| block(&[&GET[..], &[(name, value)]].concat());
        assert_eq!(verdict(&raw, &with("x-long", &long), b"").await, "431");
        let many: Vec<_> = GET.into_iter().chain((0..101).map(|_| ("x", "y"))).collect();
        assert_eq!(verdict(&raw, &block(&many), b"").await, "431");
        let path = format!("/{}", "x".repeat(8 * 1024));
        let mut far = GET;
        far[3].1 = &path;
        assert_eq!(verdict(&raw, &block(&far), b"").await, "414");
        // One that only says how large it will be is not waited for.
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&head(HEADERS, 1 << 40)).await.unwrap();
        assert_eq!(outcome(&mut receiving).await, "431");
        raw.still_serves().await;
        server.saw("GET /one");
        server.saw_nothing();
    });
}

#[test]
fn a_head_or_body_that_does_not_arrive_times_out() {
    let limits = Limits { head_timeout: SHORT, body_stall: SHORT, ..Limits::default() };
    let (server, trust) = echo(limits);
    run(async {
        let raw = trust.raw(&server).await;
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&head(HEADERS, 100)).await.unwrap();
        assert_eq!(outcome(&mut receiving).await, "408");
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&frame(HEADERS, &block(&POST))).await.unwrap();
        assert_eq!(outcome(&mut receiving).await, "400");
        server.saw("POST /one");
        server.saw("Timeout");
        raw.still_serves().await;
    });
}

#[test]
fn incomplete_heads_stay_within_their_memory_limit() {
    let (server, trust) = echo(Limits { buffer_bytes: 100_000, ..Limits::default() });
    run(async {
        let raw = trust.raw(&server).await;
        let half = async || {
            let (mut sending, receiving) = raw.quic.open_bi().await.unwrap();
            // The server may refuse it before all of it is sent.
            let _ = sending.write_all(&[&head(HEADERS, 50_000)[..], &[0; 40_000]].concat()).await;
            (sending, receiving)
        };
        // Three of them have more than there is, however their parts arrive.
        let (one, two, three) = (half().await, half().await, half().await);
        let ((_open, mut one), (_too, mut two), (_also, mut three)) = (one, two, three);
        let refused = tokio::select! {
            refused = outcome(&mut one) => refused,
            refused = outcome(&mut two) => refused,
            refused = outcome(&mut three) => refused,
        };
        assert_eq!(refused, "503");
    });
}

#[test]
fn a_client_that_does_not_read_loses_its_stream_but_not_its_connection() {
    let (server, trust) = echo(Limits { write_stall: SHORT, ..Limits::default() });
    run(async {
        let mut config = trust.config();
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(10_000_u32.into());
        config.transport_config(Arc::new(transport));
        let endpoint = endpoint();
        let quic = endpoint.connect_with(config, server.address, "localhost").unwrap();
        let quic = quic.await.unwrap();
        let (mut sending, mut receiving) = quic.open_bi().await.unwrap();
        let mut large = GET;
        large[3].1 = "/large";
        sending.write_all(&frame(HEADERS, &block(&large))).await.unwrap();
        sending.finish().unwrap();
        // Reads nothing until it is over.
        assert_eq!(receiving.received_reset().await.unwrap().unwrap().into_inner(), 0x102);
        let (mut sending, mut receiving) = quic.open_bi().await.unwrap();
        sending.write_all(&frame(HEADERS, &block(&GET))).await.unwrap();
        sending.finish().unwrap();
        assert_eq!(outcome(&mut receiving).await, "200");
    });
}

#[test]
fn endless_cancelled_requests_end_the_connection() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let mut wait = GET;
        wait[3].1 = "/wait";
        let bytes = frame(HEADERS, &block(&wait));
        for _ in 0..5000 {
            let Ok((mut sending, mut receiving)) = raw.quic.open_bi().await else { break };
            let _ = sending.write_all(&bytes).await;
            let _ = sending.reset(0x10c_u32.into());
            let _ = receiving.stop(0x10c_u32.into());
        }
        assert_eq!(raw.closed().await, 0x107);
    });
}

#[test]
fn other_protocols_and_connections_over_the_limit_are_refused() {
    let (server, trust) = echo(Limits { max_connections: 1, ..Limits::default() });
    run(async {
        let refused = endpoint().connect_with(trust.config_for(b"hq"), server.address, "localhost");
        assert!(refused.unwrap().await.is_err(), "no protocol in common");
        let first = endpoint();
        let quic = loop {
            // The place of the last one may not be free yet.
            match first.connect_with(trust.config(), server.address, "localhost").unwrap().await {
                Ok(quic) => break quic,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        // In the middle of a request it is not idle.
        let (mut sending, mut receiving) = quic.open_bi().await.unwrap();
        let get = frame(HEADERS, &block(&GET));
        sending.write_all(&get[..1]).await.unwrap();
        let over = endpoint().connect_with(trust.config(), server.address, "localhost").unwrap();
        match over.await {
            Err(quinn::ConnectionError::ConnectionClosed(close)) => {
                assert_eq!(close.error_code, quinn::TransportErrorCode::CONNECTION_REFUSED);
            }
            other => panic!("{other:?}"),
        }
        sending.write_all(&get[1..]).await.unwrap();
        sending.finish().unwrap();
        assert_eq!(outcome(&mut receiving).await, "200");
    });
}

/// Passes packets on between one client and the server, and looks at their first bytes.
struct Relay {
    address: SocketAddr,
    retries: Arc<AtomicUsize>,
    /// Whether the server's packets still reach the client.
    passes: Arc<AtomicBool>,
}

impl Relay {
    async fn start(server: SocketAddr) -> Relay {
        let (near, far) = (socket(), socket());
        let address = near.local_addr().unwrap();
        let retries = Arc::new(AtomicUsize::new(0));
        let passes = Arc::new(AtomicBool::new(true));
        let (counted, open) = (retries.clone(), passes.clone());
        far.connect(server).unwrap();
        let ready = |socket: std::net::UdpSocket| {
            socket.set_nonblocking(true).unwrap();
            UdpSocket::from_std(socket).unwrap()
        };
        let (near, far) = (ready(near), ready(far));
        tokio::spawn(async move {
            let (mut there, mut back) = ([0; 4096], [0; 4096]);
            let mut client = None;
            loop {
                tokio::select! {
                    received = near.recv_from(&mut there) => {
                        let Ok((count, from)) = received else { continue };
                        client = Some(from);
                        let _ = far.send(&there[..count]).await;
                    }
                    received = far.recv(&mut back) => {
                        let Ok(count) = received else { continue };
                        // A long header with the type of a Retry (RFC 9000 17.2.5).
                        counted.fetch_add(usize::from(back[0] & 0xf0 == 0xf0), Ordering::SeqCst);
                        if let Some(client) = client && open.load(Ordering::SeqCst) {
                            let _ = near.send_to(&back[..count], client).await;
                        }
                    }
                }
            }
        });
        Relay { address, retries, passes }
    }
}

#[test]
fn many_handshakes_make_clients_prove_their_address_first() {
    let limits = Limits { retry_handshakes: 2, handshake_timeout: SHORT, ..Limits::default() };
    let (server, trust) = echo(limits);
    run(async {
        let calm = Relay::start(server.address).await;
        let mut client = trust.client_at(calm.address).await;
        assert_eq!(client.get("/one").await.status, StatusCode::OK);
        assert_eq!(calm.retries.load(Ordering::SeqCst), 0);
        // Two that never hear of the server, and so never finish.
        let deaf = Relay::start(server.address).await;
        deaf.passes.store(false, Ordering::SeqCst);
        let endpoints = [endpoint(), endpoint()];
        let connect = |endpoint: &quinn::Endpoint| {
            endpoint.connect_with(trust.config(), deaf.address, "localhost").unwrap()
        };
        let _half_open: Vec<_> = endpoints.iter().map(connect).collect();
        let mut tries = 0;
        let relay = loop {
            let relay = Relay::start(server.address).await;
            let mut client = trust.client_at(relay.address).await;
            assert_eq!(client.get("/one").await.status, StatusCode::OK);
            if relay.retries.load(Ordering::SeqCst) > 0 {
                break relay;
            }
            tries += 1;
            assert!(tries < 100, "nobody was asked for a proof");
        };
        assert_eq!(relay.retries.load(Ordering::SeqCst), 1, "once is enough");
    });
}

#[test]
fn unfinished_handshakes_do_not_block_other_clients() {
    // In both cases all places are taken by clients that never hear of the server; in the first
    // their time ends, in the second the oldest has to go.
    let timed = Limits { max_connections: 2, handshake_timeout: SHORT, ..Limits::default() };
    let counted = Limits {
        max_connections: 2,
        max_handshakes: 1,
        handshake_timeout: Duration::from_secs(60),
        ..Limits::default()
    };
    for limits in [timed, counted] {
        let (server, trust) = echo(limits);
        run(async {
            let deaf = Relay::start(server.address).await;
            deaf.passes.store(false, Ordering::SeqCst);
            let endpoints = [endpoint(), endpoint()];
            let connect = |endpoint: &quinn::Endpoint| {
                endpoint.connect_with(trust.config(), deaf.address, "localhost").unwrap()
            };
            let _half_open: Vec<_> = endpoints.iter().map(connect).collect();
            let endpoint = endpoint();
            loop {
                let config = trust.config();
                match endpoint.connect_with(config, server.address, "localhost").unwrap().await {
                    Ok(_) => break,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
    }
}

#[test]
fn a_silent_client_frees_its_connection_slot() {
    let limits =
        Limits { ping_after: SHORT, write_stall: SHORT, max_exchanges: 1, ..Limits::default() };
    let (server, trust) = echo(limits);
    run(async {
        let relay = Relay::start(server.address).await;
        let mut client = trust.client_at(relay.address).await;
        let mut waiting = client.send(request(Method::GET, "/wait")).await;
        waiting.finish().await.unwrap();
        while server.seen.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        // Dead to the server, which hears nothing more of it.
        drop(waiting);
        relay.passes.store(false, Ordering::SeqCst);
        client.endpoint.rebind(socket()).unwrap();
        let mut other = trust.client(&server).await;
        while other.get("/one").await.status != StatusCode::OK {
            tokio::task::yield_now().await;
        }
        let mut stream = other.send(request(Method::GET, "/one")).await;
        stream.finish().await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap().status, StatusCode::OK);
    });
}

#[test]
fn a_request_that_its_client_cancels_is_not_reported_as_a_server_error() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&head(HEADERS, 100)).await.unwrap();
        raw.still_serves().await;
        sending.reset(0x10c_u32.into()).unwrap();
        assert_eq!(outcome(&mut receiving).await, "reset 0x10c");
        raw.still_serves().await;
    });
}
