//! Who is charged for what clients make the server hold: accounts, forwarded clients and operators
//! behind one address have parts of their own, and nobody is cut off for want of memory.

use std::net::Ipv4Addr;

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::{Method, Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Limits;

use crate::h2_client::{
    CONTINUATION, Client, END_HEADERS, END_STREAM, GET, HEADERS, PREFACE, SETTINGS, answer, block,
    frame, request, run,
};
use crate::memory::{begun, connect, h2_from};
use crate::server::Server;

/// Room for a few answers of 8 MiB.
const ROOM: usize = 40 << 20;
/// Room for a few uploads of unknown length.
const LITTLE: usize = 1 << 20;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A request with one header more; with none if its name is empty.
fn with(method: Method, path: &str, (name, value): (&str, &str)) -> Request<()> {
    let mut request = request(method, path);
    if !name.is_empty() {
        let name = http::HeaderName::try_from(name).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Asks for large answers and reads none of them, until it is refused. What it has got so far.
async fn hoard(client: &mut Client, who: (&str, &str)) -> Vec<http::Response<h2::RecvStream>> {
    let mut kept = Vec::new();
    loop {
        assert!(kept.len() < 10);
        let (response, _) = client.send(with(Method::GET, "/large", who), true).await;
        let response = response.await.unwrap();
        match response.status() {
            StatusCode::OK => kept.push(response),
            status => {
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
                return kept;
            }
        }
    }
}

/// Begins uploads that nobody reads, until one is refused.
async fn stall(
    server: &Server,
    client: &mut Client,
    who: (&str, &str),
) -> Vec<(ResponseFuture, SendStream<Bytes>)> {
    let mut stalled = Vec::new();
    loop {
        assert!(stalled.len() < 20, "{:?}", server.usage());
        let (mut response, stream) = client.send(with(Method::POST, "/wait", who), false).await;
        match begun(server, &mut response).await {
            None => stalled.push((response, stream)),
            Some(status) => {
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
                return stalled;
            }
        }
    }
}

/// Who is greedy, and who is served meanwhile, over another connection from the same address.
const PAIRS: [[(&str, &str); 2]; 3] = [
    [("account", "1"), ("account", "2")],
    [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "198.51.100.2")],
    [("", ""), ("account", "1")],
];

fn behind_a_proxy(held_bytes: usize) -> Server {
    let limits = Limits { held_bytes, ..Limits::default() };
    Server::on(limits, |listener| listener.trusted("127.0.0.1".parse().unwrap()))
}

#[test]
fn unread_responses_are_charged_only_to_their_own_account_or_client() {
    for [greedy, other] in PAIRS {
        let server = behind_a_proxy(ROOM);
        run(async {
            let mut client = h2_from(&server, HERE).await;
            let kept = hoard(&mut client, greedy).await;
            assert!(kept.len() > 1, "{greedy:?} has room for some");
            let mut second = h2_from(&server, HERE).await;
            let (response, _) = second.send(with(Method::GET, "/large", other), true).await;
            assert_eq!(answer(response).await.unwrap().body.len(), 8 << 20, "{other:?}");
            // The same over the connection of the greedy one, which may be a proxy's.
            let (response, _) = client.send(with(Method::GET, "/large", other), true).await;
            assert_eq!(response.await.unwrap().status(), StatusCode::OK, "{other:?}");
            drop((kept, client, second));
            server.is_unused().await;
        });
    }
}

#[test]
fn stalled_uploads_are_charged_only_to_their_own_account_or_client() {
    for [greedy, other] in &PAIRS[..2] {
        let server = behind_a_proxy(LITTLE);
        run(async {
            let mut client = h2_from(&server, HERE).await;
            let stalled = stall(&server, &mut client, *greedy).await;
            assert!(stalled.len() > 1, "{greedy:?} has room for some");
            let (response, mut stream) =
                client.send(with(Method::POST, "/one", *other), false).await;
            stream.send_data("body".into(), true).unwrap();
            assert_eq!(response.await.unwrap().status(), StatusCode::OK, "{other:?}");
            drop((stalled, stream, client));
            server.is_unused().await;
        });
    }
}

#[test]
fn operators_are_served_while_others_at_their_address_hold_their_whole_share() {
    let server = behind_a_proxy(ROOM);
    run(async {
        let mut client = h2_from(&server, HERE).await;
        let kept = hoard(&mut client, ("", "")).await;
        let mut second = h2_from(&server, HERE).await;
        assert_eq!(second.get("/operator").await.body.len(), 100 << 10);
        let mut plain = connect(&server, HERE).await;
        plain.write_all(b"GET /operator HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut status = [0; 12];
        plain.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        drop((kept, client, second, plain));
        server.is_unused().await;
    });
}

#[test]
fn a_memory_limit_never_replaces_the_response_to_a_write() {
    let server = behind_a_proxy(ROOM);
    run(async {
        let mut client = h2_from(&server, HERE).await;
        let kept = hoard(&mut client, ("account", "1")).await;
        for (method, path, expected) in [
            ("GET", "/large", "503"),
            ("POST", "/large", "200"),
            ("DELETE", "/large", "200"),
            // A refused write has no effect.
            ("POST", "/large-refusal", "503"),
        ] {
            let mut plain = connect(&server, HERE).await;
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nAccount: 1\r\nConnection: close\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            plain.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            plain.read_to_end(&mut answer).await.unwrap();
            let status = String::from_utf8_lossy(&answer[9..12]).into_owned();
            assert_eq!(status, expected, "{method} {path}");
            assert_eq!(answer.len() > 8 << 20, expected == "200", "{method}: {}", answer.len());
        }
        let refused = with(Method::POST, "/large-refusal", ("account", "1"));
        let (response, _) = client.send(refused, true).await;
        assert_eq!(response.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE, "HTTP/2");
        drop((kept, client));
        server.is_unused().await;
    });
}

#[test]
fn an_incomplete_head_waits_for_memory_and_keeps_its_connection() {
    let server = behind_a_proxy(LITTLE);
    run(async {
        let mut client = h2_from(&server, HERE).await;
        let stalled = stall(&server, &mut client, ("", "")).await;
        let mut raw = connect(&server, HERE).await;
        let head = block(&GET);
        let (first, rest) = head.split_at(head.len() / 2);
        let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, END_STREAM, 1, first)];
        raw.write_all(&opening.concat()).await.unwrap();
        // The server's settings, and the acknowledgement of ours: it has read all of that.
        let mut seen = Vec::new();
        while !seen.windows(9).any(|bytes| bytes == [0, 0, 0, 4, 1, 0, 0, 0, 0]) {
            assert!(raw.read_buf(&mut seen).await.unwrap() > 0, "closed after {seen:?}");
        }
        raw.write_all(&frame(CONTINUATION, END_HEADERS, 1, rest)).await.unwrap();
        drop((stalled, client));
        // HEADERS of stream 1, not a goodbye.
        while !seen.windows(5).any(|bytes| bytes == [HEADERS, END_HEADERS, 0, 0, 0]) {
            assert!(raw.read_buf(&mut seen).await.unwrap() > 0, "closed after {seen:?}");
        }
        drop(raw);
        server.is_unused().await;
    });
}
