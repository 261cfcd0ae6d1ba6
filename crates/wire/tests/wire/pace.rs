//! Clients that take an answer, or send a body, only to keep it going: each byte in time, and far
//! too few of them.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use tokio::net::TcpSocket;
use wire::{EarlyHints, Limits};

use crate::h2::Streams;
use crate::h2_client::{Client, answer, request, run};
use crate::h3_client::{GET, HEADERS, block, echo, endpoint, frame};
use crate::server::{PATIENCE, Server};

const STALL: Duration = Duration::from_millis(300);
/// Often enough that no single wait is too long.
const PAUSE: Duration = Duration::from_millis(20);

fn limits() -> Limits {
    Limits { write_stall: STALL, body_timeout: STALL, ..Limits::default() }
}

#[test]
fn an_http2_client_that_reads_a_few_bytes_at_a_time_loses_its_stream() {
    let server = Server::with(limits());
    run(async {
        let mut slow = h2::client::Builder::new();
        slow.initial_window_size(1000);
        let mut client = Client::with(&server, &slow).await;
        let (response, _) = client.send(request(Method::GET, "/large"), true).await;
        let mut body = response.await.unwrap().into_body();
        let mut taken = 0;
        let ended = loop {
            match body.data().await {
                Some(Ok(piece)) => taken += piece.len(),
                Some(Err(error)) => break error,
                None => panic!("the whole answer after {taken} bytes"),
            }
            let flow = body.flow_control();
            let _ = flow.release_capacity(flow.used_capacity());
            // waits for: the next bytes of a client that takes them slowly.
            tokio::time::sleep(PAUSE).await;
        };
        assert!(ended.is_remote() && taken < 100_000, "{ended} after {taken} bytes");
        assert!(client.get("/one").await.status.is_success(), "the connection goes on");
    });
}

#[test]
fn an_http3_client_that_reads_a_few_bytes_at_a_time_loses_its_stream() {
    let (server, trust) = echo(limits());
    run(async {
        let mut config = trust.config();
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(1000_u32.into());
        config.transport_config(Arc::new(transport));
        let endpoint = endpoint();
        let quic = endpoint.connect_with(config, server.address, "localhost").unwrap();
        let quic = quic.await.unwrap();
        let (mut sending, mut receiving) = quic.open_bi().await.unwrap();
        let mut large = GET;
        large[3].1 = "/large";
        sending.write_all(&frame(HEADERS, &block(&large))).await.unwrap();
        sending.finish().unwrap();
        let mut taken = 0;
        let ended = loop {
            match receiving.read_chunk(1000, true).await {
                Ok(Some(piece)) => taken += piece.bytes.len(),
                Ok(None) => panic!("the whole answer after {taken} bytes"),
                Err(error) => break error,
            }
            // waits for: the next bytes of a client that takes them slowly.
            tokio::time::sleep(PAUSE).await;
        };
        assert!(matches!(ended, quinn::ReadError::Reset(_)), "{ended}");
        assert!(taken < 100_000, "{taken}");
    });
}

#[test]
fn an_http1_client_that_reads_a_response_too_slowly_is_disconnected() {
    // What the systems hold between them is taken at once; for the rest a client has to be this
    // fast, which a pause of a third of the time does not allow.
    let stall = Duration::from_secs(1);
    let limits = Limits { write_stall: stall, floor_bytes: 64 << 20, ..Limits::default() };
    let server = Server::with(limits);
    let stream = run(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let stream = socket.connect(server.address).await.unwrap();
        stream.into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    std::io::Write::write_all(&mut &stream, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut taken, began) = (0, Instant::now());
    let mut buffer = vec![0; 256 << 10];
    while began.elapsed() < PATIENCE {
        match (&stream).read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => taken += count,
        }
        // waits for: the next bytes of a client that takes them slowly.
        std::thread::sleep(Duration::from_millis(30));
    }
    assert!(taken < 8 << 20, "{taken} bytes in {:?}", began.elapsed());
    assert!(began.elapsed() < PATIENCE, "still served after {taken} bytes");
}

#[test]
fn a_request_body_that_arrives_byte_by_byte_is_abandoned() {
    let service = |gate, seen| -> Arc<dyn wire::Service> { Arc::new(Streams { gate, seen }) };
    let server = Server::serving(limits(), EarlyHints::Asked, service);
    run(async {
        let mut client = Client::connect(&server).await;
        let (response, mut stream) = client.send(request(Method::POST, "/count"), false).await;
        let mut answered = std::pin::pin!(answer(response));
        let answer = loop {
            tokio::select! {
                answer = &mut answered => break answer.unwrap(),
                // waits for: the next byte of a client that sends slowly.
                () = tokio::time::sleep(PAUSE) => {
                    let _ = stream.send_data(Bytes::from_static(b"x"), false);
                }
            }
        };
        assert!(answer.status.is_success(), "{}", answer.body);
    });
}
