//! HTTP/2 under TLS: spoken where both sides agreed on it in the handshake, and nowhere else.

use std::io::{Read, Write};

use http::{Method, StatusCode};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use wire::Limits;

use crate::h2_client::{self, PREFACE, SETTINGS, answer, frame, request, run, seen};
use crate::server::Server;
use crate::tls::{Client, Secured, ask, pair};

const GET: &str = "GET /one HTTP/1.1\r\nHost: a\r\n\r\n";

/// What the server says to these bytes until it closes.
fn all(stream: &mut Secured, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // An end without a word of TLS would be an error here.
    stream.read_to_end(&mut answer).unwrap();
    answer
}

async fn http_2(server: &Server, client: &Client) -> h2_client::Client {
    let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(client.config()).connect(name, socket).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    h2_client::Client::over(stream, &h2::client::Builder::new()).await
}

#[test]
fn a_client_that_offers_http_2_is_served_it() {
    let (server, client) = pair(Limits::default());
    // Whichever it likes better: it is the server that chooses.
    for offered in [&["h2", "http/1.1"][..], &["http/1.1", "h2"], &["h2"]] {
        run(async {
            let mut http = http_2(&server, &client.offering(offered)).await;
            let echoed = http.post("/echo", "hello").await;
            assert_eq!(echoed.status, StatusCode::OK);
            assert!(echoed.body.contains("\"body\":\"hello\""), "{}", echoed.body);
            // More than one record, and more than any window.
            assert_eq!(http.get("/large").await.body.len(), 8 << 20);
        });
    }
}

#[test]
fn a_client_that_does_not_offer_it_is_not_served_it() {
    let (server, client) = pair(Limits::default());
    for offered in [&["http/1.1"][..], &[]] {
        let client = client.offering(offered);
        let mut stream = client.connect(&server);
        assert_eq!(stream.conn.alpn_protocol(), offered.first().map(|name| name.as_bytes()));
        assert!(ask(&mut stream, GET).starts_with("HTTP/1.1 200 "));
        server.saw("GET /one");
        // What was agreed on holds, whatever the bytes look like.
        let preface = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        let answer = all(&mut client.connect(&server), &preface);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 505 ") && answer.contains("refused"), "{answer}");
    }
    server.saw_nothing();
}

#[test]
fn http_1_on_a_connection_negotiated_as_http_2_is_refused() {
    let (server, client) = pair(Limits::default());
    let mut stream = client.offering(&["h2"]).connect(&server);
    let answer = all(&mut stream, GET.as_bytes());
    // Our settings may stand before it; nothing of HTTP/1.1 does.
    assert!(!answer.starts_with(b"HTTP/1.1"), "{}", answer.escape_ascii());
    server.saw_nothing();
}

#[test]
fn a_drain_lets_streams_finish_under_tls_too() {
    let (server, client) = pair(Limits::default());
    run(async {
        let mut http = http_2(&server, &client.offering(&["h2"])).await;
        let (waiting, _) = http.send(request(Method::GET, "/wait"), true).await;
        seen(&server).await;
        server.trigger.fire();
        server.gate.add_permits(1);
        assert_eq!(answer(waiting).await.unwrap().status, StatusCode::OK);
        http.connection.await.unwrap().unwrap();
    });
    server.join();
}
