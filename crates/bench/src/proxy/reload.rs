//! Reloads of `restive proxy` under WebSockets, event streams and requests: none of them may
//! notice. Every configuration differs from the last, and a reload counts when a response shows it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::http::{Client, header};
use crate::process::{Service, allow_files};
use crate::report::{Bar, Report};

use super::Bench;
use super::backend::{BODY_BYTES, EVENT_INTERVAL, EVENTS, PING, PONG, SOCKET, SOCKET_KEY};
use super::client::{Ask, HOST};
use super::steady::{Clients, PATIENCE, Stop, Tally, Task, gets, wait_until};
use super::subject::restive;

const RELOADS: usize = 20;
/// WebSockets, and as many event streams.
const STREAMS: usize = 500;
const QUICK_STREAMS: usize = 100;
const GETTERS: usize = 16;
/// Between two messages of a WebSocket.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(200);
/// The time that clients work under each configuration.
const BETWEEN: Duration = Duration::from_millis(100);
const RELOAD_LIMIT: Duration = Duration::from_secs(10);
/// For all clients to be connected.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// Files besides the connections: the executable, pipes, sockets of requests.
const SPARE_FILES: usize = 500;
/// Names the configuration that a response was made with.
const GENERATION: &str = "x-generation";

#[derive(Clone, Default)]
struct Tallies {
    sockets: Arc<Tally>,
    streams: Arc<Tally>,
    gets: Arc<Tally>,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let streams = if bench.quick { QUICK_STREAMS } else { STREAMS };
    println!("==> reload: {RELOADS} under {streams} WebSockets, {streams} streams and GETs");
    // The proxy has a connection to each side.
    allow_files((4 * streams + SPARE_FILES) as u64)?;
    let backend = bench.bare_backend(&["bare-backend"])?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("proxy.toml");
    configure(&file, &backend.address, 0)?;
    let mut command = restive(bench.pinning, &bench.server, folder.path());
    command.arg("--config").arg(&file);
    let proxy = Service::start(command)?;

    let tallies = Tallies::default();
    let clients = start(&proxy.address, streams, &tallies);
    let outcome = reloads(&proxy, &file, &backend.address, streams, &tallies);
    clients.finish()?;
    outcome.with_context(|| format!("the reloads ended early ({})", reasons(&tallies)))?;
    report(&mut bench.report, streams, &tallies);
    Ok(())
}

fn start(address: &str, streams: usize, tallies: &Tallies) -> Clients {
    let (address, tallies) = (address.to_owned(), tallies.clone());
    Clients::start(move |stop| {
        let mut tasks: Vec<Task> = Vec::new();
        for _ in 0..streams {
            let (tally, stop) = (tallies.sockets.clone(), stop.clone());
            let address = address.clone();
            tasks.push(Box::pin(async move {
                let worked = exchange_messages(&address, &tally, &stop).await;
                end(&tally, worked.context("WebSocket"));
            }));
        }
        for _ in 0..streams {
            let (tally, stop) = (tallies.streams.clone(), stop.clone());
            let address = address.clone();
            tasks.push(Box::pin(async move {
                let worked = follow_events(&address, &tally, &stop).await;
                end(&tally, worked.context("event stream"));
            }));
        }
        for _ in 0..GETTERS {
            let (tally, stop) = (tallies.gets.clone(), stop.clone());
            tasks.push(Box::pin(gets(address.clone(), "/v1/books/book_1", tally, stop)));
        }
        tasks
    })
}

fn end(tally: &Tally, worked: Result<()>) {
    match worked {
        Ok(()) => tally.finish(),
        Err(error) => tally.fail(format!("{error:#}")),
    }
}

fn reloads(
    proxy: &Service,
    file: &Path,
    backend: &str,
    streams: usize,
    tallies: &Tallies,
) -> Result<()> {
    let open = |tally: &Tally| tally.opened() + tally.failed() >= streams as u64;
    wait_until("all WebSockets and streams are open", OPEN_LIMIT, || {
        Ok(open(&tallies.sockets) && open(&tallies.streams))
    })?;
    let ask = Ask { path: "/v1/books/book_1", authorized: true, body_bytes: BODY_BYTES };
    let request = ask.http1();
    let mut client = Client::connect(&proxy.address)?;
    for generation in 1..=RELOADS {
        configure(file, backend, generation)?;
        let kill = format!("kill -HUP {}", proxy.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().context("cannot run sh")?;
        ensure!(sent.success(), "the proxy ended before reload {generation}");
        let wanted = generation.to_string();
        wait_until(&format!("reload {generation} is in effect"), RELOAD_LIMIT, || {
            let answer = client.expect(200, &request)?;
            Ok(header(&answer.head, GENERATION.as_bytes()) == Some(&wanted))
        })?;
        // waits for: work of all clients under this configuration
        std::thread::sleep(BETWEEN);
    }
    Ok(())
}

/// Replaces the file in one step, so that the proxy never reads half of it.
fn configure(file: &Path, backend: &str, generation: usize) -> Result<()> {
    let text = format!(
        "[backends.api]\nto = [\"{backend}\"]\n\n[[sites]]\n[[sites.routes]]\nto = \"api\"\n\
         response_headers = {{ set = {{ {GENERATION} = \"{generation}\" }} }}\n"
    );
    let new = file.with_extension("new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(&new, file)?)
}

/// One message and its answer after the other. The last exchange begins after the stop.
async fn exchange_messages(address: &str, tally: &Tally, stop: &Stop) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET {SOCKET} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {SOCKET_KEY}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let head = timeout(PATIENCE, head(&mut stream)).await.context("no response in time")??;
    ensure!(head.starts_with("HTTP/1.1 101 "), "the handshake was refused: {head}");
    tally.open();
    let mut answer = [0; PONG.len()];
    loop {
        let is_last = stop.is_set();
        stream.write_all(PING).await?;
        let read = timeout(PATIENCE, stream.read_exact(&mut answer)).await;
        read.context("no answer in time")?.context("it was closed")?;
        ensure!(answer == PONG, "another message than the backend's: {answer:?}");
        tally.succeed();
        if is_last {
            return Ok(());
        }
        sleep(MESSAGE_INTERVAL).await;
    }
}

/// Byte by byte: what follows the head belongs to the next protocol.
async fn head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.context("it was closed")?);
    }
    Ok(String::from_utf8(head)?)
}

/// Every event must come, in order; the last one after the stop.
async fn follow_events(address: &str, tally: &Tally, stop: &Stop) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {EVENTS} HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let head = timeout(PATIENCE, head(&mut stream)).await.context("no response in time")??;
    ensure!(head.starts_with("HTTP/1.1 200 "), "it was refused: {head}");
    tally.open();
    let (mut received, mut buffer, mut last) = (String::new(), [0; 4096], 0);
    loop {
        let is_last = stop.is_set();
        let read = timeout(PATIENCE + EVENT_INTERVAL, stream.read(&mut buffer)).await;
        let count = read.context("no event in time")??;
        ensure!(count > 0, "it was closed after event {last}");
        received.push_str(std::str::from_utf8(&buffer[..count])?);
        let before = last;
        for number in events(&mut received)? {
            ensure!(number == last + 1, "event {number} came after event {last}");
            last = number;
            tally.succeed();
        }
        if is_last && last > before {
            return Ok(());
        }
    }
}

/// The numbers of all whole events, which are removed. The lines of the chunked coding around them
/// are skipped.
fn events(received: &mut String) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    while let Some(end) = received.find("\n\n") {
        let event: String = received.drain(..end + 2).collect();
        let number = event.lines().find_map(|line| line.strip_prefix("data: "));
        let number = number.with_context(|| format!("not an event: {event:?}"))?;
        numbers.push(number.trim().parse().context("an event without its number")?);
    }
    Ok(numbers)
}

fn report(report: &mut Report, streams: usize, tallies: &Tallies) {
    let scenario = format!("{RELOADS} reloads");
    let closed = |tally: &Tally| (streams as u64).saturating_sub(tally.finished()) as f64;
    for (what, value) in [
        ("WebSockets closed", closed(&tallies.sockets)),
        ("event streams closed", closed(&tallies.streams)),
        ("GETs failed", tallies.gets.failed() as f64),
    ] {
        report.bar(&scenario, Bar::at_most(what, value, 0.0, ""));
    }
    report.note(format!(
        "reloads: {streams} WebSockets with {} messages, {streams} streams with {} events, {} GETs",
        tallies.sockets.done(),
        tallies.streams.done(),
        tallies.gets.done()
    ));
    let reasons = reasons(tallies);
    if !reasons.is_empty() {
        report.note(format!("reloads: {reasons}"));
    }
}

/// The first failure of each kind of client.
fn reasons(tallies: &Tallies) -> String {
    let kinds = [&tallies.sockets, &tallies.streams, &tallies.gets];
    let failed = kinds.iter().filter_map(|tally| Some((tally.failed(), tally.reason()?)));
    let lines = failed.map(|(count, reason)| format!("{count} failed, the first: {reason}"));
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_chunks_and_an_incomplete_one_waits() {
        let mut received = "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n9\r\nda".to_owned();
        assert_eq!(events(&mut received).unwrap(), [1, 2]);
        received.push_str("ta: 3\n\n\r\n");
        assert_eq!(events(&mut received).unwrap(), [3]);
        assert!(events(&mut "HTTP error\n\n".to_owned()).is_err());
    }
}
