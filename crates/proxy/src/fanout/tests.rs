//! Clients and streams of backends that the tests write themselves.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use tokio::time::timeout;
use wire::{Chunks, Cut, Payload, Sender};

use super::*;

type Client = Box<dyn Chunks>;

/// Longer than anything takes; a wait of this length fails the test.
const PATIENCE: Duration = Duration::from_secs(20);
const GREETING: &str = "retry: 3000\nid: 00000001.5\n\n";

/// A client and the end of its own stream at the backend.
fn open(fanout: &Fanout, credential: &'static str, path: &str) -> (Sender, Client) {
    let (sender, payload) = Payload::channel(None, 1);
    let Payload::Stream(source) = payload else { panic!("a channel is a stream") };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static(credential));
    let asked = Asked { server: "http://a", host: None, path, headers: &headers };
    (sender, fanout.share(asked, Instant::now(), source, None))
}

/// The same, after the first block.
async fn begun(fanout: &Fanout, credential: &'static str, path: &str) -> (Sender, Client) {
    let (sender, mut client) = open(fanout, credential, path);
    sender.send(GREETING).await.unwrap();
    assert_eq!(next(&mut client).await, Some(Ok(GREETING.into())));
    (sender, client)
}

/// Two clients that share the stream of the first one.
async fn two(fanout: &Fanout, credential: &'static str, path: &str) -> (Sender, [Client; 2]) {
    let (backend, mut first) = begun(fanout, credential, path).await;
    let (own, mut second) = begun(fanout, credential, path).await;
    is_silent(&mut first);
    is_silent(&mut second);
    assert!(own.send(event(6)).await.is_err(), "nobody reads it");
    (backend, [first, second])
}

fn is_silent(client: &mut Client) {
    assert!(client.poll_chunk(&mut Context::from_waker(Waker::noop())).is_pending());
}

async fn next(client: &mut Client) -> Option<Result<Bytes, Cut>> {
    timeout(PATIENCE, poll_fn(|cx| client.poll_chunk(cx))).await.expect("it comes in time")
}

fn event(number: u64) -> String {
    format!("id: 00000001.{number}\ndata: {number}\n\n")
}

fn shared(fanout: &Fanout) -> usize {
    fanout.0.count.load(Ordering::Relaxed)
}

#[tokio::test]
async fn the_own_stream_of_a_client_that_joins_is_closed() {
    let fanout = Fanout::default();
    let (backend, [mut first, mut second]) = two(&fanout, "a", "/e").await;
    backend.send(event(6)).await.unwrap();
    for client in [&mut first, &mut second] {
        assert_eq!(next(client).await, Some(Ok(event(6).into())));
    }
    drop((first, second));
    timeout(PATIENCE, async {
        while backend.send(event(7)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await; // waits for: the next try
        }
        while shared(&fanout) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await; // waits for: the next look
        }
    })
    .await
    .expect("a stream without clients is closed");
}

#[tokio::test]
async fn a_credential_shares_a_bounded_number_of_streams() {
    let fanout = Fanout::default();
    let alone = begun(&fanout, "a", "/e").await;
    let mut open = Vec::new();
    for number in 0..MAX_STREAMS_PER_CREDENTIAL {
        open.push(two(&fanout, "a", &format!("/e?types={number}")).await);
    }
    assert_eq!(shared(&fanout), MAX_STREAMS_PER_CREDENTIAL);
    let further = begun(&fanout, "a", "/e").await;
    open.push(two(&fanout, "b", "/e").await);
    assert_eq!(shared(&fanout), MAX_STREAMS_PER_CREDENTIAL + 1);
    for (backend, clients) in &mut open {
        backend.send(event(6)).await.unwrap();
        for client in clients {
            assert_eq!(next(client).await, Some(Ok(event(6).into())));
        }
    }
    for (backend, mut client) in [alone, further] {
        backend.send(event(6)).await.unwrap();
        assert_eq!(next(&mut client).await, Some(Ok(event(6).into())), "on a stream of its own");
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_shared_ends_and_its_clients_then_have_their_own() {
    let fanout = Fanout::default();
    let (backend, [mut first, mut second]) = two(&fanout, "a", "/e").await;
    let odd = "id: seven\ndata: 1\n\n";
    backend.send(odd).await.unwrap();
    assert_eq!((next(&mut first).await, next(&mut second).await), (None, None));
    let (own, mut again) = begun(&fanout, "a", "/e").await;
    for text in [odd, "anything"] {
        own.send(text).await.unwrap();
        assert_eq!(next(&mut again).await, Some(Ok(text.into())), "as it comes");
    }
}

#[tokio::test]
async fn the_backend_is_read_as_fast_as_the_fastest_client_reads() {
    const EVENTS: u64 = 4_000;
    let fanout = Fanout::default();
    let (backend, [mut client, mut stalled]) = two(&fanout, "a", "/e").await;
    let text = |number| format!("id: 00000001.{number}\ndata: {}\n\n", "x".repeat(1_000));
    let writer = tokio::spawn(async move {
        for number in 6..6 + EVENTS {
            backend.send(text(number)).await.unwrap();
        }
        backend
    });
    let mut received = Vec::new();
    let whole: Vec<u8> = (6..6 + EVENTS).flat_map(|number| text(number).into_bytes()).collect();
    while received.len() < whole.len() {
        // waits for: the writer, which is faster
        tokio::time::sleep(Duration::from_millis(1)).await;
        received.extend_from_slice(&next(&mut client).await.unwrap().unwrap());
    }
    assert!(received == whole, "nothing is lost, and the order stays");
    assert_eq!(next(&mut stalled).await, None, "it is too far behind");
    drop(writer.await.unwrap());
    assert_eq!(next(&mut client).await, Some(Err(Cut)), "the backend broke off");
}

#[tokio::test]
async fn a_resumed_client_leads_only_when_it_has_caught_up() {
    let fanout = Fanout::default();
    let (old, mut behind) = open(&fanout, "a", "/e?since=1");
    old.send("retry: 1\nid: 00000001.1\n\n").await.unwrap();
    next(&mut behind).await.unwrap().unwrap();
    assert_eq!(shared(&fanout), 0, "others would wait behind it");
    let (backend, mut first) = begun(&fanout, "a", "/e").await;
    assert_eq!(shared(&fanout), 1);
    // It has not reached the shared stream: events before that would be lost.
    old.send([event(2), event(3)].concat()).await.unwrap();
    assert_eq!(next(&mut behind).await, Some(Ok([event(2), event(3)].concat().into())));
    old.send(event(5)).await.unwrap();
    assert_eq!(next(&mut behind).await, Some(Ok(event(5).into())));
    assert!(old.send(event(6)).await.is_err(), "it has joined");
    backend.send(event(6)).await.unwrap();
    for client in [&mut first, &mut behind] {
        assert_eq!(next(client).await, Some(Ok(event(6).into())), "once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_stream_whose_backend_falls_silent_is_taken_for_dead() {
    let fanout = Fanout::default();
    let (backend, [mut first, mut second]) = two(&fanout, "a", "/e").await;
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(60)).await; // waits for: the clock of the test
    let comment = ": still here\nid: 00000001.5\n\n";
    backend.send(comment).await.unwrap();
    for client in [&mut first, &mut second] {
        assert_eq!(next(client).await, Some(Ok(comment.into())));
        assert_eq!(poll_fn(|cx| client.poll_chunk(cx)).await, Some(Err(Cut)));
    }
    assert!((125..140).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    drop((first, second));
    two(&fanout, "a", "/e").await;
}
