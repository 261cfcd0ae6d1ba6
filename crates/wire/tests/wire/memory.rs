//! What clients make the server hold: a body that nobody reads stops no other stream, one address
//! never takes the memory of all, and everything is given back.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use wire::{Limits, Tls};

use crate::h2_client::{Client, answer, request, run};
use crate::h3_client::{DATA, GET, HEADERS, POST, Raw, block, echo, frame, head, outcome};
use crate::server::Server;
use crate::tls::identity;

/// More than an unread stream may hold.
const BODY_BYTES: usize = 300_000;
/// Streams that stall, as many as a connection may have but for a few.
const STALLED: usize = 100;
/// Room for a few uploads.
const SMALL: usize = 1 << 20;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A connection from this address of the machine.
pub async fn connect(server: &Server, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(server.address).await.unwrap()
}

pub async fn h2_from(server: &Server, from: Ipv4Addr) -> Client {
    Client::over(connect(server, from).await, &h2::client::Builder::new()).await
}

/// Begins an upload of unknown length; as much as the server takes is sent.
async fn upload(client: &mut Client, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let (response, mut stream) = client.send(request(Method::POST, path), false).await;
    stream.send_data(vec![b'x'; BODY_BYTES].into(), false).unwrap();
    (response, stream)
}

#[test]
fn unread_uploads_do_not_block_other_streams_of_http2() {
    let server = Server::start();
    run(async {
        let mut client = Client::connect(&server).await;
        let mut stalled = Vec::new();
        for _ in 0..STALLED {
            stalled.push(upload(&mut client, "/wait").await);
        }
        for _ in 0..500 {
            assert_eq!(client.post("/one", vec![b'y'; 1000]).await.status, StatusCode::OK);
        }
        drop((stalled, client));
        server.is_unused().await;
    });
}

/// A request of HTTP/3 with a part of its body, as far as the server takes it.
async fn h3_upload(raw: &Raw, path: &'static str) -> quinn::RecvStream {
    let (mut sending, receiving) = raw.quic.open_bi().await.unwrap();
    let mut fields = POST;
    fields[3].1 = path;
    let begun = [frame(HEADERS, &block(&fields)), head(DATA, 10 << 20)].concat();
    sending.write_all(&begun).await.unwrap();
    tokio::spawn(async move {
        let _ = sending.write_all(&vec![b'x'; BODY_BYTES]).await;
        // Kept open until the server or the connection ends it.
        let _ = sending.stopped().await;
    });
    receiving
}

#[test]
fn unread_uploads_do_not_block_other_streams_of_http3() {
    let (server, trust) = echo(Limits::default());
    run(async {
        let raw = trust.raw(&server).await;
        let mut stalled = Vec::new();
        for _ in 0..STALLED {
            stalled.push(h3_upload(&raw, "/wait").await);
        }
        let body = [frame(HEADERS, &block(&POST)), frame(DATA, &[b'y'; 1000])].concat();
        for _ in 0..500 {
            assert_eq!(raw.ask(&body).await, "200");
        }
        drop(stalled);
        raw.quic.close(0_u32.into(), b"");
        server.is_unused().await;
    });
}

#[test]
fn an_address_over_its_share_is_refused_on_http2_and_others_are_not() {
    let server = Server::with(Limits { held_bytes: SMALL, ..Limits::default() });
    run(async {
        let mut clients = Vec::new();
        let mut stalled = Vec::new();
        // Over several connections: the address counts.
        let refused = loop {
            assert!(clients.len() < 10, "{:?}", server.usage());
            let mut client = h2_from(&server, Ipv4Addr::LOCALHOST).await;
            let (mut response, stream) = upload(&mut client, "/wait").await;
            clients.push(client);
            match begun(&server, &mut response).await {
                None => stalled.push((response, stream)),
                Some(status) => break status,
            }
        };
        assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
        let held = server.usage().held_bytes;
        assert!(stalled.len() > 1 && held <= SMALL / 2, "{} hold {held}", stalled.len());
        // Requests without a body need no room, and those of others have it.
        let same = clients.last_mut().unwrap();
        assert_eq!(same.get("/one").await.status, StatusCode::OK);
        let mut other = h2_from(&server, OTHER).await;
        assert_eq!(other.post("/one", "body").await.status, StatusCode::OK);
        // It heals when what is held is given back.
        drop(stalled);
        drop(clients);
        let mut again = h2_from(&server, Ipv4Addr::LOCALHOST).await;
        while again.post("/one", "body").await.status != StatusCode::OK {}
        drop((again, other));
        server.is_unused().await;
    });
}

/// Waits until the service has the request, or the status of another answer is there.
pub async fn begun(server: &Server, response: &mut ResponseFuture) -> Option<StatusCode> {
    poll_fn(|cx| {
        if server.seen.try_recv().is_ok() {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut *response).poll(cx);
        if polled.is_pending() {
            cx.waker().wake_by_ref();
        }
        polled.map(|response| Some(response.unwrap().status()))
    })
    .await
}

#[test]
fn an_address_over_its_share_is_refused_on_http3_until_it_frees_some() {
    /// Room for two uploads with their windows, and not for three.
    const SMALL: usize = 256 << 10;
    let (server, trust) = echo(Limits { held_bytes: SMALL + SMALL / 4, ..Limits::default() });
    run(async {
        let raw = trust.raw(&server).await;
        let mut stalled = Vec::new();
        for _ in 0..2 {
            stalled.push(h3_upload(&raw, "/wait").await);
            while server.seen.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        }
        let held = server.usage().held_bytes;
        assert!(held > SMALL / 4 && held <= 5 * SMALL / 8, "{held}");
        let mut refused = h3_upload(&raw, "/one").await;
        assert_eq!(outcome(&mut refused).await, "503");
        for _ in 0..200 {
            assert_eq!(raw.ask(&frame(HEADERS, &block(&GET))).await, "200");
        }
        // A head of which the first part is missing may hold a window as well.
        let (mut sending, mut receiving) = raw.quic.open_bi().await.unwrap();
        sending.write_all(&head(HEADERS, 100)).await.unwrap();
        assert_eq!(outcome(&mut receiving).await, "reset 0x10b");
        drop(stalled);
        raw.quic.close(0_u32.into(), b"");
        server.is_unused().await;
        let again = trust.raw(&server).await;
        let body = [frame(HEADERS, &block(&POST)), frame(DATA, b"body")].concat();
        assert_eq!(again.ask(&body).await, "200");
    });
}

#[test]
fn unread_responses_of_http2_are_bounded_per_address() {
    let server = Server::with(Limits { held_bytes: 20 << 20, ..Limits::default() });
    run(async {
        let mut client = h2_from(&server, Ipv4Addr::LOCALHOST).await;
        let mut other = h2_from(&server, OTHER).await;
        let mut kept = Vec::new();
        let refused = loop {
            assert!(kept.len() < 10, "{:?}", server.usage());
            let (response, _) = client.send(request(Method::GET, "/large"), true).await;
            let response = response.await.unwrap();
            match response.status() {
                StatusCode::OK => kept.push(response),
                status => break status,
            }
        };
        assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
        let (response, _) = other.send(request(Method::GET, "/large"), true).await;
        assert_eq!(answer(response).await.unwrap().body.len(), 8 << 20);
        drop(kept);
        assert_eq!(client.get("/one").await.status, StatusCode::OK);
        drop((client, other));
        server.is_unused().await;
    });
}

/// The status of the answer to a request for something large, which is not read further.
async fn large(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    String::from_utf8_lossy(&status[9..]).into_owned()
}

#[test]
fn unread_responses_of_http1_are_bounded_per_address() {
    let server = Server::with(Limits { held_bytes: 20 << 20, ..Limits::default() });
    run(async {
        let mut kept = Vec::new();
        loop {
            assert!(kept.len() < 40, "{:?}", server.usage());
            let mut stream = connect(&server, Ipv4Addr::LOCALHOST).await;
            match large(&mut stream).await.as_str() {
                "200" => kept.push(stream),
                status => break assert_eq!(status, "503"),
            }
        }
        assert!(kept.len() > 1, "an address has room for some");
        assert_eq!(large(&mut connect(&server, OTHER).await).await, "200");
        drop(kept);
        server.is_unused().await;
        assert_eq!(large(&mut connect(&server, Ipv4Addr::LOCALHOST).await).await, "200");
    });
}

#[test]
fn broken_connections_return_all_their_memory() {
    let (certificate, trusted) = identity(&["localhost"]);
    let tls = Tls::new(vec![certificate]).unwrap();
    let secured = Server::quic(Limits::default(), tls);
    let plain = Server::start();
    run(async {
        let parts: [&[u8]; 5] = [
            b"",
            b"GET /one HTTP/1.1\r\nHo",
            b"POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome",
            b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        ];
        for round in 0..20 {
            for part in parts {
                let mut stream = connect(&plain, Ipv4Addr::LOCALHOST).await;
                stream.write_all(part).await.unwrap();
                let mut hello = connect(&secured, Ipv4Addr::LOCALHOST).await;
                hello.write_all(&[22, 3, 1, 2, 0, 1][..round % 6]).await.unwrap();
            }
            let mut client = Client::connect(&plain).await;
            let (_, _) = client.send(request(Method::GET, "/wait"), true).await;
            let (_, _) = upload(&mut client, "/wait").await;
            let (_, _) = client.send(request(Method::GET, "/large"), true).await;
            client.connection.abort();
        }
        let trust = crate::h3_client::Trust(trusted);
        for _ in 0..5 {
            let raw = trust.raw(&secured).await;
            let _uploading = (h3_upload(&raw, "/wait").await, h3_upload(&raw, "/one").await);
            raw.quic.close(0_u32.into(), b"");
        }
        // A client of HTTP/1.1 that closes its side may still wait for its answer.
        plain.gate.add_permits(1000);
        plain.is_unused().await;
        secured.is_unused().await;
    });
}

#[test]
fn the_server_reports_its_memory_in_use() {
    let server = Server::start();
    run(async {
        let mut client = Client::connect(&server).await;
        let (mut response, _) = client.send(request(Method::GET, "/wait"), true).await;
        assert_eq!(begun(&server, &mut response).await, None);
        let usage = server.usage();
        assert_eq!((usage.connections, usage.exchanges, usage.held_bytes), (1, 1, 0));
    });
}
