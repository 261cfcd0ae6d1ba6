//! A full listener makes room: a connection that is idle ends, so that a new one is served; one
//! that is in use never does.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use http::StatusCode;
use socket2::{Domain, Socket, Type};
use wire::{Limits, Listener, Usage};

use crate::h2_client;
use crate::h3_client;
use crate::server::{PATIENCE, Server, Wire};
use crate::tls::Client;

const GET: &str = "GET /one HTTP/1.1\r\nHost: a\r\n\r\n";
const HALF: &str = "GET /one HTTP/1.1\r\n";

/// A short tick (a tenth of the shortest time), so that connections count as idle soon.
fn limits(max_connections: usize) -> Limits {
    Limits { max_connections, ping_after: Duration::from_millis(200), ..Limits::default() }
}

fn one_thread(limits: Limits) -> Server {
    let listener = Listener::bind_threads(([127, 0, 0, 1], 0).into(), NonZeroUsize::MIN).unwrap();
    Server::of(listener, limits)
}

/// Connects from this address of the machine.
fn connect_from(host: [u8; 4], server: &Server) -> Wire {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
    socket.connect(&server.address.into()).unwrap();
    Wire::new(TcpStream::from(socket))
}

/// A connection that has had an answer and is idle.
fn answered(mut wire: Wire) -> Wire {
    wire.send(GET);
    let answer = wire.response();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    wire
}

/// A new connection, once the server has room for it.
fn admitted(server: &Server, connect: impl Fn() -> Wire) -> Wire {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut wire = connect();
        wire.send(GET);
        let answer = wire.response();
        if answer.starts_with("HTTP/1.1 200 ") {
            return wire;
        }
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(Instant::now() < deadline, "no room: {:?}", server.usage());
    }
}

/// Whether the server has closed the connection.
fn is_closed(wire: &mut Wire) -> bool {
    wire.stream.set_nonblocking(true).unwrap();
    let closed = matches!(wire.stream.read(&mut [0; 16]), Ok(0));
    wire.stream.set_nonblocking(false).unwrap();
    closed
}

#[test]
fn the_longest_idle_connection_is_evicted_for_a_new_one() {
    let server = one_thread(limits(3));
    let mut kept: Vec<_> = (0..3).map(|_| answered(server.connect())).collect();
    // waits for: another tick
    std::thread::sleep(limits(3).ping_after / 5);
    // The first is used once more, so the second has been idle longest.
    let first = kept.remove(0);
    kept.push(answered(first));
    let newcomer = admitted(&server, || server.connect());
    let closed: Vec<_> = kept.iter_mut().map(is_closed).collect();
    assert_eq!(closed, [true, false, false]);
    kept.into_iter().skip(1).chain([newcomer]).for_each(|wire| drop(answered(wire)));
}

#[test]
fn eviction_takes_a_connection_of_the_address_that_has_most() {
    let server = one_thread(limits(4));
    let mut alone = answered(connect_from([127, 0, 0, 2], &server));
    let mut many: Vec<_> = (0..3).map(|_| answered(server.connect())).collect();
    // The single connection of the other address has been idle longest of all, and stays.
    let third = || connect_from([127, 0, 0, 3], &server);
    let _newcomers = [admitted(&server, third), admitted(&server, third)];
    assert_eq!(many.iter_mut().filter_map(|wire| is_closed(wire).then_some(())).count(), 2);
    assert!(!is_closed(&mut alone));
    answered(alone);
}

#[test]
fn an_address_with_busy_connections_does_not_take_the_idle_ones_of_others() {
    let server = one_thread(limits(4));
    let mut alone = answered(connect_from([127, 0, 0, 2], &server));
    let mut busy: Vec<_> = (0..3).map(|_| server.connect()).collect();
    busy.iter_mut().for_each(|wire| wire.send(HALF));
    // Longer than a connection must be idle.
    let end = Instant::now() + limits(4).ping_after;
    while Instant::now() < end {
        let answer = server.exchange(GET);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    assert!(!is_closed(&mut alone));
    answered(alone);
}

#[test]
fn connections_in_use_are_never_evicted() {
    let server = one_thread(limits(2));
    let mut waiting = server.connect();
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.saw("GET /wait");
    let mut half = answered(server.connect());
    server.saw("GET /one");
    half.send(HALF);
    // Longer than a connection must be idle.
    let end = Instant::now() + limits(2).ping_after;
    while Instant::now() < end {
        let answer = server.exchange(GET);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    server.gate.add_permits(1);
    assert!(waiting.response().starts_with("HTTP/1.1 200 "));
    half.send("Host: a\r\n\r\n");
    assert!(half.response().starts_with("HTTP/1.1 200 "));
}

/// Each connection has one stream: a response that the client does not read, and a request whose
/// body is still to come.
#[test]
fn an_http2_connection_with_a_stream_is_never_evicted() {
    let server = one_thread(limits(2));
    h2_client::run(async {
        let mut unread = h2_client::Client::connect(&server).await;
        let large = h2_client::request(http::Method::GET, "/large");
        let (response, _) = unread.send(large, true).await;
        let response = response.await.unwrap();
        let mut begun = h2_client::Client::connect(&server).await;
        let post = h2_client::request(http::Method::POST, "/one");
        let (answer, mut body) = begun.send(post, false).await;
        // Longer than a connection must be idle. Newcomers run on a thread of their own, so that
        // the clients answer pings.
        let (end, address) = (Instant::now() + limits(2).ping_after, server.address);
        while Instant::now() < end {
            let newcomer = tokio::task::spawn_blocking(move || {
                let mut wire = Wire::new(TcpStream::connect(address).unwrap());
                wire.send(GET);
                wire.response()
            });
            let answer = newcomer.await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        }
        body.send_data("x".into(), true).unwrap();
        assert_eq!(h2_client::answer(answer).await.unwrap().status, StatusCode::OK);
        let (mut response, mut count) = (response.into_body(), 0);
        while let Some(piece) = h2_client::next(&mut response).await.unwrap() {
            count += piece.len();
        }
        assert_eq!(count, 8 << 20);
    });
}

#[test]
fn idle_connections_of_one_client_block_no_other_client_on_any_thread() {
    const ROOM: usize = 40;
    let server = Server::with(limits(ROOM));
    let idle: Vec<_> = (0..ROOM).map(|_| answered(server.connect())).collect();
    let newcomers: Vec<_> = (0..ROOM / 2)
        .map(|_| admitted(&server, || connect_from([127, 0, 0, 2], &server)))
        .collect();
    assert!(server.usage().connections <= ROOM);
    // They did not end one another.
    newcomers.into_iter().for_each(|wire| drop(answered(wire)));
    drop(idle);
}

#[test]
fn idle_connections_of_http2_and_http3_are_evicted_too() {
    let (server, trust) = h3_client::echo(limits(1));
    let secured = Client::trusting([trust.0.clone()]);
    let deadline = Instant::now() + PATIENCE;
    h2_client::run(async {
        let mut quic = trust.client(&server).await;
        assert_eq!(quic.get("/one").await.status, StatusCode::OK);
        // A client of TCP takes the place of the idle one of QUIC,
        let mut tcp = loop {
            let mut stream = secured.connect(&server);
            if crate::tls::ask(&mut stream, GET).starts_with("HTTP/1.1 200 ") {
                break stream;
            }
            assert!(Instant::now() < deadline, "no room: {:?}", server.usage());
        };
        assert!(quic.connection.await.unwrap().is_h3_no_error());
        // and a client of QUIC the place of the idle one of TCP.
        let endpoint = h3_client::endpoint();
        let _quic = loop {
            let config = trust.config();
            match endpoint.connect_with(config, server.address, "localhost").unwrap().await {
                Ok(quic) => break quic,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        assert_eq!(tcp.read(&mut [0; 16]).unwrap(), 0);
    });
    let server = one_thread(limits(1));
    h2_client::run(async {
        let mut old = h2_client::Client::connect(&server).await;
        let request = h2_client::request(http::Method::GET, "/one");
        let (response, _) = old.send(request, true).await;
        assert_eq!(h2_client::answer(response).await.unwrap().status, StatusCode::OK);
        drop(admitted(&server, || server.connect()));
        // GOAWAY without an error, then the end of the stream: no reset.
        old.connection.await.unwrap().unwrap();
    });
    h2_client::run(server.is_unused());
    assert_eq!(server.usage(), Usage::default());
}
