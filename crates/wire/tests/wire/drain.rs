//! Shutdown: nobody who was being served loses an answer, nobody idle holds the process up.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use wire::{Limits, Listener};

use crate::server::Server;

const WAIT: &str = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_request_in_flight_is_finished_and_answered_with_connection_close() {
    // An address of its own: another test's server could get a port that is free again.
    let two = NonZeroUsize::new(2).unwrap();
    let listener = Listener::bind_threads(([127, 0, 0, 39], 0).into(), two).unwrap();
    let drain_timeout = Duration::from_secs(60);
    let server = Server::of(listener, Limits { drain_timeout, ..Limits::default() });
    let mut idle = server.connect();
    idle.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    idle.response();
    let mut fresh = server.connect();
    let mut busy = server.connect();
    busy.send(WAIT);
    server.saw("GET /one");
    server.saw("GET /wait");
    server.trigger.fire();
    assert_eq!(idle.rest(), "", "idle connections are closed at once");
    assert_eq!(fresh.rest(), "", "so are those that never asked");
    let refused = loop {
        // The other worker may still be on its way to the signal.
        match TcpStream::connect(server.address) {
            // It was closed while the system shook hands for it.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => break error.kind(),
            Ok(_) => std::thread::yield_now(),
        }
    };
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    server.gate.add_permits(1);
    let answer = busy.rest();
    assert!(answer.contains("GET /wait") && answer.contains("connection: close"), "{answer}");
    drop(busy);
    server.join();
}

#[test]
fn a_request_that_never_ends_is_cut_off_at_the_drain_timeout() {
    let drain_timeout = Duration::from_millis(100);
    let server = Server::with(Limits { drain_timeout, ..Limits::default() });
    let mut busy = server.connect();
    busy.send(WAIT);
    server.saw("GET /wait");
    let begun = Instant::now();
    server.trigger.fire();
    assert_eq!(busy.rest(), "");
    assert!(begun.elapsed() >= drain_timeout);
    server.join();
}

#[test]
fn a_server_without_connections_ends_at_once() {
    let server = Server::start();
    server.trigger.fire();
    server.join();
}
