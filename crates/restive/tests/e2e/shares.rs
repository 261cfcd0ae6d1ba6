//! The share of request slots that one account may use.

use crate::auth::account;
use crate::deliveries::figure;
use crate::h2_storms::{END_HEADERS, HEADERS, PREFACE, SETTINGS, frame, head, streams};
use crate::harness::{PATIENCE, Start, eventually};
use std::io::Write as _;
use std::net::TcpStream;

/// Half of the 4,096 concurrent requests.
const SHARE: usize = 2048;
/// Streams on one connection; the server allows 128.
const STREAMS: u32 = 120;

#[test]
fn an_account_with_too_many_open_requests_is_refused_while_another_is_served() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let (_, theirs, _) = account(&server, "other");
    server.ask("GET", "/v1/books").key(&theirs).send().expect(200);
    // Uploads whose bodies never arrive, too small to be refused for their memory.
    let mut post = head("POST", "/v1/books");
    // `content-length: 10`, by its index in the static table, without a new entry.
    post.extend([0x0f, 0x0d, 2, b'1', b'0']);
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let uploads = streams(STREAMS, |stream| frame(HEADERS, END_HEADERS, stream, &post));
    let connections: Vec<_> = (0..=SHARE / STREAMS as usize)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&[&opening[..], &uploads].concat()).unwrap();
            stream
        })
        .collect();
    eventually("the account has its share", || {
        figure(&server, "restive_requests_in_flight") == Some(SHARE as f64 + 1.0)
    });
    let refused = server.get("/v1/books");
    assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.text);
    refused.error(503, "overloaded");
    let other = server.ask("GET", "/v1/books").key(&theirs).send();
    assert_eq!(other.status, 200, "{}", other.text);
    drop(connections);
    eventually("its places come back", || server.get("/v1/books").status == 200);
}
