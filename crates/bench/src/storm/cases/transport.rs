//! A's connections: slow or large bodies, unread responses, actions with a hanging handler.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::storm::arena::Arena;
use crate::storm::client::{Account, Connection, only};
use crate::storm::receiver::{Manner, Receiver};
use crate::storm::schema;

use super::Due;

/// Time limit of A's responses after the storm.
const RECOVERY: Duration = Duration::from_secs(60);
/// Maximum resident memory of the server in cases with bodies in flight.
const MAX_RESIDENT_BYTES: u64 = 512 << 20;
/// Statuses that a client can act on: success, or a refusal with a reason.
const ACTIONABLE: [u16; 8] = [200, 201, 204, 408, 413, 422, 429, 503];

/// How many of these ended with a response.
async fn told(tasks: Vec<tokio::task::JoinHandle<Result<u16>>>) -> Result<(u64, u64)> {
    let (mut told, mut done) = (0, 0);
    let mut other = None;
    for task in tasks {
        match task.await.context("a client broke")? {
            Ok(status) => {
                told += u64::from(ACTIONABLE.contains(&status));
                done += u64::from((200..300).contains(&status));
            }
            Err(error) => other = Some(error),
        }
    }
    if let Some(error) = other {
        println!("    among others: {error:#}");
    }
    Ok((told, done))
}

/// Connections that upload one byte a second.
pub async fn slow_uploads(arena: &Arena) -> Result<Due> {
    const CONNECTIONS: u64 = 200;
    arena.quiet().await;
    arena.storm_begins();
    let until = tokio::time::Instant::now() + arena.length();
    let body: Arc<[u8]> = schema::note(1, 1_000).into_bytes().into();
    let tasks = (0..CONNECTIONS).map(|_| {
        let (a, body) = (arena.a.clone(), Arc::clone(&body));
        tokio::spawn(async move {
            let mut connection = a.connect().await?;
            let head = a.post_head("/v1/notes", body.len());
            connection.stream.write_all(&head).await?;
            let mut sent = 0;
            while tokio::time::Instant::now() < until && sent < body.len() {
                // The server may have refused it already: the response is read below.
                let _ = connection.stream.write_all(&body[sent..=sent]).await;
                sent += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let _ = connection.stream.write_all(&body[sent..]).await;
            answered(&mut connection).await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep_until(until).await;
    arena.storm_ends().await;
    let (told, done) = told(tasks).await?;
    arena.note(format!("slow uploads: {done} of {CONNECTIONS} created"));
    Ok(Due::new("answers", CONNECTIONS, told))
}

async fn answered(connection: &mut Connection) -> Result<u16> {
    let answer = tokio::time::timeout(RECOVERY, connection.answer()).await;
    Ok(answer.context("no answer in time")??.status)
}

/// Many connections of one key with large bodies that lack their last byte.
pub async fn large_bodies(arena: &Arena) -> Result<Due> {
    const BODY_BYTES: usize = 1_000_000;
    let connections = arena.count(1_500, 600);
    let mut body = b"{\"number\":1,\"text\":\"large\"".to_vec();
    body.resize(BODY_BYTES - 1, b' ');
    body.push(b'}');
    let body: Arc<[u8]> = body.into();
    arena.quiet().await;
    arena.storm_begins();
    let until = tokio::time::Instant::now() + arena.length();
    let tasks = (0..connections).map(|_| {
        let (a, body) = (arena.a.clone(), Arc::clone(&body));
        tokio::spawn(async move {
            let mut connection = a.connect().await?;
            let head = a.post_head("/v1/notes", body.len());
            connection.stream.write_all(&head).await?;
            let (last, most) = body.split_last().context("it has bytes")?;
            // If it is refused early, the rest is not read, and the response is there.
            let sent = connection.stream.write_all(most).await;
            tokio::time::sleep_until(until).await;
            if sent.is_ok() {
                let _ = connection.stream.write_all(&[*last]).await;
            }
            answered(&mut connection).await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep_until(until).await;
    arena.storm_ends().await;
    let (told, done) = told(tasks).await?;
    arena.note(format!("large bodies: {done} of {connections} created"));
    bounded(arena, Due::new("answers", connections, told))
}

/// Requires that the server's memory stayed below the bound.
fn bounded(arena: &Arena, due: Due) -> Result<Due> {
    let (_, peak) = arena.service.memory()?;
    let [peak_mib, limit_mib] = [peak, MAX_RESIDENT_BYTES].map(|bytes| bytes >> 20);
    Ok(due.require(peak <= MAX_RESIDENT_BYTES, || {
        format!("the server held {peak_mib} MiB, the limit is {limit_mib} MiB")
    }))
}

/// Actions whose handler does not respond.
pub async fn hanging_handler(arena: &Arena) -> Result<Due> {
    const ACTIONS: u64 = 200;
    let handler = Receiver::on(arena.handler.try_clone()?, Manner::Hang)?;
    let mut ids = Vec::new();
    for number in 0..ACTIONS {
        ids.push(arena.a.make("/v1/tasks", &json!({ "name": number.to_string() })).await?);
    }
    arena.quiet().await;
    arena.storm_begins();
    let tasks = ids.into_iter().map(|id| {
        let a = arena.a.clone();
        tokio::spawn(async move {
            let request = a.post(&format!("/v1/tasks/{id}/approve"), "{}");
            Ok(a.connect().await?.ask(&request).await?.status)
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(arena.length()).await;
    arena.storm_ends().await;
    handler.set(Manner::Answer);
    let (told, done) = told(tasks).await?;
    arena.note(format!(
        "handler: {done} of {ACTIONS} approved, it was asked {}",
        handler.requests()
    ));
    Ok(Due::new("answers", ACTIONS, told))
}

/// HTTP/2 connections with stalled uploads.
pub async fn stalled_streams(arena: &Arena) -> Result<Due> {
    const STREAMS: u64 = 100;
    const BODY_BYTES: usize = 60_000;
    let connections = arena.count(20, 10);
    arena.quiet().await;
    arena.storm_begins();
    let until = tokio::time::Instant::now() + arena.length();
    let mut tasks = Vec::new();
    let mut others = Vec::new();
    for _ in 0..connections {
        let stream = tokio::net::TcpStream::connect(&arena.a.address).await?;
        let (requests, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        for _ in 0..STREAMS {
            tasks.push(tokio::spawn(upload(requests.clone(), arena.a.clone(), BODY_BYTES, until)));
        }
        let (a, own) = (arena.a.clone(), requests.clone());
        others.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let request = Request::get(format!("http://{}/v1/notes?limit=1", a.address));
            let request = request.header("authorization", format!("Bearer {}", a.key));
            let (response, _) = own.ready().await?.send_request(request.body(())?, true)?;
            let response = tokio::time::timeout(Duration::from_secs(5), response).await;
            anyhow::Ok(response.context("no answer")??.status().as_u16())
        }));
    }
    let mut beside = 0;
    for other in others {
        beside += u64::from(other.await.context("a client broke")?.is_ok_and(|s| s == 200));
    }
    tokio::time::sleep_until(until).await;
    arena.storm_ends().await;
    let (told, done) = told(tasks).await?;
    let due = connections * STREAMS;
    arena.note(format!("HTTP/2: {done} of {due} uploads created"));
    let due = Due::new("answers on streams", due, told);
    bounded(
        arena,
        due.require(beside == connections, || {
            format!("{beside} of {connections} connections answered next to stalled uploads")
        }),
    )
}

/// One upload whose end is sent after the storm.
async fn upload(
    requests: h2::client::SendRequest<Bytes>,
    a: Account,
    bytes: usize,
    until: tokio::time::Instant,
) -> Result<u16> {
    let request = Request::post(format!("http://{}/v1/notes", a.address))
        .header("authorization", format!("Bearer {}", a.key))
        .header("content-type", "application/json")
        .body(())?;
    let (response, mut stream) = requests.ready().await?.send_request(request, false)?;
    let body = Bytes::from(schema::note(1, bytes));
    let half = body.len() / 2;
    stream.send_data(body.slice(..half), false)?;
    tokio::time::sleep_until(until).await;
    // The response below shows a stream that the server has reset.
    let _ = stream.send_data(body.slice(half..), true);
    match tokio::time::timeout(RECOVERY, response).await.context("no answer in time")? {
        Ok(response) => Ok(response.status().as_u16()),
        // A reset with a reason counts as a refusal.
        Err(error) if error.is_reset() => Ok(503),
        Err(error) => Err(error.into()),
    }
}

/// Clients that request a large page and do not read it.
pub async fn unread_answers(arena: &Arena) -> Result<Due> {
    // Ten pages of 4 MB a second: more would measure the generation of pages.
    const PAUSE: Duration = Duration::from_millis(100);
    let clients = arena.count(80, 30);
    let a = arena.a.clone();
    let create = move |number| a.post("/v1/notes", &schema::note(number, 4_000));
    arena.a.send_many(16, 1_000, create, only(201)).await?;
    arena.quiet().await;
    arena.storm_begins();
    let mut held = Vec::new();
    for _ in 0..clients {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4_096)?;
        let mut stream = socket.connect(arena.a.address.parse()?).await?;
        stream.write_all(&arena.a.get("/v1/notes?limit=1000")).await?;
        held.push(stream);
        tokio::time::sleep(PAUSE).await;
    }
    tokio::time::sleep(arena.length() / 2).await;
    arena.storm_ends().await;
    drop(held);
    let page = arena.a.expect(200, &arena.a.get("/v1/notes?limit=100")).await?;
    ensure!(page["data"].as_array().is_some_and(|data| data.len() == 100), "A's page is short");
    bounded(arena, Due::new("pages", 1, 1))
}
