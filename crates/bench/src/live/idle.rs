//! The growth of a server's resident memory per open idle connection. It excludes the kernel's
//! part, some 4 KB per socket on each side.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use crate::http::Client;
use crate::report::Bar;

use super::crowd::subscribe;
use super::reconnect::publish;
use super::subject::{Channel, Subject};
use super::{Bench, figure};

const CONNECTIONS: usize = 15_000;
const QUICK_CONNECTIONS: usize = 4_000;
/// Opened and closed before the first measurement, so that shared memory is not counted.
const WARM_UP: usize = 200;
/// Streams of one HTTP/2 connection.
const STREAMS: usize = 100;
/// Long enough for the server's work after the last response, and shorter than the time it holds a
/// poll.
const SETTLE: Duration = Duration::from_secs(2);
/// A held poll gets its response after 25 s: all of them must be open before that.
const HELD: Duration = Duration::from_secs(20);
const LIMIT_KIB: f64 = 2.5;
const MULTIPLEXED_LIMIT_KIB: f64 = 1.5;

/// Streams or sockets on separate connections, compared with those of nchan.
pub fn streams(bench: &mut Bench<'_>, name: &str, channel: Channel) -> Result<()> {
    let count = bench.count(CONNECTIONS, QUICK_CONNECTIONS);
    println!("==> {name}: {count} connections");
    for subject in [Subject::nchan(bench.stage.pinning)?, bench.restive(name)?] {
        let request = subject.subscribe(channel);
        let each = grown(&subject, count, |count| open(subject.address(), &request, count))?;
        report(bench, name, &subject, each, LIMIT_KIB);
    }
    Ok(())
}

fn open(address: &str, request: &[u8], count: usize) -> Result<Vec<TcpStream>> {
    let one = |number| subscribe(address, request).with_context(|| format!("number {number}"));
    (0..count).map(one).collect()
}

/// Held long polls.
pub fn polls(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.count(CONNECTIONS, QUICK_CONNECTIONS);
    println!("==> idle-poll: {count} held polls");
    let subject = bench.restive("idle-poll")?;
    // As clients poll that have the newest message.
    let since = publish(&subject, &mut Client::connect(subject.address())?)?;
    let target = format!("/api/messages?since={since}&wait=true");
    let request = subject.get(&target, "Accept: application/json\r\n");
    let each = grown(&subject, count, |count| {
        let began = Instant::now();
        let mut streams = Vec::with_capacity(count);
        for _ in 0..count {
            let mut stream = TcpStream::connect(subject.address())?;
            stream.write_all(&request)?;
            streams.push(stream);
        }
        let wanted = u64::try_from(count)?;
        while figure(&subject, "restive_live_connections{channel=\"poll\"}")? != wanted {
            ensure!(began.elapsed() < HELD, "not all polls are held after {HELD:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(streams)
    })?;
    report(bench, "idle-poll", &subject, each, LIMIT_KIB);
    Ok(())
}

/// Event streams that share HTTP/2 connections.
pub fn multiplexed(bench: &mut Bench<'_>) -> Result<()> {
    let count = bench.count(CONNECTIONS, QUICK_CONNECTIONS);
    println!("==> idle-h2: {count} streams, {STREAMS} on each connection of HTTP/2");
    let subject = bench.restive("idle-h2")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let each = grown(&subject, count, |count| {
        let mut bodies = Vec::with_capacity(count);
        for _ in 0..count / STREAMS {
            bodies.extend(runtime.block_on(connection(&subject))?);
        }
        Ok(Kept { bodies, runtime: &runtime })
    })?;
    report(bench, "idle-h2", &subject, each, MULTIPLEXED_LIMIT_KIB);
    Ok(())
}

/// Keeps streams open while it exists, on connections that run in the runtime.
struct Kept<'r> {
    bodies: Vec<(SendRequest<Bytes>, h2::RecvStream)>,
    runtime: &'r tokio::runtime::Runtime,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.bodies.clear();
        // The connections' tasks need a moment to notice that they are not used.
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    }
}

async fn connection(subject: &Subject) -> Result<Vec<(SendRequest<Bytes>, h2::RecvStream)>> {
    let stream = tokio::net::TcpStream::connect(subject.address()).await?;
    let (client, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let mut bodies = Vec::with_capacity(STREAMS);
    let auth = subject.authorization();
    let auth = auth.trim_end().split_once(": ").context("no key")?.1;
    for _ in 0..STREAMS {
        let request = Request::get(format!("http://{}/api/events", subject.address()))
            .header("user-agent", "bench")
            .header("accept", "text/event-stream")
            .header("authorization", auth)
            .body(())?;
        let mut client = client.clone().ready().await?;
        let (answer, _) = client.send_request(request, true)?;
        let answer = answer.await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        bodies.push((client, answer.into_body()));
    }
    Ok(bodies)
}

/// Growth of the resident memory per connection, in KiB.
fn grown<T>(subject: &Subject, count: usize, open: impl Fn(usize) -> Result<T>) -> Result<f64> {
    drop(open(WARM_UP)?);
    std::thread::sleep(SETTLE);
    let (before, _) = subject.service.memory()?;
    let opened = open(count)?;
    std::thread::sleep(SETTLE);
    let (after, _) = subject.service.memory()?;
    drop(opened);
    Ok(after.saturating_sub(before) as f64 / 1024.0 / count as f64)
}

fn report(bench: &mut Bench<'_>, name: &str, subject: &Subject, each: f64, limit: f64) {
    let (what, unit) = ("resident per connection", "KiB");
    let bar = match subject.name() {
        "restive" => Bar::at_most(what, each, limit, unit),
        _ => Bar::shown(what, each, unit),
    };
    bench.stage.report.figure(name, subject.name(), bar);
}
