//! The load generator: N persistent connections in a closed loop (each sends its next request when
//! the last response has arrived) on one single-threaded runtime. Requests are encoded before their
//! latency is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::histogram::Histogram;
use crate::http::Head;

/// Time for the last responses after the end of a run before it counts as hung.
const GRACE: Duration = Duration::from_secs(20);
/// Interval of progress lines during a long load.
const PROGRESS: Duration = Duration::from_secs(5);

/// Writes the next request of one connection into the buffer.
pub type Source = Box<dyn FnMut(&mut Vec<u8>) + Send>;

pub struct Load<'a> {
    pub address: &'a str,
    pub connections: usize,
    /// The only status that is not an error.
    pub expect: u16,
    /// The run ends by time or by count, whichever comes first.
    pub duration: Duration,
    pub count: Option<u64>,
    /// Shown in progress lines; None for short runs.
    pub label: Option<&'a str>,
}

pub struct Outcome {
    pub latency: Histogram,
    pub elapsed: Duration,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.latency.count() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Load<'_> {
    /// Runs to the end; `source` generates the requests of connection 0, 1, ….
    pub fn run(&self, source: &dyn Fn(usize) -> Source) -> Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let limit = self.duration + GRACE;
        runtime.block_on(async {
            let run = self.run_all(source);
            tokio::time::timeout(limit, run).await.context("the load did not end in time")?
        })
    }

    async fn run_all(&self, source: &dyn Fn(usize) -> Source) -> Result<Outcome> {
        let mut streams = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            let stream = TcpStream::connect(self.address).await.context("cannot connect")?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let left = self.count.map_or(i64::MAX, |count| i64::try_from(count).unwrap_or(i64::MAX));
        let left = Arc::new(AtomicI64::new(left));
        let began = Instant::now();
        let until = began + self.duration;
        let tasks: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(index, stream)| {
                let (source, left) = (source(index), Arc::clone(&left));
                tokio::spawn(connection(stream, source, until, left, self.expect))
            })
            .collect();
        let progress = self.label.zip(self.count).map(|(label, count)| {
            tokio::spawn(tell(label.to_owned(), count, began, Arc::clone(&left)))
        });
        let mut latency = Histogram::default();
        for task in tasks {
            latency.merge(&task.await.context("a connection's task broke")??);
        }
        if let Some(progress) = progress {
            progress.abort();
        }
        Ok(Outcome { latency, elapsed: began.elapsed() })
    }
}

async fn connection(
    mut stream: TcpStream,
    mut source: Source,
    until: Instant,
    left: Arc<AtomicI64>,
    expect: u16,
) -> Result<Histogram> {
    let mut latency = Histogram::default();
    let mut request = Vec::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    loop {
        if left.fetch_sub(1, Ordering::Relaxed) <= 0 || Instant::now() >= until {
            return Ok(latency);
        }
        request.clear();
        source(&mut request);
        let began = Instant::now();
        stream.write_all(&request).await?;
        let (status, size) = answer(&mut stream, &mut buffer).await?;
        latency.record(began.elapsed());
        if status != expect {
            let shown = String::from_utf8_lossy(&buffer[..size.min(2_000)]);
            bail!("expected {expect}, got {status}: {shown}");
        }
    }
}

/// Reads exactly one response to the start of the buffer; returns its status and size.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(u16, usize)> {
    let mut filled = 0;
    let mut head: Option<Head> = None;
    loop {
        if filled == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            bail!("the server closed the connection in the middle of the load");
        }
        filled += count;
        if head.is_none() {
            head = Head::parse(&buffer[..filled])?;
        }
        if let Some(head) = head.as_ref().filter(|head| filled >= head.total_bytes()) {
            return Ok((head.status, filled));
        }
    }
}

async fn tell(label: String, count: u64, began: Instant, left: Arc<AtomicI64>) {
    loop {
        tokio::time::sleep(PROGRESS).await;
        let left = u64::try_from(left.load(Ordering::Relaxed)).unwrap_or(0);
        let done = count.saturating_sub(left);
        let rate = done as f64 / began.elapsed().as_secs_f64();
        println!("    {label}: {done} of {count} ({rate:.0}/s)");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers every read with the same bytes, on every connection.
    fn serve(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
                        stream.write_all(answer).unwrap();
                    }
                });
            }
        });
        address
    }

    fn get(_: usize) -> Source {
        Box::new(|request| request.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n"))
    }

    fn load(address: &str) -> Load<'_> {
        let (connections, expect, label) = (4, 200, None);
        let duration = Duration::from_secs(20);
        Load { address, connections, expect, duration, count: Some(100), label }
    }

    #[test]
    fn a_counted_load_sends_exactly_that_many() {
        let address = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let outcome = load(&address).run(&get).unwrap();
        assert_eq!(outcome.latency.count(), 100);
        assert!(outcome.per_second() > 0.0);
    }

    #[test]
    fn an_unexpected_status_ends_the_load_with_its_body() {
        let address = serve(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nsick");
        let error = load(&address).run(&get).err().unwrap().to_string();
        assert!(error.contains("got 500") && error.contains("sick"), "{error}");
    }
}
